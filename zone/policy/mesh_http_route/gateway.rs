//! The routes of builtin gateways: by host name, from `MeshHTTPRoute` or, where none is for the gateway, from
//! `MeshGatewayRoute`.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    model::{FieldPath, decode, kri::Kri},
    policy::{
        BackendRef, TargetKind,
        mesh_http_route::{
            self, Filter, FilterType, HeaderModifier, HttpRouteConf, HttpRouteRule, HttpRouteRuleConf,
            UrlRewrite, matches_hash,
        },
        rules::{OutboundRules, Policy},
    },
    proto::envoy::config::route::v3::{Route, route::Action, route_action::HostRewriteSpecifier},
};
use serde_json::Value;

use super::{RouteCandidate, filter, matching, usable};
use crate::{
    generator::{
        Backend, GatewayRouteDraft, HostDraft, RouteDraft,
        envoy::{flag, http::Share},
        gateway as draft,
    },
    mesh::{
        MeshContext,
        gateway::{GatewayHost, GatewayPort, covers, exactness},
    },
    policy::{
        Reporter,
        gateway::{GatewayRules, GatewayScope},
        uses::Uses,
    },
};

/// Rules for requests of one host name, as they are written.
struct WrittenRoutes {
    hostname: String,
    rules: Vec<HttpRouteRule>,
    /// The policies, by the hash of the matches.
    origins: BTreeMap<String, Kri>,
    /// Routes of the older generation have no name.
    named: bool,
}

/// The routes of `port` for the host names of these listeners, which are given most exact first. A name that a more
/// exact listener has is left to that.
pub(crate) fn hosts<'a>(
    mesh: &MeshContext,
    rules: &GatewayRules,
    port: &'a GatewayPort,
    listeners: impl IntoIterator<Item = &'a GatewayHost>,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Vec<HostDraft> {
    let mut drafts = Vec::new();
    let mut observed: Vec<&str> = Vec::new();
    for listener in listeners {
        let written = written(mesh, rules, port, listener, reporter);
        let before = drafts.len();
        for name in names(&listener.hostname, &written) {
            if observed.iter().any(|earlier| covers(earlier, &name)) {
                continue;
            }
            let mut meant: Vec<&WrittenRoutes> =
                written.iter().filter(|w| covers(&w.hostname, &name)).collect();
            meant.sort_by_cached_key(|w| exactness(&w.hostname));
            let routes = routes(&meant, rules, listener, uses, reporter);
            drafts.push(HostDraft { hostname: name, listener: Arc::clone(&listener.hostname), routes });
        }
        let hostname = &*listener.hostname;
        if drafts.len() == before && !observed.iter().any(|earlier| covers(earlier, hostname)) {
            let answer = GatewayRouteDraft { route: draft::no_routes(), backends: Vec::new() };
            let listener = Arc::clone(&listener.hostname);
            drafts.push(HostDraft { hostname: hostname.to_owned(), listener, routes: vec![answer] });
        }
        observed.push(hostname);
    }
    drafts.sort_by_cached_key(|host| exactness(&host.hostname));
    drafts
}

/// A rule with the hash of its matches and what it does at a gateway.
type Hashed<'a> = (String, &'a HttpRouteRule, HttpRouteRuleConf);

