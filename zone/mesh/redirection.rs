//! How the traffic of a machine is redirected to its proxy.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use common::proto::{
    google::protobuf::{Struct, Value, value::Kind},
    kuma::mesh::v1alpha1::dataplane::networking as proto,
};
use proto::{TransparentProxying, transparent_proxying::IpFamilyMode};

use super::{Lookup, Reference};

/// Announced by proxies that say in their metadata how traffic is redirected, instead of in their resource.
const FEATURE_IN_METADATA: &str = "feature-transparent-proxy-in-dataplane-metadata";
/// Announced by proxies to which workloads call at addresses of their own machine, without redirection.
pub(crate) const FEATURE_BIND_OUTBOUNDS: &str = "feature-bind-outbounds";

/// Where traffic is redirected to when the metadata of a proxy names no port.
const INBOUND_PORT: u32 = 15006;
const OUTBOUND_PORT: u32 = 15001;

/// Ports to which traffic is redirected; 0 where it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redirection {
    /// Of connections to the workload.
    pub inbound: u32,
    /// Of connections the workload makes.
    pub outbound: u32,
    /// Whether that is done for one family of addresses only, and for which.
    pub family: Family,
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Both.
    #[default]
    Dual,
    /// The older one.
    V4,
}

/// What a workload behind a redirection may call, when it is not everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachable {
    /// Services by their tag; empty for all.
    pub services: BTreeSet<String>,
    /// Resources; `None` for all.
    pub backends: Option<Vec<Arc<Reference>>>,
    /// Services whose endpoints are called at their own addresses.
    pub direct: BTreeSet<String>,
}

impl Redirection {
    /// As the resource of a proxy has it.
    pub(super) fn of_resource(proxying: Option<&TransparentProxying>) -> Self {
        let Some(proxying) = proxying else { return Self::default() };
        let family = match proxying.ip_family_mode() {
            IpFamilyMode::IPv4 => Family::V4,
            IpFamilyMode::UnSpecified | IpFamilyMode::DualStack | IpFamilyMode::IPv6 => Family::Dual,
        };
        let (inbound, outbound) = (proxying.redirect_port_inbound, proxying.redirect_port_outbound);
        Self { inbound, outbound, family }
    }

    /// As the metadata of an xDS node has it; `None` when it says that the resource does.
    pub fn of_node(metadata: &Struct) -> Option<Self> {
        let features = match metadata.fields.get("features").and_then(|value| value.kind.as_ref()) {
            Some(Kind::ListValue(list)) => list.values.as_slice(),
            _ => &[],
        };
        if !features.iter().any(|feature| text(feature) == Some(FEATURE_IN_METADATA)) {
            return None;
        }
        let settings = metadata.fields.get("transparentProxy").and_then(object);
        let Some(settings) = settings else {
            return Some(Self { inbound: INBOUND_PORT, outbound: OUTBOUND_PORT, family: Family::Dual });
        };
        let family = match settings.fields.get("ipFamilyMode").and_then(text) {
            Some("ipv4") => Family::V4,
            _ => Family::Dual,
        };
        let redirect = settings.fields.get("redirect").and_then(object);
        let port = |name: &str| redirect.and_then(|redirect| port(redirect.fields.get(name)?)).unwrap_or(0);
        Some(Self { inbound: port("inbound"), outbound: port("outbound"), family })
    }

    /// Whether the workload of a proxy at `address` sees nothing but redirected traffic.
    pub fn is_complete(&self, address: Option<IpAddr>) -> bool {
        let fits = self.family == Family::Dual || address.is_some_and(|address| address.is_ipv4());
        self.inbound > 0 && self.outbound > 0 && fits
    }
}

impl Reachable {
    /// As the resource of a proxy has it.
    pub(super) fn of_resource(proxying: &TransparentProxying) -> Self {
        let reference = |backend: &proto::transparent_proxying::ReachableBackendRef| {
            Arc::new(Reference {
                kind: backend.kind.clone(),
                name: Some(backend.name.clone()).filter(|name| !name.is_empty()),
                labels: backend.labels.clone(),
                port: backend.port.as_ref().map(|port| port.value.to_string()).unwrap_or_default(),
            })
        };
        let backends = proxying.reachable_backends.as_ref();
        Self {
            services: proxying.reachable_services.iter().cloned().collect(),
            backends: backends.map(|backends| backends.refs.iter().map(reference).collect()),
            direct: proxying.direct_access_services.iter().cloned().collect(),
        }
    }

    /// By what its references find what they mean.
    pub fn lookups(&self) -> impl Iterator<Item = Lookup> {
        self.backends.iter().flatten().map(|reference| reference.lookup())
    }
}

fn object(value: &Value) -> Option<&Struct> {
    match &value.kind {
        Some(Kind::StructValue(object)) => Some(object),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match &value.kind {
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    }
}

/// The port of `{enabled, port}` when it is in use; numbers may come as text.
fn port(flow: &Value) -> Option<u32> {
    let flow = object(flow)?;
    if !matches!(flow.fields.get("enabled")?.kind, Some(Kind::BoolValue(true))) {
        return None;
    }
    let port = match &flow.fields.get("port")?.kind {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is compared first")]
        Some(Kind::NumberValue(port)) if (1.0..=65535.0).contains(port) => *port as u32,
        Some(Kind::StringValue(port)) => u32::from(port.parse::<u16>().ok()?),
        _ => return None,
    };
    Some(port)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::structure;
    use serde_json::{Value as Json, json};

    use super::*;

    fn of_node(metadata: Json) -> Option<Redirection> {
        Redirection::of_node(&structure::from_json(metadata.as_object().unwrap().clone()))
    }

    #[test]
    fn metadata_is_believed_where_the_proxy_says_so() {
        let settings = json!({
            "ipFamilyMode": "ipv4",
            "redirect": {
                "inbound": {"enabled": true, "port": 15016},
                "outbound": {"enabled": true, "port": "15011"},
                "dns": {"enabled": true, "port": 15053},
            },
        });
        assert_eq!(of_node(json!({ "transparentProxy": settings })), None);
        let features = json!([FEATURE_IN_METADATA]);
        assert_eq!(
            of_node(json!({ "features": features, "transparentProxy": settings })),
            Some(Redirection { inbound: 15016, outbound: 15011, family: Family::V4 })
        );
        let default = Redirection { inbound: 15006, outbound: 15001, family: Family::Dual };
        assert_eq!(of_node(json!({ "features": features })), Some(default));
        let off = json!({"redirect": {
            "inbound": {"enabled": false, "port": 15006},
            "outbound": {"enabled": true, "port": 70000},
        }});
        let none = of_node(json!({ "features": features, "transparentProxy": off })).unwrap();
        assert_eq!((none.inbound, none.outbound), (0, 0));
    }

    #[test]
    fn half_a_redirection_is_none() {
        let both = Redirection { inbound: 1, outbound: 2, family: Family::V4 };
        assert!(both.is_complete(Some([10, 0, 0, 1].into())));
        assert!(!both.is_complete(Some("fd00::1".parse().unwrap())));
        assert!(!Redirection { inbound: 0, ..both }.is_complete(Some([10, 0, 0, 1].into())));
    }
}
