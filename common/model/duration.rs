//! Durations as policies write them: the notation of Go (`1h30m`, `25ms`).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const MICRO: i64 = 1_000;
const MILLI: i64 = 1_000 * MICRO;
const SECOND: i64 = 1_000 * MILLI;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A signed span of time in nanoseconds. Printed canonically, so that `211s` reads back as `3m31s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// Why a text is not a duration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DurationError {
    /// No number where one must be, or out of range.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit that is none.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// What stands where the unit should.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// Whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(MILLI))
    }

    /// The same as a [`std::time::Duration`]; what does not fit is cut.
    pub fn from_std(duration: std::time::Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }

    /// In nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Whether it is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether it lies in the past.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The same as a [`std::time::Duration`]; negative ones become zero, as validation lets none through.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            let unit_end = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            total = total.checked_add(span(number, unit, text)?).ok_or_else(invalid)?;
            rest = tail;
        }
        let total = if negative { -total } else { total };
        i64::try_from(total).map(Self).map_err(|_| invalid())
    }
}

/// The nanoseconds of one `number unit` pair.
fn span(number: &str, unit: &str, text: &str) -> Result<i128, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(invalid());
    }
    let scale = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => MICRO,
        "ms" => MILLI,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        _ => {
            return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() });
        }
    };
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    // Digits beyond the eighteenth are far below a nanosecond.
    let fraction = &fraction[..fraction.len().min(18)];
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| invalid())? };
    let unit = i128::from(scale);
    let places = u32::try_from(fraction.len()).unwrap_or(18);
    whole.checked_mul(unit).map(|n| n + part * unit / 10_i128.pow(places)).ok_or_else(invalid)
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (micro, milli, second) = (MICRO.unsigned_abs(), MILLI.unsigned_abs(), SECOND.unsigned_abs());
        match nanos {
            0 => f.write_str("0s"),
            n if n < micro => write!(f, "{n}ns"),
            n if n < milli => write!(f, "{}\u{b5}s", decimal(n, micro)),
            n if n < second => write!(f, "{}ms", decimal(n, milli)),
            n => {
                let minutes = n / second / 60;
                let seconds = decimal(n - minutes * 60 * second, second);
                match (minutes / 60, minutes % 60) {
                    (0, 0) => write!(f, "{seconds}s"),
                    (0, m) => write!(f, "{m}m{seconds}s"),
                    (h, m) => write!(f, "{h}h{m}m{seconds}s"),
                }
            }
        }
    }
}

/// `value / unit` with as many decimals as it takes and no trailing zero.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let places = unit.ilog10() as usize;
    let fraction = format!("{rest:0places$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_canonically() {
        let cases = [
            ("0", "0s"),
            ("211s", "3m31s"),
            ("60m", "1h0m0s"),
            ("20m", "20m0s"),
            ("1h30m", "1h30m0s"),
            ("100ms", "100ms"),
            ("1.5s", "1.5s"),
            ("0.25ms", "250\u{b5}s"),
            ("12ns", "12ns"),
            ("-1m5s", "-1m5s"),
        ];
        for (text, canonical) in cases {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in ["", "-", "s", "1x", "10", "1..5s", ".s", "99999999999h", "1 s"] {
            assert!(text.parse::<Duration>().is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_reads_back(nanos in any::<i64>().prop_filter("has a negation", |n| *n != i64::MIN)) {
            let duration = Duration(nanos);
            prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }
    }
}
