//! Tables and ages.

use crate::output;
use std::io::IsTerminal;

use chrono::{DateTime, Utc};
use comfy_table::{ContentArrangement, Table, presets};
use common::runtime::{Clock, SystemClock};
use serde_json::Value;

/// Prints rows under headings, folded to the width of the terminal when there is one.
pub(crate) fn print(headings: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    if std::io::stdout().is_terminal()
        && let Some((_, columns)) = console::Term::stdout().size_checked()
    {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| output::in_line(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    for line in table.to_string().lines() {
        output::line(line.trim_end());
    }
}

/// How long ago the RFC 3339 time at `value` was: `3d`, `2h`, `5m`, `10s`, or `-`.
pub(crate) fn age(value: &Value) -> String {
    time(value).map_or_else(|| "-".to_owned(), |time| age_at(time, SystemClock.now()))
}

/// The RFC 3339 time at `value`.
pub(crate) fn time(value: &Value) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(value.as_str()?).ok().map(|time| time.to_utc())
}

/// How long it is until the RFC 3339 time at `value`, in the same form.
pub(crate) fn left(value: &Value) -> String {
    // The span is the same from the other end.
    time(value).map_or_else(|| "-".to_owned(), |time| age_at(SystemClock.now(), time))
}

fn age_at(time: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (now - time).num_seconds().max(0);
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

/// The text at `value`, or `-`.
pub(crate) fn text(value: &Value) -> String {
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
            |seconds, text: &str| assert_eq!(age_at(now - chrono::TimeDelta::seconds(seconds), now), text);
        check(-5, "0s");
        check(90, "90s");
        check(600, "10m");
        check(10_000, "2h");
        check(200_000, "2d");
        check(100_000_000, "3y");
    }
}
