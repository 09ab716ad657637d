//! The KDS dialect of Delta xDS: what global and zones say to each other.
//!
//! ```text
//! resource ─ filter ─► mapper ─► codec ─► outgoing ══ wire ══► codec ─► apply ─► store
//! ```
//!
//! The same modules serve both directions; what differs per direction is a filter, a mapper and a
//! [`apply::Follower`]. Everything but the last step of [`apply`] is pure.

pub mod apply;
pub mod attribution;
pub mod carrier;
pub mod clock;
pub mod codec;
pub mod dial;
pub mod features;
pub mod filter;
pub mod follow;
pub mod fuse;
pub mod headers;
pub mod holdings;
pub mod insight;
pub mod mapper;
pub mod metadata;
mod meter;
pub mod multiplex;
pub mod names;
pub mod needless;
pub mod order;
pub mod outbox;
pub mod outgoing;
pub mod ownership;
pub mod proxies;
pub mod quota;
pub mod recorder;
pub mod reverse;
pub mod serve;
pub mod signature;
pub mod size;
pub mod verdict;
pub mod watch;

pub use size::MAX_MESSAGE;
