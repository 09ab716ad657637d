//! Which policies are for a proxy, and for which of its inbounds.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Destinations, Gateway, Inbound, InboundKey, InboundRules, ListenerKey, Origin, Policy, PolicySet, Proxy,
    RulesError, TagRules, ToRules, access_rules, decode_conf,
    destinations::is_referenced,
    order,
    order::{Role, role},
    to_rules,
};
use crate::{
    model::{Resource, SpecError, kri::Kri, labels},
    policy::{TargetKind, TargetRef},
};

/// The policies of one kind that are for one proxy.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// All of them, from least to most specific.
    pub policies: Vec<Arc<Policy>>,
    /// For each inbound that is selected, those that select it, from least to most specific.
    pub inbounds: BTreeMap<InboundKey, Vec<Arc<Policy>>>,
    /// For each listener of a builtin gateway that is selected, those that select it, in the order given:
    /// what two of them say about one host name is decided by their names alone.
    pub listeners: BTreeMap<ListenerKey, Vec<Arc<Policy>>>,
    /// What could not be resolved.
    pub warnings: Vec<String>,
}

/// What a policy selects of a proxy.
#[derive(Debug, Default)]
struct Selected {
    inbounds: Vec<InboundKey>,
    listeners: Vec<ListenerKey>,
    /// The proxy as a whole, because it is a gateway configured by someone else.
    gateway: bool,
}

impl Selection {
    /// Selects from `set` what is for `proxy`. Policies that are only being tried out (`shadow`) are left
    /// out unless asked for.
    pub fn of(set: &PolicySet, proxy: &Proxy, destinations: &Destinations, shadow: bool) -> Self {
        let mut selection = Self::default();
        for policy in &set.policies {
            if !shadow && policy.resource.label(labels::EFFECT) == Some("shadow") {
                continue;
            }
            match select(&policy.resource, &policy.top, proxy, destinations) {
                Ok(selected) => selection.add(policy, selected),
                Err(reason) => selection.warnings.push(format!(
                    "unable to resolve TargetRef on policy: mesh:{} name:{} error:{reason:?}",
                    policy.resource.mesh(),
                    policy.resource.name(),
                )),
            }
        }
        selection.policies.sort_by(|a, b| order::by_policy(a, b));
        for policies in selection.inbounds.values_mut() {
            policies.sort_by(|a, b| order::by_policy(a, b));
        }
        selection
    }

    fn add(&mut self, policy: &Arc<Policy>, selected: Selected) {
        if selected.inbounds.is_empty() && selected.listeners.is_empty() && !selected.gateway {
            return;
        }
        self.policies.push(Arc::clone(policy));
        for listener in selected.listeners {
            self.listeners.entry(listener).or_default().push(Arc::clone(policy));
        }
        for inbound in selected.inbounds {
            self.inbounds.entry(inbound).or_default().push(Arc::clone(policy));
        }
    }

    /// The policies for one inbound.
    pub fn inbound(&self, key: &InboundKey) -> &[Arc<Policy>] {
        self.inbounds.get(key).map_or(&[], Vec::as_slice)
    }

    /// Rules for the traffic of one inbound (`rules`, and `from` where that means the same).
    pub fn inbound_rules(&self, key: &InboundKey) -> InboundRules {
        InboundRules::build(self.inbound(key))
    }

    /// Rules for groups of clients of one inbound (`from`), with negations. Groups may overlap, and the
    /// first that has a client is its group; for permissions see [`Selection::access_rules`].
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the lists overlap in too many ways.
    pub fn client_rules(&self, key: &InboundKey) -> Result<TagRules, RulesError> {
        TagRules::of_clients(self.inbound(key))
    }

    /// Permissions for groups of clients of one inbound, fit for a proxy that lets in whoever is in any
    /// group that may connect.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the lists overlap in too many ways; nobody may be let in then.
    pub fn access_rules(&self, key: &InboundKey) -> Result<TagRules, RulesError> {
        access_rules(self.inbound(key))
    }

    /// Rules for destinations (`to`). Computed once for all proxies that the same policies select.
    ///
    /// # Errors
    /// [`RulesError`] when targets overlap in too many ways or a policy is for a route that does not
    /// exist.
    pub fn to_rules(&self, destinations: &Destinations) -> Result<Arc<ToRules>, RulesError> {
        destinations.rules.get(&self.policies, || to_rules(&self.policies, destinations))
    }

