//! `MeshHTTPRoute`: the listeners of HTTP services, with or without a policy.

mod filter;
mod matching;
mod usable;

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::{Kind, kri::Kri, labels},
    policy::{
        BackendRef, TargetKind,
        mesh_http_route::{self, Conf, Match, PathMatch, PathMatchType, RuleConf, matches_hash},
    },
};

use super::{Context, Policy, Reporter};
use crate::{
    generator::{
        Backend, Draft, RouteDraft,
        backend::add_backend,
        envoy::http::{self, Share},
        outbound::{self, Outbound},
    },
    mesh::MeshContext,
};

/// See the module.
pub(super) struct MeshHttpRoute;

impl super::TypedPolicy for mesh_http_route::MeshHttpRoute {
    const KIND: &'static Kind = &mesh_http_route::KIND;
    type Conf = Conf;
}

impl Policy for MeshHttpRoute {
    fn kind(&self) -> &'static Kind {
        &mesh_http_route::KIND
    }

    fn apply(&self, context: &Context<'_>, draft: &mut Draft, reporter: &mut Reporter<'_>) {
        let rules = context.rules::<mesh_http_route::MeshHttpRoute>(reporter);
        let tcp = context.rules::<common::policy::mesh_tcp_route::MeshTcpRoute>(reporter);
        for outbound in &context.outbounds {
            let backend = &outbound.backend;
            let conf = rules.outbound(backend, reporter);
            let as_bytes = conf.is_none() && tcp.outbound(backend, reporter).is_some();
            if !backend.protocol.is_http() || as_bytes {
                continue;
            }
            let origin = |hash: &str| rules.origin_of(backend, hash);
            let routes = routes(context.mesh, outbound, &conf.unwrap_or_default(), origin, draft, reporter);
            outbound::add_http_listener(context.proxy, outbound, routes, draft);
        }
    }
}

/// One condition of a rule, with what its requests get.
struct Candidate<'a> {
    condition: Match,
    hash: String,
    conf: &'a RuleConf,
}

/// The match of every request.
fn catch_all() -> Match {
    let path = PathMatch { value: "/".to_owned(), kind: PathMatchType::PathPrefix };
    Match { path: Some(path), ..Match::default() }
}

/// The routes of `outbound`, narrowest condition first, ending with one for everything else. Adds the
/// backends they lead to.
fn routes(
    mesh: &MeshContext,
    outbound: &Outbound,
    conf: &Conf,
    origin: impl Fn(&str) -> Option<Kri>,
    draft: &mut Draft,
    reporter: &mut Reporter<'_>,
) -> Vec<RouteDraft> {
    let nothing = RuleConf::default();
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for rule in &conf.rules {
        let hash = matches_hash(&rule.matches);
        candidates.extend(rule.matches.iter().map(|condition| {
            let condition = Match { path: condition.path.clone().or(catch_all().path), ..condition.clone() };
            Candidate { condition, hash: hash.clone(), conf: &rule.default }
        }));
    }
    if !candidates.iter().any(|c| c.condition == catch_all()) {
        let hash = matches_hash(&[catch_all()]);
        candidates.push(Candidate { condition: catch_all(), hash, conf: &nothing });
    }
    candidates.sort_by_key(|candidate| matching::precedence(&candidate.condition));

    let mut routes = Vec::new();
    for Candidate { condition, hash, conf } in &candidates {
        if let Some(reason) = usable::problem(condition, conf) {
            reporter.report(format!("a rule for {} is left out: {reason}", outbound.backend.service));
            continue;
        }
        let shares = shares(mesh, outbound, conf, draft, reporter);
        let policy = origin(hash);
        for (matches, prefix) in matching::route_matches(condition) {
            // Routes of services that are resources carry the name of the policy that made them.
            let named = policy.as_ref().filter(|_| outbound.backend.resource.is_some());
            let name = named.map_or_else(|| hash.clone(), ToString::to_string);
            let mut message = http::forward(&name, matches, &shares);
            filter::apply(conf, &prefix, &mut message, &mut |reference: &BackendRef| {
                let target = backend(mesh, reference, reporter)?;
                add_backend(mesh, &target, draft);
                Some(target.cluster)
            });
            routes.push(RouteDraft { message, hash: hash.clone(), policy: policy.clone() });
        }
    }
    routes
}

