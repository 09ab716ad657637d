//! `…/_rules`: every rule that policies make for a proxy, each with the policies it came from.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use prost::Message;
use serde_json::{Value, json};

use super::{
    InspectPath, is_exclusive,
    matched::{Matched, MeshPolicies, weight},
    meta, present, proxy,
};
use crate::{
    model::{Resource, ResourceKey, kinds::dataplane},
    policy::{
        mesh_http_route::{self, Match, matches_hash},
        rules::{
            InboundKey, InboundRule, ResourceRule, ResourceRules, RuleOrigin, SelectableInbound,
            SelectableProxy, TagRule, ToRules,
        },
    },
    proto::kuma::mesh::v1alpha1::{
        Dataplane, MeshGateway,
        dataplane::{
            Networking,
            networking::{Gateway, gateway::GatewayType},
        },
    },
    rest::{ApiError, KindApi, User},
    runtime::http::Client,
    store::index::Index,
};

/// Of a dataplane.
pub(super) async fn of_dataplane(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    let subject = at.subject(&index, &place.target(), "Could not retrieve Dataplane")?;
    let used = Arc::clone(&index);
    let answer = move || {
        let proxy = proxy(&used, &subject, "Could not retrieve Dataplane")?;
        Ok(document(&used, &subject, &proxy))
    };
    at.inspect(&user, &client, weight(&index, &place.mesh), answer).await
}

/// Of a builtin gateway: of a proxy that would run it.
pub(super) async fn of_gateway(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    const TITLE: &str = "Could not retrieve MeshGateway";
    let index = at.api.index.current();
    let subject = at.subject(&index, &place.target(), TITLE)?;
    let used = Arc::clone(&index);
    let answer = move || {
        let runner = runner(&subject)?;
        let proxy = proxy(&used, &runner, TITLE)?;
        Ok(document(&used, &subject, &proxy))
    };
    at.inspect(&user, &client, weight(&index, &place.mesh), answer).await
}

/// A dataplane that the first selector of `gateway` selects.
fn runner(gateway: &Resource) -> Result<Resource, ApiError> {
    const TITLE: &str = "Invalid MeshGateway";
    let spec = MeshGateway::decode(&*gateway.spec)
        .map_err(|error| ApiError::internal(TITLE, format!("{}: {error}", gateway.key)))?;
    let selector = spec.selectors.into_iter().next();
    let tags = selector.ok_or_else(|| ApiError::bad_request("the MeshGateway has no selectors"))?.r#match;
    let gateway_part = Gateway { r#type: GatewayType::Builtin.into(), tags };
    let networking = Networking { gateway: Some(gateway_part), ..Networking::default() };
    let runner = Dataplane { networking: Some(networking), ..Dataplane::default() };
    let key = ResourceKey::new(&dataplane::KIND, gateway.mesh(), gateway.name());
    let mut resource = Resource::new(key, gateway.created).with_spec(runner.encode_to_vec());
    resource.labels.clone_from(&gateway.labels);
    Ok(resource)
}

fn document(index: &Index, subject: &Resource, proxy: &SelectableProxy) -> Value {
    let mesh = MeshPolicies::new(index, subject.mesh());
    let mut matches = BTreeMap::new();
    let exclusive = is_exclusive(index, subject.mesh());
    let rules: Vec<Value> = mesh
        .matching(proxy)
        .iter()
        .filter_map(|matched| of_kind(matched, proxy, &mesh, exclusive, &mut matches))
        .collect();
    let matches = matches.into_iter().map(|(hash, matches)| json!({"hash": hash, "match": matches}));
    json!({
        "resource": meta(subject),
        "rules": rules,
        "httpMatches": matches.collect::<Vec<_>>(),
    })
}

/// The rules of one kind; `None` when there are none.
fn of_kind(
    matched: &Matched,
    proxy: &SelectableProxy,
    mesh: &MeshPolicies,
    exclusive: bool,
    matches: &mut BTreeMap<String, Vec<Match>>,
) -> Option<Value> {
    let selection = &matched.selection;
    let mut warnings = selection.warnings.clone();
    let to = selection.to_rules(&mesh.destinations).unwrap_or_else(|error| {
        warnings.push(error.to_string());
        Arc::new(ToRules::default())
    });
    if matched.kind == &mesh_http_route::KIND {
        take_matches(&to, matches);
    }
    // What is said of services known by their tag has no effect where all of them are resources.
    let tags: Vec<Value> = if exclusive { Vec::new() } else { to.tags.0.iter().map(tag_rule).collect() };
    let resources = resource_rules(&to.resources);
    let from = |key: &InboundKey| {
        let rules = selection.client_rules(key).unwrap_or_else(|error| {
            warnings.push(format!("{key}: {error}"));
            Arc::default()
        });
        rules.0.iter().map(tag_rule).collect()
    };
    let keys = || selection.inbounds.keys();
    let from = by_inbound(proxy, keys(), from);
    let inbound = |key: &InboundKey| selection.inbound_rules(key).0.iter().map(inbound_rule).collect();
    let inbound = by_inbound(proxy, keys(), inbound);
    let single = selection
        .single()
        .map(|(conf, origins)| json!({"conf": conf, "origin": policies(&origins).collect::<Vec<_>>()}));
    if single.is_none() && [&tags, &resources, &from, &inbound].iter().all(|rules| rules.is_empty()) {
        return None;
    }
    Some(present(json!({
        "type": matched.kind.name,
        "toRules": tags,
        "toResourceRules": resources,
        "fromRules": from,
        "inboundRules": inbound,
        "proxyRule": single,
        "warnings": warnings,
    })))
}

/// The rules of each inbound that has some, by port.
fn by_inbound<'a>(
    proxy: &SelectableProxy,
    keys: impl Iterator<Item = &'a InboundKey>,
    mut rules: impl FnMut(&InboundKey) -> Vec<Value>,
) -> Vec<Value> {
    let mut found: Vec<(&InboundKey, Vec<Value>)> = keys.map(|key| (key, rules(key))).collect();
    found.retain(|(_, rules)| !rules.is_empty());
    found.sort_by_key(|(key, _)| key.port);
    let entry = |(key, rules)| json!({"inbound": inbound(proxy, key), "rules": rules});
    found.into_iter().map(entry).collect()
}