    /// The merged configuration of policies without lists, with where it came from.
    pub fn single(&self) -> Option<(Value, Vec<Origin>)> {
        let confs: Vec<&Value> = self.policies.iter().filter_map(|p| p.default.as_ref()).collect();
        let merged = self.policies.first()?.strategy().merge(&confs).into_iter().next()?;
        let origin = |policy: &Arc<Policy>| Origin { policy: Arc::clone(policy), index: 0 };
        Some((merged, self.policies.iter().map(origin).collect()))
    }

    /// [`Selection::single`] in the type of its kind.
    ///
    /// # Errors
    /// [`SpecError`] when the merged configuration does not decode.
    pub fn single_conf<C: DeserializeOwned>(&self) -> Result<Option<C>, SpecError> {
        self.single().map(|(conf, _)| decode_conf(&conf)).transpose()
    }
}

fn select(
    policy: &Resource,
    target: &TargetRef,
    proxy: &Proxy,
    destinations: &Destinations,
) -> Result<Selected, String> {
    if !in_zone(policy, proxy) || !in_namespace(policy, proxy) {
        return Ok(Selected::default());
    }
    match target.kind {
        TargetKind::Mesh if target.includes(proxy.kind) => {
            let mut selected = by_tags(target, None, proxy);
            selected.inbounds.extend(keys(proxy.inbounds.iter().filter(|i| i.zone_listener)));
            Ok(selected)
        }
        TargetKind::MeshSubset if target.includes(proxy.kind) => Ok(by_tags(target, None, proxy)),
        TargetKind::MeshService | TargetKind::MeshServiceSubset => {
            Ok(by_tags(target, Some(target.name()), proxy))
        }
        TargetKind::Dataplane if is_meant(policy, target, proxy) => {
            let section = target.section();
            let selected = |i: &&Inbound| section.is_empty() || i.section == section;
            Ok(Selected {
                inbounds: keys(proxy.inbounds.iter().filter(selected)),
                listeners: Vec::new(),
                gateway: proxy.delegated_gateway,
            })
        }
        TargetKind::MeshGateway => {
            let referenced = |g: &Gateway| is_referenced(policy, target.name(), &g.resource);
            let runs = proxy.gateway.as_ref().is_some_and(referenced);
            Ok(if runs { by_tags(target, None, proxy) } else { Selected::default() })
        }
        TargetKind::MeshHttpRoute => {
            let name = target.name();
            let found = destinations.route(policy, name);
            let route = found.and_then(|d| d.route.as_ref().map(|r| (&d.resource, r)));
            let (resource, route) = route
                .ok_or_else(|| format!("couldn't resolve MeshHTTPRoute targetRef with name '{name}'"))?;
            let top = route.target_ref.clone().unwrap_or_else(TargetRef::mesh);
            if top.kind == TargetKind::MeshHttpRoute {
                return Err(format!("unsupported targetRef kind '{}'", top.kind.name()));
            }
            select(resource, &top, proxy, destinations)
        }
        TargetKind::Mesh | TargetKind::MeshSubset | TargetKind::Dataplane => Ok(Selected::default()),
        kind => Err(format!("unsupported targetRef kind '{}'", kind.name())),
    }
}

fn keys<'a>(inbounds: impl Iterator<Item = &'a Inbound>) -> Vec<InboundKey> {
    inbounds.map(|i| i.key.clone()).collect()
}

/// Selects by tags, and by the service tag when a name is given.
fn by_tags(target: &TargetRef, service: Option<&str>, proxy: &Proxy) -> Selected {
    let has = |tags: &BTreeMap<String, String>, key: &str, value: &str| match tags.get(key) {
        Some(found) => value == "*" || found == value,
        None => false,
    };
    let selected = |tags: &BTreeMap<String, String>| {
        service.is_none_or(|name| has(tags, labels::TAG_SERVICE, name))
            && target.tags().all(|(key, value)| has(tags, key, value))
    };
    let inbounds = proxy.inbounds.iter().filter(|i| !i.zone_listener && selected(&i.tags));
    let listeners = proxy.gateway.iter().flat_map(|g| &g.listeners).filter(|(_, tags)| selected(tags));
    let listeners: Vec<ListenerKey> = listeners.map(|(key, _)| key.clone()).collect();
    let mut inbounds = keys(inbounds);
    for listener in &listeners {
        if !inbounds.contains(&listener.inbound) {
            inbounds.push(listener.inbound.clone());
        }
    }
    Selected { inbounds, listeners, gateway: proxy.delegated_gateway && selected(&proxy.gateway_tags) }
}

