//! Every policy has a page and an example, and what stands in them is accepted as it stands there.

use std::{collections::BTreeSet, fs, path::PathBuf};

use super::*;
use crate::{
    model::kinds::{legacy::EXTERNAL_SERVICE, mesh_open_telemetry_backend},
    registry,
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Policies, and what is as good as one: `MeshHTTPRoute` is called `mesh-http-route` in names of files.
fn kinds() -> impl Iterator<Item = (&'static Kind, String)> {
    let policies = registry::ALL.iter().copied().filter(|kind| kind.policy.is_some());
    policies
        .chain([&mesh_open_telemetry_backend::KIND, &EXTERNAL_SERVICE])
        .map(|kind| (kind, file_name(kind.name)))
}

fn file_name(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut name = String::new();
    for (i, letter) in letters.iter().enumerate() {
        let after_small = i > 0 && letters[i - 1].is_ascii_lowercase();
        let before_small = i > 0 && letters.get(i + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (after_small || before_small) {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The YAML between fences.
fn fenced(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

fn documents(yaml: &str) -> Vec<Value> {
    use serde::Deserialize;
    let all = serde_norway::Deserializer::from_str(yaml).map(|one| Value::deserialize(one).unwrap());
    all.filter(|one| !one.is_null()).collect()
}

/// Applies the documents of one file; what is told besides is an error too.
async fn apply(file: &str, yaml: &str, problems: &mut Vec<String>) -> BTreeSet<String> {
    let api = TestApi::start(config(Mode::standalone_zone("east")), &[mesh("default")]).await.unwrap();
    let mut seen = BTreeSet::new();
    for document in documents(yaml) {
        let text = |member: &str| document[member].as_str().unwrap_or_default().to_owned();
        let Some(kind) = registry::by_name(&text("type")) else {
            problems.push(format!("{file}: {document} is of no kind"));
            continue;
        };
        let scope = if kind.is_mesh_scoped() { format!("/meshes/{}", text("mesh")) } else { String::new() };
        let path = format!("{scope}/{}/{}", kind.path, text("name"));
        let (status, answer) = api.send("PUT", &path, Some(document.to_string())).await.unwrap();
        if ![200, 201].contains(&status) {
            problems.push(format!("{file}: {path}: {status} {answer}"));
        }
        // Older ways to say it may be shown, where they are the subject.
        for odd in ["has no effect", "left out", "ignored"].into_iter().filter(|odd| answer.contains(odd)) {
            problems.push(format!("{file}: {path}: {odd}: {answer}"));
        }
        seen.insert(kind.name.to_owned());
    }
    seen
}

#[tokio::test]
async fn every_policy_has_a_page_whose_examples_are_accepted() {
    let mut problems = Vec::new();
    for (kind, name) in kinds() {
        let file = format!("docs/policies/{name}.md");
        let Ok(page) = fs::read_to_string(root().join(&file)) else {
            problems.push(format!("{} has no page {file}", kind.name));
            continue;
        };
        let mut shown = BTreeSet::new();
        for yaml in fenced(&page) {
            shown.extend(apply(&file, yaml, &mut problems).await);
        }
        if !shown.contains(kind.name) {
            problems.push(format!("{file} shows no {}", kind.name));
        }
        if !page.to_lowercase().contains("see it work") {
            problems.push(format!("{file} does not say how to see it work"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn every_policy_has_an_example_that_is_accepted() {
    let mut problems = Vec::new();
    for (kind, name) in kinds() {
        let file = format!("examples/policies/{name}.yaml");
        let Ok(yaml) = fs::read_to_string(root().join(&file)) else {
            problems.push(format!("{} has no example {file}", kind.name));
            continue;
        };
        if !apply(&file, &yaml, &mut problems).await.contains(kind.name) {
            problems.push(format!("{file} shows no {}", kind.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn files_are_called_after_kinds() {
    let names = ["MeshHTTPRoute", "MeshTLS", "MeshTCPRoute", "RateLimit"].map(file_name);
    assert_eq!(names, ["mesh-http-route", "mesh-tls", "mesh-tcp-route", "rate-limit"]);
}
