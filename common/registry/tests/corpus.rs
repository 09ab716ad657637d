//! Verdicts of another control plane, replayed: which documents it refuses, and which fields it names.
//!
//! `CORPUS_DIR` names a folder of YAML files. Each says of which `kind` its `cases` are, and each case has a `spec` (of
//! kinds of the older form the members of the document beside its meta) and the `fields` that are named, none for what
//! is taken. `instead` are the fields named here where that differs on purpose, with a reason in `because`.

use std::{collections::BTreeSet, fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    document::Document,
    model::{
        Kind, SpecError, Violations,
        text::{self, TextLimits},
    },
    registry,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    kind: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    spec: Value,
    fields: BTreeSet<String>,
    instead: Option<BTreeSet<String>>,
    because: Option<String>,
}

/// What is said about a document, as the API says it: fields, and what is wrong there.
pub(super) fn said(kind: &'static Kind, spec: &Value) -> Vec<(String, String)> {
    let document = match kind.is_json() {
        true => serde_json::json!({ "spec": spec }),
        false => spec.clone(),
    };
    let settled = Document::parse_as(kind, &document)
        .map_err(|error| error.to_string())
        .map(|document| kind.settle_authored(&document.spec).map(|(violations, _)| violations));
    let of = |violations: &Violations| {
        violations.iter().map(|violation| (violation.field.to_string(), violation.reason.clone())).collect()
    };
    match settled {
        Ok(Ok(violations) | Err(SpecError::Shape(violations))) => of(&violations),
        Ok(Err(error)) => vec![(error.to_string(), String::new())],
        Err(error) => vec![(error, String::new())],
    }
}

/// The fields that are named about a document.
fn named(kind: &'static Kind, spec: &Value) -> BTreeSet<String> {
    said(kind, spec).into_iter().map(|(field, _)| field).collect()
}

/// How many cases of a file there are, and which of them differ.
fn replay(file: &Path) -> (usize, Vec<String>) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(file).unwrap();
    let corpus = text::yaml(&text, TextLimits::FILE).unwrap_or_else(|error| panic!("{name}: {error}"));
    let corpus: Corpus = serde_json::from_value(corpus).unwrap_or_else(|error| panic!("{name}: {error}"));
    let kind = registry::by_name(&corpus.kind).unwrap_or_else(|| panic!("{name}: no kind {}", corpus.kind));
    let mut different = Vec::new();
    for (i, case) in corpus.cases.iter().enumerate() {
        assert_eq!(
            case.instead.is_some(),
            case.because.is_some(),
            "{name}, case {i}: a difference has a reason"
        );
        let (named, expected) = (named(kind, &case.spec), case.instead.as_ref().unwrap_or(&case.fields));
        if &named != expected {
            different.push(format!("{name}, case {i}: {named:?} instead of {expected:?}: {}", case.spec));
        }
    }
    (corpus.cases.len(), different)
}

#[test]
fn verdicts_of_another_control_plane_are_ours() {
    let Some(folder) = std::env::var_os("CORPUS_DIR") else {
        return eprintln!("CORPUS_DIR names no folder of verdicts: nothing was looked at");
    };
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    let (counts, different): (Vec<usize>, Vec<Vec<String>>) = files.iter().map(|file| replay(file)).unzip();
    let (all, different) = (counts.iter().sum::<usize>(), different.concat());
    println!("{all} verdicts, {} differ", different.len());
    assert!(all > 0, "{} has no verdicts", Path::new(&folder).display());
    assert!(different.is_empty(), "{} of {all} differ:\n{}", different.len(), different.join("\n"));
}
