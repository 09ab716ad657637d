//! What policies look at in a builtin gateway.

use std::{collections::BTreeMap, sync::Arc};

use super::{InboundKey, SelectableProxy};
use crate::{
    model::{Resource, kinds, labels},
    proto::kuma::mesh::v1alpha1::MeshGateway,
};

/// A listener of a builtin gateway: several may share a port, told apart by host name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerKey {
    /// Where it listens.
    pub inbound: InboundKey,
    /// For which host names; `*` for all.
    pub hostname: String,
}

/// The gateway a proxy runs.
#[derive(Clone, Debug)]
pub struct SelectableGateway {
    /// The gateway.
    pub resource: Arc<Resource>,
    /// Its listeners with all tags that apply to them: of the proxy, the gateway and the listener.
    pub listeners: Vec<(ListenerKey, BTreeMap<String, String>)>,
}

impl SelectableGateway {
    /// Of `resources`, the gateway that `proxy` runs at `address`: the one that selects it by most tags.
    /// Gateways of other zones do not count.
    pub(super) fn of(proxy: &SelectableProxy, address: &str, resources: &[Arc<Resource>]) -> Option<Self> {
        let gateways =
            resources.iter().filter(|r| r.kind() == &kinds::mesh_gateway::KIND && in_zone(proxy, r));
        let decoded = gateways.filter_map(|r| {
            let gateway: MeshGateway = prost::Message::decode(&*r.spec).ok()?;
            Some((selected_by(&gateway, &proxy.gateway_tags)?, r, gateway))
        });
        let (_, resource, gateway) =
            decoded.max_by(|(a, x, _), (b, y, _)| a.cmp(b).then_with(|| y.name().cmp(x.name())))?;
        let listener = |l: &crate::proto::kuma::mesh::v1alpha1::mesh_gateway::Listener| {
            let mut tags = proxy.gateway_tags.clone();
            tags.extend(gateway.tags.clone());
            tags.extend(l.tags.clone());
            let hostname = l.hostname().to_owned();
            let inbound = InboundKey { address: address.to_owned(), port: l.port };
            (ListenerKey { inbound, hostname }, tags)
        };
        let listeners = gateway.conf.iter().flat_map(|c| &c.listeners).map(listener).collect();
        Some(Self { resource: Arc::clone(resource), listeners })
    }
}

/// By how many tags a gateway selects a proxy, `None` when it does not.
fn selected_by(gateway: &MeshGateway, tags: &BTreeMap<String, String>) -> Option<usize> {
    let holds = |(key, value): (&String, &String)| tags.get(key).is_some_and(|v| value == "*" || v == value);
    let selectors = gateway.selectors.iter().map(|s| &s.r#match);
    selectors.filter(|m| m.iter().all(holds)).map(|m| m.len()).max()
}

fn in_zone(proxy: &SelectableProxy, gateway: &Resource) -> bool {
    let of_zone = gateway.label(labels::ORIGIN).is_some_and(|o| o != labels::ORIGIN_GLOBAL);
    match (of_zone, proxy.zone(), gateway.label(labels::ZONE)) {
        (true, Some(proxy), Some(gateway)) => proxy == gateway,
        _ => true,
    }
}
