//! One mesh as the zone sees it: resources decoded once, addresses resolved, endpoints computed.
//!
//! Nothing here knows Envoy; [`crate::generator`] turns a [`MeshContext`] into configuration.

pub mod address_book;
mod agent;
mod authority;
mod belief;
mod calls;
pub mod catalogue;
mod context;
mod data_source;
pub(crate) mod dataplane;
mod destination;
mod endpoints;
mod external_service;
pub mod gateway;
pub mod gateway_route;
mod hosts;
pub mod identity;
mod mesh_service;
mod multi_zone_service;
pub mod neighbour;
mod offered_metrics;
pub mod problem;
mod protocol;
mod provenance;
pub(crate) mod redirection;
mod referable;
mod shared_collector;
mod state;
mod surroundings;
pub(crate) mod tag_name;
pub mod topology;
pub(crate) mod trust;
mod virtual_names;
mod virtual_outbound;
pub(crate) mod workload_identity;
mod zone_address;
mod zone_egress;
mod zone_ingress;

pub use address_book::{AddressBook, Naming};
pub use agent::{AgentIdentity, AgentSocket};
pub use authority::Mtls;
pub use catalogue::Catalogue;
pub use context::{IdentityError, MeshContext};
pub use dataplane::{
    Dataplane, Edge, Inbound, Lookup, Outbound, Reference, Target, ZoneListener, read_inbounds,
};
pub use destination::{Abroad, Destination, ServiceSubset, Through};
pub(crate) use external_service::{EGRESS_SERVICE, NAME_TAG, egress_identity};
pub use external_service::{
    ExternalService, ExternalServices, Origination, Outpost, UpstreamTrust, Whereabouts,
};
pub use gateway::{Gateway, Gateways};
pub use gateway_route::{GatewayRoute, GatewayRouteChange, GatewayRoutes};
pub use hosts::Hosts;
pub use identity::{Authority, AuthorityPem, GivenIdentity, Identity, WorkloadCertificate, WorkloadKey};
pub use mesh_service::{MeshServices, ZoneService};
pub use multi_zone_service::{MultiZoneService, MultiZoneServices};
pub use neighbour::{CrossMeshDoor, Neighbour};
pub use offered_metrics::{MetricsTls, OfferedMetrics, WorkloadMetrics};
pub use problem::Problem;
pub use protocol::Protocol;
pub(crate) use provenance::Provenance;
pub use redirection::{Reachable, Redirection};
pub use referable::{Referable, Referables};
pub use shared_collector::{SharedCollector, SharedCollectors};
pub use state::{MeshChange, MeshError, MeshState};
pub use surroundings::Surroundings;
pub use topology::{Exit, Topology};
pub use trust::{TrustBundle, Trusts};
pub use virtual_outbound::VirtualOutbounds;
pub use workload_identity::{WorkloadIdentities, WorkloadIdentity};
pub use zone_address::ZoneAddress;
pub use zone_egress::ZoneEgress;
pub use zone_ingress::ZoneIngress;

#[cfg(test)]
mod tests;
