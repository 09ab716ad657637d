//! What processes on one store tell each other besides that the head moved: that there is something to look at.

use tokio::sync::watch;

/// What there is to look at. Where it lies, those agree on who send and heed it: among the documents of
/// [`Store::put_sessions`](super::Store::put_sessions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nudge {
    /// A letter of one process to another.
    Mail,
    /// Somebody is new and asks who else is there.
    RollCall,
}

impl Nudge {
    pub(super) const ALL: [Self; 2] = [Self::Mail, Self::RollCall];

    /// As it is on the wire.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::RollCall => "roll-call",
        }
    }
}

/// How often each was heard. Hints, which may come too often and may get lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nudges {
    /// Of [`Nudge::Mail`].
    pub mail: u64,
    /// Of [`Nudge::RollCall`].
    pub roll_call: u64,
}

impl Nudges {
    fn note(&mut self, nudge: Nudge) {
        match nudge {
            Nudge::Mail => self.mail += 1,
            Nudge::RollCall => self.roll_call += 1,
        }
    }
}

/// Tells those of this process who listen.
pub(super) fn note(nudges: &watch::Sender<Nudges>, heard: impl IntoIterator<Item = Nudge>) {
    nudges.send_modify(|nudges| heard.into_iter().for_each(|nudge| nudges.note(nudge)));
}
