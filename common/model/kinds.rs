//! The kinds: one file per kind with a typed spec, one per family otherwise.

mod address;
pub mod config;
pub mod dataplane;
pub mod dataplane_insight;
pub mod destinations;
pub mod legacy;
pub mod mesh;
pub mod mesh_service;
pub mod secret;
pub mod summaries;
mod tags;
pub mod zone;
pub mod zone_egress;
pub mod zone_egress_insight;
pub mod zone_ingress;
pub mod zone_ingress_insight;
pub mod zone_insight;