fn inbound(proxy: &SelectableProxy, key: &InboundKey) -> Value {
    let inbound = proxy.inbounds.iter().find(|inbound| inbound.key == *key);
    let is_named =
        |inbound: &&SelectableInbound| !inbound.zone_listener && inbound.section != key.port.to_string();
    let name = inbound.filter(is_named).map(|inbound| &inbound.section);
    let tags = match inbound {
        Some(inbound) if inbound.zone_listener => None,
        Some(inbound) => Some(&inbound.tags),
        None => Some(&proxy.gateway_tags),
    };
    let mut shown = present(json!({"name": name, "port": key.port}));
    shown["tags"] = json!(tags);
    shown
}

fn take_matches(to: &ToRules, matches: &mut BTreeMap<String, Vec<Match>>) {
    let tags = to.tags.0.iter().map(|rule| &rule.conf);
    let resources = to.resources.0.values().flat_map(|rule| &rule.confs);
    for conf in tags.chain(resources) {
        for rule in conf["rules"].as_array().into_iter().flatten() {
            // Policies are decoded before they get here, so their matches decode too.
            if let Ok(decoded) = serde_json::from_value::<Vec<Match>>(rule["matches"].clone()) {
                matches.insert(matches_hash(&decoded), decoded);
            }
        }
    }
}

fn tag_rule(rule: &TagRule) -> Value {
    let tags = rule.subset.0.iter().map(|tag| json!({"key": tag.key, "not": tag.not, "value": tag.value}));
    json!({
        "conf": rule.conf,
        "matchers": tags.collect::<Vec<_>>(),
        "origin": policies(&rule.origins).collect::<Vec<_>>(),
    })
}

fn inbound_rule(rule: &InboundRule) -> Value {
    present(json!({
        "conf": [&rule.conf],
        "match": rule.condition,
        "origin": [item(&rule.origin)],
    }))
}

fn resource_rules(rules: &ResourceRules) -> Vec<Value> {
    let mut rules: Vec<&ResourceRule> = rules.0.values().collect();
    rules.sort_by_key(|rule| rule.resource.name());
    let shown = |rule: &ResourceRule| {
        json!({
            "conf": rule.confs,
            "origin": rule.origins.iter().map(item).collect::<Vec<_>>(),
            "resourceMeta": meta(&rule.resource),
            "resourceSectionName": rule.section,
        })
    };
    rules.into_iter().map(shown).collect()
}

fn policies(origins: &[RuleOrigin]) -> impl Iterator<Item = Value> {
    origins.iter().map(|origin| meta(&origin.policy.resource))
}

fn item(origin: &RuleOrigin) -> Value {
    json!({"resourceMeta": meta(&origin.policy.resource), "ruleIndex": origin.index})
}
