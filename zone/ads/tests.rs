//! The server as its clients see it: over a real socket, with real tokens, in both protocols.
#![allow(clippy::unwrap_used)]

mod client;
mod envoy;
mod front_door;
mod harness;
mod lifecycle;
mod streams;
mod views;
