//! The global control plane.

pub mod app;
pub mod config;
pub mod kds;
