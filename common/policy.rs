//! What the user writes: policies that select proxies by `targetRef`, and the rules that come of them.
//!
//! A policy is written as one spec per file here. [`rules`] turns many policies into one answer: which
//! of them select a proxy, in which order they apply, and what is left when they are merged.

mod check;
pub mod decode;
mod duration;
mod header_match;
mod item;
pub mod mesh_circuit_breaker;
pub mod mesh_http_route;
pub mod mesh_retry;
pub mod mesh_tcp_route;
pub mod mesh_timeout;
pub mod mesh_traffic_permission;
mod number;
pub mod opaque;
mod peer_match;
pub mod rules;
mod target_ref;

pub use duration::{Duration, DurationError};
pub use header_match::{HeaderMatch, HeaderMatchType};
pub use item::{InboundItem, PeerItem};
pub use number::IntOrString;
pub use peer_match::{PeerMatch, SniMatch, SniMatchType, SpiffeMatch, SpiffeMatchType};
pub use target_ref::{Allowed, BackendRef, ProxyType, TargetKind, TargetRef, is_name};

#[cfg(test)]
mod tests;
