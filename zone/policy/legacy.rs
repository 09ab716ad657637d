//! What Envoy gets from the older policies. They come after the newer ones and fill in what none of those says.
//!
//! Those about calls ([`LegacyRole::Call`]) take part where the older kind of route does: in a mesh with a `TrafficRoute`,
//! for proxies that no newer route is for. Wherever else they would be for a call, the proxy is told that they have
//! no effect.
//!
//! [`LegacyRole::Call`]: common::policy::legacy::LegacyRole::Call

mod calls;
mod circuit_breaker;
mod fault_injection;
mod health_check;
mod proxy_template;
mod rate_limit;
mod retry;
mod timeout;
mod traffic_log;
mod traffic_permission;
mod traffic_route;
mod traffic_trace;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{
    model::Kind,
    policy::{
        legacy::{self as kinds, LegacyPolicy, LegacySet, choice, tag_sets},
        rules::{SelectableProxy, Selection},
    },
    proto::google::protobuf,
};

pub(crate) use self::{
    calls::{CallsKey, LegacyCalls},
    proxy_template::{RAW, add_raw},
    traffic_permission::permission_to_call,
    traffic_route::{decide, routes, targets as route_targets},
};
use super::{
    Outside, PolicyEffect, Reporter, Selections, mesh_circuit_breaker::MeshCircuitBreakerEffect,
    mesh_health_check::MeshHealthCheckEffect, mesh_retry::MeshRetryEffect, mesh_timeout::MeshTimeoutEffect,
    mesh_traffic_permission::MeshTrafficPermissionEffect,
};
use crate::{
    generator::{Backend, ClusterDraft, Draft, ListenerDraft, Sidecar},
    mesh::{Dataplane, MeshContext, Problem},
};

/// Kinds of policies about calls that have an effect on the way to a service.
static ABOUT_CALLS: [&Kind; 5] = [
    &kinds::timeout::KIND,
    &kinds::retry::KIND,
    &kinds::circuit_breaker::KIND,
    &kinds::health_check::KIND,
    &kinds::traffic_log::KIND,
];

/// Whether proxies have to tell their tags to whom they call, who look at them.
pub(super) fn look_at_tags(mesh: &MeshContext) -> bool {
    mesh.legacy(&kinds::fault_injection::KIND).is_some() || mesh.legacy(&kinds::rate_limit::KIND).is_some()
}

/// Kinds of policies about what comes in that have an effect where an egress stands for a service.
static OF_EGRESSES: [&Kind; 3] =
    [&kinds::traffic_permission::KIND, &kinds::fault_injection::KIND, &kinds::rate_limit::KIND];

/// Whether what egresses do with calls follows from policies of `kind`.
pub(super) fn is_of_egresses(kind: &Kind) -> bool {
    OF_EGRESSES.contains(&kind)
}

/// Those of a kind that may be for `subject`, in order of their names.
fn candidates<'a>(
    mesh: &'a MeshContext,
    subject: Option<&SelectableProxy>,
    kind: &Kind,
) -> Vec<&'a Arc<LegacyPolicy>> {
    let found = |set: &'a LegacySet| subject.map(|subject| set.candidates(subject));
    mesh.legacy(kind).and_then(found).unwrap_or_default()
}

/// The one of a kind for the proxy of `dataplane` as a whole.
fn for_proxy<'a>(mesh: &'a MeshContext, dataplane: &Dataplane, kind: &Kind) -> Option<&'a Arc<LegacyPolicy>> {
    let subject = dataplane.subject.as_deref()?;
    choice::for_proxy(candidates(mesh, Some(subject), kind), &tag_sets(subject))
}

/// The template for the proxy of `dataplane`.
pub(crate) fn template_for<'a>(mesh: &'a MeshContext, dataplane: &Dataplane) -> Option<&'a LegacyPolicy> {
    for_proxy(mesh, dataplane, &kinds::proxy_template::KIND).map(AsRef::as_ref)
}

/// Applies them to what belongs to one proxy alone.
pub(super) fn apply_inbound(
    mesh: &MeshContext,
    proxy: &Sidecar,
    selections: &Selections,
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    if mesh.legacy.is_empty() {
        return;
    }
    let newer = selections.of(MeshTrafficPermissionEffect::KIND);
    let encrypted = proxy.shown.is_some();
    apply_incoming(mesh, proxy.dataplane.subject.as_deref(), (newer, encrypted), draft, problems);
    traffic_trace::apply(mesh, proxy, selections, draft, problems);
}

/// Applies those about what comes in to the listeners in `draft`, which are those of `subject`; `newer` are the
/// permissions of the newer kind for it, with whether it sees who calls.
pub(super) fn apply_incoming(
    mesh: &MeshContext,
    subject: Option<&SelectableProxy>,
    newer: (&Selection, bool),
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    traffic_permission::apply(mesh, subject, newer, draft, problems);
    fault_injection::apply(mesh, subject, draft, problems);
    rate_limit::apply(mesh, subject, draft, problems);
}

