//! `TrafficRoute`: where calls of a service go, and how their cluster chooses among endpoints.

mod request;

use std::collections::{BTreeMap, BTreeSet};

use common::{
    policy::{
        legacy::{
            LegacyConf,
            traffic_route::{self as kind, KIND},
        },
        mesh_load_balancing_strategy::{
            HashFunction, LeastRequest, LoadBalancer, LoadBalancerType, RingHash,
        },
    },
    proto::kuma::mesh::v1alpha1::traffic_route::{Conf, Split, load_balancer::LbType},
};

use crate::{
    generator::{
        Backend, ClusterDraft, RouteDraft,
        envoy::http::{self, Share},
    },
    mesh::{Destination, MeshContext, Problem, Protocol},
    policy::{
        Outside, PolicyEffect, Reporter,
        mesh_load_balancing_strategy::{MeshLoadBalancingStrategyEffect, balancer},
        mesh_tcp_route::MeshTcpRouteEffect,
        routing::Routing,
        uses::Uses,
    },
};

type DestinationTags = BTreeMap<String, String>;

/// Whether the older kind says where calls of `called` go: as long as none of the newer ones is for what the proxy
/// calls. Services that are resources are known to those only.
pub(crate) fn routes(outside: Outside<'_>, called: &Backend) -> bool {
    let (_, newer_of_connections) = outside.profile.newer_routes;
    reaches(outside, called)
        && !(newer_of_connections && called.protocol.is_http() && has_newer_of_connections(outside, called))
}

fn has_newer_of_connections(outside: Outside<'_>, called: &Backend) -> bool {
    let mut unheard = BTreeSet::new();
    let mut reporter = Reporter { kind: MeshTcpRouteEffect::KIND, problems: &mut unheard };
    outside.confs::<MeshTcpRouteEffect>().of(called, &mut reporter).is_some()
}

/// Whether the cluster of `backend` is one that the older kinds are about.
pub(super) fn reaches(outside: Outside<'_>, backend: &Backend) -> bool {
    let (of_requests, of_connections) = outside.profile.newer_routes;
    let newer = if backend.protocol.is_http() { of_requests } else { of_connections };
    backend.resource.is_none() && outside.mesh.routes_by_older() && !newer
}

