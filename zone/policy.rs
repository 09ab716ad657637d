//! What Envoy gets from policies.
//!
//! A policy is one file here and one line in [`ALL`]. Policies are applied in that order, and later ones
//! see the work of earlier ones. Each is applied whether or not the user wrote one, since several have
//! effects by default.
//!
//! A policy works on one place at a time: on what belongs to one proxy alone (its inbounds), on the
//! listener of one outbound, or on one cluster. The latter two are made once for all proxies of a
//! [`Profile`] and must follow from nothing but the profile, the mesh and the place.

pub(crate) mod blame;
mod by_client;
mod caller;
mod client;
mod egress;
pub(crate) mod gateway;
mod header;
mod identity;
pub(crate) mod legacy;
mod lookup;
mod mesh_access_log;
mod mesh_circuit_breaker;
mod mesh_fault_injection;
mod mesh_health_check;
pub(crate) mod mesh_http_route;
mod mesh_load_balancing_strategy;
mod mesh_metric;
mod mesh_passthrough;
mod mesh_proxy_patch;
mod mesh_rate_limit;
mod mesh_retry;
pub(crate) mod mesh_tcp_route;
mod mesh_timeout;
mod mesh_tls;
mod mesh_trace;
mod mesh_traffic_permission;
mod profile;
pub(crate) mod route;
mod routing;
mod telemetry;
mod uses;
mod zone_listener;

use std::collections::BTreeSet;

use common::{
    model::Kind,
    policy::{
        mesh_traffic_permission as permission,
        rules::{OutboundRules, Policy, RulesError, Selection},
    },
};
use serde::de::DeserializeOwned;

pub(crate) use self::caller::{Caller, Particular};
pub(crate) use self::egress::{apply_egress, external_subject, is_of_egresses};
pub(crate) use self::gateway::{GatewayRules, GatewayScope};
use self::lookup::{InboundConfs, OutboundConfs};
pub(crate) use self::mesh_proxy_patch::Patches;
pub(crate) use self::profile::{Profile, Selections};
pub(crate) use self::zone_listener::{apply_way_out, apply_zone_listener};
use crate::{
    generator::{
        Backend, ClusterDraft, Draft, GatewayRouteDraft, ListenerDraft, ResourceCollection, Role, Sidecar,
    },
    mesh::{Destination, MeshContext, Problem, problem::Subject},
};

/// The effect of one kind of policy.
trait PolicyEffect: Sync {
    /// Which kind.
    const KIND: &'static Kind;
    /// What is merged for one place.
    type Conf: DeserializeOwned + Clone;

    /// Changes what belongs to the proxy alone. What cannot be applied is reported and left out; every
    /// change made is complete.
    fn inbounds(
        &self,
        mesh: &MeshContext,
        confs: &InboundConfs<'_, Self::Conf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        let _nothing = (mesh, confs, draft, reporter);
    }

    /// Changes what belongs to the proxy alone and follows from more of it than its inbounds. It comes after
    /// [`inbounds`](Self::inbounds).
    fn proxy(
        &self,
        mesh: &MeshContext,
        proxy: &Sidecar,
        confs: &InboundConfs<'_, Self::Conf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        let _nothing = (mesh, proxy, confs, draft, reporter);
    }

    /// Whether anything but what belongs to the proxy alone follows from it.
    const SHAPES_CALLS: bool = true;

    /// Whether calls may tell something about who makes them.
    const TELLS: bool = false;

    /// What they tell when `policy` is for that proxy.
    fn tells(&self, policy: &Policy) -> BTreeSet<Particular> {
        let _nothing = policy;
        BTreeSet::new()
    }

    /// Changes the listener by which `backend` is called.
    fn outbound(
        &self,
        confs: &OutboundConfs<'_, Self::Conf>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let _nothing = (confs, backend, listener, reporter);
    }

    /// Changes the cluster that reaches `backend`.
    fn cluster(
        &self,
        confs: &OutboundConfs<'_, Self::Conf>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let _nothing = (confs, backend, cluster, reporter);
    }

