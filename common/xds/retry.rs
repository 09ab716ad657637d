//! When a peer is offered again what it refused.
//!
//! Its reason may lie in its surroundings, which no change of what is offered will tell about: a port that
//! another process had, a name that was taken. The pauses grow, because most refusals are final.

use std::time::Duration;

use tokio::time::Instant;

/// Longest pause.
const LONGEST: Duration = Duration::from_secs(600);

/// Longest pause after a refusal that had nothing to do with what was refused.
const LONGEST_PASSING: Duration = Duration::from_secs(30);

/// The clock of one stream.
#[derive(Debug)]
pub struct Retry {
    first: Duration,
    pause: Duration,
    at: Option<Instant>,
}

impl Retry {
    /// Nothing was refused yet; `first` is the first pause.
    pub fn new(first: Duration) -> Self {
        Self { first, pause: first, at: None }
    }

    /// When to offer it again.
    pub fn due(&self) -> Option<Instant> {
        self.at
    }

    /// Something was refused.
    pub fn refused(&mut self, now: Instant) {
        if self.at.is_none() {
            self.at = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST);
        }
    }

    /// Something was refused because the peer could not look after it at that moment.
    pub fn put_off(&mut self, now: Instant) {
        if self.at.is_none() {
            self.at = Some(now + self.pause.min(LONGEST_PASSING));
            self.pause = (self.pause * 2).min(LONGEST);
        }
    }

    /// It is offered again now.
    pub fn offered(&mut self) {
        self.at = None;
    }

    /// Nothing is refused any more.
    pub fn cleared(&mut self) {
        *self = Self::new(self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_everything_is_taken() {
        let first = Duration::from_secs(10);
        let (mut retry, mut now) = (Retry::new(first), Instant::now());
        for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
            assert_eq!(retry.due(), None);
            retry.refused(now);
            retry.refused(now + first);
            assert_eq!(retry.due(), Some(now + Duration::from_secs(pause)), "the first refusal counts");
            now += Duration::from_secs(pause);
            retry.offered();
        }
        retry.put_off(now);
        assert_eq!(retry.due(), Some(now + LONGEST_PASSING), "what will pass is not waited for as long");
        retry.cleared();
        retry.refused(now);
        assert_eq!(retry.due(), Some(now + first));
    }
}
