//! What the same policies say about the outside world, for all proxies they select.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use common::{
    model::Kind,
    policy::{
        legacy::LegacyChange,
        mesh_access_log, mesh_http_route, mesh_tcp_route,
        rules::{Concern, OutboundRules, Policies, Policy, PolicyChange, SelectableProxy, Selection},
    },
};

use super::{
    ALL, Caller, GatewayRules, PolicyEffect,
    legacy::LegacyCalls,
    mesh_load_balancing_strategy::{self, MeshLoadBalancingStrategyEffect},
    mesh_proxy_patch::{MeshProxyPatchEffect, Patches},
    telemetry::{self, Collector},
};
use crate::mesh::{Dataplane, MeshContext};

/// For one proxy, the policies of each kind that are for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selections(BTreeMap<&'static str, Selection>);

impl Selections {
    /// Those of `mesh` that are for `dataplane`.
    pub(crate) fn of_dataplane(mesh: &MeshContext, dataplane: &Dataplane) -> Self {
        let of = |kind: &'static Kind| Some((kind.name, Self::of_kind(mesh, dataplane, kind)?));
        Self(super::kinds().filter_map(of).collect())
    }

    /// Those of one kind; `None` when there are no policies of that kind.
    pub(super) fn of_kind(mesh: &MeshContext, dataplane: &Dataplane, kind: &Kind) -> Option<Selection> {
        let set = mesh.policies(kind).filter(|set| !set.policies.is_empty())?;
        let subject = dataplane.subject.as_ref()?;
        Some(Selection::of(set, subject, &mesh.destinations, false))
    }

    /// Those of them that are not for everybody alike.
    pub(crate) fn particular(mesh: &MeshContext, dataplane: &Dataplane) -> Self {
        Self::among(mesh, dataplane, Policies::particular)
    }

    /// Those of them that say something of inbounds, or may not be told what they are for.
    pub(crate) fn of_inbounds(mesh: &MeshContext, dataplane: &Dataplane) -> Self {
        Self::among(mesh, dataplane, Policies::about_inbounds)
    }

    fn among(
        mesh: &MeshContext,
        dataplane: &Dataplane,
        candidates: for<'a> fn(&'a Policies, &SelectableProxy) -> Vec<&'a Arc<Policy>>,
    ) -> Self {
        let Some(subject) = &dataplane.subject else { return Self::default() };
        let of = |kind: &'static Kind| {
            let set = mesh.policies(kind)?;
            let mut selection = Selection::default();
            for policy in candidates(&set.policies, subject) {
                let change = PolicyChange { before: None, after: Some(Arc::clone(policy)) };
                selection.apply(&change, set, subject, &mesh.destinations, false);
            }
            Some((kind.name, selection))
        };
        Self(super::kinds().filter_map(of).collect())
    }

    /// Those of one kind.
    pub(crate) fn of(&self, kind: &Kind) -> &Selection {
        static NONE: LazyLock<Selection> = LazyLock::new(Selection::default);
        self.0.get(kind.name).unwrap_or(&NONE)
    }
}

/// Rules for destinations, the same for all proxies that the same policies select. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    /// What the proxies themselves are.
    pub(crate) caller: Caller,
    /// The builtin gateway they run, with what is said of it.
    pub(crate) gateway: Option<GatewayRules>,
    /// Collectors of access logs.
    pub(super) collectors: BTreeSet<Collector>,
    rules: BTreeMap<&'static str, OutboundRules>,
    /// What the older policies say.
    pub(super) legacy: LegacyCalls,
    /// Whether a route of the newer kinds is for some service: of requests, and of connections.
    pub(super) newer_routes: (bool, bool),
    /// Tags by which its proxies see which endpoints are near.
    affinity: Arc<BTreeSet<String>>,
    /// What is changed of finished messages.
    patches: Arc<Patches>,
}

impl Profile {
    /// The profile of proxies with these selections.
    pub(crate) fn new(
        caller: Caller,
        selections: &Selections,
        legacy: LegacyCalls,
        mesh: &MeshContext,
    ) -> Self {
        let rules = ALL.iter().map(|policy| {
            let policies = &selections.of(policy.kind()).policies;
            (policy.kind().name, OutboundRules::new(policies, &mesh.destinations))
        });
        let mut profile = Self {
            caller,
            gateway: None,
            collectors: BTreeSet::new(),
            rules: rules.collect(),
            legacy,
            newer_routes: (false, false),
            affinity: Arc::default(),
            patches: Arc::default(),
        };
        profile.follow_collectors(mesh);
        profile.note_affinity();
        profile.note_patches();
        profile.note_routes();
        profile
    }

    /// The same for proxies that run the gateway `dataplane` runs, if it runs one.
    pub(crate) fn with_gateway(mut self, dataplane: &Dataplane, mesh: &MeshContext) -> Self {
        self.gateway = GatewayRules::new(dataplane, mesh);
        self
    }

