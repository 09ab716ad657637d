//! The resource a proxy brings along: read, checked, and made the zone's own.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use common::{
    model::{
        Origin, Resource, ResourceKey, SpecError, Violations,
        document::{Document, DocumentError},
        labels,
    },
    proto::kuma::mesh::v1alpha1::{self as mesh, dataplane::networking},
};
use prost::Message;
use thiserror::Error;

use super::node::{ProxyId, ProxyKind};

/// Why a resource that came with a proxy is refused.
#[derive(Debug, Error)]
pub enum InlineError {
    /// Neither JSON nor YAML.
    #[error("dataplane.resource is neither JSON nor YAML: {0}")]
    Text(serde_norway::Error),
    /// Not a document.
    #[error("dataplane.resource: {0}")]
    Document(#[from] DocumentError),
    /// It describes something else.
    #[error("dataplane.resource describes {given}, but the proxy is {expected}")]
    Mismatch {
        /// What it describes.
        given: ResourceKey,
        /// What the proxy says it is.
        expected: ResourceKey,
    },
    /// It breaks rules.
    #[error("dataplane.resource: {0}")]
    Invalid(Violations),
    /// It does not decode.
    #[error("dataplane.resource: {0}")]
    Spec(#[from] SpecError),
}

/// Reads the inline resource of `proxy` and checks it.
///
/// # Errors
/// [`InlineError`].
pub(super) fn inline(text: &str, proxy: &ProxyId) -> Result<Document, InlineError> {
    // YAML contains JSON.
    let json = serde_norway::from_str(text).map_err(InlineError::Text)?;
    let mut document = Document::parse(&json)?;
    let mesh = document.mesh.as_deref().filter(|m| !m.is_empty()).unwrap_or("default");
    let given = ResourceKey::new(document.kind, mesh, &document.name);
    let expected = proxy.key();
    if given != expected {
        return Err(InlineError::Mismatch { given, expected });
    }
    document.spec = document.kind.normalize(&document.spec)?;
    let violations = document.kind.validate(&document.spec)?;
    if violations.is_empty() { Ok(document) } else { Err(InlineError::Invalid(violations)) }
}

/// The resource as `zone` stores it: owned by the zone, labelled, its inbounds tagged with the zone.
/// What an operator has computed or set on `existing` and the proxy does not know is kept.
///
/// # Errors
/// [`SpecError`] when the spec does not decode.
pub(super) fn adopt(
    document: Document,
    proxy: &ProxyId,
    zone: &Arc<str>,
    existing: Option<&Resource>,
    now: DateTime<Utc>,
) -> Result<Resource, SpecError> {
    let mut resource = document.into_resource(now);
    resource.spec = match proxy.kind {
        ProxyKind::Dataplane => {
            let mut spec = mesh::Dataplane::decode(&*resource.spec)?;
            let stored = existing.map(|e| mesh::Dataplane::decode(&*e.spec)).transpose()?;
            tag(&mut spec, zone, stored.as_ref());
            label_dataplane(&mut resource.labels, &spec);
            spec.encode_to_vec()
        }
        ProxyKind::Ingress => {
            let mut spec = mesh::ZoneIngress::decode(&*resource.spec)?;
            // The zone computes this; a proxy that brings it would only flap it.
            spec.available_services = match existing {
                Some(e) => mesh::ZoneIngress::decode(&*e.spec)?.available_services,
                None => Vec::new(),
            };
            label(&mut resource.labels, labels::PROXY_TYPE, "zoneingress");
            spec.encode_to_vec()
        }
        ProxyKind::Egress => {
            label(&mut resource.labels, labels::PROXY_TYPE, "zoneegress");
            resource.spec.to_vec()
        }
    }
    .into();
    if proxy.kind == ProxyKind::Dataplane {
        label(&mut resource.labels, labels::MESH, &proxy.mesh);
    }
    label(&mut resource.labels, labels::ORIGIN, labels::ORIGIN_ZONE);
    label(&mut resource.labels, labels::ZONE, zone);
    label(&mut resource.labels, labels::ENV, labels::ENV_UNIVERSAL);
    resource.origin = Origin::Zone(Arc::clone(zone));
    resource.owner = None;
    Ok(resource)
}

fn label(labels: &mut BTreeMap<String, String>, key: &str, value: &str) {
    labels.insert(key.to_owned(), value.to_owned());
}

fn label_dataplane(labels: &mut BTreeMap<String, String>, spec: &mesh::Dataplane) {
    use networking::{gateway::GatewayType, listener::Type};
    let Some(networking) = &spec.networking else { return };
    let builtin = networking.gateway.as_ref().is_some_and(|g| g.r#type() == GatewayType::Builtin);
    label(labels, labels::PROXY_TYPE, if builtin { "gateway" } else { "sidecar" });
    for (key, kind) in
        [(labels::LISTENER_ZONE_INGRESS, Type::ZoneIngress), (labels::LISTENER_ZONE_EGRESS, Type::ZoneEgress)]
    {
        if networking.listeners.iter().any(|l| l.r#type() == kind) {
            label(labels, key, "enabled");
        } else {
            labels.remove(key);
        }
    }
}

/// Adds the zone tag. An inbound with a probe starts as not ready, and keeps what the probe found when
/// the proxy only reconnects.
fn tag(spec: &mut mesh::Dataplane, zone: &str, stored: Option<&mesh::Dataplane>) {
    use networking::inbound::{Health, State};
    let Some(networking) = &mut spec.networking else { return };
    for inbound in &mut networking.inbound {
        if !inbound.tags.is_empty() {
            inbound.tags.insert(labels::ZONE.to_owned(), zone.to_owned());
        }
        if inbound.service_probe.is_some() {
            let before = stored.and_then(|s| s.networking.as_ref()).and_then(|n| {
                n.inbound.iter().find(|i| i.port == inbound.port && i.address == inbound.address)
            });
            match before {
                Some(before) => {
                    inbound.state = before.state;
                    inbound.health = before.health.clone();
                }
                None => {
                    inbound.set_state(State::NotReady);
                    inbound.health = Some(Health { ready: false });
                }
            }
        }
    }
    if let Some(gateway) = &mut networking.gateway {
        gateway.tags.insert(labels::ZONE.to_owned(), zone.to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WEB: &str = "
type: Dataplane
mesh: default
name: web-1
labels: {team: shop}
networking:
  address: 127.0.0.2
  inbound:
  - {port: 80, servicePort: 8080, tags: {kuma.io/service: web}}
  - {port: 81, servicePort: 8081, tags: {kuma.io/service: web-admin}, serviceProbe: {tcp: {}}}
";

    fn web() -> ProxyId {
        ProxyId::new(ProxyKind::Dataplane, "default", "web-1")
    }

    #[test]
    fn an_inline_dataplane_becomes_the_zones_own() {
        let document = inline(WEB, &web()).unwrap();
        let resource = adopt(document, &web(), &"east".into(), None, Utc::now()).unwrap();
        assert_eq!(resource.origin, Origin::Zone("east".into()));
        let labels: Vec<_> = resource.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            labels,
            [
                "kuma.io/env=universal",
                "kuma.io/mesh=default",
                "kuma.io/origin=zone",
                "kuma.io/proxy-type=sidecar",
                "kuma.io/zone=east",
                "team=shop"
            ]
        );
        let inbound = mesh::Dataplane::decode(&*resource.spec).unwrap().networking.unwrap().inbound;
        assert_eq!(inbound[0].tags["kuma.io/zone"], "east");
        assert_eq!(inbound[0].state, 0);
        assert_eq!(inbound[1].state(), networking::inbound::State::NotReady);
    }

    #[test]
    fn a_reconnect_does_not_forget_what_the_probe_found() {
        let stored = adopt(inline(WEB, &web()).unwrap(), &web(), &"east".into(), None, Utc::now()).unwrap();
        let mut ready = mesh::Dataplane::decode(&*stored.spec).unwrap();
        ready.networking.as_mut().unwrap().inbound[1].state = 0;
        let stored = stored.with_spec(ready.encode_to_vec());
        let document = inline(WEB, &web()).unwrap();
        let again = adopt(document, &web(), &"east".into(), Some(&stored), Utc::now()).unwrap();
        let inbound = mesh::Dataplane::decode(&*again.spec).unwrap().networking.unwrap().inbound;
        assert_eq!(inbound[1].state, 0);
    }

    #[test]
    fn what_does_not_describe_the_proxy_is_refused() {
        let other = ProxyId::new(ProxyKind::Dataplane, "default", "web-2");
        let refused = |text: &str, proxy: &ProxyId| inline(text, proxy).unwrap_err().to_string();
        assert!(refused(WEB, &other).contains("but the proxy is Dataplane default/web-2"));
        assert!(refused("{", &web()).contains("neither JSON nor YAML"));
        assert!(refused("type: Nothing\nname: web-1", &web()).contains("Nothing"));
        let ingress = ProxyId::new(ProxyKind::Ingress, "", "web-1");
        assert!(refused(WEB, &ingress).contains("but the proxy is ZoneIngress web-1"));
    }
}
