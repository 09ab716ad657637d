//! Replays recorded configurations of zone egresses of another control plane, from the folder that `GOLDENS_DIR`
//! names.

use std::{collections::BTreeMap, fs};

use common::testing::needs;
use serde_json::{Value, json};

use super::{
    fixture::{self, Fixture},
    kuma::differences,
};

/// The cases were recorded from a zone in which every policy was in every mesh, whatever mesh it named.
fn as_recorded(yaml: &str) -> String {
    let documents = fixture::documents(yaml);
    let meshes = documents.iter().filter(|document| document["type"] == "Mesh");
    let meshes: Vec<Value> = meshes.map(|mesh| mesh["name"].clone()).collect();
    let mut all = Vec::new();
    for mut document in documents {
        if let Some(tls) = document.pointer_mut("/networking/tls").and_then(Value::as_object_mut) {
            // No member of that name was ever known.
            tls.remove("sni");
        }
        if !["TrafficPermission", "TrafficRoute"].contains(&document["type"].as_str().unwrap()) {
            all.push(document);
            continue;
        }
        for mesh in &meshes {
            document["mesh"] = mesh.clone();
            all.push(document.clone());
        }
    }
    all.iter().map(|document| format!("---\n{document}\n")).collect()
}

/// Whoever gets to a filter over connections has shown a certificate of the mesh, so any member is anybody.
fn anybody(json: &mut Value) {
    let member = json.pointer("/authenticated/principalName/prefix").and_then(Value::as_str);
    let of_mesh = |name: &str| {
        name.strip_prefix("spiffe://").is_some_and(|name| name.find('/') == Some(name.len() - 1))
    };
    if member.is_some_and(of_mesh) {
        *json = json!({"any": true});
    }
}

/// Key material was struck from the records, and ingresses there do not say in which zone they are, which here they
/// always are known to be in. What sidecars tell each other of themselves does not leave the mesh here.
fn comparable(json: &mut Value) {
    match json {
        Value::Object(object) => {
            object.remove("requestHeadersToRemove");
            object.remove("locality");
            object.remove("kuma.io/zone");
            for (key, value) in object {
                match key.as_str() {
                    "inlineBytes" => *value = "REDACTED".into(),
                    "principals" => value.as_array_mut().unwrap().iter_mut().for_each(anybody),
                    // By names, not by the order in which they were found.
                    "filterChains" => {
                        value.as_array_mut().unwrap().sort_by_key(|chain| {
                            chain.pointer("/filterChainMatch/serverNames").map(ToString::to_string)
                        });
                        comparable(value);
                    }
                    _ => comparable(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(comparable),
        _ => {}
    }
}

/// The policy of the older generation that lets clients in names its mesh in the identities it asks for.
fn own_mesh(text: &str) -> String {
    text.replace("spiffe://zone-1/", "spiffe://mesh-1/")
}

fn by_name(resources: Vec<(String, Value)>) -> BTreeMap<String, Value> {
    let comparable = |(name, mut json): (String, Value)| {
        comparable(&mut json);
        (name, json)
    };
    resources.into_iter().map(comparable).collect()
}

#[test]
fn egresses_get_what_was_recorded() {
    let Some(goldens) = needs::goldens() else { return };
    let folder = goldens.join("envoy-egress");
    let (mut passed, mut failures) = (0, Vec::new());
    for entry in fs::read_dir(folder.join("input")).unwrap() {
        let path = entry.unwrap().path();
        let case = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let input = fs::read_to_string(&path).unwrap();
        let golden = fs::read_to_string(folder.join(format!("{case}.golden.yaml"))).unwrap();
        let golden: Value = serde_norway::from_str(&own_mesh(&golden)).unwrap();
        let recorded = golden["resources"].as_array().into_iter().flatten().map(|resource| {
            let mut json = resource["resource"].clone();
            let of = json.as_object_mut().unwrap().remove("@type").unwrap();
            (format!("{} {}", of.as_str().unwrap(), json_name(&json)), json)
        });
        let theirs = by_name(recorded.collect());
        let fixture = Fixture::parse_in("zone-1", &as_recorded(&input));
        let ours = fixture.egresses().into_values().next().unwrap();
        let ours = ours.set.iter().map(|resource| {
            let json = resource.to_json().unwrap();
            (format!("{} {}", resource.type_url, resource.name), json)
        });
        let ours = by_name(ours.collect());
        let mut found = Vec::new();
        for name in ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name))) {
            let of = |side: &BTreeMap<String, Value>| side.get(name).cloned().unwrap_or_default();
            differences(name, &of(&ours), &of(&theirs), &mut found);
        }
        if found.is_empty() {
            passed += 1;
        } else {
            failures.push(format!("{case}:\n  {}", found.join("\n  ")));
        }
    }
    println!("{passed} recorded configurations equal ours");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(passed > 0);
}

fn json_name(json: &Value) -> String {
    let name = [&json["name"], &json["clusterName"]].into_iter().find(|name| **name != json!(null));
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
}
