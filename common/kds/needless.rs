//! How much a peer may say on one stream that is an answer to nothing and brings nothing: it costs whoever reads it, and
//! nothing else bounds it.

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

/// So much may come at once: a first request for every type, late answers, reports of a line that was slow.
const BURST: u32 = 1000;
/// Time in which one more may come. A relay reports every 50 ms at most, and nobody else says anything as often.
const PAUSE: Duration = Duration::from_millis(20);

/// What a peer said on one stream that nobody needs.
#[derive(Debug)]
pub struct NeedlessWords {
    burst: u32,
    pause: Duration,
    /// When as much as ever may come again.
    whole: Option<Instant>,
}

impl Default for NeedlessWords {
    fn default() -> Self {
        Self::at_most(BURST, PAUSE)
    }
}

/// A peer says far more than anybody needs.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the peer says more that answers nothing and brings nothing than anybody has to")]
pub struct TooTalkative;

impl NeedlessWords {
    /// So many may come at once, and then one more after each pause.
    pub const fn at_most(burst: u32, pause: Duration) -> Self {
        Self { burst, pause, whole: None }
    }

    /// One more was said.
    ///
    /// # Errors
    /// [`TooTalkative`].
    pub fn said(&mut self, now: Instant) -> Result<(), TooTalkative> {
        let whole = self.whole.map_or(now, |whole| whole.max(now)) + self.pause;
        self.whole = Some(whole);
        if whole > now + self.pause * self.burst { Err(TooTalkative) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_needs_has_a_pace() {
        let (mut words, start) = (NeedlessWords::default(), Instant::now());
        assert!((0..BURST).all(|_| words.said(start).is_ok()));
        assert_eq!(words.said(start), Err(TooTalkative));
        // An honest relay that reports as often as it can, for a day.
        let mut words = NeedlessWords::default();
        let reports = (0..24 * 3600 * 20).map(|n| start + Duration::from_millis(50) * n);
        assert!(reports.into_iter().all(|at| words.said(at).is_ok()));
    }
}
