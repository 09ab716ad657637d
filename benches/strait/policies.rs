//! A policy of every kind, as the examples have them, around what is measured; `BENCH_KINDS=MeshRetry,MeshTimeout`
//! puts those of a few kinds there, to find out which of them costs what.

use std::{fs, path::Path};

use common::{
    model::text::{TextLimits, yaml_documents},
    registry,
};
use load::{AdminApi, Scenario};
use serde_json::Value;

/// What a mesh holds beside what the scenario puts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Nothing.
    Nothing,
    /// A policy of every kind.
    Policies,
}

impl Around {
    /// A few words for the output.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Nothing => "no policies",
            Self::Policies => "a policy of every kind",
        }
    }

    /// Stores it in the mesh of `scenario`.
    pub async fn put(self, admin: &AdminApi, scenario: &Scenario) {
        if self == Self::Nothing {
            return;
        }
        let only = std::env::var_os("BENCH_KINDS").unwrap_or_default();
        let only = only.to_string_lossy();
        for document in policies(scenario) {
            let name = document["type"].as_str().unwrap_or_default();
            if !only.is_empty() && only.split(',').all(|kind| kind != name) {
                continue;
            }
            let kind = document["type"].as_str().and_then(registry::by_name).expect("an example has a kind");
            let name = document["name"].as_str().expect("an example has a name");
            let path = format!("/meshes/{}/{}/{name}", scenario.mesh, kind.path);
            admin.put_at(&path, &document).await.expect("an example is stored");
        }
    }
}

/// The examples, as policies of this mesh; what they say about a service is about the second one, so that those
/// that change while it is measured differ in nothing but what is said about everybody.
fn policies(scenario: &Scenario) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies");
    let files =
        fs::read_dir(&folder).expect("the examples are there").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files.collect();
    files.sort_unstable();
    let service = Scenario::service(1);
    let documents = files.into_iter().flat_map(|file| {
        let text = fs::read_to_string(&file).expect("an example can be read");
        yaml_documents(&text, TextLimits::FILE).expect("an example is YAML")
    });
    let documents = documents.map(|mut document| {
        rename(&mut document, &service);
        document["mesh"] = Value::from(scenario.mesh.as_str());
        document
    });
    documents.collect()
}

/// What the examples call the backend has the name of a service here.
fn rename(value: &mut Value, service: &str) {
    match value {
        Value::String(text) if text == "backend" => service.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, service)),
        Value::Object(members) => members.values_mut().for_each(|member| rename(member, service)),
        _ => {}
    }
}
