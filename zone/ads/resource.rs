//! The resource a proxy brings along: read, checked, and made the zone's own.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use common::{
    document::{Document, DocumentError},
    mode::Mode,
    model::{
        FieldPath, Resource, ResourceKey, Spec, SpecError, Violations, labels, names,
        text::{self, TextError, TextLimits},
    },
    proto::kuma::mesh::v1alpha1 as mesh,
};
use thiserror::Error;

use super::{
    brought,
    node::{ProxyId, ProxyKind},
};

/// Why a resource that came with a proxy is refused.
#[derive(Debug, Error)]
pub enum InlineError {
    /// Neither JSON nor YAML, or too much of it.
    #[error("dataplane.resource is neither JSON nor YAML that is read here: {0}")]
    Text(#[from] TextError),
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
    let json = text::yaml(text, TextLimits::INLINE)?;
    let mut document = Document::parse(&json)?;
    // Whose it is, who wrote it and what it is, is not for the proxy to say.
    document.labels.retain(|key, _| brought::is_for_proxies(key));
    let mesh = document.mesh.as_deref().filter(|m| !m.is_empty()).unwrap_or("default");
    let given = ResourceKey::new(document.kind, mesh, &document.name);
    let expected = proxy.key();
    if given != expected {
        return Err(InlineError::Mismatch { given, expected });
    }
    document.spec = document.kind.normalize(&document.spec)?;
    let mut violations = document.kind.validate_authored(&document.spec)?;
    if let Some(problem) = labels::subdomain_problem(&document.name) {
        violations.add("name".into(), problem);
    }
    // Ingresses of other zones come under such names.
    violations.check(
        proxy.kind == ProxyKind::Ingress && names::is_hashed(&document.name),
        "name".into(),
        "has the form of the names of what comes from global, which end with a hash: take that away",
    );
    for (key, value) in &document.labels {
        let problems = labels::key_problems(key).into_iter().chain(labels::value_problem(value));
        problems.for_each(|problem| violations.add(FieldPath::new("labels").key(key), problem));
    }
    if violations.is_empty() { Ok(document) } else { Err(InlineError::Invalid(violations)) }
}

/// The resource as the zone stores it: owned by the zone, its labels computed. What the zone has found out
/// about `existing` and the proxy cannot know is kept.
///
/// # Errors
/// [`SpecError`] when the spec does not decode.
pub(super) fn adopt(
    document: Document,
    kind: ProxyKind,
    mode: &Mode,
    existing: Option<&Resource>,
    now: DateTime<Utc>,
) -> Result<Resource, SpecError> {
    let mut resource = document.into_resource(now);
    match (kind, existing) {
        (ProxyKind::Dataplane, Some(existing)) => keep_probed(&mut resource, existing)?,
        (ProxyKind::Ingress, existing) => keep_available(&mut resource, existing)?,
        (ProxyKind::Dataplane, None) | (ProxyKind::Egress, _) => {}
    }
    resource.labels.insert(labels::REGISTERED, labels::REGISTERED_BY_PROXY);
    mode.label(&mut resource);
    resource.origin = mode.origin_of(resource.kind());
    Ok(resource)
}

/// Whether a proxy brought `resource` along. If not, somebody applied it, and no proxy touches it.
pub(super) fn is_registered(resource: &Resource) -> bool {
    resource.label(labels::REGISTERED) == Some(labels::REGISTERED_BY_PROXY)
}

/// Whether what a proxy brings along says nothing else than what somebody applied. Labels it does not bring
/// are not its to say.
pub(super) fn agrees(brought: &Resource, applied: &Resource) -> bool {
    let mut labels = brought.labels.iter().filter(|(key, _)| *key != labels::REGISTERED);
    brought.spec == applied.spec && labels.all(|(key, value)| applied.label(key) == Some(value))
}

/// An inbound with a probe keeps what the probe found.
fn keep_probed(resource: &mut Resource, existing: &Resource) -> Result<(), SpecError> {
    let mut spec = resource.spec::<mesh::Dataplane>()?;
    let stored = existing.spec::<mesh::Dataplane>()?.networking.unwrap_or_default();
    // The first of those at one place counts.
    let known: BTreeMap<_, _> = stored.inbound.iter().rev().map(|i| ((i.port, &*i.address), i)).collect();
    let inbounds = spec.networking.iter_mut().flat_map(|n| &mut n.inbound);
    for inbound in inbounds.filter(|i| i.service_probe.is_some()) {
        if let Some(known) = known.get(&(inbound.port, &*inbound.address)) {
            inbound.state = known.state;
            inbound.health = known.health;
        }
    }
    resource.spec = Spec::encode(&spec).into();
    Ok(())
}

/// The zone computes what an ingress offers; a proxy that brings its own idea would only flap it.
fn keep_available(resource: &mut Resource, existing: Option<&Resource>) -> Result<(), SpecError> {
    let mut spec = resource.spec::<mesh::ZoneIngress>()?;
    let existing = existing.map(Resource::spec::<mesh::ZoneIngress>).transpose()?;
    spec.available_services = existing.unwrap_or_default().available_services;
    resource.spec = Spec::encode(&spec).into();
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{model::Origin, proto::kuma::mesh::v1alpha1::dataplane::networking::inbound::State};

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

    fn adopted(yaml: &str, existing: Option<&Resource>) -> Resource {
        let document = inline(yaml, &web()).unwrap();
        let mode = Mode::federated_zone("east");
        adopt(document, ProxyKind::Dataplane, &mode, existing, DateTime::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn an_inline_dataplane_becomes_the_zones_own_whatever_it_says() {
        let claimed = "{team: shop, kuma.io/origin: global, kuma.io/zone: west, strait.io/provided-by: files, \
                       kuma.io/listener-zoneegress: enabled, kuma.io/managed-by: somebody}";
        let claimed = WEB.replace("{team: shop}", claimed);
        let resource = adopted(&claimed, None);
        assert_eq!(resource.origin, Origin::Zone("east".into()));
        let labels: Vec<_> = resource.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            labels,
            [
                "kuma.io/env=universal",
                "kuma.io/mesh=default",
                "kuma.io/origin=zone",
                "kuma.io/proxy-type=sidecar",
                "kuma.io/registered-by=proxy",
                "kuma.io/zone=east",
                "team=shop"
            ]
        );
    }

    #[test]
    fn a_reconnect_does_not_forget_what_the_probe_found() {
        let stored = adopted(WEB, None);
        let mut probed = stored.spec::<mesh::Dataplane>().unwrap();
        for inbound in &mut probed.networking.as_mut().unwrap().inbound {
            inbound.set_state(State::NotReady);
        }
        let stored = stored.with_spec(Spec::encode(&probed));
        let again = adopted(WEB, Some(&stored)).spec::<mesh::Dataplane>().unwrap();
        let states: Vec<_> = again.networking.unwrap().inbound.iter().map(|i| i.state()).collect();
        assert_eq!(states, [State::Ready, State::NotReady]);
    }

    #[test]
    fn what_a_proxy_brings_agrees_with_what_was_applied_or_not() {
        let mut applied = adopted(WEB, None);
        assert!(is_registered(&applied));
        applied.labels.remove(labels::REGISTERED);
        assert!(!is_registered(&applied));
        for (yaml, agreed) in [
            (WEB.to_owned(), true),
            (WEB.replace("labels: {team: shop}\n", ""), true),
            (WEB.replace("team: shop", "team: other"), false),
            (WEB.replace("team: shop", "group: shop"), false),
            (WEB.replace("service: web}", "service: db}"), false),
            (WEB.replace("127.0.0.2", "127.0.0.3"), false),
        ] {
            assert_eq!(agrees(&adopted(&yaml, Some(&applied)), &applied), agreed, "{yaml}");
        }
    }

    #[test]
    fn what_does_not_describe_the_proxy_is_refused() {
        let other = ProxyId::new(ProxyKind::Dataplane, "default", "web-2");
        let refused = |text: &str, proxy: &ProxyId| inline(text, proxy).unwrap_err().to_string();
        assert!(refused(WEB, &other).contains("but the proxy is Dataplane default/web-2"));
        assert!(refused("{a: ", &web()).contains("neither JSON nor YAML"));
        assert!(refused("type: Nothing\nname: web-1", &web()).contains("Nothing"));
        let named = |name: &str| {
            let proxy = ProxyId::new(ProxyKind::Dataplane, "default", name);
            refused(&WEB.replace("web-1", name), &proxy)
        };
        assert!(named("Web_1").contains("name: "), "{}", named("Web_1"));
        assert!(refused(&WEB.replace("team", "'a b'"), &web()).contains("labels"));
        let ingress = ProxyId::new(ProxyKind::Ingress, "", "web-1");
        assert!(refused(WEB, &ingress).contains("but the proxy is ZoneIngress web-1"));
    }
}