/// Under which names requests that come in by a listener are told apart, most exact first.
fn names(listener: &str, written: &[WrittenRoutes]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for WrittenRoutes { hostname, .. } in written {
        let name = match () {
            () if covers(hostname, listener) => listener,
            () if covers(listener, hostname) => hostname,
            () => continue,
        };
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names.sort_by_cached_key(|name| exactness(name));
    names
}

/// What is written for a listener.
fn written(
    mesh: &MeshContext,
    rules: &GatewayRules,
    port: &GatewayPort,
    listener: &GatewayHost,
    reporter: &mut Reporter<'_>,
) -> Vec<WrittenRoutes> {
    if !is_routed(rules) {
        return older(mesh, listener);
    }
    let of_listener =
        rules.rules(&mesh_http_route::KIND, GatewayScope::Host(port.number, &listener.hostname));
    newer(of_listener, reporter)
}

/// Whether a `MeshHTTPRoute` is for the gateway, which is then for all of it.
fn is_routed(rules: &GatewayRules) -> bool {
    rules.policies(&mesh_http_route::KIND).iter().any(|policy| of_gateways(policy).next().is_some())
}

/// The items of a route that are for gateways: a route for a service is for who calls that service by its name.
fn of_gateways(policy: &Policy) -> impl Iterator<Item = &Value> {
    policy.to.iter().filter(|item| item.target.kind == TargetKind::Mesh).map(|item| &item.conf)
}

fn newer(rules: &OutboundRules, reporter: &mut Reporter<'_>) -> Vec<WrittenRoutes> {
    let policies: Vec<&Arc<Policy>> = rules.policies().collect();
    let confs: Vec<&Value> = policies.iter().flat_map(|policy| of_gateways(policy)).collect();
    let Some(first) = policies.first() else { return Vec::new() };
    let mut origins = BTreeMap::new();
    for policy in &policies {
        let items = of_gateways(policy).filter_map(|conf| conf.get("rules")?.as_array());
        let rules = items
            .flatten()
            .filter_map(|rule| decode::value_at::<HttpRouteRule>(&FieldPath::new("rules"), rule).ok());
        for rule in rules {
            origins.extend(Kri::of(&policy.resource).map(|kri| (matches_hash(&rule.matches), kri)));
        }
    }
    let mut written = Vec::new();
    for merged in first.strategy().merge(&confs) {
        match decode::value_at::<HttpRouteConf>(&FieldPath::new("to"), &merged) {
            Ok(HttpRouteConf { rules, hostnames }) => written.push(WrittenRoutes {
                hostname: hostnames.into_iter().next().unwrap_or_else(|| "*".to_owned()),
                rules,
                origins: origins.clone(),
                named: true,
            }),
            Err(error) => reporter.report(error),
        }
    }
    written
}

fn older(mesh: &MeshContext, listener: &GatewayHost) -> Vec<WrittenRoutes> {
    let mut written = Vec::new();
    for route in mesh.gateway_routes.of(&listener.tags).values().filter(|route| route.backends.is_none()) {
        let any = ["*".to_owned()];
        let hostnames = if route.hostnames.is_empty() { &any[..] } else { &route.hostnames };
        written.extend(hostnames.iter().map(|hostname| WrittenRoutes {
            hostname: hostname.clone(),
            rules: route.rules.clone(),
            origins: BTreeMap::new(),
            named: false,
        }));
    }
    written
}

fn routes(
    written: &[&WrittenRoutes],
    rules: &GatewayRules,
    listener: &GatewayHost,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Vec<GatewayRouteDraft> {
    let written: Vec<(&WrittenRoutes, Vec<Hashed<'_>>)> = written
        .iter()
        .map(|w| {
            let rules = w.rules.iter();
            (*w, rules.map(|rule| (matches_hash(&rule.matches), rule, with_host(&rule.default))).collect())
        })
        .collect();
    let mut candidates: Vec<(&WrittenRoutes, RouteCandidate<'_>)> = Vec::new();
    for (w, rules) in &written {
        for (hash, rule, conf) in rules {
            let all = rule.matches.iter().map(|condition| RouteCandidate {
                condition: condition.clone(),
                hash: hash.clone(),
                conf,
            });
            candidates.extend(all.map(|candidate| (*w, candidate)));
        }
    }
    candidates.sort_by_key(|(_, candidate)| matching::precedence(&candidate.condition));
    let mut drafts = Vec::new();
    for (w, RouteCandidate { condition, hash, conf }) in candidates {
        if let Some(reason) = usable::problem(&condition, conf) {
            reporter.report(format!("a rule for {} is left out: {reason}", w.hostname));
            continue;
        }
        let (shares, backends) = shares(conf, listener, uses, reporter);
        for (matches, prefix) in matching::route_matches(&condition) {
            let action = match &shares[..] {
                [] => draft::unreachable(),
                shares => draft::forward(shares, &rules.gateway.tags),
            };
            let name = if w.named { hash.clone() } else { String::new() };
            let mut message =
                Route { name, r#match: Some(matches), action: Some(action), ..Route::default() };
            filter::apply(conf, &prefix, &mut message, &mut |reference: &BackendRef| {
                let target = through(reference, listener, uses, reporter)?;
                Some(uses.cluster_of(&target))
            });
            set_host(conf, &mut message);
            let route = RouteDraft { message, hash: hash.clone(), policy: w.origins.get(&hash).cloned() };
            drafts.push(GatewayRouteDraft { route, backends: backends.clone() });
        }
    }
    drafts
}

/// What a reference means for what comes in by a listener.
pub(crate) fn through(
    reference: &BackendRef,
    listener: &GatewayHost,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> Option<Backend> {
    let found = uses.referenced(reference, reporter)?;
    uses.backend(&found.destination.through(&listener.tags))
}

/// Where the requests of a rule go.
fn shares(
    conf: &HttpRouteRuleConf,
    listener: &GatewayHost,
    uses: &mut Uses<'_>,
    reporter: &mut Reporter<'_>,
) -> (Vec<Share>, Vec<Backend>) {
    let references = conf.backend_refs.as_deref().unwrap_or_default();
    let only = references.len() == 1;
    let (mut shares, mut backends) = (Vec::new(), Vec::new());
    for reference in references.iter().filter(|reference| only || reference.weight > 0) {
        if let Some(target) = through(reference, listener, uses, reporter) {
            shares.push(Share { cluster: uses.cluster_of(&target), weight: reference.weight.max(1) });
            backends.push(target);
        }
    }
    (crate::generator::envoy::http::bounded(shares), backends)
}

/// The same with a host that headers set as what it is: a part of where the request goes.
fn with_host(conf: &HttpRouteRuleConf) -> HttpRouteRuleConf {
    let is_host = |name: &str| matches!(name, ":authority" | "Host" | "host");
    let mut conf = conf.clone();
    let mut hosts = Vec::new();
    for filter in conf.filters.iter_mut().flatten() {
        let Some(HeaderModifier { set, .. }) = &mut filter.request_header_modifier else { continue };
        hosts.extend(set.iter().filter(|header| is_host(&header.name)).map(|header| header.value.clone()));
        set.retain(|header| !is_host(&header.name));
    }
    let rewrites = hosts.into_iter().map(|host| Filter {
        kind: FilterType::UrlRewrite,
        request_header_modifier: None,
        response_header_modifier: None,
        request_redirect: None,
        url_rewrite: Some(UrlRewrite { hostname: Some(host), ..UrlRewrite::default() }),
        request_mirror: None,
    });
    conf.filters.get_or_insert_with(Vec::new).extend(rewrites);
    conf
}

/// Requests may be told the host name of the endpoint they reach.
fn set_host(conf: &HttpRouteRuleConf, route: &mut Route) {
    let rewrites = conf.filters.iter().flatten().filter_map(|filter| filter.url_rewrite.as_ref());
    let of_backend = rewrites.into_iter().any(|rewrite| rewrite.host_to_backend_hostname == Some(true));
    if let (true, Some(Action::Route(action))) = (of_backend, &mut route.action) {
        action.host_rewrite_specifier = flag(true).map(HostRewriteSpecifier::AutoHostRewrite);
    }
}
