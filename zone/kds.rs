//! Follows global, and lets global follow this zone: one connection, both sync streams, the
//! streams of reverse calls, pings.
//!
//! A zone without its global keeps everything and keeps serving; nothing here ends the process.

mod call;
mod connect;
mod coverage;
mod credentials;
mod expiry;
mod gate;
mod halves;
mod holdings;
mod link;
mod moving;
mod multiplexed;
mod ping;
mod reverse;
mod sampling;
mod settings;
mod trial;
mod up;
mod ways;

pub use common::kds::dial::{ClientCertificateFiles, Dial, DialError, Trusted};
pub use connect::Connector;
pub use credentials::{ShownCredential, ShownTo};
pub use link::{Link, LinkStatus, SignatureStatus};
pub use moving::{
    Dials, MoveDifference, MoveError, MoveStatus, MoveTarget, Moves, NamesInShort, TrustedDials,
};
pub use settings::{TokenSource, ZoneKdsSettings};
pub use ways::Ways;
