//! For whom configuration is generated.

use std::{collections::BTreeSet, sync::Arc};

use common::proto::google::protobuf::{Struct, Value, value::Kind};

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
}

/// A zone ingress.
#[derive(Clone, Debug)]
pub struct ZoneIngressProxy {
    /// Its resource.
    pub ingress: Arc<ZoneIngress>,
    /// What the Envoy said about itself.
    pub metadata: ProxyMetadata,
}

/// The part of the node metadata that decides about configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyMetadata {
    /// Capabilities, as named by data plane proxies.
    pub features: BTreeSet<String>,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
}

impl Default for ProxyMetadata {
    fn default() -> Self {
        Self { features: BTreeSet::new(), ipv6: true }
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
        Self { features, ipv6: !matches!(ipv6, Some(Kind::BoolValue(false))) }
    }

    /// Whether the proxy announced this capability.
    pub fn has(&self, feature: &str) -> bool {
        self.features.contains(feature)
    }
}
