//! How often one place in the code may speak. Errors and warnings can be provoked from outside, so each place
//! has a burst and then a line a second; what is left out is counted, and told with the next line.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// Lines a place may write at once.
const BURST: u32 = 20;
/// Time after which it may write one more.
const PAUSE: Duration = Duration::from_secs(1);
/// Places that are remembered: more than the code has.
const PLACES: usize = 10_000;

/// What every place has written lately.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<u64, CallSite>);

#[derive(Debug)]
struct CallSite {
    /// When its burst is whole again.
    whole: Instant,
    left_out: u64,
}

impl Repeats {
    /// Whether `place` may write a line now: how many were left out before it, or `None`.
    pub(super) fn allow(&mut self, place: u64, now: Instant) -> Option<u64> {
        if self.0.len() >= PLACES {
            self.0.clear();
        }
        let place = self.0.entry(place).or_insert(CallSite { whole: now, left_out: 0 });
        let whole = place.whole.max(now) + PAUSE;
        if whole > now + PAUSE * BURST {
            place.left_out += 1;
            return None;
        }
        place.whole = whole;
        Some(std::mem::take(&mut place.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_line_a_second_and_the_number_between() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let shown = (0..1000).filter(|_| repeats.allow(1, start) == Some(0)).count();
        assert_eq!(shown, BURST as usize);
        assert_eq!(repeats.allow(2, start), Some(0), "another place has its own");
        let later = start + PAUSE;
        assert_eq!(repeats.allow(1, later), Some(980));
        assert_eq!(repeats.allow(1, later), None);
        let much_later = start + PAUSE * 1000;
        assert_eq!(repeats.allow(1, much_later), Some(1));
        assert_eq!((0..100).filter(|_| repeats.allow(1, much_later).is_some()).count(), BURST as usize - 1);
    }
}
