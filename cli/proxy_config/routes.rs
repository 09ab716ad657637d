//! Routes: those that listeners look up, and those that stand in them.

use clap::Args;
use serde_json::Value;

use super::{ConfigTable, documents, or_dash};
use crate::proxy::{ProxyDump, text};

/// How names of routes begin that a `MeshHTTPRoute` asked for.
const BY_RESOURCE: &str = "kri_mhttpr_";

/// Which routes are meant.
#[derive(Args, Debug, Default)]
pub(super) struct RouteFilter {
    /// Only the route configuration of this name
    #[arg(long = "name", value_name = "ROUTE")]
    route: Option<String>,
}

/// The routes that are meant.
pub(super) fn shown(dump: &ProxyDump, filter: &RouteFilter) -> ConfigTable {
    let mut all: Vec<(&str, &Value)> = dump.routes.iter().map(|item| (&*item.name, &item.value)).collect();
    for listener in &dump.listeners {
        let mut inline = Vec::new();
        collect(&listener.value, &mut inline);
        all.extend(inline.into_iter().map(|routes| {
            let name = text(&routes["name"]);
            (if name.is_empty() { &*listener.name } else { name }, routes)
        }));
    }
    all.retain(|(name, _)| filter.route.as_ref().is_none_or(|wanted| wanted == name));
    // A listener that warms has the same as the one in use.
    all.dedup();
    let rows = all.iter().flat_map(|(name, routes)| rows(name, routes)).collect();
    let document = documents(all.iter().map(|(_, routes)| *routes));
    ConfigTable {
        headings: vec!["NAME", "VHOST NAME", "DOMAINS", "MATCH", "VIRTUAL SERVICE"],
        rows,
        document,
    }
}

/// Every list of routes that stands in a listener.
fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "routeConfig" => found.push(member),
                    _ => collect(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

fn rows(name: &str, routes: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for host in routes["virtualHosts"].as_array().into_iter().flatten() {
        let domains: Vec<&str> =
            host["domains"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let row = |matched: String, source: String| {
            vec![or_dash(name), or_dash(text(&host["name"])), domains.join(", "), matched, source]
        };
        let all: Vec<&Value> = host["routes"].as_array().into_iter().flatten().collect();
        rows.extend(all.iter().map(|route| row(matched(&route["match"]), source(text(&route["name"])))));
        if all.is_empty() {
            rows.push(row(or_dash(""), "404".to_owned()));
        }
    }
    if rows.is_empty() {
        rows.push(vec![or_dash(name), or_dash(""), or_dash(""), or_dash(""), "404".to_owned()]);
    }
    rows
}

fn matched(condition: &Value) -> String {
    let prefix = condition["prefix"].as_str().or_else(|| condition["pathSeparatedPrefix"].as_str());
    let regex = || condition["safeRegex"]["regex"].as_str().map(|regex| format!("regex {regex}"));
    let path = condition["path"].as_str().map(str::to_owned);
    let prefix = prefix.map(|prefix| format!("{}/*", prefix.trim_end_matches('/')));
    path.or(prefix).or_else(regex).unwrap_or_else(|| or_dash(""))
}

/// The resource that a route was asked for by.
fn source(name: &str) -> String {
    match name.strip_prefix(BY_RESOURCE) {
        // Mesh, zone and namespace come before the name.
        Some(rest) => or_dash(rest.split('_').nth(3).unwrap_or_default()),
        None => or_dash(""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn routes_are_found_where_they_are_looked_up_and_in_listeners() {
        let route = |name: &str, condition: Value| json!({ "name": name, "match": condition });
        let canary = "kri_mhttpr_default_east__canary_rule-0";
        let routes = json!({ "name": "web", "virtualHosts": [{ "name": "web", "domains": ["*"], "routes": [
            route(canary, json!({ "prefix": "/v2" })), route("", json!({ "path": "/health" })),
        ] }] });
        let inline = json!({ "name": "inline", "virtualHosts": [{ "name": "all", "domains": ["a", "b"], "routes": [] }] });
        let dump = json!({ "configs": [
            { "@type": "x/envoy.admin.v3.RoutesConfigDump", "dynamicRouteConfigs": [{ "routeConfig": routes }] },
            { "@type": "x/envoy.admin.v3.ListenersConfigDump", "dynamicListeners": [{ "activeState": { "listener": {
                "name": "l", "filterChains": [{ "filters": [{ "typedConfig": { "routeConfig": inline } }] }],
            } } }] },
        ] });
        let dump = ProxyDump::of_envoy(&dump).unwrap();
        let all = shown(&dump, &RouteFilter::default());
        assert_eq!(
            all.rows,
            [
                ["web", "web", "*", "/v2/*", "canary"],
                ["web", "web", "*", "/health", "-"],
                ["inline", "all", "a, b", "-", "404"],
            ]
        );
        let one = shown(&dump, &RouteFilter { route: Some("inline".to_owned()) });
        assert_eq!(one.document, json!([inline]));
    }
}
