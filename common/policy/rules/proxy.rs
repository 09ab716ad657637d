//! What policies look at in a proxy.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::SelectableGateway;
use crate::{
    model::{Labels, Resource, SpecError, kinds, kri::Kri, labels},
    policy::ProxyType,
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{Networking, networking::gateway::GatewayType},
    },
};

/// Where a proxy listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboundKey {
    /// IP address.
    pub address: String,
    /// Port.
    pub port: u32,
}

impl fmt::Display for InboundKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}

/// A listener of a proxy for traffic from the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableInbound {
    /// Where it listens.
    pub key: InboundKey,
    /// Its name, or its port when it has none.
    pub section: String,
    /// Tags; listeners of zone proxies have none.
    pub tags: BTreeMap<String, String>,
    /// A listener of a zone proxy, which tags cannot select.
    pub zone_listener: bool,
}

/// A proxy as policies see it.
#[derive(Clone, Debug)]
pub struct SelectableProxy {
    /// Its identifier.
    pub kri: Kri,
    /// All labels.
    pub labels: Labels,
    /// Sidecar or gateway.
    pub kind: ProxyType,
    /// Tags of a gateway.
    pub gateway_tags: BTreeMap<String, String>,
    /// Whether it is a gateway that is configured by someone else.
    pub delegated_gateway: bool,
    /// The builtin gateway it runs.
    pub gateway: Option<SelectableGateway>,
    /// Address of the proxy itself.
    pub address: String,
    /// Its listeners, in the order they are declared, those of a zone proxy last.
    pub inbounds: Vec<SelectableInbound>,
}

impl SelectableProxy {
    /// The proxy a `Dataplane` resource describes; `None` for resources of another kind.
    ///
    /// # Errors
    /// [`SpecError`] when the stored bytes do not decode.
    pub fn of(resource: &Resource) -> Result<Option<Self>, SpecError> {
        if resource.kind() != &kinds::dataplane::KIND {
            return Ok(None);
        }
        Ok(Self::new(resource, &prost::Message::decode(&*resource.spec)?))
    }

    /// The proxy that `resource` describes, of which `spec` is the decoded spec; `None` for resources of
    /// another kind.
    pub fn new(resource: &Resource, spec: &Dataplane) -> Option<Self> {
        if resource.kind() != &kinds::dataplane::KIND {
            return None;
        }
        let unset = Networking::default();
        let networking = spec.networking.as_ref().unwrap_or(&unset);
        let at = |address: &str, port: u32| InboundKey {
            address: if address.is_empty() { networking.address.clone() } else { address.to_owned() },
            port,
        };
        let section =
            |name: &str, port: u32| if name.is_empty() { port.to_string() } else { name.to_owned() };
        let inbounds = networking.inbound.iter().map(|inbound| SelectableInbound {
            key: at(&inbound.address, inbound.port),
            section: section(&inbound.name, inbound.port),
            tags: inbound.tags.clone().into_iter().collect(),
            zone_listener: false,
        });
        let listeners = networking.listeners.iter().map(|listener| SelectableInbound {
            key: at(&listener.address, listener.port),
            section: section(&listener.name, listener.port),
            tags: BTreeMap::new(),
            zone_listener: true,
        });
        let gateway = networking.gateway.as_ref();
        Kri::of(resource).map(|kri| Self {
            kri,
            labels: resource.labels.clone(),
            kind: if gateway.is_some() { ProxyType::Gateway } else { ProxyType::Sidecar },
            gateway_tags: gateway.map(|g| g.tags.clone().into_iter().collect()).unwrap_or_default(),
            delegated_gateway: gateway.is_some_and(|g| g.r#type() == GatewayType::Delegated),
            gateway: None,
            address: networking.address.clone(),
            inbounds: inbounds.chain(listeners).collect(),
        })
    }

    /// What stands on an egress for the service outside the mesh that `resource` describes, with these tags. Policies
    /// select it as they select the sidecar of a service.
    pub fn standing_for(resource: &Resource, tags: BTreeMap<String, String>) -> Self {
        let unnamed = || Kri {
            short: "",
            mesh: resource.mesh().to_owned(),
            zone: String::new(),
            namespace: String::new(),
            name: resource.display_name().to_owned(),
            section: String::new(),
        };
        Self {
            kri: Kri::of(resource).unwrap_or_else(unnamed),
            labels: resource.labels.clone(),
            kind: ProxyType::Sidecar,
            gateway_tags: BTreeMap::new(),
            delegated_gateway: false,
            gateway: None,
            address: String::new(),
            inbounds: vec![SelectableInbound {
                key: InboundKey { address: String::new(), port: 0 },
                section: String::new(),
                tags,
                zone_listener: false,
            }],
        }
    }

    /// The same with the builtin gateway it runs, if it is one, found among `resources`.
    pub fn with_gateway(mut self, resources: &[Arc<Resource>]) -> Self {
        if self.kind == ProxyType::Gateway && !self.delegated_gateway {
            self.gateway = SelectableGateway::of(&self, &self.address, resources);
        }
        self
    }

    /// The zone that owns it, `None` when nothing says.
    pub(super) fn zone(&self) -> Option<&str> {
        self.owner().get(labels::ZONE).filter(|z| !z.is_empty())
    }

    /// Whether a zone owns it.
    pub(super) fn of_zone(&self) -> bool {
        self.owner().get(labels::ORIGIN).is_some_and(|o| o != labels::ORIGIN_GLOBAL)
    }

    /// Labels that say who owns it: those of the gateway it runs, else its own.
    fn owner(&self) -> &Labels {
        self.gateway.as_ref().map_or(&self.labels, |g| &g.resource.labels)
    }
}
