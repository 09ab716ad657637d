//! The rules in `alerts/`: Prometheus takes them, they fire and stay silent when they should, and what they ask for is
//! there.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::{metering, testing::markdown};
use serde_json::Value;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("alerts").join(name)
}

fn rules() -> Vec<Value> {
    let text = fs::read_to_string(file("alerts.yaml")).unwrap();
    let all: Value = serde_norway::from_str(&text).unwrap();
    all["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn every_rule_fires_when_it_should_and_is_silent_otherwise() {
    for args in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts-test.yaml"]] {
        let ran = Command::new("promtool").args(args).current_dir(file("")).output().expect("promtool runs");
        let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "promtool {args:?}: {said}");
    }
    let tested = fs::read_to_string(file("alerts-test.yaml")).unwrap();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(tested.contains(&format!("alertname=\"{name}\"")), "{name} is never seen to fire");
        let says =
            ["summary", "description"].map(|part| rule["annotations"][part].as_str().unwrap_or_default());
        assert!(says.iter().all(|text| !text.is_empty()), "{name} does not say what to do");
    }
}

#[test]
fn every_rule_has_its_place_in_the_manual() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page =
        markdown::pages(&root).into_iter().find(|page| page.path == Path::new("docs/alerts.md")).unwrap();
    let headings = page.anchors();
    let mut left: BTreeSet<&String> = headings.iter().filter(|name| name.starts_with("strait")).collect();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_lowercase();
        assert_eq!(rule["annotations"]["runbook"], format!("docs/alerts.md#{name}"));
        assert!(left.remove(&name), "docs/alerts.md says nothing about {name}");
    }
    assert!(left.is_empty(), "there are no rules called {left:?}");
}

#[test]
fn every_metric_a_rule_asks_for_exists_with_its_labels() {
    let names: BTreeSet<&str> = metering::ALL.iter().map(|metric| metric.name).collect();
    let labels = metering::ALL.iter().flat_map(|metric| metric.labels).map(|(name, _)| *name);
    let labels: BTreeSet<&str> = labels.collect();
    // One of several stands with a comma.
    let is_label = |word: &str| labels.contains(word.trim_end_matches(','));
    for rule in rules() {
        let expression = rule["expr"].as_str().unwrap();
        let words: Vec<&str> = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let asked = metering::ALL.iter().find(|metric| words.contains(&metric.name));
        let asked = asked.unwrap_or_else(|| panic!("no metric of ours in {expression}"));
        let asked_for = expression.split(['(', ' ']).filter_map(|part| part.split(['{', '[', ')']).next());
        for word in asked_for.filter(|word| word.contains('_') && !is_label(word)) {
            assert!(names.contains(word), "{word} is no metric: {expression}");
        }
        // Those that Prometheus and summaries add.
        let given = ["instance", "quantile"];
        let known =
            |label: &str| given.contains(&label) || asked.labels.iter().any(|(name, _)| *name == label);
        let grouped =
            expression.split("by (").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or_default();
        let matched =
            expression.split('{').nth(1).and_then(|rest| rest.split('=').next()).unwrap_or_default();
        for label in grouped.split(',').chain([matched]).map(str::trim).filter(|label| !label.is_empty()) {
            assert!(known(label), "{} has no label {label}: {expression}", asked.name);
        }
    }
}