/// Why the older kinds have no effect on calls.
pub(super) fn why_not(outside: Outside<'_>) -> &'static str {
    if outside.mesh.routes_by_older() {
        "policies of this kind have no effect on some calls, because a MeshHTTPRoute or a MeshTCPRoute is for the proxy"
    } else {
        "policies of this kind have no effect on calls, because there is no TrafficRoute in the mesh"
    }
}

/// How traffic for `called` is passed on.
pub(crate) fn decide(
    outside: Outside<'_>,
    called: &Backend,
    uses: &mut Uses<'_>,
    problems: &mut BTreeSet<Problem>,
) -> Routing {
    let mut reporter = Reporter { kind: &KIND, problems };
    let Some(conf) = outside.profile.legacy.route(&called.name) else {
        reporter.report(format!("nothing is sent to {}: no policy says where its traffic goes", called.name));
        return Routing::Nowhere;
    };
    let tags = called.tags();
    let mut backends = Backends { called: &tags, uses, protocol: None };
    let rules: Vec<Vec<Share>> =
        conf.http.iter().map(|rule| backends.shares(&rule.split, &rule.destination)).collect();
    let otherwise = backends.shares(&conf.split, &conf.destination);
    if !backends.protocol.is_some_and(Protocol::is_http) {
        if otherwise.is_empty() {
            reporter.report(format!("nothing is sent to {}: it is no HTTP, and all rules are", called.name));
            return Routing::Nowhere;
        }
        return Routing::Bytes(otherwise);
    }
    let mut routes = Vec::new();
    for (rule, shares) in conf.http.iter().zip(rules).filter(|(_, shares)| !shares.is_empty()) {
        match request::route(rule, &shares) {
            Ok(message) => routes.push(RouteDraft { message, ..RouteDraft::default() }),
            Err(reason) => reporter.report(format!("a rule for {} is left out: {reason}", called.name)),
        }
    }
    if !otherwise.is_empty() {
        let message = http::forward("", http::any_path(), &otherwise);
        routes.push(RouteDraft { message, ..RouteDraft::default() });
    }
    Routing::Requests(routes)
}

/// What a route sends traffic to.
struct Backends<'a, 'b> {
    /// Tags of what is called.
    called: &'a DestinationTags,
    uses: &'a mut Uses<'b>,
    /// What all of them understand.
    protocol: Option<Protocol>,
}

impl Backends<'_, '_> {
    fn shares(&mut self, split: &[Split], destination: &DestinationTags) -> Vec<Share> {
        let mut shares = Vec::new();
        for (weight, tags) in kind::targets(split, destination) {
            let target = Destination::tagged(&meant(tags, self.called));
            let Some(backend) = target.and_then(|target| self.uses.backend(&target)) else { continue };
            let known = self.protocol.unwrap_or(backend.protocol);
            self.protocol = Some(known.common_with(backend.protocol));
            shares.push(Share { cluster: self.uses.cluster_of(&backend), weight });
        }
        http::bounded(shares)
    }
}

/// The tags that are meant where those of what is called stand in for any value.
fn meant(tags: &DestinationTags, called: &DestinationTags) -> DestinationTags {
    if tags.values().all(|value| value != "*") {
        return tags.clone();
    }
    let mut meant = called.clone();
    let exact = tags.iter().filter(|(_, value)| *value != "*");
    meant.extend(exact.map(|(key, value)| (key.clone(), value.clone())));
    meant
}

/// Makes the cluster choose as the route of its service says, unless a newer policy does.
pub(super) fn set_balancer(
    outside: Outside<'_>,
    backend: &Backend,
    cluster: &mut ClusterDraft,
    problems: &mut BTreeSet<Problem>,
) {
    let conf = outside.profile.legacy.route(&backend.name);
    let given = conf.and_then(|conf| conf.load_balancer.as_ref()).and_then(|given| given.lb_type.as_ref());
    let Some(given) = given else { return };
    let mut unheard = BTreeSet::new();
    let mut newer = Reporter { kind: MeshLoadBalancingStrategyEffect::KIND, problems: &mut unheard };
    let newer = outside.confs::<MeshLoadBalancingStrategyEffect>().of(backend, &mut newer);
    if newer.is_none_or(|newer| newer.load_balancer.is_none()) {
        let mut reporter = Reporter { kind: &KIND, problems };
        balancer::set(&mut cluster.message, &in_newer_terms(given), &mut reporter);
    }
}

fn in_newer_terms(given: &LbType) -> LoadBalancer {
    let kind = match given {
        LbType::RoundRobin(_) => LoadBalancerType::RoundRobin,
        LbType::LeastRequest(_) => LoadBalancerType::LeastRequest,
        LbType::RingHash(_) => LoadBalancerType::RingHash,
        LbType::Random(_) => LoadBalancerType::Random,
        LbType::Maglev(_) => LoadBalancerType::Maglev,
    };
    let least_request = match given {
        LbType::LeastRequest(least) => Some(LeastRequest {
            // Envoy refuses to choose among fewer than two.
            choice_count: Some(least.choice_count.max(2)),
            ..LeastRequest::default()
        }),
        _ => None,
    };
    let ring_hash = match given {
        LbType::RingHash(ring) => {
            let murmur = ring.hash_function == "MURMUR_HASH_2";
            let size = |size: u64| u32::try_from(size).ok().filter(|size| (1..=8_000_000).contains(size));
            Some(RingHash {
                hash_function: Some(if murmur { HashFunction::MurmurHash2 } else { HashFunction::XXHash }),
                min_ring_size: size(ring.min_ring_size),
                max_ring_size: size(ring.max_ring_size),
                ..RingHash::default()
            })
        }
        _ => None,
    };
    LoadBalancer { kind, round_robin: None, least_request, ring_hash, random: None, maglev: None }
}

/// Tagged destinations that routes of this kind send traffic to, whatever is called.
pub(crate) fn targets(mesh: &MeshContext) -> BTreeSet<Destination> {
    let confs = mesh.legacy(&KIND).into_iter().flat_map(|set| set.iter());
    let confs = confs.filter_map(|policy| match &policy.conf {
        LegacyConf::TrafficRoute(conf) => Some(conf),
        _ => None,
    });
    let tags = confs.flat_map(|conf: &Conf| {
        let rules = conf.http.iter().flat_map(|rule| kind::targets(&rule.split, &rule.destination));
        rules.chain(kind::targets(&conf.split, &conf.destination)).map(|(_, tags)| tags)
    });
    tags.filter_map(Destination::tagged).collect()
}
