//! What the global and the zone control plane share.
//!
//! A write becomes a revision in the [`store`]; the feed says that something changed; the index is
//! the truth everyone reads; a diff of two index versions is what goes on the wire.

pub mod access;
pub mod ages;
pub mod audit;
pub mod ca;
pub mod checks;
pub mod clip;
pub mod config;
pub mod control_plane;
pub mod defaults;
pub mod diagnostics;
pub mod document;
pub mod envoy_admin;
pub mod envoy_config;
pub mod envoy_rules;
pub mod events;
pub mod explain;
pub mod frames;
pub mod gui;
pub mod incoming;
pub mod interner;
pub mod issuing;
pub mod kds;
pub mod keys;
pub mod metering;
pub mod mode;
pub mod model;
pub mod offers;
pub mod oidc;
pub mod parts;
pub mod policy;
pub mod proto;
pub mod redact;
pub mod registry;
pub mod rest;
pub mod roles;
pub mod rollouts;
pub mod runtime;
pub mod store;
pub mod structure;
pub mod telemetry;
#[doc(hidden)]
pub mod testing;
pub mod tls;
pub mod token;
pub mod traces;
pub mod xds;
