//! Replays recorded configurations of sidecars of another control plane, from the folder that `GOLDENS_DIR`
//! names.

use std::{collections::BTreeMap, fs};

use common::testing::needs;
use serde_json::{Map, Value, json};

use super::fixture::Fixture;
use crate::{
    compile::scratch,
    generator::{ProxyMetadata, ResourceSet, Sidecar},
    json_patch,
};

const FAMILIES: &[&str] = &[
    "meshaccesslog",
    "meshmetric",
    "meshtimeout",
    "meshretry",
    "meshcircuitbreaker",
    "meshtrafficpermission",
    "meshratelimit",
    "meshfaultinjection",
    "meshtls",
    "meshloadbalancingstrategy",
];

/// The zone in which the cases were recorded.
const ZONE: &str = include_str!("kuma.yaml");

/// Nothing here generates these, or they were not recorded.
fn is_foreign(name: &str) -> bool {
    ["_kuma:dynamicconfig", "kuma:envoy:admin", "kuma:readiness"].iter().any(|p| name.contains(p))
}

/// Makes both sides comparable: addresses, metric prefixes and key material were struck from the records.
fn comparable(json: &mut Value) {
    match json {
        Value::Object(object) => {
            object.remove("dnsLookupFamily");
            for (key, value) in object {
                match key.as_str() {
                    "address" | "addressPrefix" if value.is_string() => *value = "IP_REDACTED".into(),
                    "statPrefix" => *value = "STAT_PREFIX_REDACTED".into(),
                    "inlineBytes" => *value = "REDACTED".into(),
                    "name" => *value = named(value.as_str().unwrap_or_default()).into(),
                    _ => comparable(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(comparable),
        // The records write whole numbers without a fraction, whatever their type is.
        Value::Number(number) => {
            let whole = number.to_string().strip_suffix(".0").and_then(|whole| whole.parse::<i64>().ok());
            if let Some(whole) = whole {
                *json = json!(whole);
            }
        }
        _ => {}
    }
}

/// Access logs were recorded from a text in which percent signs were doubled, as for a formatter that was never
/// called. Envoy refuses what came of that.
fn without_doubled_percents(json: &mut Value) {
    match json {
        Value::Object(object) => object.values_mut().for_each(without_doubled_percents),
        Value::Array(items) => items.iter_mut().for_each(without_doubled_percents),
        Value::String(text) => {
            *text = text.replace("%%", "%");
            for service in ["demo-client", "test-server"] {
                *text = text.replace(&format!("%{service}%"), service);
            }
        }
        _ => {}
    }
}

fn named(name: &str) -> String {
    let in_network = |network: &'static str| (1..10).map(move |last| format!("{network}.{last}"));
    let networks = ["192.168.0", "240.0.0", "241.0.0", "242.0.0"].into_iter();
    networks.flat_map(in_network).fold(name.to_owned(), |name, address| name.replace(&address, "IP_REDACTED"))
}

/// Conditions on the identity of a client are regular expressions here, because certificates of this mesh carry
/// several names, which Envoy joins to one text; the record compares that text as if it were one name. Everything
/// but that is to be equal, so our expressions are taken back to what they mean.
fn recorded_identities(json: &mut Value) {
    if let Some(meaning) = json.pointer("/safeRegex/regex").and_then(Value::as_str).and_then(identity) {
        *json = meaning;
        return;
    }
    match json {
        Value::Object(object) => object.values_mut().for_each(recorded_identities),
        Value::Array(items) => items.iter_mut().for_each(recorded_identities),
        _ => {}
    }
}

fn identity(regex: &str) -> Option<Value> {
    let name = match regex.strip_prefix("(?:spiffe") {
        Some(rest) => rest.split_once("[^,]*,)*")?.1,
        None => regex.strip_prefix("spiffe").map(|_| regex)?,
    };
    let (kind, name) = match name.strip_suffix("(?:,.*)?") {
        Some(name) => ("exact", name),
        None => ("prefix", name.strip_suffix(".*")?),
    };
    Some(json!({ kind: name.replace('\\', "") }))
}

pub(super) type ByName = BTreeMap<String, Value>;

/// What was recorded of how the policies of a case change a configuration, each step as a text.
pub(super) fn recorded_changes(golden: &Value) -> Vec<String> {
    let steps = golden["diff"].as_array().into_iter().flatten();
    changes(steps.cloned())
}

/// The same of ours.
pub(super) fn made_changes(real: &ResourceSet, tried: &ResourceSet) -> Vec<String> {
    let by_type = |set: &ResourceSet| {
        let mut types = Map::new();
        for resource in set.iter() {
            let mut json = resource.to_json().unwrap();
            comparable(&mut json);
            recorded_identities(&mut json);
            let of_type = types.entry(resource.type_url).or_insert_with(|| Value::Object(Map::new()));
            of_type[named(&resource.name)] = json;
        }
        Value::Object(types)
    };
    changes(json_patch::diff(&by_type(real), &by_type(tried)).into_iter())
}

/// The records leave out what is only tested.
fn changes(steps: impl Iterator<Item = Value>) -> Vec<String> {
    let compared = steps.filter(|step| step["op"] != "test" && !is_foreign(step["path"].as_str().unwrap()));
    let mut texts: Vec<String> = compared
        .map(|mut step| {
            comparable(&mut step["value"]);
            format!("{} {} {}", step["op"], step["path"], sorted(&step["value"]))
        })
        .collect();
    texts.sort();
    texts
}

/// A value with its members in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<&String, Value> =
                members.iter().map(|(name, v)| (name, sorted(v))).collect();
            Value::Object(members.into_iter().map(|(name, v)| (name.clone(), v)).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

pub(super) fn recorded(golden: &Value) -> ByName {
    let types = golden["xds"].as_object().unwrap();
    let all = types.iter().flat_map(|(url, all)| {
        all.as_object().unwrap().iter().map(move |(name, json)| (format!("{url} {name}"), json.clone()))
    });
    let mut all: ByName = all.filter(|(name, _)| !is_foreign(name)).collect();
    all.values_mut().for_each(comparable);
    all
}

pub(super) fn generated(set: &ResourceSet) -> ByName {
    let one = |resource: std::sync::Arc<crate::generator::Encoded>| {
        let mut json = resource.to_json().unwrap();
        comparable(&mut json);
        recorded_identities(&mut json);
        (format!("{} {}", resource.type_url, named(&resource.name)), json)
    };
    set.iter().filter(|resource| !is_foreign(&resource.name)).map(one).collect()
}

/// Where two values differ.
pub(super) fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                let of = |object: &Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                differences(&format!("{path}/{key}"), &of(a), &of(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}/{i}"), a, b, found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours} instead of {theirs}")),
    }
}

/// Where what was generated, and how policies changed it, is not what was recorded of both.
pub(super) fn compared(ours: &(ByName, Vec<String>), theirs: &(ByName, Vec<String>)) -> Vec<String> {
    let mut found = Vec::new();
    let all = ours.0.keys().chain(theirs.0.keys().filter(|name| !ours.0.contains_key(*name)));
    for name in all {
        let of = |side: &ByName| side.get(name).cloned().unwrap_or_default();
        differences(name, &of(&ours.0), &of(&theirs.0), &mut found);
    }
    let only = |one: &[String], other: &[String], whose: &str| -> Vec<String> {
        one.iter().filter(|step| !other.contains(step)).map(|step| format!("{whose}: {step}")).collect()
    };
    found.extend(only(&ours.1, &theirs.1, "ours"));
    found.extend(only(&theirs.1, &ours.1, "theirs"));
    found
}

/// These documents as they are once somebody has applied them in the zone, to take effect or, where they say so and
/// it `is_tried`, to look what they would do.
pub(super) fn applied_in_the_zone(yaml: &str, is_tried: bool) -> String {
    let documents = super::fixture::documents(yaml).into_iter().map(|mut document| {
        let mut labels = json!({"kuma.io/zone": "kuma-3"});
        if is_tried && document["labels"]["kuma.io/effect"] == "shadow" {
            labels["kuma.io/effect"] = "shadow".into();
        }
        document["labels"] = labels;
        format!("---\n{document}\n")
    });
    documents.collect()
}

#[test]
fn sidecars_get_what_was_recorded() {
    let Some(goldens) = needs::goldens() else { return };
    let folder = goldens.join("envoy-sidecars");
    let (mut passed, mut failures) = (0, Vec::new());
    for family in FAMILIES {
        for entry in fs::read_dir(folder.join(family)).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            let Some(case) = file.strip_suffix(".input.yaml") else { continue };
            let tried = fs::read_to_string(&path).unwrap();
            let tried = if *family == "meshaccesslog" { tried.replace("%%", "%") } else { tried };
            let zone = |is_tried| {
                let policies = applied_in_the_zone(&tried, is_tried);
                Fixture::parse_in("kuma-3", &format!("{ZONE}\n{policies}"))
            };
            let fixture = zone(false);
            let before = zone(true).with_identities_of(&fixture);
            for proxy in ["demo-client", "test-server"] {
                let golden = folder.join(family).join(format!("{case}.{proxy}.golden.json"));
                let mut golden: Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
                if *family == "meshaccesslog" {
                    without_doubled_percents(&mut golden);
                }
                let theirs = recorded(&golden);
                let mut sidecar = fixture.sidecar(proxy);
                sidecar.metadata = ProxyMetadata {
                    features: ["feature-reuse-port", "feature-strict-inbound-ports"]
                        .map(str::to_owned)
                        .into(),
                    ipv6: false,
                    work_dir: "/tmp".to_owned(),
                    ..ProxyMetadata::default()
                };
                let made = scratch::sidecar(&sidecar, &fixture.meshes[0]).unwrap();
                let real = scratch::sidecar(
                    &Sidecar { dataplane: before.sidecar(proxy).dataplane, ..sidecar },
                    &before.meshes[0],
                );
                let ours = (generated(&made.set), made_changes(&real.unwrap().set, &made.set));
                let found = compared(&ours, &(theirs, recorded_changes(&golden)));
                if found.is_empty() {
                    passed += 1;
                } else {
                    failures.push(format!("{family}/{case}, {proxy}:\n  {}", found.join("\n  ")));
                }
            }
        }
    }
    println!("{passed} recorded configurations equal ours");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(passed > 0);
}
