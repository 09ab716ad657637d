//! Global and zones in one process: over real sockets, and in a simulated network that breaks.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod asking;
mod attribution;
mod chaos;
mod events;
mod federation;
mod ingress_insights;
mod kumas;
mod kumas_global;
mod kumas_zones;
mod mixed;
mod moving;
mod multiplexed;
mod narrowing;
mod network;
mod oracle;
mod peers;
mod pings;
#[path = "../plane.rs"]
mod plane;
mod recovery;
mod refused;
mod relay_chaos;
mod relays;
mod reverse;
mod rollouts;
mod scenarios;
mod scripted;
mod seen;
mod sockets;
mod wire;
mod world;
