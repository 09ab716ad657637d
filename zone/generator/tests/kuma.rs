//! Replays recorded configurations of sidecars of another control plane, from the folder that `GOLDENS_DIR`
//! names. What only a transparent proxy has is left out of the comparison.

use std::{collections::BTreeMap, fs};

use common::testing::needs;
use serde_json::{Map, Value};

use super::fixture::Fixture;
use crate::generator::{ProxyMetadata, ResourceSet};

const FAMILIES: [&str; 4] = ["meshtimeout", "meshretry", "meshcircuitbreaker", "meshtrafficpermission"];

/// Not compared: conditions on the identity of a client are regular expressions here, because certificates of this
/// mesh carry several names, of which the recorded form would compare the joined text.
const BY_DESIGN: [&str; 3] = [
    "meshtrafficpermission/inbound-rules",
    "meshtrafficpermission/inbound-rules-merged",
    "meshtrafficpermission/inbound-rules-sni",
];

/// The zone in which the cases were recorded.
const ZONE: &str = include_str!("kuma.yaml");

/// Nothing here generates these.
fn is_foreign(name: &str) -> bool {
    ["passthrough", "kuma:envoy:admin", "kuma:readiness", "self_transparentproxy"]
        .iter()
        .any(|p| name.contains(p))
}

/// Makes both sides comparable: addresses, metric prefixes and key material were struck from the records.
fn comparable(json: &mut Value) {
    match json {
        Value::Object(object) => {
            object.remove("bindToPort");
            object.remove("upstreamBindConfig");
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
        _ => {}
    }
}

fn named(name: &str) -> String {
    ["240.0.0.1", "240.0.0.2", "192.168.0.1", "192.168.0.2"]
        .iter()
        .fold(name.to_owned(), |name, address| name.replace(address, "IP_REDACTED"))
}

type ByName = BTreeMap<String, Value>;

fn recorded(golden: &Value) -> ByName {
    let types = golden["xds"].as_object().unwrap();
    let all = types.iter().flat_map(|(url, all)| {
        all.as_object().unwrap().iter().map(move |(name, json)| (format!("{url} {name}"), json.clone()))
    });
    let mut all: ByName = all.filter(|(name, _)| !is_foreign(name)).collect();
    all.values_mut().for_each(comparable);
    all
}

fn generated(set: &ResourceSet) -> ByName {
    let one = |resource: &std::sync::Arc<crate::generator::Encoded>| {
        let mut json = resource.to_json().unwrap();
        comparable(&mut json);
        (format!("{} {}", resource.type_url, named(&resource.name)), json)
    };
    set.iter().map(one).collect()
}

/// Where two values differ.
fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
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
            if BY_DESIGN.contains(&format!("{family}/{case}").as_str()) {
                continue;
            }
            let policies =
                fs::read_to_string(&path).unwrap().replace("kuma.io/effect: shadow", "kuma.io/zone: kuma-3");
            let fixture = Fixture::parse_in("kuma-3", &format!("{ZONE}\n---\n{policies}"));
            for proxy in ["demo-client", "test-server"] {
                let golden = folder.join(family).join(format!("{case}.{proxy}.golden.json"));
                let theirs = recorded(&serde_json::from_slice(&fs::read(golden).unwrap()).unwrap());
                let mut sidecar = fixture.sidecar(proxy);
                sidecar.metadata = ProxyMetadata {
                    features: ["feature-reuse-port".to_owned()].into(),
                    ipv6: false,
                    admin: None,
                };
                let made =
                    crate::generator::sidecar(&sidecar, &fixture.meshes[0], &fixture.interner).unwrap();
                let ours = generated(&made.set);
                let mut found = Vec::new();
                let all = ours.keys().chain(theirs.keys().filter(|k| !ours.contains_key(*k)));
                for name in all {
                    let of = |side: &ByName| side.get(name).cloned().unwrap_or_default();
                    differences(name, &of(&ours), &of(&theirs), &mut found);
                }
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
