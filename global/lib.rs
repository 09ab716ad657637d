//! The global control plane.

pub mod config;