    /// Changes the listener of a port of a builtin gateway.
    fn entrance(
        &self,
        confs: &OutboundConfs<'_, Self::Conf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let _nothing = (confs, listener, reporter);
    }

    /// Changes the routes of requests to a builtin gateway that ask for one of its host names.
    fn gateway_routes(
        &self,
        confs: &OutboundConfs<'_, Self::Conf>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    ) {
        let _nothing = (confs, routes, reporter);
    }
}

/// What calling something from one profile follows from.
#[derive(Clone, Copy)]
pub(crate) struct Outside<'a> {
    /// The mesh.
    pub(crate) mesh: &'a MeshContext,
    /// What its policies say.
    pub(crate) profile: &'a Profile,
    /// Of what place of a builtin gateway they say it; `None` where there is none.
    pub(crate) place: Option<GatewayScope<'a>>,
}

impl<'a> Outside<'a> {
    fn confs<P: PolicyEffect>(self) -> OutboundConfs<'a, P::Conf> {
        OutboundConfs::new(self.rules(P::KIND), self)
    }

    fn rules(self, kind: &Kind) -> &'a OutboundRules {
        match (self.place, &self.profile.gateway) {
            (Some(place), Some(gateway)) => gateway.rules(kind, place),
            _ => self.profile.rules(kind),
        }
    }

    /// The same at a place of the gateway.
    pub(crate) fn at(self, place: GatewayScope<'a>) -> Self {
        Self { place: Some(place), ..self }
    }
}

/// A [`PolicyEffect`] whatever its types.
trait AnyPolicyEffect: Sync {
    fn kind(&self) -> &'static Kind;
    fn inbounds(
        &self,
        mesh: &MeshContext,
        selection: &Selection,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    );
    fn proxy(
        &self,
        mesh: &MeshContext,
        proxy: &Sidecar,
        selection: &Selection,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    );
    fn shapes_calls(&self) -> bool;
    fn may_tell(&self) -> bool;
    fn tells(&self, policy: &Policy) -> BTreeSet<Particular>;
    fn outbound(
        &self,
        outside: Outside<'_>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    );
    fn cluster(
        &self,
        outside: Outside<'_>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    );
    fn entrance(&self, outside: Outside<'_>, listener: &mut ListenerDraft, reporter: &mut Reporter<'_>);
    fn gateway_routes(
        &self,
        outside: Outside<'_>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    );
}

impl<P: PolicyEffect> AnyPolicyEffect for P {
    fn kind(&self) -> &'static Kind {
        P::KIND
    }

    fn inbounds(
        &self,
        mesh: &MeshContext,
        selection: &Selection,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        PolicyEffect::inbounds(self, mesh, &InboundConfs::new(selection), draft, reporter);
    }

    fn proxy(
        &self,
        mesh: &MeshContext,
        proxy: &Sidecar,
        selection: &Selection,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        PolicyEffect::proxy(self, mesh, proxy, &InboundConfs::new(selection), draft, reporter);
    }

    fn shapes_calls(&self) -> bool {
        P::SHAPES_CALLS
    }

    fn may_tell(&self) -> bool {
        P::TELLS
    }

    fn tells(&self, policy: &Policy) -> BTreeSet<Particular> {
        PolicyEffect::tells(self, policy)
    }

    fn outbound(
        &self,
        outside: Outside<'_>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        PolicyEffect::outbound(self, &outside.confs::<P>(), backend, listener, reporter);
    }

    fn cluster(
        &self,
        outside: Outside<'_>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        PolicyEffect::cluster(self, &outside.confs::<P>(), backend, cluster, reporter);
    }

    fn entrance(&self, outside: Outside<'_>, listener: &mut ListenerDraft, reporter: &mut Reporter<'_>) {
        PolicyEffect::entrance(self, &outside.confs::<P>(), listener, reporter);
    }

    fn gateway_routes(
        &self,
        outside: Outside<'_>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    ) {
        PolicyEffect::gateway_routes(self, &outside.confs::<P>(), routes, reporter);
    }
}

/// Every policy, in order of application. Routes come first: they say what the others work on.
static ALL: &[&dyn AnyPolicyEffect] = &[
    &mesh_http_route::MeshHttpRouteEffect,
    &mesh_tcp_route::MeshTcpRouteEffect,
    &mesh_tls::MeshTlsEffect,
    &mesh_passthrough::MeshPassthroughEffect,
    &mesh_access_log::MeshAccessLogEffect,
    &mesh_trace::MeshTraceEffect,
    &mesh_fault_injection::MeshFaultInjectionEffect,
    &mesh_rate_limit::MeshRateLimitEffect,
    &mesh_load_balancing_strategy::MeshLoadBalancingStrategyEffect,
    &mesh_timeout::MeshTimeoutEffect,
    &mesh_traffic_permission::MeshTrafficPermissionEffect,
    &mesh_health_check::MeshHealthCheckEffect,
    &mesh_circuit_breaker::MeshCircuitBreakerEffect,
    &mesh_retry::MeshRetryEffect,
    &mesh_metric::MeshMetricEffect,
    &mesh_proxy_patch::MeshProxyPatchEffect,
];

/// The kinds of policies that have an effect.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    ALL.iter().map(|policy| policy.kind())
}

/// What calls tell about who makes them when `policy` of `kind` is for that proxy.
pub(crate) fn tells(kind: &Kind, policy: &Policy) -> BTreeSet<Particular> {
    ALL.iter().find(|effect| effect.kind() == kind).map(|effect| effect.tells(policy)).unwrap_or_default()
}

/// Whether a policy of the mesh refers to a collector that is described elsewhere.
pub(crate) fn refer_to_collectors(mesh: &MeshContext) -> bool {
    let sets = kinds().filter_map(|kind| mesh.policies(kind));
    sets.flat_map(|set| &set.policies).any(|policy| telemetry::refers_to_collector(policy))
}

/// Whether listeners and clusters of what is called follow from policies of `kind`.
pub(crate) fn shapes_calls(kind: &Kind) -> bool {
    ALL.iter().any(|effect| effect.kind() == kind && effect.shapes_calls())
}

/// Where a policy says what it left out.
pub(crate) struct Reporter<'a> {
    kind: &'static Kind,
    problems: &'a mut BTreeSet<Problem>,
}

