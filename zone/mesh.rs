//! One mesh as the zone sees it: resources decoded once, addresses resolved, endpoints computed.
//!
//! Nothing here knows Envoy; [`crate::generator`] turns a [`MeshContext`] into configuration.

pub mod builder;
mod context;
mod data_source;
mod dataplane;
mod hosts;
pub mod identity;
mod mesh_service;
pub mod problem;
mod protocol;
pub mod topology;
mod zone_ingress;

pub use builder::{BuildError, MeshInput};
pub use context::{IdentityError, MeshContext, Mtls};
pub use dataplane::{Dataplane, Inbound};
pub use hosts::Hosts;
pub use identity::{Authority, AuthorityPem, Identity, WorkloadCertificate, WorkloadKey};
pub use mesh_service::MeshService;
pub use problem::Problem;
pub use protocol::Protocol;
pub use topology::Topology;
pub use zone_ingress::{ZoneIngress, available_services};

#[cfg(test)]
mod tests;