/// Whether a reference of kind `Dataplane` means this proxy: no selector at all, its name, or its labels.
fn is_meant(policy: &Resource, target: &TargetRef, proxy: &Proxy) -> bool {
    if let Some(labels) = &target.labels {
        return labels.iter().all(|(key, value)| proxy.labels.get(key) == Some(value));
    }
    if target.name().is_empty() {
        return target.namespace().is_none();
    }
    let namespace = target.namespace.as_deref().or_else(|| policy.label(labels::NAMESPACE));
    proxy.kri
        == Kri {
            short: proxy.kri.short,
            mesh: policy.mesh().to_owned(),
            zone: policy.label(labels::ZONE).unwrap_or_default().to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: target.name().to_owned(),
            section: String::new(),
        }
}

/// A policy of a zone is for the proxies of that zone, unless it speaks for a destination, which has
/// clients everywhere.
fn in_zone(policy: &Resource, proxy: &Proxy) -> bool {
    if role(policy) == Role::Producer || !proxy.of_zone() {
        return true;
    }
    if policy.label(labels::ORIGIN) != Some(labels::ORIGIN_ZONE) {
        return true;
    }
    match (policy.label(labels::ZONE), proxy.zone()) {
        (Some(policy), Some(proxy)) => policy == proxy,
        _ => true,
    }
}

