//! End to end: the real binaries, real Envoys, real sockets.
//!
//! Every test has its own processes, folders, ports and loopback addresses, so they run side by side. A
//! process that a test started ends with the test, and its log is printed when the test fails.

// A test binary has no outside; `pub` here means: for the tests.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod bad_input;
mod doors;
mod faults;
mod harness;
mod inspect;
mod mesh;
mod policies;
mod postgres;
mod refusals;
mod resilience;
mod sync;
mod traffic;
