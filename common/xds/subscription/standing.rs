//! How far a peer is with one resource, for those who look from outside.

use super::{Holding, Subscription, Version};

/// How far a peer is with one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not sent: nobody asked for it, or its turn has not come.
    NotSent,
    /// This or an older version was sent, and what the peer has of it is not known yet.
    Sent,
    /// The peer accepted it.
    Taken,
    /// The peer refused it.
    Refused,
}

impl Subscription {
    /// How far the peer is with `version` of `name`.
    pub fn standing(&self, name: &str, version: Version) -> Standing {
        if !self.interest.covers(name) {
            return Standing::NotSent;
        }
        if self.flight.as_ref().is_some_and(|flight| flight.updated.contains(name)) {
            return Standing::Sent;
        }
        if self.refused.is_refused(name, version) {
            return Standing::Refused;
        }
        match self.holding(name) {
            Holding::At(held) if held == version => Standing::Taken,
            Holding::Nothing => Standing::NotSent,
            Holding::Something if self.was_only_asked(name) => Standing::NotSent,
            Holding::At(_) | Holding::Something => Standing::Sent,
        }
    }
}
