//! How much of the file those get whom nobody vouches for, and each user for what changed nothing. It holds so many bytes
//! and no more, so whoever could fill it could make others' entries go: a burst, then one in a second, and the next one
//! says how many were left out.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

/// Entries at once.
const BURST: i32 = 100;
/// Time after which one more may follow.
const PAUSE: TimeDelta = TimeDelta::seconds(1);
/// Users whose shares are kept before those are forgotten that are whole.
const USERS: usize = 1_024;

/// What one of them has taken of it lately.
#[derive(Debug, Default)]
pub(super) struct LineShare {
    /// When its burst is whole again.
    whole: Option<DateTime<Utc>>,
    left_out: u64,
}

impl LineShare {
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
        Some(self.told())
    }

    /// How many were left out until now, which is told with this.
    fn told(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    fn is_whole(&self, at: DateTime<Utc>) -> bool {
        self.left_out == 0 && self.whole.is_none_or(|whole| whole <= at)
    }
}

/// The shares of users, by their names.
#[derive(Debug, Default)]
pub(super) struct UserShares(HashMap<String, LineShare>);

impl UserShares {
    /// Whether an entry of this time about `user` is written: how many were left out before it, or `None`. What was
    /// changed is always written.
    pub(super) fn allow(&mut self, user: &str, at: DateTime<Utc>, is_about_a_change: bool) -> Option<u64> {
        if is_about_a_change {
            return Some(self.0.get_mut(user).map(LineShare::told).unwrap_or_default());
        }
        if self.0.len() >= USERS && !self.0.contains_key(user) {
            self.0.retain(|_, share| !share.is_whole(at));
        }
        self.0.entry(user.to_owned()).or_default().allow(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn a_burst_then_one_a_second_and_the_number_between() {
        let mut share = LineShare::default();
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

    #[test]
    fn each_user_has_his_own_and_what_was_changed_takes_nothing_of_it() {
        let mut shares = UserShares::default();
        let written = (0..1_000).filter(|_| shares.allow("mallory", at(0), false).is_some()).count();
        assert_eq!(written, 100);
        assert_eq!(shares.allow("ann", at(0), false), Some(0));
        assert_eq!(shares.allow("mallory", at(0), true), Some(900), "which tells of the others");
        assert_eq!(shares.allow("mallory", at(0), true), Some(0));
        assert_eq!(shares.allow("mallory", at(0), false), None);
        for user in 0..5_000 {
            shares.allow(&user.to_string(), at(user), false);
        }
        assert!(shares.0.len() <= USERS, "{}", shares.0.len());
    }
}
