//! What happens often is counted each time, and told now and then.

use std::time::Duration;

use tokio::time::Instant;

/// Pause between two lines about the same.
const PAUSE: Duration = Duration::from_secs(30);

/// How often something happened that nobody was told of yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToldNowAndThen {
    untold: u64,
    told: Option<Instant>,
}

impl ToldNowAndThen {
    /// Counts one; the first, and then one in a while, is to be told with the number of those since.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now - told < PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_the_number_of_those_since() {
        let (mut counted, start) = (ToldNowAndThen::default(), Instant::now());
        assert_eq!(counted.due(start), Some(1));
        for _ in 0..500 {
            assert_eq!(counted.due(start + PAUSE / 2), None);
        }
        assert_eq!(counted.due(start + PAUSE), Some(501));
    }
}