impl Reporter<'_> {
    fn report(&mut self, reason: impl ToString) {
        let subject = Subject::Part(self.kind.name.to_owned());
        self.problems.insert(Problem { subject, reason: reason.to_string() });
    }
}

/// Why nobody can be told who may call a proxy, where its permissions overlap in too many ways.
pub(crate) fn undecided(selections: &Selections) -> Option<RulesError> {
    mesh_traffic_permission::undecided(selections.of(&permission::KIND))
}

/// Applies every policy to what belongs to one proxy alone.
pub(crate) fn apply_inbound(
    mesh: &MeshContext,
    proxy: &Sidecar,
    selections: &Selections,
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    for policy in ALL {
        let mut reporter = Reporter { kind: policy.kind(), problems };
        let selection = selections.of(policy.kind());
        for warning in &selection.warnings {
            reporter.report(warning);
        }
        policy.inbounds(mesh, selection, draft, &mut reporter);
        policy.proxy(mesh, proxy, selection, draft, &mut reporter);
    }
    legacy::apply_inbound(mesh, proxy, selections, draft, problems);
}

/// Applies every policy to the listener by which `backend` is called.
pub(crate) fn apply_outbound(
    outside: Outside<'_>,
    backend: &Backend,
    listener: &mut ListenerDraft,
    problems: &mut BTreeSet<Problem>,
) {
    for policy in ALL {
        let mut reporter = Reporter { kind: policy.kind(), problems };
        policy.outbound(outside, backend, listener, &mut reporter);
    }
    legacy::apply_outbound(outside, backend, listener, problems);
}

