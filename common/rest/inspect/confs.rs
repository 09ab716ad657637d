//! `…/_policies` and `…/_routes`: what policies say about a proxy, one of its inbounds, or one destination, where
//! services are resources.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    InspectPath,
    matched::{Matched, MeshPolicies, weight},
    proxy, require_exclusive,
};
use crate::{
    model::{ItemForm, Kind, ResourceKey, kri::Kri},
    policy::{
        mesh_http_route::{self, Match, matches_hash},
        mesh_tcp_route,
        rules::{Destinations, InboundRules, ResourceRule, RuleOrigin, SelectableInbound, SelectableProxy},
    },
    registry,
    rest::{ApiError, KindApi, User},
    runtime::http::Client,
};

const TITLE: &str = "Could not retrieve Dataplane";

/// Of the proxy as a whole.
pub(super) async fn of_proxy(
    at: State<KindApi>,
    place: Path<InspectPath>,
    user: Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let confs = |matched: Matched| {
        let (conf, origins) = matched.selection.single()?;
        Some(json!({"kind": matched.kind.name, "conf": conf, "origins": identifiers(&origins)}))
    };
    let answer = move |view: ProxyPolicies| Ok(json!({"policies": view.each(confs)}));
    respond(at, place, user, client, registry::policies_in_order().collect(), answer).await
}

/// Of one inbound.
pub(super) async fn of_inbound(
    at: State<KindApi>,
    place: Path<InspectPath>,
    user: Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let kri = place.kri.clone();
    let answer = move |view: ProxyPolicies| {
        let section = parse(&kri)?.section;
        let named = |inbound: &&SelectableInbound| inbound.section == section;
        let inbound = view.proxy.inbounds.iter().find(named);
        let key = inbound.ok_or_else(|| ApiError::not_found("Could not retrieve inbound"))?.key.clone();
        let confs = |matched: Matched| of_rules(matched.kind, &matched.selection.inbound_rules(&key));
        Ok(json!({"policies": view.each(confs)}))
    };
    respond(at, place, user, client, registry::policies_in_order().collect(), answer).await
}

/// The rules for inbound traffic of one kind, each on its own.
fn of_rules(kind: &Kind, rules: &InboundRules) -> Option<Value> {
    let mut seen: BTreeSet<&ResourceKey> = BTreeSet::new();
    let mut origins = Vec::new();
    for rule in &rules.0 {
        if seen.insert(&rule.origin.policy.resource.key) {
            origins.push(rule.origin.clone());
        }
    }
    let shown = rules.0.iter().map(|rule| json!({"conf": rule.conf, "kri": identifier(&rule.origin)}));
    let entry =
        |rules: Vec<Value>| json!({"kind": kind.name, "rules": rules, "origins": identifiers(&origins)});
    Some(shown.collect::<Vec<_>>()).filter(|rules| !rules.is_empty()).map(entry)
}

/// Of one destination.
pub(super) async fn of_outbound(
    at: State<KindApi>,
    place: Path<InspectPath>,
    user: Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let kri = place.kri.clone();
    let answer = move |view: ProxyPolicies| {
        let destination = parse(&kri)?;
        Ok(json!({"policies": view.each_of_destination(&destination, None)}))
    };
    respond(at, place, user, client, registry::policies_in_order().collect(), answer).await
}

/// Of one route to a destination: what is said of the route itself, else of the destination.
pub(super) async fn of_route(
    at: State<KindApi>,
    place: Path<InspectPath>,
    user: Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let (kri, route) = (place.kri.clone(), place.route.clone());
    let answer = move |view: ProxyPolicies| {
        let (destination, route) = (parse(&kri)?, parse(&route)?);
        Ok(json!({"policies": view.each_of_destination(&destination, Some(&route))}))
    };
    respond(at, place, user, client, registry::policies_in_order().collect(), answer).await
}

/// The routes to a destination.
pub(super) async fn routes(
    at: State<KindApi>,
    place: Path<InspectPath>,
    user: Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let kri = place.kri.clone();
    let answer = move |view: ProxyPolicies| {
        let destination = parse(&kri)?;
        let routes = |matched: Matched, destinations: &Destinations| {
            let to = matched.selection.to_rules(destinations).ok()?;
            let rule = to.resources.lookup(&destination)?;
            let origins = identifiers(&rule.origins);
            Some(
                json!({"kind": matched.kind.name, "rules": route_rules(matched.kind, rule), "origins": origins}),
            )
        };
        let destinations = view.mesh.destinations.clone();
        Ok(json!({"routes": view.each(|matched| routes(matched, &destinations))}))
    };
    respond(at, place, user, client, vec![&mesh_http_route::KIND, &mesh_tcp_route::KIND], answer).await
}

/// The rules of a route, in the order in which they are tried.
fn route_rules(kind: &Kind, rule: &ResourceRule) -> Vec<Value> {
    if kind.item_form != ItemForm::RulesByMatches {
        return rule
            .confs
            .iter()
            .map(|conf| json!({"conf": conf["default"], "kri": "", "matches": null}))
            .collect();
    }
    let rules = rule.confs.iter().filter_map(|conf| conf["rules"].as_array()).flatten();
    let shown = |one: &Value| {
        let hash = serde_json::from_value::<Vec<Match>>(one["matches"].clone()).map(|m| matches_hash(&m));
        let origin = hash.ok().and_then(|hash| rule.origin_by_matches.get(&hash));
        let kri = origin.map(identifier).unwrap_or_default();
        json!({"conf": one["default"], "kri": kri, "matches": one["matches"]})
    };
    rules.map(shown).collect()
}

/// A proxy with the policies of its mesh.
struct ProxyPolicies {
    proxy: SelectableProxy,
    mesh: MeshPolicies,
}

impl ProxyPolicies {
    fn each(&self, show: impl FnMut(Matched) -> Option<Value>) -> Vec<Value> {
        self.mesh.matching(&self.proxy).into_iter().filter_map(show).collect()
    }

    fn each_of_destination(&self, destination: &Kri, route: Option<&Kri>) -> Vec<Value> {
        self.each(|matched| {
            let to = matched.selection.to_rules(&self.mesh.destinations).ok()?;
            let of_route = route.and_then(|route| to.resources.0.get(route));
            let rule = of_route.or_else(|| to.resources.lookup(destination))?;
            let origins = identifiers(&rule.origins);
            Some(json!({"kind": matched.kind.name, "conf": rule.confs, "origins": origins}))
        })
    }
}

async fn respond(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
    kinds: Vec<&'static Kind>,
    answer: impl FnOnce(ProxyPolicies) -> Result<Value, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    let subject = at.subject(&index, &place.target(), TITLE)?;
    require_exclusive(&index, &place.mesh, "_policies")?;
    let used = Arc::clone(&index);
    let answer = move || {
        let proxy = proxy(&used, &subject, TITLE)?;
        answer(ProxyPolicies { proxy, mesh: MeshPolicies::of_kinds(&used, subject.mesh(), kinds) })
    };
    at.inspect(&user, &client, weight(&index, &place.mesh), answer).await
}

fn parse(text: &str) -> Result<Kri, ApiError> {
    Kri::parse(text, registry::by_short)
        .map_err(|error| ApiError::bad_request(format!("bad request: {error}")))
}

fn identifiers(origins: &[RuleOrigin]) -> Vec<Value> {
    origins.iter().map(|origin| json!({"kri": identifier(origin)})).collect()
}

fn identifier(origin: &RuleOrigin) -> String {
    Kri::of(&origin.policy.resource).map(|kri| kri.to_string()).unwrap_or_default()
}
