//! The rules in `alerts/`: Prometheus takes them, they fire and stay silent when they should, and what they ask for is
//! there.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::testing::markdown;
use serde_json::Value;

use crate::promql::{assert_exists, labels_of_ours};

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
    for rule in rules() {
        assert_exists(rule["expr"].as_str().unwrap(), labels_of_ours);
    }
}
