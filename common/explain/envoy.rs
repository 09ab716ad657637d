//! Listeners, routes and clusters, each with the resource it is there for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    CONTROL_PLANE,
    fields::{self, PolicyDocuments},
    subject::ExplainedProxy,
};

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// What the Envoy of a proxy has, where `config` says it.
pub(super) fn resources(
    proxy: &ExplainedProxy<'_>,
    config: &Value,
    routes: &BTreeMap<String, String>,
) -> Vec<Value> {
    let xds = &config["xds"];
    let mut rows = Vec::new();
    let mut called: BTreeMap<String, String> = BTreeMap::new();
    let mut told: BTreeSet<(String, String)> = BTreeSet::new();
    for (name, listener) in members(&xds[LISTENER]) {
        let from = proxy.listener(name).or_else(|| proxy.cluster(clusters(listener).first()?));
        let from = from.unwrap_or_else(|| CONTROL_PLANE.to_owned());
        rows.push(json!({"type": "listener", "name": name, "from": from}));
        // Routes of a gateway stand beside its listener.
        let configurations = route_configurations(listener, &xds[ROUTES]);
        for route in configurations.into_iter().flat_map(|one| every(one, "routes")) {
            let cluster = clusters(&route["route"]);
            let from =
                route_source(route["name"].as_str().unwrap_or_default(), routes).unwrap_or(from.clone());
            for cluster in &cluster {
                called.entry(cluster.clone()).or_insert_with(|| from.clone());
            }
            let to = if cluster.is_empty() { String::new() } else { format!(" → {}", cluster.join(", ")) };
            let name = format!("{name} {}{to}", matched(&route["match"]));
            // Conditions on headers are not told apart here.
            if told.insert((name.clone(), from.clone())) {
                rows.push(json!({"type": "route", "name": name, "from": from}));
            }
        }
        for cluster in clusters(listener) {
            called.entry(cluster).or_insert_with(|| from.clone());
        }
    }
    for (name, _) in members(&xds[CLUSTER]) {
        let from =
            proxy.own_cluster(name).or_else(|| called.get(name).cloned()).or_else(|| proxy.cluster(name));
        rows.push(json!({"type": "cluster", "name": name, "from": from.unwrap_or_else(|| CONTROL_PLANE.to_owned())}));
    }
    for (name, _) in members(&xds[SECRET]) {
        let from = proxy.secret(name).unwrap_or_else(|| CONTROL_PLANE.to_owned());
        rows.push(json!({"type": "secret", "name": name, "from": from}));
    }
    rows
}

/// A listener, and the routes it looks up.
fn route_configurations<'a>(listener: &'a Value, all: &'a Value) -> Vec<&'a Value> {
    let named = every_member(listener, "rds");
    let named = named.into_iter().filter_map(|rds| rds["routeConfigName"].as_str());
    let found = named.map(|name| &all[name]).filter(|found| !found.is_null());
    std::iter::once(listener).chain(found).collect()
}

