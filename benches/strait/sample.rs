//! Latencies and how they are shown.

use std::time::Duration;

/// A set of measured times.
#[derive(Default)]
pub struct Sample(Vec<Duration>);

impl Sample {
    /// Adds one.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// The time below which this share of the sample lies.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = (share * (sorted.len().saturating_sub(1)) as f64).round() as usize;
        sorted.get(rank).copied().unwrap_or_default()
    }
}

/// A time in the unit people read.
pub fn show(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..1_000 => format!("{us} µs"),
        us @ 1_000..1_000_000 => format!("{}.{:02} ms", us / 1000, us % 1000 / 10),
        us => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// How many times `floor` goes into `time`.
pub fn ratio(time: Duration, floor: Duration) -> String {
    format!("{:.2}x", time.as_secs_f64() / floor.as_secs_f64().max(1e-9))
}
