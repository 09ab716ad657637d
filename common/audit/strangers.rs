//! How much of the file those get whom nobody vouches for. It holds so many bytes and no more, so whoever could fill it
//! could make others' entries go: a burst, then one in a second, and the next one says how many were left out.

use chrono::{DateTime, TimeDelta, Utc};

/// Entries at once.
const BURST: i32 = 100;
/// Time after which one more may follow.
const PAUSE: TimeDelta = TimeDelta::seconds(1);

/// What strangers have taken of it lately.
#[derive(Debug, Default)]
pub(super) struct StrangersShare {
    /// When their burst is whole again.
    whole: Option<DateTime<Utc>>,
    left_out: u64,
}

impl StrangersShare {
    /// Whether an entry of this time is written: how many were left out before it, or `None`.
    pub(super) fn allow(&mut self, at: DateTime<Utc>) -> Option<u64> {
        // A clock that was set back leaves nobody without a word for longer than a burst.
        let whole = self.whole.map_or(at, |whole| whole.clamp(at, at + PAUSE * BURST));
        let next = whole + PAUSE;
        let is_written = next <= at + PAUSE * BURST;
        self.whole = Some(if is_written { next } else { whole });
        if !is_written {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_one_a_second_and_the_number_between() {
        let at = |seconds: i64| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let mut share = StrangersShare::default();
        let written = (0..1_000).filter(|_| share.allow(at(0)) == Some(0)).count();
        assert_eq!(written, 100);
        assert_eq!(share.allow(at(1)), Some(900), "and that one says how many were not");
        assert_eq!(share.allow(at(1)), None);
        assert_eq!(share.allow(at(2)), Some(1));
        assert_eq!(share.allow(at(1_000)), Some(0));
        // The clock goes back by an hour.
        assert_eq!((0..1_000).filter(|_| share.allow(at(-3_600)).is_some()).count(), 0);
        assert_eq!(share.allow(at(-3_599)), Some(1_000));
    }
}
