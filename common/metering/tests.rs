#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs, path::Path};

use regex::Regex;

use super::*;

#[test]
fn what_a_peer_makes_up_is_one_value() {
    assert_eq!(method(&Method::PUT), "PUT");
    assert_eq!(method(&Method::from_bytes(b"INVENTED").unwrap()), OTHER);
    assert_eq!(method(&Method::from_bytes(b"get").unwrap()), OTHER);
    assert_eq!((kind("MeshTimeout"), kind("Invented")), ("MeshTimeout", OTHER));
    let mut seen = BTreeSet::new();
    let mut label = |name: &str| within(&mut seen, name, 2).map(|name| name.to_string());
    assert_eq!(
        [label("a"), label("b"), label("c"), label("a")],
        [Some("a"), Some("b"), None, Some("a")].map(|l| l.map(str::to_owned))
    );
}

/// The sources of the control planes, but not their tests.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "testing" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
        }
    }
}

/// Metrics with their labels, as the sources record them.
fn recorded() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut texts = Vec::new();
    for folder in ["common", "global", "zone"] {
        sources(&root.join(folder), &mut texts);
    }
    let call = Regex::new(r#"\b(?:counter|gauge|histogram)!\(\s*("?)([A-Za-z0-9_]+)"?([^;]*?)\)\s*\.(?:increment|decrement|record|set|absolute)\("#).unwrap();
    let any_call = Regex::new(r"\b(?:counter|gauge|histogram)!\(").unwrap();
    let label = Regex::new(r#""([a-z_]+)"\s*=>"#).unwrap();
    let mut recorded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for text in texts {
        let calls: Vec<_> = call.captures_iter(&text).collect();
        assert_eq!(calls.len(), any_call.find_iter(&text).count(), "a call of another shape in\n{text}");
        for of in calls {
            let name = if of[1].is_empty() {
                let constant = Regex::new(&format!(r#"const {}: &str = "([a-z0-9_]+)";"#, &of[2])).unwrap();
                let found = constant.captures(&text);
                found.unwrap_or_else(|| panic!("{} is no constant of its file", &of[2]))[1].to_owned()
            } else {
                of[2].to_owned()
            };
            let labels = label.captures_iter(&of[3]).map(|label| label[1].to_owned());
            recorded.entry(name).or_default().extend(labels);
        }
    }
    recorded
}

/// Fails when someone adds a metric or a label: its values must come from a closed set, which is declared
/// in [`ALL`].
#[test]
fn every_metric_and_label_is_declared() {
    let declared: BTreeMap<String, BTreeSet<String>> = ALL
        .iter()
        .map(|metric| (metric.name.to_owned(), metric.labels.iter().map(|(l, _)| (*l).to_owned()).collect()))
        .collect();
    assert_eq!(recorded(), declared, "left: what is recorded, right: what `metering::ALL` declares");
    assert!(ALL.is_sorted_by(|a, b| a.name < b.name));
}