/// Where the requests of a rule go; what the outbound is for when no reference can be followed.
fn shares(
    mesh: &MeshContext,
    outbound: &Outbound,
    conf: &RuleConf,
    draft: &mut Draft,
    reporter: &mut Reporter<'_>,
) -> Vec<Share> {
    let mut shares = Vec::new();
    for reference in conf.backend_refs.iter().flatten().filter(|r| r.weight > 0) {
        if let Some(target) = backend(mesh, reference, reporter) {
            if !target.protocol.is_http() {
                let (name, protocol) = (&target.service, target.protocol);
                draft.consulted.insert(name.clone());
                reporter.report(format!("the backend {name:?} is left out: it speaks {protocol}, not HTTP"));
                continue;
            }
            add_backend(mesh, &target, draft);
            shares.push(Share { cluster: target.cluster, weight: reference.weight });
        }
    }
    if shares.is_empty() {
        add_backend(mesh, &outbound.backend, draft);
        shares.push(Share { cluster: outbound.backend.cluster.clone(), weight: 1 });
    }
    http::bounded(shares)
}

/// The tags a reference to a tagged service means.
pub(super) fn tags_of(reference: &BackendRef) -> Option<BTreeMap<String, String>> {
    let tagged = matches!(reference.kind, TargetKind::MeshService | TargetKind::MeshServiceSubset);
    let name = reference.name.clone().filter(|_| tagged)?;
    let mut tags = reference.tags.clone().unwrap_or_default();
    tags.insert(labels::TAG_SERVICE.to_owned(), name);
    Some(tags)
}

/// What a reference leads to; `None`, reported, when that is nothing this control plane can reach.
pub(super) fn backend(
    mesh: &MeshContext,
    reference: &BackendRef,
    reporter: &mut Reporter<'_>,
) -> Option<Backend> {
    let found = if reference.is_resource() && reference.kind == TargetKind::MeshService {
        let port = reference.port.map(|port| port.to_string()).or_else(|| reference.section_name.clone());
        let labels = reference.labels.as_ref().filter(|labels| !labels.is_empty());
        Backend::of_reference(mesh, reference.name.as_deref(), labels, &port.unwrap_or_default())
    } else {
        tags_of(reference).and_then(|tags| Backend::tagged(mesh, &tags))
    };
    if found.is_none() {
        let name = reference.name.as_deref().unwrap_or_default();
        let kind = reference.kind.name();
        reporter.report(format!(
            "the backend {kind} {name:?} is left out: it does not exist, or is of a kind not supported"
        ));
    }
    found
}

/// Tag sets that routes of this kind send traffic to.
pub(super) fn destination_tags(mesh: &MeshContext) -> BTreeSet<BTreeMap<String, String>> {
    let set = mesh.policies(&mesh_http_route::KIND);
    let policies = set.into_iter().flat_map(|s| &s.policies);
    let specs = policies.filter_map(|p| p.resource.spec::<mesh_http_route::MeshHttpRoute>().ok());
    let rules = specs.flat_map(|spec| spec.to).flat_map(|to| to.rules);
    let mut tags = BTreeSet::new();
    for conf in rules.map(|rule| rule.default) {
        let mirrors = conf.filters.iter().flatten().filter_map(|f| f.request_mirror.as_ref());
        let references = conf.backend_refs.iter().flatten().chain(mirrors.map(|m| &m.backend_ref));
        tags.extend(references.filter_map(tags_of));
    }
    tags
}
