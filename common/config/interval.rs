//! A length of time in settings, written as Go writes it (`10s`, `1h30m`, `250ms`).

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The longest one, that of Go's `time.Duration`: some 292 years. Any clock can still add it to now.
const LONGEST: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// A length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(pub Duration);

impl Interval {
    /// This many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// This many milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Parses the text form; a bare `0` is zero.
    ///
    /// # Errors
    /// A text that says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration such as 10s, 1h30m or 250ms");
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text;
        let mut total = 0.0_f64;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            total += number * unit_seconds(&rest[..unit_end]).ok_or_else(wrong)?;
            rest = &rest[unit_end..];
        }
        if text.is_empty() {
            return Err(wrong());
        }
        let length = Duration::try_from_secs_f64(total).ok().filter(|length| *length <= LONGEST);
        length.map(Self).ok_or_else(|| format!("{text:?} is longer than any clock runs (292 years)"))
    }
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
        let rest = millis % 60_000;
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (rest % 1000, hours + minutes) {
            (0, _) => write!(f, "{}s", rest / 1000),
            (_, 0) if rest < 1000 => write!(f, "{rest}ms"),
            (fraction, _) => {
                let text = format!("{}.{fraction:03}", rest / 1000);
                write!(f, "{}s", text.trim_end_matches('0'))
            }
        }
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Interval;

    #[test]
    fn texts_round_trip() {
        for text in ["0s", "250ms", "10s", "1.5s", "1m0s", "3m31s", "1h0m0s", "1h30m0s", "24h0m0s"] {
            assert_eq!(Interval::parse(text).map(|i| i.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(Interval::parse("1h30m").map(|i| i.0.as_secs()), Ok(5400));
        for wrong in ["", "10", "s", "10 s", "1d", "-1s"] {
            assert!(Interval::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_no_clock_can_add_is_refused() {
        assert!(Interval::parse("2562047h").is_ok());
        let digits = "9".repeat(400);
        for endless in ["2562048h", "5000000000h", "5124095576030431h", &format!("{digits}h")] {
            assert!(Interval::parse(endless).unwrap_err().contains("292 years"), "{endless}");
        }
    }
}
