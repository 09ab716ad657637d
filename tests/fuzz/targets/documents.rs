//! Resources as users write them.

use chrono::DateTime;
use common::{
    document::{Document, render, unknown_members},
    model::text::{self, TextLimits},
};
use serde_json::Value;

use super::Target;
use crate::corpus::Corpus;

/// JSON or YAML: what was taken reads the same after it was shown.
pub static DOCUMENTS: Target = Target { name: "documents", costs: 1, run, seeds };

fn run(data: &[u8]) {
    let Ok(written) = std::str::from_utf8(data) else { return };
    if let Ok(json) = text::json(data, TextLimits::BODY) {
        take(&json);
    }
    if let Ok(yaml) = text::yaml(written, TextLimits::INLINE) {
        take(&yaml);
    }
    let _documents = text::yaml_documents(written, TextLimits::FILE);
}

fn take(json: &Value) {
    let Ok(mut document) = Document::parse(json) else { return };
    let _ignored = unknown_members(document.kind, json);
    if let Ok((violations, settled)) = document.kind.settle_authored(&document.spec) {
        let again = document.kind.settle_authored(&settled).expect("what was settled can be read");
        assert!(!violations.is_empty() || again.0.is_empty(), "{}", again.0);
    }
    let Ok(spec) = document.kind.normalize(&document.spec) else { return };
    document.spec = spec;
    let (Ok(_), Ok(_)) =
        (document.kind.validate(&document.spec), document.kind.validate_authored(&document.spec))
    else {
        return;
    };
    let resource = document.into_resource(DateTime::UNIX_EPOCH);
    let shown = render(&resource).expect("what was taken can be shown");
    let again = Document::parse(&shown).expect("what was shown can be read");
    let again = again.into_resource(DateTime::UNIX_EPOCH);
    assert_eq!(again.key, resource.key, "{shown}");
    let (before, after) = (resource.kind().normalize(&resource.spec), again.kind().normalize(&again.spec));
    assert_eq!(before.expect("it was normal"), after.expect("it still is"), "{shown}");
}

fn seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let texts = corpus.documents.iter().flat_map(|document| {
        [Some(document.to_string()), serde_norway::to_string(document).ok()].into_iter().flatten()
    });
    texts.map(String::into_bytes).collect()
}
