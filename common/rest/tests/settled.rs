//! What is stored of a document is the canonical form of it: settled again, not a byte of it changes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::kinds;
use crate::{document::Document, model::Kind, registry, testing::mutation::mutated};

/// Documents with objects of any shape in them, which those of [`kinds`] have none of.
fn open() -> Vec<(&'static Kind, Value)> {
    let conf = json!({ "path": "/told", "skipMTLS": false, "port": 1234, "tags": { "a": "1", "b": "2", "c": "3" },
        "envoy": { "usedOnly": true, "filterRegex": "http" },
        "aggregate": [{ "name": "app", "port": 80, "path": "/app", "enabled": true }] });
    let metrics = json!({ "name": "m", "type": "prometheus", "conf": conf });
    let mesh = json!({ "type": "Mesh", "name": "a",
        "metrics": { "enabledBackend": "m", "backends": [metrics] },
        "tracing": { "backends": [{ "name": "t", "type": "zipkin",
            "conf": { "url": "http://zipkin:9411/api", "apiVersion": "httpJson", "traceId128bit": true } }] } });
    let dataplane = json!({ "type": "Dataplane", "name": "a", "mesh": "default", "metrics": metrics,
        "networking": { "address": "10.0.0.1", "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }] } });
    let kind = |name: &str| registry::by_name(name).unwrap();
    vec![(kind("Mesh"), mesh), (kind("Dataplane"), dataplane)]
}

/// What would be stored of `document`; `None` when it is refused.
fn stored(kind: &'static Kind, document: &Value) -> Option<Vec<u8>> {
    let document = Document::parse_as(kind, document).ok()?;
    let (violations, spec) = kind.settle_authored(&document.spec).ok()?;
    violations.is_empty().then_some(spec)
}

fn is_settled(kind: &'static Kind, document: &Value) -> Result<(), TestCaseError> {
    let Some(first) = stored(kind, document) else { return Ok(()) };
    let twice = stored(kind, document);
    prop_assert_eq!(twice.as_ref(), Some(&first), "{} twice: {}", kind.name, document);
    let again = kind.settle_authored(&first).map(|(violations, spec)| (violations.is_empty(), spec));
    prop_assert_eq!(again.ok(), Some((true, first)), "{} again: {}", kind.name, document);
    Ok(())
}

#[test]
fn what_is_right_is_taken() {
    let written = kinds::written().map(|kind| (kind, kinds::document(kind)));
    for (kind, document) in written.chain(open()) {
        assert!(stored(kind, &document).is_some(), "{}", kind.name);
        is_settled(kind, &document).unwrap();
    }
}

proptest! {
    #[test]
    fn what_is_settled_stays_as_it_is(changes in prop::collection::vec((0..60usize, 0..60usize), 0..3)) {
        let written = kinds::written().map(|kind| (kind, kinds::document(kind)));
        for (kind, right) in written.chain(open()) {
            let document = changes.iter().fold(right, |document, (place, how)| mutated(&document, *place, *how));
            is_settled(kind, &document)?;
        }
    }
}
