//! Which policies are for a proxy, and for which of its inbounds.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use serde_json::Value;

use super::{
    Destinations, InboundKey, InboundRules, ListenerKey, Policy, PolicyChange, PolicySet, RuleOrigin,
    RulesError, SelectableGateway, SelectableInbound, SelectableProxy, TagRules, ToRules, access_rules,
    destinations::is_referenced,
    memo::{ClientMemo, ClientView, Memo},
    order, to_rules,
};
use crate::{
    model::{Resource, ResourceKey, kri::Kri, labels},
    policy::{PolicyRole, TargetKind, TargetRef},
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
    /// The warnings by policy.
    pub(crate) unresolved: BTreeMap<ResourceKey, String>,
    /// What was computed for others of the same set, as long as the set is as it was.
    pub(crate) memo: Weak<Memo>,
    /// Rules for clients, computed once for all that have the same policies.
    pub(crate) clients: Arc<ClientMemo>,
}

/// What a policy selects of a proxy.
#[derive(Debug, Default)]
struct Selected {
    inbounds: Vec<InboundKey>,
    listeners: Vec<ListenerKey>,
    /// The proxy as a whole, because it is a gateway configured by someone else.
    gateway: bool,
}

impl Selected {
    fn is_nothing(&self) -> bool {
        self.inbounds.is_empty() && self.listeners.is_empty() && !self.gateway
    }
}

impl Selection {
    /// These policies, for one inbound and nothing else.
    pub fn of_inbound(key: InboundKey, policies: Vec<Arc<Policy>>) -> Self {
        Self { policies: policies.clone(), inbounds: [(key, policies)].into(), ..Self::default() }
    }

    /// Selects from `set` what is for `proxy`. Policies that are only being tried out (`shadow`) are left
    /// out unless asked for.
    pub fn of(set: &PolicySet, proxy: &SelectableProxy, destinations: &Destinations, shadow: bool) -> Self {
        let selection = Self::among(set.policies.candidates(proxy), proxy, destinations, shadow);
        Self { memo: Arc::downgrade(&set.memo), clients: Arc::clone(&set.clients), ..selection }
    }

