//! References: which proxies a policy is for, and which peers each of its items is about.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use check::{Allowed, is_name};

/// What a reference points at. Declared from least to most specific, which is the order policies are
/// applied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TargetKind {
    /// Everything in the mesh.
    Mesh,
    /// Proxies by name or labels.
    Dataplane,
    /// Proxies by tags.
    MeshSubset,
    /// Listeners of a builtin gateway.
    MeshGateway,
    /// A service: by tag as the top-level target, as a resource elsewhere.
    MeshService,
    /// A service outside the mesh.
    MeshExternalService,
    /// A service spread over zones.
    MeshMultiZoneService,
    /// Instances of a service by tags.
    MeshServiceSubset,
    /// A route.
    #[serde(rename = "MeshHTTPRoute")]
    MeshHttpRoute,
}

impl TargetKind {
    /// The type name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mesh => "Mesh",
            Self::Dataplane => "Dataplane",
            Self::MeshSubset => "MeshSubset",
            Self::MeshGateway => "MeshGateway",
            Self::MeshService => "MeshService",
            Self::MeshExternalService => "MeshExternalService",
            Self::MeshMultiZoneService => "MeshMultiZoneService",
            Self::MeshServiceSubset => "MeshServiceSubset",
            Self::MeshHttpRoute => "MeshHTTPRoute",
        }
    }

    /// Whether an item of this kind may stand for a resource of its own rather than for tags.
    pub const fn is_resource(self) -> bool {
        !matches!(self, Self::MeshSubset | Self::MeshServiceSubset)
    }
}

/// Sidecars or gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProxyType {
    /// A proxy beside a workload.
    Sidecar,
    /// A gateway, builtin or delegated.
    Gateway,
}

/// A reference. Which members make sense depends on the kind; [`Allowed::check`] knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// What it points at.
    pub kind: TargetKind,
    /// Name of the resource, or of the service tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags a proxy must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Only proxies of these types; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_types: Option<Vec<ProxyType>>,
    /// Namespace of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels the resource must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Port or listener inside the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

impl TargetRef {
    /// A bare reference of this kind.
    pub const fn of(kind: TargetKind) -> Self {
        Self {
            kind,
            name: None,
            tags: None,
            mesh: None,
            proxy_types: None,
            namespace: None,
            labels: None,
            section_name: None,
        }
    }

    /// The whole mesh, which is also what a missing top-level reference means.
    pub const fn mesh() -> Self {
        Self::of(TargetKind::Mesh)
    }

    /// A service by name.
    pub fn service(name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::of(TargetKind::MeshService) }
    }

    /// The name, empty when unset.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The section, empty when unset.
    pub fn section(&self) -> &str {
        self.section_name.as_deref().unwrap_or_default()
    }

    /// The namespace, `None` when unset or empty.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|n| !n.is_empty())
    }

    /// Tag requirements, in key order.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tags.iter().flatten().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Label requirements, `None` when there is none.
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.labels.as_ref().filter(|l| !l.is_empty())
    }

    /// Whether a policy for these proxies may be for gateways.
    pub fn includes_gateways(&self) -> bool {
        match self.kind {
            TargetKind::MeshGateway | TargetKind::MeshHttpRoute => true,
            TargetKind::Mesh | TargetKind::MeshSubset => self.includes(ProxyType::Gateway),
            _ => false,
        }
    }

    /// Whether proxies of this type are meant.
    pub fn includes(&self, proxy: ProxyType) -> bool {
        self.proxy_types.as_deref().is_none_or(|types| types.is_empty() || types.contains(&proxy))
    }
}

/// A destination of routed traffic, with its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// What it points at.
    pub kind: TargetKind,
    /// Name of the resource, or of the service tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags an endpoint must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Only proxies of these types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_types: Option<Vec<ProxyType>>,
    /// Namespace of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels the resource must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Port of the resource by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// Share of the traffic, relative to the other references of the rule.
    #[serde(default = "BackendRef::default_weight", deserialize_with = "BackendRef::weight")]
    pub weight: u32,
    /// Port of the resource by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

impl BackendRef {
    const fn default_weight() -> u32 {
        1
    }

    fn weight<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        Ok(Option::<u32>::deserialize(deserializer)?.unwrap_or(Self::default_weight()))
    }

    /// The reference without weight and port.
    pub fn target(&self) -> TargetRef {
        TargetRef {
            kind: self.kind,
            name: self.name.clone(),
            tags: self.tags.clone(),
            mesh: self.mesh.clone(),
            proxy_types: self.proxy_types.clone(),
            namespace: self.namespace.clone(),
            labels: self.labels.clone(),
            section_name: self.section_name.clone(),
        }
    }

    /// Whether it can only mean a resource, never a service tag.
    pub fn is_resource(&self) -> bool {
        match self.kind {
            TargetKind::MeshService => {
                self.port.is_some() || self.section_name.as_deref().is_some_and(|s| !s.is_empty())
            }
            kind => kind.is_resource(),
        }
    }
}
