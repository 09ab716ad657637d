//! Where an Envoy has something else than its control plane holds for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    output,
    proxy::{DumpedItem, ProxyDump},
};

/// Members shown of one resource that differ.
const SHOWN: usize = 20;
/// Characters of a value.
const LONGEST: usize = 80;

/// How one type differs.
#[derive(Debug)]
pub(super) struct DumpDifference {
    /// What is compared, as people call it.
    pub(super) title: &'static str,
    /// By the name of the resource.
    resources: BTreeMap<String, ResourceDifference>,
}

#[derive(Debug, PartialEq)]
enum ResourceDifference {
    /// The Envoy has none of this name.
    Missing,
    /// The control plane holds none of this name.
    Unknown,
    /// Members that differ: where, what is held, what the Envoy has.
    Members(Vec<(String, Value, Value)>),
}

/// What can be compared: endpoints are told by Envoy in words of its own, and secrets by nobody.
pub(super) fn differences(held: &ProxyDump, envoy: &ProxyDump) -> Vec<DumpDifference> {
    vec![
        DumpDifference::of("Clusters", &held.clusters, &envoy.clusters),
        DumpDifference::of("Listeners", &held.listeners, &envoy.listeners),
        DumpDifference::of("Routes", &held.routes, &envoy.routes),
    ]
}

impl DumpDifference {
    fn of(title: &'static str, held: &[DumpedItem], envoy: &[DumpedItem]) -> Self {
        let by_name = |items: &'_ [DumpedItem]| -> BTreeMap<String, Value> {
            // What is in use comes before what warms.
            let used = |warming: bool| items.iter().filter(move |i| !i.is_static && i.is_warming == warming);
            let all = used(true).chain(used(false));
            all.map(|item| (item.name.clone(), bare(item.value.clone()))).collect()
        };
        let (held, envoy) = (by_name(held), by_name(envoy));
        let mut resources = BTreeMap::new();
        for (name, expected) in &held {
            match envoy.get(name) {
                None => drop(resources.insert(name.clone(), ResourceDifference::Missing)),
                Some(found) if found == expected => {}
                Some(found) => {
                    let mut members = Vec::new();
                    compare("", expected, found, &mut members);
                    if !members.is_empty() {
                        resources.insert(name.clone(), ResourceDifference::Members(members));
                    }
                }
            }
        }
        let unknown = envoy.keys().filter(|name| !held.contains_key(*name));
        resources.extend(unknown.map(|name| (name.clone(), ResourceDifference::Unknown)));
        Self { title, resources }
    }

    /// Whether both are the same.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    pub(super) fn print(&self) {
        if self.is_empty() {
            return output::line(&format!("{} Match", self.title));
        }
        output::line(&format!("{} Don't Match", self.title));
        for (name, difference) in &self.resources {
            match difference {
                ResourceDifference::Missing => output::line(&format!("- {name}: the Envoy has none")),
                ResourceDifference::Unknown => output::line(&format!("+ {name}: only the Envoy has it")),
                ResourceDifference::Members(members) => {
                    output::line(&format!("  {name}"));
                    for (at, held, found) in members {
                        output::line(&format!("-   {at}: {}", brief(held)));
                        output::line(&format!("+   {at}: {}", brief(found)));
                    }
                }
            }
        }
    }

    pub(super) fn document(&self) -> Value {
        let resources = self.resources.iter().map(|(name, difference)| match difference {
            ResourceDifference::Missing => json!({ "name": name, "is": "missing" }),
            ResourceDifference::Unknown => json!({ "name": name, "is": "unknown" }),
            ResourceDifference::Members(members) => {
                let members =
                    members.iter().map(|(at, held, found)| json!({ "at": at, "held": held, "envoy": found }));
                json!({ "name": name, "is": "different", "members": members.collect::<Vec<_>>() })
            }
        });
        json!({ "of": self.title, "resources": resources.collect::<Vec<_>>() })
    }
}