    /// Selects what is for `proxy` from policies in the order given, by asking each.
    pub(crate) fn among<'a>(
        candidates: impl IntoIterator<Item = &'a Arc<Policy>>,
        proxy: &SelectableProxy,
        destinations: &Destinations,
        shadow: bool,
    ) -> Self {
        let mut selection = Self::default();
        for policy in candidates {
            match select_by(policy, proxy, destinations, shadow) {
                Ok(selected) => selection.add(policy, selected),
                Err(warning) => drop(selection.unresolved.insert(policy.resource.key.clone(), warning)),
            }
        }
        selection.warnings = selection.unresolved.values().cloned().collect();
        selection.policies.sort_by(|a, b| order::by_policy(a, b));
        for policies in selection.inbounds.values_mut() {
            policies.sort_by(|a, b| order::by_policy(a, b));
        }
        selection
    }

    /// Takes over what a change of one policy means for `proxy`, so that this is again what is selected from
    /// `set`, in which the change was made. `destinations` and `shadow` are as they were.
    pub fn apply(
        &mut self,
        change: &PolicyChange,
        set: &PolicySet,
        proxy: &SelectableProxy,
        destinations: &Destinations,
        shadow: bool,
    ) {
        self.memo = Arc::downgrade(&set.memo);
        self.clients = Arc::clone(&set.clients);
        let warned = self.unresolved.len();
        if let Some(before) = &change.before {
            self.forget(before);
            self.unresolved.remove(&before.resource.key);
        }
        let mut changed = warned != self.unresolved.len();
        if let Some(after) = change.after.as_ref().filter(|policy| policy.may_select(proxy)) {
            match select_by(after, proxy, destinations, shadow) {
                Ok(selected) => self.insert(after, selected),
                Err(warning) => {
                    self.unresolved.insert(after.resource.key.clone(), warning);
                    changed = true;
                }
            }
        }
        if changed {
            self.warnings = self.unresolved.values().cloned().collect();
        }
    }

    /// Takes `policy` out wherever it is.
    fn forget(&mut self, policy: &Arc<Policy>) {
        if !take(&mut self.policies, policy, order::by_policy_and_key) {
            return;
        }
        self.inbounds.retain(|_, policies| {
            take(policies, policy, order::by_policy_and_key);
            !policies.is_empty()
        });
        self.listeners.retain(|_, policies| {
            take(policies, policy, by_key);
            !policies.is_empty()
        });
    }

    /// Puts `policy` where it belongs.
    fn insert(&mut self, policy: &Arc<Policy>, selected: Selected) {
        if selected.is_nothing() {
            return;
        }
        put(&mut self.policies, policy, order::by_policy_and_key);
        for listener in selected.listeners {
            put(self.listeners.entry(listener).or_default(), policy, by_key);
        }
        for inbound in selected.inbounds {
            put(self.inbounds.entry(inbound).or_default(), policy, order::by_policy_and_key);
        }
    }

    /// Adds `policy` at the end.
    fn add(&mut self, policy: &Arc<Policy>, selected: Selected) {
        if selected.is_nothing() {
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
    pub fn client_rules(&self, key: &InboundKey) -> Result<Arc<TagRules>, RulesError> {
        let policies = self.inbound(key);
        self.clients.get(ClientView::Groups, policies, || TagRules::of_clients(policies))
    }

    /// Permissions for groups of clients of one inbound, fit for a proxy that lets in whoever is in any
    /// group that may connect.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the lists overlap in too many ways; nobody may be let in then.
    pub fn access_rules(&self, key: &InboundKey) -> Result<Arc<TagRules>, RulesError> {
        let policies = self.inbound(key);
        self.clients.get(ClientView::Access, policies, || access_rules(policies))
    }

    /// Rules for all destinations (`to`). Computed once for all proxies that the same policies select, while
    /// no policy of the kind changes; for one destination after the other see [`super::OutboundRules`].
    ///
    /// # Errors
    /// [`RulesError`] when targets overlap in too many ways or a policy is for a route that does not
    /// exist.
    pub fn to_rules(&self, destinations: &Destinations) -> Result<Arc<ToRules>, RulesError> {
        let compute = || to_rules(&self.policies, destinations);
        match self.memo.upgrade() {
            Some(memo) => memo.get(&self.policies, destinations, compute),
            None => compute().map(Arc::new),
        }
    }

    /// The merged configuration of policies without lists, with where it came from.
    pub fn single(&self) -> Option<(Value, Vec<RuleOrigin>)> {
        let confs: Vec<&Value> = self.policies.iter().filter_map(|p| p.default.as_ref()).collect();
        let merged = self.policies.first()?.strategy().merge(&confs).into_iter().next()?;
        let origin = |policy: &Arc<Policy>| RuleOrigin { policy: Arc::clone(policy), index: 0 };
        Some((merged, self.policies.iter().map(origin).collect()))
    }
}

/// What `policy` selects, unless it is only being tried out and nobody asks for that. An error is a warning.
fn select_by(
    policy: &Policy,
    proxy: &SelectableProxy,
    destinations: &Destinations,
    shadow: bool,
) -> Result<Selected, String> {
    let tried = !shadow && policy.resource.label(labels::EFFECT) == Some("shadow");
    if tried || policy.overreaches(proxy) {
        return Ok(Selected::default());
    }
    select(&policy.resource, &policy.top, proxy, destinations).map_err(|reason| {
        let (mesh, name) = (policy.resource.mesh(), policy.resource.name());
        format!("unable to resolve TargetRef on policy: mesh:{mesh} name:{name} error:{reason:?}")
    })
}

fn by_key(a: &Policy, b: &Policy) -> Ordering {
    a.resource.key.cmp(&b.resource.key)
}

/// Puts `policy` into a list in `order`.
fn put(list: &mut Vec<Arc<Policy>>, policy: &Arc<Policy>, order: fn(&Policy, &Policy) -> Ordering) {
    let position = list.partition_point(|other| order(other, policy).is_le());
    list.insert(position, Arc::clone(policy));
}

/// Takes `policy` out of a list in `order`, and says whether it was there. Two inbounds at one place have it
/// twice.
fn take(list: &mut Vec<Arc<Policy>>, policy: &Arc<Policy>, order: fn(&Policy, &Policy) -> Ordering) -> bool {
    let from = list.partition_point(|other| order(other, policy).is_lt());
    let to = list.partition_point(|other| order(other, policy).is_le());
    list.drain(from..to).next().is_some()
}

fn select(
    policy: &Resource,
    target: &TargetRef,
    proxy: &SelectableProxy,
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
            let selected = |i: &&SelectableInbound| section.is_empty() || i.section == section;
            Ok(Selected {
                inbounds: keys(proxy.inbounds.iter().filter(selected)),
                listeners: Vec::new(),
                gateway: proxy.delegated_gateway,
            })
        }
        TargetKind::MeshGateway => {
            let referenced = |g: &SelectableGateway| is_referenced(policy, target.name(), &g.resource);
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

fn keys<'a>(inbounds: impl Iterator<Item = &'a SelectableInbound>) -> Vec<InboundKey> {
    inbounds.map(|i| i.key.clone()).collect()
}

/// Selects by tags, and by the service tag when a name is given.
fn by_tags(target: &TargetRef, service: Option<&str>, proxy: &SelectableProxy) -> Selected {
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
fn is_meant(policy: &Resource, target: &TargetRef, proxy: &SelectableProxy) -> bool {
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
pub(super) fn in_zone(policy: &Resource, proxy: &SelectableProxy) -> bool {
    if PolicyRole::of(policy) == PolicyRole::Producer || !proxy.of_zone() {
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
pub(super) fn in_namespace(policy: &Resource, proxy: &SelectableProxy) -> bool {
    match PolicyRole::of(policy) {
        PolicyRole::System | PolicyRole::Producer => true,
        PolicyRole::Consumer | PolicyRole::WorkloadOwner => {
            let namespace = policy.label(labels::NAMESPACE);
            namespace.is_some() && namespace == proxy.labels.get(labels::NAMESPACE)
        }
    }
}

#[cfg(test)]
mod tests;
