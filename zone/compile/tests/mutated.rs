//! Whatever the API takes gives every proxy of the zone a configuration: documents of people with some places changed.

use std::{fs, path::Path, sync::LazyLock};

use chrono::DateTime;
use common::{
    document::{Document, render},
    testing::mutation::mutated,
};
use proptest::prelude::*;
use serde_json::Value;

use super::{
    TWO_SERVICES,
    fixture::{Fixture, documents},
};

/// Zones to start from: those of the golden cases, and two services with each of the examples.
static ZONES: LazyLock<Vec<Vec<Value>>> = LazyLock::new(|| {
    let folder = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let texts = |folder: &Path, ending: &str| -> Vec<String> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        paths.sort();
        paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    };
    let golden = texts(&folder("compile/testdata"), ".input.yaml");
    let examples = texts(&folder("../examples/policies"), ".yaml");
    let with_services = |example: &String| [documents(TWO_SERVICES), documents(example)].concat();
    golden.iter().map(|text| documents(text)).chain(examples.iter().map(with_services)).collect()
});

/// A document as it is stored, when the API takes it.
fn taken(document: &Value) -> Option<Value> {
    let mut document = Document::parse(document).ok()?;
    let (violations, spec) = document.kind.settle_authored(&document.spec).ok()?;
    document.spec = spec;
    let taken = violations.is_empty().then(|| render(&document.into_resource(DateTime::UNIX_EPOCH)));
    Some(taken?.unwrap())
}

/// What proxies are made of is left alone, and so are authorities, without which there is no proxy.
fn may_change(document: &Value) -> bool {
    document["type"] != "Mesh" && document["type"] != "Secret"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_taken_is_compiled(
        zone in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<usize>(), any::<usize>(), any::<usize>()), 1..6),
    ) {
        let mut documents = zone.get(&ZONES).clone();
        for (which, place, how) in changes {
            let which = which % documents.len();
            if !may_change(&documents[which]) {
                continue;
            }
            if let Some(stored) = taken(&mutated(&documents[which], place, how)) {
                let zone = documents[which].get("zone").cloned();
                documents[which] = stored;
                zone.into_iter().for_each(|zone| documents[which]["zone"] = zone);
            }
        }
        let generated = Fixture::of_valid(&documents).generate();
        prop_assert!(!generated.is_empty());
    }
}