/// Applies them to the listener by which `backend` is called.
pub(super) fn apply_outbound(
    outside: Outside<'_>,
    backend: &Backend,
    listener: &mut ListenerDraft,
    problems: &mut BTreeSet<Problem>,
) {
    if backend.resource.is_some() {
        return;
    }
    let calls = &outside.profile.legacy;
    if !traffic_route::routes(outside, backend) {
        for kind in ABOUT_CALLS.into_iter().filter(|kind| calls.choose(kind, &backend.name).is_some()) {
            let mut reporter = Reporter { kind, problems };
            reporter.report(traffic_route::why_not(outside));
        }
        return;
    }
    let timeout = calls.timeout(&backend.name);
    if let Some(conf) =
        in_force::<MeshTimeoutEffect, _>(timeout, &kinds::timeout::KIND, outside, backend, problems)
    {
        timeout::set_listener(listener, conf, backend.protocol);
    }
    let retry = calls.retry(&backend.name);
    if let Some(conf) = in_force::<MeshRetryEffect, _>(retry, &kinds::retry::KIND, outside, backend, problems)
    {
        retry::set(listener, conf, backend.protocol);
    }
    traffic_log::apply(outside, backend, listener, problems);
    traffic_trace::apply_outbound(outside, backend, listener, problems);
}

/// Applies them to the cluster that reaches `backend`.
pub(super) fn apply_cluster(
    outside: Outside<'_>,
    backend: &Backend,
    cluster: &mut ClusterDraft,
    problems: &mut BTreeSet<Problem>,
) {
    if !traffic_route::reaches(outside, backend) {
        return;
    }
    let calls = &outside.profile.legacy;
    traffic_route::set_balancer(outside, backend, cluster, problems);
    let timeout = calls.timeout(&backend.name);
    if let Some(conf) =
        in_force::<MeshTimeoutEffect, _>(timeout, &kinds::timeout::KIND, outside, backend, problems)
    {
        timeout::set_cluster(cluster, conf, backend.protocol);
    }
    if let Some(conf) = calls.circuit_breaker(&backend.name) {
        let mut unheard = BTreeSet::new();
        let mut reporter = Reporter { kind: MeshCircuitBreakerEffect::KIND, problems: &mut unheard };
        let newer =
            outside.confs::<MeshCircuitBreakerEffect>().of(backend, &mut reporter).unwrap_or_default();
        circuit_breaker::set(cluster, conf, &newer);
    }
    let kind = &kinds::health_check::KIND;
    let check = calls.health_check(&backend.name);
    if let Some(conf) = in_force::<MeshHealthCheckEffect, _>(check, kind, outside, backend, problems) {
        let mut reporter = Reporter { kind: &kinds::health_check::KIND, problems };
        health_check::set(cluster, conf, backend.protocol, &mut reporter);
    }
}

/// What an older policy of `kind` says about `backend`, unless a newer one says it, which is told.
fn in_force<P: PolicyEffect, C>(
    conf: Option<C>,
    kind: &'static Kind,
    outside: Outside<'_>,
    backend: &Backend,
    problems: &mut BTreeSet<Problem>,
) -> Option<C> {
    let conf = conf?;
    if is_unsaid::<P>(outside, backend) {
        return Some(conf);
    }
    Reporter { kind, problems }.report(overridden("calls", P::KIND));
    None
}

/// Why older policies have no effect where a newer one says the same.
fn overridden(part: &str, newer: &Kind) -> String {
    format!("policies of this kind have no effect on some {part}, because a {} is for them", newer.name)
}

/// Whether no policy of this newer kind is for `backend`. What is wrong with one is told where it is applied.
fn is_unsaid<P: PolicyEffect>(outside: Outside<'_>, backend: &Backend) -> bool {
    let mut unheard = BTreeSet::new();
    let mut reporter = Reporter { kind: P::KIND, problems: &mut unheard };
    outside.confs::<P>().said_of(backend, &mut reporter).is_none() && unheard.is_empty()
}

/// A span of time as Envoy takes it; less than nothing is nothing.
fn span(given: &protobuf::Duration) -> Duration {
    // Envoy counts in nanoseconds and refuses what that cannot hold.
    let longest = 9_000_000_000;
    let seconds = u64::try_from(given.seconds).unwrap_or(0).min(longest);
    Duration::new(seconds, u32::try_from(given.nanos).unwrap_or(0))
}

/// The same, of something that may be left out.
fn span_or_nothing(given: Option<&protobuf::Duration>) -> Duration {
    given.map(span).unwrap_or_default()
}
