//! Inputs to start from: the resources of the golden cases, where they are, and a few of our own.

use std::{fs, path::Path};

use chrono::DateTime;
use common::{
    document::Document,
    model::Resource,
    testing::{goldens::yaml_documents, needs},
};
use serde_json::{Value, json};

/// Resources as people write them, and as they are stored.
#[derive(Default)]
pub struct Corpus {
    /// Documents.
    pub documents: Vec<Value>,
    /// The same, read.
    pub resources: Vec<Resource>,
}

/// Documents that are there without golden cases: one of each form that an entrance treats in its own way.
fn own_documents() -> [Value; 5] {
    [
        json!({"type": "Dataplane", "mesh": "default", "name": "web-1", "networking": {"address": "10.0.0.1",
            "inbound": [{"port": 80, "tags": {"kuma.io/service": "web", "kuma.io/zone": "zone-2"}}],
            "gateway": {"tags": {"kuma.io/service": "gw", "kuma.io/zone": "zone-2"}}}}),
        json!({"type": "ZoneIngress", "name": "in-1", "zone": "zone-2",
            "networking": {"address": "10.0.0.1", "port": 10001},
            "availableServices": [{"tags": {"kuma.io/service": "a", "kuma.io/zone": "zone-2"}, "mesh": "default"}]}),
        json!({"type": "ZoneEgress", "name": "out-1", "zone": "zone-2",
            "networking": {"address": "10.0.0.1", "port": 10002}}),
        json!({"type": "MeshTimeout", "mesh": "default", "name": "t", "labels": {"a": "b"},
            "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}}),
        json!({"type": "Mesh", "name": "default", "mtls": {"enabledBackend": "ca-1",
            "backends": [{"name": "ca-1", "type": "builtin"}]}}),
    ]
}

impl Corpus {
    /// What there is without golden cases.
    pub fn own() -> Self {
        let mut corpus = Self::default();
        own_documents().into_iter().for_each(|document| corpus.add(document));
        corpus
    }

    /// Reads what there is.
    pub fn gather() -> Self {
        let mut corpus = Self::own();
        if let Some(folder) = needs::goldens() {
            corpus.read(&folder);
        }
        corpus
    }

    fn read(&mut self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.read(&path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                yaml_documents(&text).into_iter().flatten().for_each(|document| self.add(document));
            }
        }
    }

    fn add(&mut self, document: Value) {
        let Ok(read) = Document::parse(&document) else { return };
        self.resources.push(read.into_resource(DateTime::UNIX_EPOCH));
        self.documents.push(document);
    }
}
