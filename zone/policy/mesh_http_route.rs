//! `MeshHTTPRoute`: the listeners of HTTP services, with or without a policy.

mod filter;
pub(crate) mod gateway;
mod matching;
mod usable;

use std::collections::BTreeSet;

use common::{
    model::{Kind, kri::Kri},
    policy::{
        BackendRef,
        mesh_http_route::{
            self, HttpRouteConf, HttpRouteRuleConf, Match, PathMatch, PathMatchType, matches_hash,
        },
    },
};

use super::{
    PolicyEffect, Reporter,
    uses::{self, Uses},
};
use crate::{
    generator::{
        Backend, RouteDraft,
        envoy::http::{self, Share},
    },
    mesh::{Destination, MeshContext},
};

/// See the module.
pub(super) struct MeshHttpRouteEffect;

impl PolicyEffect for MeshHttpRouteEffect {
    const KIND: &'static Kind = &mesh_http_route::KIND;
    type Conf = HttpRouteConf;
}

/// One condition of a rule, with what its requests get.
struct RouteCandidate<'a> {
    condition: Match,
    hash: String,
    conf: &'a HttpRouteRuleConf,
}

/// The match of every request.
fn catch_all() -> Match {
    let path = PathMatch { value: "/".to_owned(), kind: PathMatchType::PathPrefix };
    Match { path: Some(path), ..Match::default() }
}

/// The routes to `called`, narrowest condition first, ending with one for everything else.
pub(super) fn routes(
    called: &Backend,
    conf: &HttpRouteConf,
    origin: impl Fn(&str) -> Option<Kri>,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Vec<RouteDraft> {
    let nothing = HttpRouteRuleConf::default();
    let mut candidates: Vec<RouteCandidate<'_>> = Vec::new();
    for rule in &conf.rules {
        let hash = matches_hash(&rule.matches);
        candidates.extend(rule.matches.iter().map(|condition| RouteCandidate {
            condition: condition.clone(),
            hash: hash.clone(),
            conf: &rule.default,
        }));
    }
    candidates.sort_by_key(|candidate| matching::precedence(&candidate.condition));
    if !candidates.iter().any(|c| c.condition == catch_all()) {
        let hash = matches_hash(&[catch_all()]);
        // Behind everything else, also behind expressions, which come after prefixes.
        candidates.push(RouteCandidate { condition: catch_all(), hash, conf: &nothing });
    }
    for RouteCandidate { condition, .. } in &mut candidates {
        condition.path = condition.path.take().or(catch_all().path);
    }

    let mut routes = Vec::new();
    for RouteCandidate { condition, hash, conf } in &candidates {
        if let Some(reason) = usable::problem(condition, conf) {
            reporter.report(format!("a rule for {} is left out: {reason}", called.name));
            continue;
        }
        if is_switched_off(conf) {
            let name = &called.name;
            reporter.report(format!("a rule for {name} is left out: all of its backends have the weight 0"));
            continue;
        }
        let shares = shares(called, conf, uses, reporter);
        let policy = origin(hash);
        for (matches, prefix) in matching::route_matches(condition) {
            // Routes of services that are resources carry the name of the policy that made them.
            let named = policy.as_ref().filter(|_| called.resource.is_some());
            let name = named.map_or_else(|| hash.clone(), ToString::to_string);
            let mut message = http::forward(&name, matches, &shares);
            filter::apply(conf, &prefix, &mut message, &mut |reference: &BackendRef| {
                let target = uses.referenced(reference, reporter)?;
                Some(uses.cluster_of(&target))
            });
            routes.push(RouteDraft { message, hash: hash.clone(), policy: policy.clone() });
        }
    }
    routes
}

/// Whether a rule names backends and gives none of them anything.
fn is_switched_off(conf: &HttpRouteRuleConf) -> bool {
    let references = conf.backend_refs.as_deref().unwrap_or_default();
    !references.is_empty() && references.iter().all(|reference| reference.weight == 0)
}

/// Where the requests of a rule go; to what is `called` when no reference can be followed.
fn shares(
    called: &Backend,
    conf: &HttpRouteRuleConf,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Vec<Share> {
    let mut shares = Vec::new();
    for reference in conf.backend_refs.iter().flatten().filter(|r| r.weight > 0) {
        if let Some(target) = uses.referenced(reference, reporter) {
            if !target.protocol.is_http() {
                let (name, protocol) = (&target.name, target.protocol);
                reporter.report(format!("the backend {name:?} is left out: it speaks {protocol}, not HTTP"));
                continue;
            }
            shares.push(Share { cluster: uses.cluster_of(&target), weight: reference.weight });
        }
    }
    if shares.is_empty() {
        shares.push(Share { cluster: uses.cluster_of(called), weight: 1 });
    }
    http::bounded(shares)
}

/// Tagged destinations that routes of this kind send traffic to.
pub(super) fn targets(mesh: &MeshContext) -> BTreeSet<Destination> {
    let set = mesh.policies(&mesh_http_route::KIND);
    // What another zone sends traffic to is never known by tags.
    let policies = set.into_iter().flat_map(|s| &s.policies).filter(|policy| !policy.is_guest());
    let specs = policies.filter_map(|p| p.resource.spec::<mesh_http_route::MeshHttpRoute>().ok());
    let rules = specs.flat_map(|spec| spec.to).flat_map(|to| to.rules);
    let mut targets = BTreeSet::new();
    for conf in rules.map(|rule| rule.default) {
        let mirrors = conf.filters.iter().flatten().filter_map(|f| f.request_mirror.as_ref());
        let references = conf.backend_refs.iter().flatten().chain(mirrors.map(|m| &m.backend_ref));
        targets.extend(references.filter_map(uses::tagged));
    }
    targets
}