/// A resource without the name of its type, which only one of both says.
fn bare(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.remove("@type");
    }
    value
}

fn compare(at: &str, held: &Value, found: &Value, into: &mut Vec<(String, Value, Value)>) {
    if is_same(held, found) || into.len() >= SHOWN {
        return;
    }
    match (held, found) {
        (Value::Object(expected), Value::Object(has)) => {
            let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            for (name, value) in expected {
                compare(&below(name), value, has.get(name).unwrap_or(&Value::Null), into);
            }
            for (name, value) in has.iter().filter(|(name, _)| !expected.contains_key(*name)) {
                compare(&below(name), &Value::Null, value, into);
            }
        }
        (Value::Array(expected), Value::Array(has)) if expected.len() == has.len() => {
            for (i, (expected, has)) in expected.iter().zip(has).enumerate() {
                compare(&format!("{at}[{i}]"), expected, has, into);
            }
        }
        _ => into.push((at.to_owned(), held.clone(), found.clone())),
    }
}

/// Whether two values mean the same. What is not said is the default, numbers are numbers with or without a fraction, and
/// times have as many digits as their writer likes.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
            text.parse().ok() == number.as_f64()
        }
        (Value::String(a), Value::String(b)) => a == b || seconds(a).is_some_and(|a| Some(a) == seconds(b)),
        (Value::Null, other) | (other, Value::Null) => is_default(other),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let other = |name: &str| b.get(name).unwrap_or(&Value::Null);
            a.iter().all(|(name, value)| is_same(value, other(name)))
                && b.iter().all(|(name, value)| a.contains_key(name) || is_default(value))
        }
        (a, b) => a == b,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(items) => items.is_empty(),
        // An empty message says something by being there.
        Value::Object(_) => false,
    }
}

/// A duration as protobuf's JSON has it.
fn seconds(text: &str) -> Option<f64> {
    text.strip_suffix('s')?.parse().ok()
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn envoy(clusters: Value) -> ProxyDump {
        let entry = |cluster: &Value| json!({ "cluster": cluster });
        let entries: Vec<Value> = clusters.as_array().unwrap().iter().map(entry).collect();
        let dump = json!({ "configs": [{
            "@type": "x/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": entries,
            "static_clusters": [{ "cluster": { "name": "ads_cluster" } }],
        }] });
        ProxyDump::of_envoy(&dump).unwrap()
    }

    fn found(held: &Value, envoy: &ProxyDump) -> BTreeMap<String, ResourceDifference> {
        let held = ProxyDump::of_plan(&json!({ "xds": { CLUSTER: held } }));
        let mut all = differences(&held, envoy);
        assert!(all.drain(1..).all(|one| one.is_empty()));
        all.remove(0).resources
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let held = json!({ "a": { "name": "a", "connectTimeout": "10s", "type": "EDS", "maxRequests": "5", "weight": 1.0 } });
        let has = envoy(json!([{
            "@type": CLUSTER, "name": "a", "connect_timeout": "10.000s", "type": "EDS", "max_requests": 5, "weight": 1,
            "respect_dns_ttl": false,
        }]));
        assert_eq!(found(&held, &has), BTreeMap::new());
    }

    #[test]
    fn what_differs_is_named_and_where() {
        let held = json!({
            "a": { "name": "a", "circuitBreakers": { "thresholds": [{ "maxConnections": 1 }] } },
            "b": { "name": "b" },
        });
        let thresholds = json!({ "thresholds": [{ "max_connections": 2 }] });
        let has = envoy(json!([{ "name": "a", "circuit_breakers": thresholds }, { "name": "c" }]));
        let at = "circuitBreakers.thresholds[0].maxConnections".to_owned();
        let expected = [
            ("a".to_owned(), ResourceDifference::Members(vec![(at, json!(1), json!(2))])),
            ("b".to_owned(), ResourceDifference::Missing),
            ("c".to_owned(), ResourceDifference::Unknown),
        ];
        assert_eq!(found(&held, &has), expected.into());
    }
}
