//! Where a session is asked for what its zone holds, and what the zone says about how it stands with global.

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{kds::headers::Upstream, proto::strait::federation::v1::HoldingsPage, redact};
use tokio::sync::{mpsc, oneshot};

/// Questions that may wait for a zone.
const WAITING: usize = 4;
/// Bytes of what a zone gives as a reason.
pub(super) const LONGEST_REASON: usize = 4096;

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

    pub(super) fn questions(&self) -> Option<mpsc::Sender<PageQuestion>> {
        self.lock().questions.clone()
    }

    fn lock(&self) -> MutexGuard<'_, DoorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