/// Applies every policy to the cluster that reaches `backend`.
pub(crate) fn apply_cluster(
    outside: Outside<'_>,
    backend: &Backend,
    cluster: &mut ClusterDraft,
    problems: &mut BTreeSet<Problem>,
) {
    for policy in ALL {
        let mut reporter = Reporter { kind: policy.kind(), problems };
        policy.cluster(outside, backend, cluster, &mut reporter);
    }
    legacy::apply_cluster(outside, backend, cluster, problems);
}

/// Applies every policy to the listener of a port of a builtin gateway.
pub(crate) fn apply_entrance(
    outside: Outside<'_>,
    listener: &mut ListenerDraft,
    problems: &mut BTreeSet<Problem>,
) {
    for policy in ALL {
        let mut reporter = Reporter { kind: policy.kind(), problems };
        policy.entrance(outside, listener, &mut reporter);
    }
}

/// Applies every policy to the routes of a builtin gateway for one of its host names.
pub(crate) fn apply_gateway_routes(
    outside: Outside<'_>,
    routes: &mut [GatewayRouteDraft],
    problems: &mut BTreeSet<Problem>,
) {
    for policy in ALL {
        let mut reporter = Reporter { kind: policy.kind(), problems };
        policy.gateway_routes(outside, routes, &mut reporter);
    }
}

/// Where a builtin gateway says what of its routes is left out.
pub(crate) fn reporter_of_gateway(problems: &mut BTreeSet<Problem>) -> Reporter<'_> {
    Reporter { kind: &common::model::kinds::mesh_gateway::KIND, problems }
}

/// Does to the finished messages of one proxy what policies say of them; with what does it.
pub(crate) fn patch_own(
    mesh: &MeshContext,
    proxy: &Sidecar,
    selections: &Selections,
    mut own: ResourceCollection,
    problems: &mut BTreeSet<Problem>,
) -> (ResourceCollection, Patches) {
    let selection = selections.of(mesh_proxy_patch::MeshProxyPatchEffect::KIND);
    let template = legacy::template_for(mesh, &proxy.dataplane);
    if let Some(template) = template {
        legacy::add_raw(template, &mut own, problems);
    }
    let patches = Patches::of(&selection.policies, template);
    // Its Envoy waits for the layer before it asks for anything else, so there always is one.
    match proxy.metadata.has_runtime_layer() {
        true => own.insert(patches.runtime()),
        false => patches.without_runtime(problems),
    }
    (patches.own(own, problems), patches)
}

/// Destinations to which routes of the mesh send traffic, of which the ingresses of other zones must know.
pub(crate) fn route_targets(mesh: &MeshContext) -> BTreeSet<Destination> {
    let mut targets = mesh_http_route::targets(mesh);
    targets.extend(mesh_tcp_route::targets(mesh));
    targets.extend(legacy::route_targets(mesh));
    let of_gateways = mesh.gateway_routes.iter().flat_map(|route| route.references());
    targets.extend(of_gateways.filter_map(uses::tagged));
    targets
}

/// Whether [`route_targets`] depend on policies of `kind`.
pub(crate) fn is_route(kind: &Kind) -> bool {
    [mesh_http_route::MeshHttpRouteEffect::KIND, mesh_tcp_route::MeshTcpRouteEffect::KIND].contains(&kind)
}

/// Whether policies of `kind` say something of every cluster, whatever they point at.
fn is_of_all_clusters(kind: &Kind) -> bool {
    kind == mesh_tls::MeshTlsEffect::KIND
}

/// Whether proxies of the mesh tell their tags to whom they call.
pub(crate) fn tells_tags(mesh: &MeshContext) -> bool {
    let faults = mesh.policies(mesh_fault_injection::MeshFaultInjectionEffect::KIND);
    faults.is_some_and(|faults| !faults.policies.is_empty()) || legacy::look_at_tags(mesh)
}

/// The inbounds a policy finds in a draft.
fn inbound_of(role: &Role) -> Option<&crate::mesh::Inbound> {
    match role {
        Role::Inbound(inbound) => Some(inbound),
        Role::Outbound(_)
        | Role::Gateway(_)
        | Role::ZoneIngress
        | Role::ZoneEgress
        | Role::Admin
        | Role::Machine(_)
        | Role::Telemetry(_) => None,
    }
}
