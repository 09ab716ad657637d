//! What the user writes: policies that select proxies by `targetRef`, and the rules that come of them.
//!
//! A policy is written as one spec per file here. [`rules`] turns many policies into one answer: which
//! of them select a proxy, in which order they apply, and what is left when they are merged.

mod check;
mod header_addition;
mod header_match;
pub mod ineffective;
mod item;
pub mod legacy;
pub mod mesh_access_log;
pub mod mesh_circuit_breaker;
pub mod mesh_fault_injection;
pub mod mesh_health_check;
pub mod mesh_http_route;
pub mod mesh_load_balancing_strategy;
pub mod mesh_metric;
pub mod mesh_passthrough;
pub mod mesh_proxy_patch;
pub mod mesh_rate_limit;
pub mod mesh_retry;
pub mod mesh_tcp_route;
pub mod mesh_timeout;
pub mod mesh_tls;
pub mod mesh_trace;
pub mod mesh_traffic_permission;
mod number;
mod peer_match;
mod presets;
mod role;
pub mod rules;
mod target_ref;
mod telemetry;

pub use header_addition::HeaderAddition;
pub use header_match::{HeaderMatch, HeaderMatchType};
pub use item::{InboundItem, PeerItem};
pub use number::IntOrString;
pub use peer_match::{PeerMatch, SniMatch, SniMatchType, SpiffeMatch, SpiffeMatchType};
pub use role::PolicyRole;
pub use target_ref::{Allowed, BackendRef, ProxyType, TargetKind, TargetRef, is_name};
pub use telemetry::{COLLECTOR_PORT, CollectorKind, CollectorRef, host_and_port, is_host};

use crate::model::{Duration, decode};

#[cfg(test)]
mod tests;
