//! The parts of an Envoy configuration. Pure: the same values give the same bytes.
//!
//! A draft keeps what Envoy wants packed (filters, TLS contexts, protocol options) unpacked, so that
//! policies edit typed messages; what comes out is packed and encoded exactly once. Which parts a proxy
//! gets, and which policies work on them, is the business of [`crate::compile`].

pub(crate) mod admin;
pub(crate) mod agent;
pub(crate) mod backend;
pub(crate) mod direct_access;
pub(crate) mod dns;
mod draft;
pub(crate) mod dynamic_config;
pub(crate) mod egress;
mod encode;
pub mod envoy;
pub(crate) mod gateway;
pub mod grpc;
pub(crate) mod inbound;
pub(crate) mod ingress;
pub(crate) mod names;
mod of_type;
pub(crate) mod outbound;
pub(crate) mod outward;
mod particulars;
mod placement;
pub(crate) mod probe;
mod proxy;
mod resource_set;
pub(crate) mod runtime;
pub(crate) mod secrets;
mod shown;
pub mod sni;
mod template;
pub(crate) mod transparent;
pub(crate) mod zone_listener;

pub use admin::{AdminEndpoint, AdminIdentity, CONTROL_PLANE_NAME};
pub use backend::{Backend, ResourceBackend};
pub use draft::{
    Chain, ClusterDraft, Draft, HttpChain, HttpFilters, ListenerDraft, NetworkFilters, Role, RouteDraft,
    Terminal,
};
pub use encode::{from_json, to_json};
pub use gateway::{Entrance, GatewayRouteDraft, HostDraft, RoutesDraft};
pub(crate) use names::{ADMIN, metric as metric_name};
pub use of_type::OfType;
pub use particulars::{Particular, Particulars};
pub use placement::{FailoverZones, Nearness, Placement, SaidNearness, Zones};
pub use proxy::{FEATURE_GRPC, ProxyMetadata, Sidecar, XdsClient, ZoneEgressProxy, ZoneIngressProxy};
pub use resource_set::{
    Encoded, FewChanges, RenewedEndpoints, ResourceCollection, ResourceSet, ResourceSetChanges,
    SharedResources, type_url,
};
pub use runtime::FEATURE_RUNTIME;
pub use shown::{Giver, Shown};