    /// Looks up the collectors of access logs again; says whether they are others, which may have other names
    /// then.
    pub(crate) fn follow_collectors(&mut self, mesh: &MeshContext) -> bool {
        let policies = self.rules(&mesh_access_log::KIND).policies();
        let collectors = telemetry::log_collectors(policies, mesh);
        let differ = self.collectors != collectors;
        self.collectors = collectors;
        differ
    }

    /// Whether a policy here refers to a collector that is described elsewhere.
    pub(crate) fn refers_to_collectors(&self) -> bool {
        let shaping = super::kinds().filter(|kind| super::shapes_calls(kind));
        let policies = shaping.flat_map(|kind| self.rules(kind).policies());
        policies.into_iter().any(|policy| telemetry::refers_to_collector(policy))
    }

    /// Takes over the change of a policy of `kind`, of which only versions are named that select the proxies of
    /// this profile. Gives what they may hear another answer about.
    pub(crate) fn apply(
        &mut self,
        kind: &'static Kind,
        change: &PolicyChange,
        mesh: &MeshContext,
    ) -> Concern {
        let rules = self.rules.entry(kind.name).or_default();
        let before = rules.clone();
        rules.apply(change, &mesh.destinations);
        let concern = rules.differences(&before, &mesh.destinations);
        let of_gateway = self.gateway.as_mut().is_some_and(|gateway| gateway.apply(kind, change, mesh));
        let renamed = kind == &mesh_access_log::KIND && self.follow_collectors(mesh);
        if kind == MeshLoadBalancingStrategyEffect::KIND {
            self.note_affinity();
        }
        if kind == MeshProxyPatchEffect::KIND {
            self.note_patches();
            return Concern::All;
        }
        let rerouted = super::is_route(kind) && self.note_routes() && mesh.routes_by_older();
        // What it says of one of its listeners may change any of its routes.
        if renamed || of_gateway || rerouted || super::is_of_all_clusters(kind) {
            return Concern::All;
        }
        if super::shapes_calls(kind) { concern } else { Concern::default() }
    }

    fn note_affinity(&mut self) {
        let policies = self.rules(MeshLoadBalancingStrategyEffect::KIND).policies();
        self.affinity = Arc::new(mesh_load_balancing_strategy::affinity_keys(policies));
    }

    fn note_patches(&mut self) {
        let template = self.legacy.template();
        self.patches = Arc::new(Patches::of(self.rules(MeshProxyPatchEffect::KIND).policies(), template));
    }

    /// Looks again for routes of the newer kinds; says whether that makes a difference to those of the older one.
    fn note_routes(&mut self) -> bool {
        let some = |kind: &Kind| {
            let mut policies = self.rules(kind).policies();
            policies.any(|policy| policy.to.iter().any(|item| policy.group(item).is_some()))
        };
        let routes = (some(&mesh_http_route::KIND), some(&mesh_tcp_route::KIND));
        std::mem::replace(&mut self.newer_routes, routes) != routes
    }

    /// Takes over the change of an older policy that is about all that its proxies call, or one of which they
    /// call some services.
    pub(crate) fn apply_legacy(&mut self, kind: &'static Kind, change: &LegacyChange) {
        if self.legacy.apply(kind, change) {
            self.note_patches();
        }
    }

    /// What is changed of finished messages.
    pub(crate) fn patches(&self) -> &Patches {
        &self.patches
    }

    /// The keys of the tags by which its proxies see which endpoints are near.
    pub(crate) fn affinity_keys(&self) -> &Arc<BTreeSet<String>> {
        &self.affinity
    }

    /// The tags by which `dataplane` sees which endpoints are near.
    pub(crate) fn affinity_of(&self, dataplane: &Dataplane) -> BTreeMap<String, String> {
        let value = |key: &String| {
            let values = dataplane.tag_sets().filter_map(|tags| tags.get(key));
            // A proxy is in one place; who says otherwise is taken at the first word.
            values.min().map(|value| (key.clone(), value.clone()))
        };
        self.affinity.iter().filter_map(value).collect()
    }

    /// A route is another one; says whether a policy here is for a route.
    pub(crate) fn follow_routes(&mut self, mesh: &MeshContext) -> bool {
        let mut some = false;
        if let Some(gateway) = &mut self.gateway {
            gateway.follow_routes(mesh);
        }
        for rules in self.rules.values_mut() {
            some |= rules.for_routes().next().is_some();
            rules.follow_routes(&mesh.destinations);
        }
        some
    }

    /// The rules of one kind.
    pub(crate) fn rules(&self, kind: &Kind) -> &OutboundRules {
        static NONE: LazyLock<OutboundRules> = LazyLock::new(OutboundRules::default);
        self.rules.get(kind.name).unwrap_or(&NONE)
    }
}
