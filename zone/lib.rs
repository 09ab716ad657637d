//! The zone control plane.

pub mod ads;
pub mod config;
