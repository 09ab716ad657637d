//! `dashboards/`: what Grafana shows. They are made here, so that what they ask for can be compared with what there is.

mod board;
mod common_rows;
mod dataplane;
mod envoy;
mod global;
mod mesh;
mod zone;

use std::{collections::BTreeSet, fs, process::Command};

use common::testing::reference::assert_current;
use serde_json::{Value, json};

use self::board::Board;
use crate::promql::{assert_exists, labels_of_ours};

fn boards() -> [(&'static str, Board); 4] {
    [
        ("global", global::board()),
        ("zone", zone::board()),
        ("dataplane", dataplane::board()),
        ("mesh", mesh::board()),
    ]
}

/// The panels of one.
fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().expect("a dashboard has panels")
}

/// Every expression of a dashboard.
fn expressions(dashboard: &Value) -> Vec<String> {
    let targets = panels(dashboard).iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("a target asks for something").to_owned()).collect()
}

fn labels(series: &str) -> Option<Vec<&'static str>> {
    labels_of_ours(series).or_else(|| envoy::labels(series))
}

#[test]
fn the_files_are_what_is_made_here() {
    for (name, board) in boards() {
        let text = serde_json::to_string_pretty(&board.json()).expect("JSON becomes text") + "\n";
        assert_current(&format!("dashboards/{name}.json"), &text);
    }
}

#[test]
fn what_they_ask_for_exists_with_its_labels() {
    for (_, board) in boards() {
        let dashboard = board.json();
        expressions(&dashboard).iter().for_each(|expression| assert_exists(expression, labels));
        for variable in dashboard["templating"]["list"].as_array().expect("there is something to choose") {
            let Some(query) = variable["definition"].as_str() else { continue };
            let (series, label) = query
                .strip_prefix("label_values(")
                .and_then(|rest| rest.strip_suffix(')')?.rsplit_once(", "))
                .expect(query);
            assert_exists(&format!("sum by ({label}) ({series})"), labels);
        }
    }
}

#[test]
fn prometheus_takes_every_expression() {
    let all = boards().map(|(_, board)| expressions(&board.json())).concat();
    let rules = all.iter().enumerate().map(|(at, expression)| {
        // What Grafana fills in.
        let filled = expression.replace("$__rate_interval", "5m");
        json!({ "record": format!("expression_{at}"), "expr": filled })
    });
    let rules = json!({ "groups": [{ "name": "dashboards", "rules": rules.collect::<Vec<_>>() }] });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("rules.yaml");
    fs::write(&file, rules.to_string()).expect("the folder can be written");
    let ran = Command::new("promtool").args(["check", "rules"]).arg(&file).output().expect("promtool runs");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains(&format!("{} rules found", all.len())), "{said}");
}

#[test]
fn every_panel_has_a_number_a_place_a_unit_and_words() {
    let mut uids = BTreeSet::new();
    for (name, board) in boards() {
        let dashboard = board.json();
        assert!(uids.insert(dashboard["uid"].to_string()), "{name}");
        let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels(&dashboard) {
            let title = &panel["title"];
            assert!(ids.insert(panel["id"].as_u64()), "{name}: {title} has the number of another panel");
            let [w, h, x, y] = ["w", "h", "x", "y"].map(|of| panel["gridPos"][of].as_u64().expect("a place"));
            assert!(x + w <= 24, "{name}: {title} does not fit");
            for cell in (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y))) {
                assert!(taken.insert(cell), "{name}: {title} lies on another panel");
            }
            if panel["type"] == "row" {
                assert!(
                    title.as_str().is_some_and(|title| title.ends_with('?')),
                    "{name}: {title} is no question"
                );
                continue;
            }
            let said = panel["description"].as_str().unwrap_or_default();
            assert!(said.ends_with('.'), "{name}: {title} says nothing");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title} has no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            for target in panel["targets"].as_array().expect("a panel asks for something") {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
            }
        }
    }
}
