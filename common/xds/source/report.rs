//! What a stream in server role tells its owner.

use tokio::time::Instant;

use super::Name;

/// What a step produced.
#[derive(Debug, PartialEq)]
pub enum SourceOutput<R> {
    /// Send this.
    Send(R),
    /// Record this.
    Event(SourceEvent),
}

/// What the peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// It asked for a type for the first time on this stream.
    Subscribed {
        /// Which type.
        type_url: &'static str,
        /// All of it.
        wildcard: bool,
        /// How many resources it holds from an earlier stream.
        resumed: usize,
    },
    /// It accepted a response.
    Acked {
        /// Of which type.
        type_url: &'static str,
        /// Which one.
        nonce: u64,
        /// How many items it had.
        accepted: usize,
    },
    /// It refused a response, or part of it.
    Nacked {
        /// Of which type.
        type_url: &'static str,
        /// Which one.
        nonce: u64,
        /// How many items stand.
        accepted: usize,
        /// The refused ones; all of them if the peer did not tell.
        refused: Vec<Name>,
        /// In its words.
        message: String,
        /// It would take the same at another time, and says so.
        passing: bool,
    },
    /// It spoke about a response that is not in flight.
    Stale {
        /// Of which type.
        type_url: &'static str,
    },
    /// It asked for a type that is not served and gets an empty answer.
    Unserved {
        /// Which type.
        type_url: String,
    },
}

/// Why a stream must end: the peer does not speak the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Malformed {
    /// Without a type nothing can be answered.
    #[error("the request names no type_url")]
    NoType,
    /// The first request says who asks.
    #[error("the first request of the stream has no node id")]
    NoNode,
    /// Whom a stream serves does not change.
    #[error("a later request of the stream has another node id than the first")]
    OtherNode,
    /// The type is not served here.
    #[error("type {type_url:?} is not served on this stream")]
    UnknownType {
        /// Which type.
        type_url: String,
    },
    /// More names than a peer may list.
    #[error("a subscription to {type_url} lists more than {max} names")]
    TooManyNames {
        /// Of which type.
        type_url: String,
        /// The limit.
        max: usize,
    },
    /// A name or version that is no name.
    #[error("a subscription to {type_url} lists a name or version of {bytes} bytes; {max} is the limit")]
    LongName {
        /// Of which type.
        type_url: String,
        /// How long it is.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// More names than this side remembers for one stream.
    #[error("the names this stream subscribes to have more than {max} bytes together")]
    TooManyBytes {
        /// The limit.
        max: usize,
    },
    /// Requests for types that are not served come faster than they are answered.
    #[error("too many requests for types that are not served")]
    TooManyTypes,
}

impl Malformed {
    /// Whether the peer wants more than it may have; otherwise what it says makes no sense.
    pub fn is_excess(&self) -> bool {
        match self {
            Self::TooManyNames { .. }
            | Self::LongName { .. }
            | Self::TooManyBytes { .. }
            | Self::TooManyTypes => true,
            Self::NoType | Self::NoNode | Self::OtherNode | Self::UnknownType { .. } => false,
        }
    }
}

/// How far the peer is with one type, in revisions of [`Want::revision`](crate::xds::Want::revision).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeProgress {
    /// Which type.
    pub type_url: &'static str,
    /// Where this side is.
    pub head: u64,
    /// What was sent last was complete at this revision.
    pub sent: u64,
    /// The peer has answered for everything up to this revision.
    pub acked: u64,
    /// How many names wait to be looked at or sent.
    pub pending: usize,
    /// How many names the peer refused at their current version.
    pub refused: usize,
    /// Since when a response waits for its answer.
    pub in_flight_since: Option<Instant>,
}
