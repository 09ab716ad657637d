//! Times as people read them, out of documents: how long ago something was, how long something is still good.

use chrono::{DateTime, Utc};
use serde_json::Value;

/// The RFC 3339 time at `value`.
pub fn time(value: &Value) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(value.as_str()?).ok().map(|time| time.to_utc())
}

/// How long before `now` the time at `value` was: `3d`, `2h`, `5m`, `10s`, or `-`.
pub fn age(value: &Value, now: DateTime<Utc>) -> String {
    time(value).map_or_else(|| "-".to_owned(), |time| span(time, now))
}

/// How long after `now` the time at `value` is, in the same form.
pub fn left(value: &Value, now: DateTime<Utc>) -> String {
    // The span is the same from the other end.
    time(value).map_or_else(|| "-".to_owned(), |time| span(now, time))
}

/// How long it is from one time to the other.
pub fn span(from: DateTime<Utc>, to: DateTime<Utc>) -> String {
    let seconds = (to - from).num_seconds().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        172_800..31_536_000 => format!("{}d", seconds / 86_400),
        // The zero time of clients that never set it.
        _ if seconds > 1_000 * 31_536_000 => "-".to_owned(),
        _ => format!("{}y", seconds / 31_536_000),
    }
}

/// The text or number at `value`, or `-`.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now = DateTime::<Utc>::UNIX_EPOCH + chrono::TimeDelta::days(20_000);
        let check =
            |seconds, text: &str| assert_eq!(span(now - chrono::TimeDelta::seconds(seconds), now), text);
        check(-5, "0s");
        check(90, "90s");
        check(600, "10m");
        check(10_000, "2h");
        check(200_000, "2d");
        check(100_000_000, "3y");
    }
}
