//! What a control plane keeps track of about a stream while it runs.

use super::{insight::Outcome, metadata::Peer};
use crate::{store::Revision, xds::Refusals};

/// How far one direction has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Revision of the sender.
    pub head: Revision,
    /// The receiver has answered for everything up to this revision.
    pub acked: Revision,
    /// Changes the receiver has not answered for.
    pub lag: u64,
}

/// Told what happens on a stream. Calls come from the task of the stream and must not wait.
pub trait Watch: Send + Sync + 'static {
    /// The peer said who it is.
    fn introduced(&self, peer: &Peer);

    /// The peer is alive: something arrived.
    fn heard(&self);

    /// A response was sent or answered.
    fn counted(&self, type_name: &str, outcome: Outcome);

    /// The stream came this far.
    fn reached(&self, position: Position);

    /// What is not taken has changed for this type.
    fn refused(&self, type_name: &str, refusals: &Refusals);

    /// Something of this type should be sent and cannot, for an operator to read; `None` when that is over.
    fn withheld(&self, type_name: &str, reason: Option<String>);
}
