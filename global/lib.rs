//! The global control plane.

pub mod app;
pub mod config;
mod issuing;
pub mod kds;
mod listener;