/// A policy for the proxies of one namespace is for no other.
fn in_namespace(policy: &Resource, proxy: &Proxy) -> bool {
    match role(policy) {
        Role::System | Role::Producer => true,
        Role::Consumer | Role::WorkloadOwner => {
            let namespace = policy.label(labels::NAMESPACE);
            namespace.is_some() && namespace == proxy.labels.get(labels::NAMESPACE).map(String::as_str)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::model::{ResourceKey, document::Document, registry};

    /// A proxy of zone `east` with two inbounds, or a delegated gateway.
    fn proxy(networking: &Value) -> Proxy {
        let document = json!({
            "type": "Dataplane", "mesh": "default", "name": "web-1",
            "labels": {"app": "shop", labels::ORIGIN: "zone", labels::ZONE: "east"},
            "networking": networking,
        });
        let resource = Document::parse(&document).unwrap().into_resource(DateTime::UNIX_EPOCH);
        Proxy::of(&resource).unwrap().unwrap()
    }

    fn sidecar() -> Proxy {
        proxy(&json!({"address": "10.0.0.1", "inbound": [
            {"port": 80, "name": "http", "tags": {labels::TAG_SERVICE: "web", "version": "v1"}},
            {"port": 81, "tags": {labels::TAG_SERVICE: "admin"}},
        ]}))
    }

    /// The ports of the inbounds a policy with these labels selects by this target.
    fn selected(proxy: &Proxy, target: &Value, labelled: &[(&str, &str)]) -> Vec<u32> {
        let kind = registry::by_name("MeshTrafficPermission").unwrap();
        let spec = json!({"targetRef": target, "from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]});
        let resource = Resource::new(ResourceKey::new(kind, "default", "p"), DateTime::UNIX_EPOCH);
        let resource = labelled.iter().fold(resource, |r, (key, value)| r.with_label(key, value));
        let set = PolicySet::parse(kind, &[Arc::new(resource.with_spec(spec.to_string()))]);
        assert!(set.broken.is_empty(), "{:?}", set.broken);
        let selection = Selection::of(&set, proxy, &Destinations::default(), false);
        assert!(selection.warnings.is_empty(), "{:?}", selection.warnings);
        assert_eq!(selection.policies.is_empty(), selection.inbounds.is_empty());
        selection.inbounds.keys().map(|key| key.port).collect()
    }

    #[test]
    fn a_target_selects_inbounds() {
        let proxy = sidecar();
        let check = |target: Value, ports: &[u32]| {
            assert_eq!(selected(&proxy, &target, &[(labels::ZONE, "east")]), ports, "{target}");
        };
        check(json!({"kind": "Mesh"}), &[80, 81]);
        check(json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), &[80, 81]);
        check(json!({"kind": "Mesh", "proxyTypes": ["Gateway"]}), &[]);
        check(json!({"kind": "MeshSubset", "tags": {"version": "v1"}}), &[80]);
        check(json!({"kind": "MeshSubset", "tags": {"version": "*"}}), &[80]);
        check(json!({"kind": "MeshSubset", "tags": {"version": "v2"}}), &[]);
        check(json!({"kind": "MeshSubset", "tags": {"version": "v1"}, "proxyTypes": ["Gateway"]}), &[]);
        check(json!({"kind": "MeshService", "name": "admin"}), &[81]);
        check(json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v1"}}), &[80]);
        check(json!({"kind": "MeshServiceSubset", "name": "admin", "tags": {"version": "v1"}}), &[]);
        check(json!({"kind": "MeshGateway", "name": "web"}), &[]);
        check(json!({"kind": "Dataplane"}), &[80, 81]);
        check(json!({"kind": "Dataplane", "name": "web-1"}), &[80, 81]);
        check(json!({"kind": "Dataplane", "name": "web-2"}), &[]);
        check(json!({"kind": "Dataplane", "labels": {"app": "shop"}}), &[80, 81]);
        check(json!({"kind": "Dataplane", "labels": {"app": "shop", "tier": "x"}}), &[]);
        check(json!({"kind": "Dataplane", "sectionName": "http"}), &[80]);
        check(json!({"kind": "Dataplane", "name": "web-1", "sectionName": "81"}), &[81]);
        // An inbound with a name is not called by its port.
        check(json!({"kind": "Dataplane", "sectionName": "80"}), &[]);
    }

    #[test]
    fn a_policy_stays_in_its_zone_and_namespace_unless_it_speaks_for_a_destination() {
        let proxy = sidecar();
        let all = json!({"kind": "Mesh"});
        let check = |labelled: &[(&str, &str)], expected: bool| {
            assert_eq!(!selected(&proxy, &all, labelled).is_empty(), expected, "{labelled:?}");
        };
        let zone = (labels::ORIGIN, "zone");
        check(&[], true);
        check(&[(labels::ORIGIN, "global")], true);
        check(&[zone, (labels::ZONE, "east")], true);
        check(&[zone, (labels::ZONE, "west")], false);
        check(&[zone, (labels::ZONE, "west"), (labels::POLICY_ROLE, "producer")], true);
        check(&[zone, (labels::ZONE, "east"), (labels::POLICY_ROLE, "consumer")], false);
        check(&[(labels::POLICY_ROLE, "workload-owner"), (labels::NAMESPACE, "shop")], false);
        check(&[(labels::EFFECT, "shadow")], false);
    }

    #[test]
    fn a_delegated_gateway_is_selected_as_a_whole() {
        let gateway = json!({"type": "DELEGATED", "tags": {labels::TAG_SERVICE: "edge"}});
        let proxy = proxy(&json!({"address": "10.0.0.2", "gateway": gateway}));
        let kind = registry::by_name("MeshTimeout").unwrap();
        let selects = |target: Value| {
            let spec = json!({"targetRef": target, "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}]});
            let resource = Resource::new(ResourceKey::new(kind, "default", "p"), DateTime::UNIX_EPOCH);
            let set = PolicySet::parse(kind, &[Arc::new(resource.with_spec(spec.to_string()))]);
            Selection::of(&set, &proxy, &Destinations::default(), false).policies.len() == 1
        };
        assert!(selects(json!({"kind": "Mesh"})));
        assert!(selects(json!({"kind": "Mesh", "proxyTypes": ["Gateway"]})));
        assert!(!selects(json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]})));
        assert!(selects(json!({"kind": "MeshService", "name": "edge"})));
        assert!(!selects(json!({"kind": "MeshService", "name": "web"})));
        assert!(selects(json!({"kind": "Dataplane", "labels": {}})));
    }
}
