//! Where a session is asked for what its zone holds, and what the zone says about how it stands with global.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{kds::headers::Upstream, proto::strait::federation::v1::HoldingsPage, redact};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

/// Questions that may wait for a zone.
const WAITING: usize = 4;
/// Bytes of what a zone gives as a reason.
pub(super) const LONGEST_REASON: usize = 4096;
/// How long a zone is not heard after a page that nobody asked for. It sends one when it comes.
const REST: Duration = Duration::from_millis(250);

/// A question for a page, and who waits for it.
pub(crate) struct PageQuestion {
    pub(super) after: String,
    pub(super) reply: oneshot::Sender<HoldingsPage>,
}

/// Where a session is asked for what its zone holds.
#[derive(Default)]
pub(crate) struct HoldingsDoor(Mutex<DoorState>);

#[derive(Default)]
struct DoorState {
    questions: Option<mpsc::Sender<PageQuestion>>,
    held_back: Option<String>,
    taken: Option<Upstream>,
    rests_until: Option<Instant>,
}

impl HoldingsDoor {
    /// Why the zone does not follow this global; `None` while it does.
    pub(crate) fn held_back(&self) -> Option<String> {
        self.lock().held_back.clone()
    }

    /// A stream takes questions from here on; an older one does no more.
    pub(super) fn open(&self) -> mpsc::Receiver<PageQuestion> {
        let (sender, questions) = mpsc::channel(WAITING);
        self.lock().questions = Some(sender);
        questions
    }

    /// Which history the zone followed, and how far, as it last said.
    pub(super) fn taken(&self) -> Option<Upstream> {
        self.lock().taken
    }

    pub(super) fn hears(&self, page: &HoldingsPage) {
        let text = &page.held_back;
        let mut state = self.lock();
        state.held_back = (!text.is_empty()).then(|| redact::words(text, LONGEST_REASON));
        state.taken = Upstream::parse(&page.taken);
    }

    /// Nobody asked for the page that was heard.
    pub(super) fn heard_unasked(&self) {
        self.lock().rests_until = Some(Instant::now() + REST);
    }

    /// Returns when the zone is heard again, also on another stream.
    pub(super) async fn rest(&self) {
        let until = self.lock().rests_until;
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    pub(super) fn questions(&self) -> Option<mpsc::Sender<PageQuestion>> {
        self.lock().questions.clone()
    }

    fn lock(&self) -> MutexGuard<'_, DoorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_says_what_nobody_asked_for_waits_before_he_is_heard_again() {
        let door = HoldingsDoor::default();
        let began = Instant::now();
        door.rest().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the first is heard at once");
        for heard in 1..4 {
            door.hears(&HoldingsPage { held_back: "no ".repeat(1 << 20), ..HoldingsPage::default() });
            assert!(door.held_back().is_some_and(|reason| reason.len() <= LONGEST_REASON));
            door.heard_unasked();
            door.rest().await;
            assert!(began.elapsed() >= REST * heard, "{:?}", began.elapsed());
        }
        let rested = Instant::now();
        door.rest().await;
        assert_eq!(rested.elapsed(), Duration::ZERO, "and then not again");
    }
}
