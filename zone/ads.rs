//! The server of the proxies: bootstrap, ADS, and everything that follows from a connected proxy.

pub mod auth;
pub mod bootstrap;
pub mod certificate;
pub mod node;
mod resource;
