//! How long to stay away after a stream ended.

use std::time::Duration;

use rand::Rng;

/// Capped exponential backoff with jitter. It holds no clock: the caller says how long a stream lived.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    /// A stream that lived this long counts as healthy: the next pause is a first one again.
    healthy_after: Duration,
    doublings: u32,
}

/// The first span is twice the shortest pause, so that those who lost the same server at once do not come back
/// at once the first time either.
const FIRST: u32 = 1;

impl Backoff {
    /// Pauses from `min` up to `max`.
    pub fn new(min: Duration, max: Duration, healthy_after: Duration) -> Self {
        Self { min, max: max.max(min), healthy_after, doublings: FIRST }
    }

    /// The next pause: anywhere in the upper half of the current span, so that many clients that lost
    /// the same server do not come back at once.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let span =
            self.min.saturating_mul(1_u32.checked_shl(self.doublings).unwrap_or(u32::MAX)).min(self.max);
        if span < self.max {
            self.doublings = self.doublings.saturating_add(1);
        }
        span.mul_f64(rng.random_range(0.5..=1.0)).max(self.min)
    }

    /// Tells that a stream ended after it had lived for `lived`.
    pub fn ended(&mut self, lived: Duration) {
        if lived >= self.healthy_after {
            self.doublings = FIRST;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::StdRng};

    use super::{Backoff, Duration};

    proptest! {
        #[test]
        fn b27_pauses_stay_within_bounds_grow_and_start_over(
            min in 0_u64..5_000, extra in 0_u64..600_000, pauses in 1_usize..80, seed: u64,
        ) {
            let (min, max) = (Duration::from_millis(min), Duration::from_millis(min + extra));
            let mut rng = StdRng::seed_from_u64(seed);
            let mut backoff = Backoff::new(min, max, Duration::from_secs(60));
            let mut span = (min * 2).min(max);
            for _ in 0..pauses {
                let pause = backoff.next(&mut rng);
                prop_assert!(min <= pause && span.mul_f64(0.5) <= pause && pause <= span, "{pause:?} of {span:?}");
                span = (span * 2).min(max);
            }
            backoff.ended(Duration::from_secs(59));
            prop_assert!(backoff.next(&mut rng) >= span.mul_f64(0.5));
            backoff.ended(Duration::from_secs(60));
            prop_assert!(backoff.next(&mut rng) <= (min * 2).min(max));
        }
    }

    #[test]
    fn those_who_lost_the_same_server_come_back_one_after_another() {
        let (min, max) = (Duration::from_millis(500), Duration::from_secs(30));
        let mut pauses: Vec<_> = (0..1000)
            .map(|seed| Backoff::new(min, max, max).next(&mut StdRng::seed_from_u64(seed)))
            .collect();
        pauses.sort();
        // Of a thousand, no tenth of the time sees more than twice its share.
        let crowd = pauses
            .iter()
            .map(|from| pauses.iter().filter(|at| (*from..*from + min / 10).contains(*at)).count());
        assert!(crowd.max().unwrap_or_default() <= 200, "{pauses:?}");
    }
}
