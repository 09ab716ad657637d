//! Input that is wrong gets an answer that says what to do; nothing is lost, and no process dies.
//!
//! One table for all fronts ([`table`]), one file for each front or class, and a budget of time, memory and
//! log for every batch. What a peer that does not behave can do to sync in time and order is in `tests/sim`.

pub mod ads;
mod chains;
mod commands;
mod content;
mod count;
mod documents;
mod forged;
pub mod grpc;
mod handshakes;
mod http;
mod identity;
mod kds;
mod proxies;
mod requests;
mod rest;
mod start;
mod table;
mod tokens;
mod zones;
