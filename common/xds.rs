//! The xDS engine: one exchange of versioned resources over one stream, without the stream.
//!
//! Nothing here reads a clock, waits, or owns a socket. A caller feeds in messages and the time, takes
//! messages and events out, and decides itself which end of the gRPC call it sits on. So one engine
//! serves policies to a zone (server role on the server end), what a zone owns to the global (server
//! role on the *client* end) and configuration to Envoy.
//!
//! ```text
//!              Changed{type, names}                                        Batch{added, removed}
//!  index ─────────────────────────► Source ══ responses ══► Sink ────────────────────────────► store
//!    ▲                                │  ▲                   │ ▲                                 │
//!    └────── reads through Want ──────┘  └══ ACK, NACK ══════┘ └──────────── verdict ────────────┘
//! ```
//!
//! * [`Want`] is what a peer should have; [`WantSnapshot`] is the plain in-memory one. What it shows as a
//!   [`Collection`] is kept by reference, so that a peer costs what differs from what it was sent.
//! * [`Subscription`] is one type on one stream in server role: what the peer said it holds and refused.
//! * [`Source`] is a whole stream in server role, over any [`Dialect`]: [`Delta`] or [`Sotw`].
//! * [`Sink`] is a whole delta stream in client role.
//! * [`Backoff`] says how long to stay away after a stream ended.
//!
//! Invariants: **at most one response per type is in flight; a version that was refused is not offered
//! again until it changes; the cost of a step follows the size of the change, not of the state.**

mod backoff;
mod dialect;
mod names;
mod outline;
mod refusals;
mod response;
mod retry;
mod rules;
mod sink;
mod sotw;
mod source;
mod subscription;
mod summary;
#[cfg(test)]
mod tests;
mod variant;
mod version;
mod virtual_host;
mod want;
mod xdstp;

pub use backoff::Backoff;
pub(crate) use dialect::verdict;
pub use dialect::{Delta, Dialect, Envelope, Header, Heard, SaidBefore};
pub use names::{NamePool, NameSet};
pub use outline::{Outline, Repeat, RequestFields, Unreadable};
pub use refusals::Refusals;
pub use response::{Encoding, ResponseFields, ResponseParts};
pub use retry::Retry;
pub use rules::{SourceSettings, TypeRule, Unknown, envoy};
pub use sink::{Refusal, ResponseBatch, Sink, SinkError, SinkEvent, SinkType, Versions};
pub use sotw::Sotw;
pub use source::{
    DeltaSource, Input, Malformed, SotwSource, Source, SourceEvent, SourceOutput, TypeProgress,
};
pub use subscription::{
    Confirmation, DeltaPart, Interest, Offer, Settled, Standing, StillGood, Subscription,
};
pub use variant::variant_name;
pub use version::{OwnVersion, Version};
pub use want::{Collection, Name, Want, WantSnapshot, Wanted};
pub use xdstp::canonical;
