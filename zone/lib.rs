//! The zone control plane.

pub mod ads;
mod api;
pub mod app;
pub mod config;
pub mod generator;
pub mod kds;
mod leader;
pub mod mesh;
mod policy;
mod renamed;
