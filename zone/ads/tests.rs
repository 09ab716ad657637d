//! The server as its clients see it: over a real socket, with real tokens, in both protocols.
#![allow(clippy::unwrap_used)]

mod brought;
mod client;
mod client_status;
mod envoy;
mod fetch;
mod footprint;
mod front_door;
mod harness;
mod health;
mod introspection;
mod lifecycle;
mod nodes;
mod rulebook;
mod streams;
mod views;
