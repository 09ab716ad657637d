//! When something is written again that is rewritten whole whenever one of many changes: whoever comes alone has it at once,
//! and those who come together, or make themselves new all the time, have one write in a moment between them.

use std::time::Duration;

use common::runtime::Entropy;
use tokio::time::{Instant, sleep_until};

/// How long a moment is.
const MOMENT: Duration = Duration::from_secs(1);

/// The moment in which the next write may be.
#[derive(Debug)]
pub(super) struct WriteMoment(Instant);

impl WriteMoment {
    /// There is one now.
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    /// Whether it is there.
    pub(super) fn is_there(&self) -> bool {
        Instant::now() >= self.0
    }

    /// Something was written in it, or could not be: the next one comes later.
    pub(super) fn use_up(&mut self, entropy: &Entropy) {
        self.0 = Instant::now() + entropy.about(MOMENT);
    }

    /// Waits for it.
    pub(super) async fn come(&self) {
        sleep_until(self.0).await;
    }
}
