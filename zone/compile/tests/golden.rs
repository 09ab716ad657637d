//! `testdata/<case>.input.yaml` is a zone; `testdata/<case>.golden.yaml` is what its proxies get.
//! `UPDATE_GOLDEN=1` writes the latter; read the diff before you commit it.

use std::{collections::BTreeMap, fs, path::PathBuf};

use common::testing::needs;
use serde_json::{Map, Value, json};

use super::{envoy_check, fixture::Fixture, references};
use crate::compile::scratch::Generated;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("compile/testdata")
}

/// Everything one proxy gets, without key material.
fn render(generated: &Generated) -> Value {
    let mut types: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for resource in generated.set.iter() {
        let mut json = resource.to_json().unwrap();
        redact(&mut json);
        let short = resource.type_url.rsplit('.').next().unwrap();
        types.entry(short).or_default().insert(resource.name.to_string(), json);
    }
    let mut out = json!(types);
    if !generated.problems.is_empty() {
        let problems: Vec<String> = generated.problems.iter().map(ToString::to_string).collect();
        out["problems"] = json!(problems);
    }
    out
}

fn redact(json: &mut Value) {
    match json {
        Value::Object(object) => {
            for (key, value) in object {
                if key == "inlineBytes" {
                    *value = json!("...");
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

#[test]
fn configurations_equal_their_golden_files() {
    let mut failures = Vec::new();
    let mut cases = 0;
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        let Some(case) = file.strip_suffix(".input.yaml") else { continue };
        cases += 1;
        let generated = Fixture::parse(&fs::read_to_string(&path).unwrap()).generate();
        for (proxy, generated) in &generated {
            let broken = references::broken(&generated.set);
            assert!(broken.is_empty(), "{case}, {proxy}: {broken:?}");
        }
        let rendered: BTreeMap<&String, Value> = generated.iter().map(|(n, g)| (n, render(g))).collect();
        let text = serde_norway::to_string(&rendered).unwrap();
        let golden = folder().join(format!("{case}.golden.yaml"));
        if update {
            fs::write(&golden, &text).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != text {
            failures.push(case.to_owned());
        }
    }
    assert!(cases > 0, "there are no cases in {}", folder().display());
    assert!(failures.is_empty(), "differ from golden (see with UPDATE_GOLDEN=1 and git diff): {failures:?}");
}

#[test]
fn envoy_accepts_every_golden_configuration() {
    let Some(envoy) = needs::envoy() else { return };
    let mut configurations = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with(".input.yaml") {
            let generated = Fixture::parse(&fs::read_to_string(&path).unwrap()).generate();
            let of_envoys = generated.into_iter().filter(|(proxy, _)| !Fixture::is_library(proxy));
            for (proxy, generated) in of_envoys {
                configurations.push((format!("{}, {proxy}", path.display()), generated.set));
            }
        }
    }
    envoy_check::check_all(&envoy, &configurations).unwrap();
    println!("Envoy accepted {} configurations", configurations.len());
}
