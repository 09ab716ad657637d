//! The zone control plane.

pub mod ads;
pub mod app;
pub mod config;
pub mod generator;
pub mod mesh;
mod policy;
