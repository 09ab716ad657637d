//! How far the clock of a zone is from that of its global, measured with pings.
//!
//! Global's answer bears its time. It lies between the moment the ping left and the one the answer came, so half of
//! what lies between is how wrong the measure can be.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// Of answers to pings.
const TIME: &str = "strait-time";
/// Of pings.
const SKEW: &str = "strait-clock";

/// A clock compared with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClockSkew {
    /// How far the zone is ahead of global, in milliseconds; negative when it is behind.
    pub ahead_ms: i64,
    /// How far the truth may be from that.
    pub error_ms: u64,
}

impl ClockSkew {
    /// From a ping that left at `sent` and was answered after `took` by one whose clock showed `answered`.
    pub fn measured(sent: DateTime<Utc>, took: Duration, answered: DateTime<Utc>) -> Self {
        let half = u64::try_from(took.as_millis() / 2).unwrap_or(u64::MAX);
        let middle = sent.timestamp_millis().saturating_add_unsigned(half);
        // What the clocks show in whole milliseconds is one wrong at most.
        Self {
            ahead_ms: middle.saturating_sub(answered.timestamp_millis()),
            error_ms: half.saturating_add(1),
        }
    }

    /// Whether the clocks surely differ by more than `most`.
    pub fn exceeds(self, most: Duration) -> bool {
        u128::from(self.ahead_ms.unsigned_abs().saturating_sub(self.error_ms)) > most.as_millis()
    }

    /// How far the zone is ahead, in seconds.
    pub fn seconds(self) -> f64 {
        // Nobody needs milliseconds of centuries.
        #[expect(clippy::cast_precision_loss)]
        let milliseconds = self.ahead_ms as f64;
        milliseconds / 1000.0
    }

    /// Writes it into the header of a ping.
    pub fn write(self, headers: &mut MetadataMap) {
        insert(headers, SKEW, &format!("{}/{}", self.ahead_ms, self.error_ms));
    }

    /// Reads it from there.
    pub fn read(headers: &MetadataMap) -> Option<Self> {
        let (ahead, error) = headers.get(SKEW)?.to_str().ok()?.split_once('/')?;
        Some(Self { ahead_ms: ahead.parse().ok()?, error_ms: error.parse().ok()? })
    }
}

/// Writes the time of this side into the header of an answer to a ping.
pub fn write_time(now: DateTime<Utc>, headers: &mut MetadataMap) {
    insert(headers, TIME, &now.timestamp_millis().to_string());
}

/// Reads it from there.
pub fn read_time(headers: &MetadataMap) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(headers.get(TIME)?.to_str().ok()?.parse().ok()?)
}

fn insert(headers: &mut MetadataMap, name: &'static str, text: &str) {
    if let Ok(value) = MetadataValue::<Ascii>::try_from(text) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However long each way took, the truth is where it is said to be.
        #[test]
        fn the_measure_is_as_wrong_as_it_says(
            there in 0..5_000i64, back in 0..5_000i64, ahead in -1_000_000..1_000_000i64, start in 0..1_000_000i64,
        ) {
            let at = |ms: i64| DateTime::from_timestamp_millis(ms).unwrap();
            let took = Duration::from_millis((there + back).unsigned_abs());
            let skew = ClockSkew::measured(at(start + ahead), took, at(start + there));
            prop_assert!((skew.ahead_ms - ahead).unsigned_abs() <= skew.error_ms, "{skew:?} of {ahead}");
            prop_assert!(!skew.exceeds(Duration::from_millis(ahead.unsigned_abs())));
        }
    }

    #[test]
    fn it_survives_its_headers() {
        let mut headers = MetadataMap::new();
        assert_eq!((ClockSkew::read(&headers), read_time(&headers)), (None, None));
        let skew = ClockSkew { ahead_ms: -7200, error_ms: 3 };
        skew.write(&mut headers);
        let now = DateTime::from_timestamp_millis(1_790_000_000_123).unwrap();
        write_time(now, &mut headers);
        assert_eq!((ClockSkew::read(&headers), read_time(&headers)), (Some(skew), Some(now)));
        headers.insert(SKEW, MetadataValue::from_static("1"));
        headers.insert(TIME, MetadataValue::from_static("99999999999999999999"));
        assert_eq!((ClockSkew::read(&headers), read_time(&headers)), (None, None));
        assert!(ClockSkew { ahead_ms: i64::MIN, error_ms: 0 }.exceeds(Duration::from_secs(5)));
        assert!(!ClockSkew { ahead_ms: 5_003, error_ms: 3 }.exceeds(Duration::from_secs(5)));
    }
}
