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
#[derive(Debug, Default)]
pub struct NeedlessWords {
    /// When as much as ever may come again.
    whole: Option<Instant>,
}

/// A peer says far more than anybody needs.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the peer says more than {} things a second that answer nothing and bring nothing", 1000 / PAUSE.as_millis())]
pub struct TooTalkative;

impl NeedlessWords {
    /// One more was said.
    ///
    /// # Errors
    /// [`TooTalkative`].
    pub fn said(&mut self, now: Instant) -> Result<(), TooTalkative> {
        let whole = self.whole.map_or(now, |whole| whole.max(now)) + PAUSE;
        self.whole = Some(whole);
        if whole > now + PAUSE * BURST { Err(TooTalkative) } else { Ok(()) }
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
