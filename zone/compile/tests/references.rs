//! Does everything a configuration names exist in it?

use std::collections::BTreeSet;

use serde_json::Value;

use crate::generator::{ResourceSet, type_url};

/// Names that are used but not defined, each with what it should be.
pub(super) fn broken(set: &ResourceSet) -> Vec<String> {
    let names = |url: &str| set.of_type(url).map(|(name, _)| name.to_owned()).collect::<BTreeSet<_>>();
    let (clusters, secrets, endpoints) =
        (names(type_url::CLUSTER), names(type_url::SECRET), names(type_url::ENDPOINT));
    let routes = names(type_url::ROUTE);
    let mut broken = Vec::new();
    let mut discovered = BTreeSet::new();
    // What an agent has is none of ours, but how to ask it is.
    let secret = |config: &Value| match config["sdsConfig"].get("ads") {
        Some(_) => secrets.contains(config["name"].as_str().unwrap_or_default()),
        None => config.pointer("/sdsConfig/apiConfigSource/grpcServices/0/envoyGrpc/clusterName").is_some(),
    };
    for resource in set.iter() {
        let json = resource.to_json().unwrap();
        if json.get("type") == Some(&Value::from("EDS")) {
            discovered.insert(resource.name.to_string());
        }
        walk(&json, &mut |key, value| {
            let known = match (key, value) {
                // What is not to be passed on has no cluster, so that Envoy ends the connection.
                ("cluster", Value::String(name)) => {
                    clusters.contains(name) || name.contains("bound:passthrough:")
                }
                // Each share is told as if it were all there is.
                ("clusters", Value::Array(shares)) => {
                    let names = shares.iter().filter_map(|s| s.get("name").and_then(Value::as_str));
                    let unknown = names.filter(|name| !clusters.contains(*name));
                    broken.extend(unknown.map(|name| format!("{} names cluster {name:?}", resource.name)));
                    true
                }
                ("tlsCertificateSdsSecretConfigs", Value::Array(configs)) => configs.iter().all(secret),
                ("routeConfigName", Value::String(name)) => routes.contains(name),
                ("validationContextSdsSecretConfig", config) => secret(config),
                ("envoyGrpc", service) => {
                    clusters.contains(service["clusterName"].as_str().unwrap_or_default())
                }
                _ => true,
            };
            if !known {
                broken.push(format!("{} names {key} {value}", resource.name));
            }
        });
    }
    if discovered != endpoints {
        broken.push(format!("clusters want endpoints {discovered:?}, there are {endpoints:?}"));
    }
    broken
}

fn walk(json: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match json {
        Value::Object(object) => {
            for (key, value) in object {
                visit(key, value);
                walk(value, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}