/// Every member called `name` below a value.
fn every_member<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match value {
        Value::Object(members) => members
            .iter()
            .flat_map(|(key, value)| if key == name { vec![value] } else { every_member(value, name) })
            .collect(),
        Value::Array(items) => items.iter().flat_map(|item| every_member(item, name)).collect(),
        _ => Vec::new(),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Every element of every list called `name` below a value.
fn every<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match value {
        Value::Object(members) => members
            .iter()
            .flat_map(|(key, value)| match value {
                Value::Array(items) if key == name => items.iter().collect(),
                value => every(value, name),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(|item| every(item, name)).collect(),
        _ => Vec::new(),
    }
}

/// The clusters that a route or a TCP proxy names.
fn clusters(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, &mut found);
    found.sort();
    found.dedup();
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(cluster) if name == "cluster" => found.push(cluster.clone()),
                    member if name == "weightedClusters" => {
                        let all = member["clusters"].as_array().into_iter().flatten();
                        found.extend(all.filter_map(|one| one["name"].as_str().map(str::to_owned)));
                    }
                    member => collect(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

fn matched(condition: &Value) -> String {
    let path = ["path", "prefix", "pathSeparatedPrefix"].iter().find_map(|name| condition[*name].as_str());
    let regex = || condition["safeRegex"]["regex"].as_str();
    path.or_else(regex).unwrap_or("/").to_owned()
}

/// The route that an Envoy route is named after: by identifier, or by the hash of what it matches.
fn route_source(name: &str, by_hash: &BTreeMap<String, String>) -> Option<String> {
    match name.strip_prefix("kri_mhttpr_") {
        // Mesh, zone and namespace come before the name.
        Some(rest) => rest.split('_').nth(3).map(|name| format!("MeshHTTPRoute/{name}")),
        None => by_hash.get(name).cloned(),
    }
}

/// The HTTP routes by the hashes of what they match.
pub(super) fn by_hash(rules: &Value, policies: &PolicyDocuments) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let kinds = rules["rules"].as_array().into_iter().flatten();
    for kind in kinds.filter(|kind| kind["type"] == "MeshHTTPRoute") {
        for http in rules["httpMatches"].as_array().into_iter().flatten() {
            let all = ["toRules", "toResourceRules"].map(|list| kind[list].as_array().into_iter().flatten());
            for rule in all.into_iter().flatten() {
                if let Some(route) = who_says(rule, &http["match"], policies)
                    && let Some(hash) = http["hash"].as_str()
                {
                    found.insert(hash.to_owned(), route);
                }
            }
        }
    }
    found
}

/// The last of the routes a rule comes from that matches so.
fn who_says(rule: &Value, matches: &Value, policies: &PolicyDocuments) -> Option<String> {
    if !rule["conf"].to_string().contains(&matches.to_string()) {
        return None;
    }
    let origins = rule["origin"].as_array()?;
    let metas =
        || origins.iter().rev().map(|o| if o["resourceMeta"].is_object() { &o["resourceMeta"] } else { o });
    let says = |meta: &&Value| {
        let policy = fields::identity(meta).and_then(|identity| policies.get(&identity));
        policy.is_some_and(|policy| policy["spec"]["to"].to_string().contains(&matches.to_string()))
    };
    metas().find(says).or_else(|| metas().next()).map(fields::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_there_for_something() {
        let dataplane = json!({"type": "Dataplane", "name": "web-1", "networking": {
            "inbound": [{"port": 80, "servicePort": 8080, "tags": {"kuma.io/service": "web"}}],
            "outbound": [{"port": 10001, "tags": {"kuma.io/service": "api"}}],
        }});
        let route = |name: &str, prefix: &str, cluster: &str| json!({"name": name, "match": {"prefix": prefix}, "route": {"cluster": cluster}});
        let outbound =
            json!({"virtualHosts": [{"routes": [route("h1", "/v2", "api-v2"), route("h2", "/", "api")]}]});
        let config = json!({"xds": {
            LISTENER: {
                "inbound:10.0.0.1:80": {"filter": {"cluster": "localhost:8080"}},
                "outbound:127.0.0.1:10001": outbound,
                "kuma:envoy:admin": {},
            },
            CLUSTER: {"localhost:8080": {}, "api": {}, "api-v2": {}, "access_log_sink": {}},
        }});
        let matches = json!([{"path": {"value": "/v2", "type": "PathPrefix"}}]);
        let rules = json!({
            "rules": [{"type": "MeshHTTPRoute", "toRules": [{
                "conf": {"rules": [{"matches": matches, "default": {}}]},
                "origin": [{"type": "MeshHTTPRoute", "name": "canary"}],
            }]}],
            "httpMatches": [{"hash": "h1", "match": matches}],
        });
        let routes = by_hash(&rules, &PolicyDocuments::new());
        let rows = resources(&ExplainedProxy::of(&dataplane), &config, &routes);
        let from = |kind: &str, name: &str| {
            let row = rows.iter().find(|row| row["type"] == kind && row["name"] == name);
            row.unwrap_or_else(|| panic!("no {kind} {name} in {rows:#?}"))["from"]
                .as_str()
                .unwrap_or_default()
        };
        assert_eq!(from("listener", "inbound:10.0.0.1:80"), "Dataplane/web-1 networking.inbound[0] web");
        assert_eq!(from("listener", "kuma:envoy:admin"), "the control plane");
        assert_eq!(from("route", "outbound:127.0.0.1:10001 /v2 → api-v2"), "MeshHTTPRoute/canary");
        assert_eq!(
            from("route", "outbound:127.0.0.1:10001 / → api"),
            "Dataplane/web-1 networking.outbound[0] api"
        );
        assert_eq!(from("cluster", "api-v2"), "MeshHTTPRoute/canary");
        assert_eq!(from("cluster", "localhost:8080"), "Dataplane/web-1 networking.inbound[0] web");
        assert_eq!(from("cluster", "access_log_sink"), "the control plane");
    }
}
