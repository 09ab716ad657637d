//! A relay: between global and many zones. It follows global over one stream, keeps what that says, and serves
//! zones from it as global does; what zones own it carries to global, each on a stream of its own.
//!
//! ```text
//! global ══ follow ══► mirror ─► index ─► kds ══ global to zone ══► zone
//!    ◄════════════ pass ═══════════════════════ zone to global ════ zone
//!    ◄══ attend: how far zones are, answers ══ kds ◄── pings, streams ── zone
//! ```
//!
//! It shows store, epoch and revision of global, so a zone judges what it follows as if it were connected to global,
//! and resumes wherever it connects next.

pub mod app;
pub mod config;
mod link;
mod mirror;
mod pass;
mod report;
mod settings;

pub use self::{
    app::{RelayControlPlane, RelayParts},
    settings::{RelaySettings, RelayToken},
};
