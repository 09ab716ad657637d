//! The zone control plane.

pub mod ads;
pub mod app;
pub mod config;
pub mod generator;
pub mod kds;
pub mod mesh;
mod policy;
