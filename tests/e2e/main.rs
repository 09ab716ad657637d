//! End to end: the real binaries, real Envoys, real sockets.
//!
//! Every test has its own processes, folders, ports and loopback addresses, so they run side by side. A
//! process that a test started ends with the test, and its log is printed when the test fails.

// A test binary has no outside; `pub` here means: for the tests.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod bad_input;
mod balance;
mod checks;
mod client_status;
mod delivery;
mod differences;
mod doors;
mod egress;
mod faults;
mod gateway;
mod grpc;
mod harness;
mod health;
mod house;
mod identity;
mod inspect;
mod inspect_forms;
mod introspection;
mod kds_v1;
mod kuma_cp;
mod kuma_dp;
mod legacy;
mod limits;
mod lost_zone;
mod mesh;
mod mixed;
mod monitoring;
mod namespace;
mod nodes;
mod oidc;
mod on_demand;
mod otlp;
mod packages;
mod page;
mod past;
mod policies;
mod postgres;
mod recover;
mod refusals;
mod relay;
mod replicas;
mod resilience;
mod rollouts;
mod rotation;
mod routes;
mod services;
mod signed;
mod spire;
mod streams;
mod sync;
mod telemetry;
mod traffic;
mod transparent;
mod trust;
mod withheld;
mod zone_proxies;
