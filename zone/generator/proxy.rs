//! For whom configuration is generated.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use common::proto::google::protobuf::{Struct, Value, value::Kind};

use super::admin::{AdminEndpoint, AdminIdentity};
use crate::mesh::{Dataplane, WorkloadCertificate, ZoneIngress};

/// A connected proxy of either kind.
#[derive(Clone, Debug)]
pub enum Proxy {
    /// Next to a workload.
    Sidecar(Sidecar),
    /// At the edge of the zone.
    ZoneIngress(ZoneIngressProxy),
}

/// A proxy next to a workload.
#[derive(Clone, Debug)]
pub struct Sidecar {
    /// Its resource, from [`crate::mesh::MeshContext::dataplanes`].
    pub dataplane: Arc<Dataplane>,
    /// What the Envoy said about itself.
    pub metadata: ProxyMetadata,
    /// What it presents, from [`crate::mesh::MeshContext::certificate`]; `None` without mutual TLS.
    pub certificate: Option<Arc<WorkloadCertificate>>,
    /// What it shows at a listener before its admin endpoint; `None` for no such listener.
    pub admin: Option<Arc<AdminIdentity>>,
}

/// A zone ingress.
#[derive(Clone, Debug)]
pub struct ZoneIngressProxy {
    /// Its resource.
    pub ingress: Arc<ZoneIngress>,
    /// What the Envoy said about itself.
    pub metadata: ProxyMetadata,
    /// What it shows at a listener before its admin endpoint; `None` for no such listener.
    pub admin: Option<Arc<AdminIdentity>>,
}

/// The part of the node metadata that decides about configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyMetadata {
    /// Capabilities, as named by data plane proxies.
    pub features: BTreeSet<String>,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
    /// Its admin endpoint, when it has one.
    pub admin: Option<AdminEndpoint>,
}

impl Default for ProxyMetadata {
    fn default() -> Self {
        Self { features: BTreeSet::new(), ipv6: true, admin: None }
    }
}

impl ProxyMetadata {
    /// From the metadata of an xDS node. Unknown members are ignored.
    pub fn of_node(metadata: &Struct) -> Self {
        let text = |value: &Value| match &value.kind {
            Some(Kind::StringValue(text)) => Some(text.clone()),
            _ => None,
        };
        let features = match metadata.fields.get("features").and_then(|v| v.kind.as_ref()) {
            Some(Kind::ListValue(list)) => list.values.iter().filter_map(text).collect(),
            _ => BTreeSet::new(),
        };
        let ipv6 = metadata.fields.get("ipv6Enabled").and_then(|v| v.kind.as_ref());
        let admin = AdminEndpoint::of_node(metadata);
        Self { features, ipv6: !matches!(ipv6, Some(Kind::BoolValue(false))), admin }
    }

    /// Whether the proxy announced this capability.
    pub fn has(&self, feature: &str) -> bool {
        self.features.contains(feature)
    }
}

impl AdminEndpoint {
    fn of_node(metadata: &Struct) -> Option<Self> {
        let text = |name: &str| match &metadata.fields.get(name)?.kind {
            Some(Kind::StringValue(text)) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        };
        let port = |name: &str| text(name)?.parse::<u16>().ok().filter(|port| *port > 0).map(u32::from);
        let address = text("dataplane.admin.address").and_then(|address| address.parse().ok());
        Some(Self {
            address: address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            port: port("dataplane.admin.port")?,
            socket: text("dataplane.admin.socketPath").map(str::to_owned),
            readiness_port: port("dataplane.readinessReporter.port"),
        })
    }
}
