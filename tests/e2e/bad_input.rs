//! Input that is wrong gets an answer that says what to do; nothing is lost, and no process dies.
//!
//! By where it comes from; what a peer that does not behave can do to sync is in `tests/sim`, what one can do
//! to ADS in `zone/ads/tests`.

mod files;
mod rest;
mod start;
mod tokens;
