//! The zone control plane.

pub mod config;
