//! One type on a stream.

use tokio::time::Instant;

use super::{SourceEvent, TypeProgress, heartbeat::Heartbeat};
use crate::{
    clip::clip,
    proto::google::rpc::Status,
    xds::{
        Dialect, Subscription, TypeRule, Want,
        dialect::{Heard, NOT_NOW},
    },
};

#[derive(Debug)]
pub(super) struct TypeSlot<D> {
    pub(super) rule: TypeRule,
    /// `None` until the peer asks for the type.
    pub(super) dialect: Option<D>,
    pub(super) in_flight_since: Option<Instant>,
    pub(super) sent: u64,
    pub(super) acked: u64,
    /// What tells the names that were listed last, where a request lists them all.
    pub(super) listed: Option<u64>,
    /// Of what perishes.
    pub(super) heartbeat: Option<Box<Heartbeat>>,
    /// The response in flight says of what the peer has that it is still good, and nothing more.
    pub(super) only_heartbeat: bool,
}

impl<D: Dialect> TypeSlot<D> {
    pub(super) fn subscription(&self) -> Option<&Subscription> {
        self.dialect.as_ref().map(D::subscription)
    }

    pub(super) fn open(&mut self, request: &D::Request, resumed: usize, want: &dyn Want) -> SourceEvent {
        let dialect = self.dialect.insert(D::open(&self.rule, request, want));
        let wildcard = dialect.subscription().interest().wildcard;
        SourceEvent::Subscribed { type_url: self.rule.type_url, wildcard, resumed }
    }

    /// The peer goes on listing what it holds, which says nothing about anything it was sent.
    pub(super) fn paged(&mut self) -> Option<SourceEvent> {
        self.in_flight_since = None;
        None
    }

    pub(super) fn hear(
        &mut self,
        revision: u64,
        error: Option<&Status>,
        hear: impl FnOnce(&mut D) -> Heard,
    ) -> Option<SourceEvent> {
        let type_url = self.rule.type_url;
        let mut heard = Heard::default();
        self.change(revision, |dialect| heard = hear(dialect));
        let Some(settled) = heard.settled else {
            return heard.stale.then_some(SourceEvent::Stale { type_url });
        };
        self.in_flight_since = None;
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.settled(error.is_none());
        }
        if self.only_heartbeat && error.is_none() {
            // The peer took nothing that it had not taken before.
            return None;
        }
        // Innocent neighbours of what was refused are yet to arrive.
        if !self.subscription().is_some_and(Subscription::is_narrowing) {
            self.acked = self.sent;
        }
        let (nonce, accepted) = (settled.nonce, settled.accepted);
        Some(match error {
            None => SourceEvent::Acked { type_url, nonce, accepted },
            Some(status) => {
                let (refused, message) = (settled.refused, beginning(&status.message));
                let passing = status.code == NOT_NOW;
                SourceEvent::Nacked { type_url, nonce, accepted, refused, message, passing }
            }
        })
    }

    /// Applies a change of the world. While there was nothing to tell, the peer was up to date.
    pub(super) fn change(&mut self, before: u64, apply: impl FnOnce(&mut D)) {
        if self.is_idle() {
            (self.sent, self.acked) = (before, before);
        }
        if let Some(dialect) = &mut self.dialect {
            apply(dialect);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight_since.is_none() && self.subscription().is_some_and(|state| state.is_drained())
    }

    pub(super) fn progress(&self, head: u64) -> Option<TypeProgress> {
        let state = self.subscription()?;
        let (sent, acked) = if self.is_idle() { (head, head) } else { (self.sent, self.acked) };
        Some(TypeProgress {
            type_url: self.rule.type_url,
            head,
            sent,
            acked,
            pending: state.pending(),
            refused: state.refused().len(),
            in_flight_since: self.in_flight_since,
        })
    }
}

/// A peer's words end in logs and status; they may be long.
fn beginning(message: &str) -> String {
    const LONGEST: usize = 4096;
    clip(message, LONGEST).to_owned()
}
