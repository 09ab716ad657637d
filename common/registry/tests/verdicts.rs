//! Tables of verdicts, one file a kind: what Kuma says of a spec, and so what is said here.
//!
//! A line is a value, and behind `=>` what is wrong with it, parts apart with ` ;; `: a field, and where it matters what
//! is said of it. `@base` is a whole spec (of kinds of the older form the document beside its meta), `@at` where in it
//! the values of the next lines stand. Fields begin there, those with a `/` at the top of the document.

use std::{fs, path::Path};

use serde_json::Value;

use super::corpus::said;
use crate::{
    model::{
        Kind,
        text::{self, TextLimits},
    },
    registry,
};

/// A table as it is read.
struct VerdictTable {
    kind: &'static Kind,
    base: Value,
    at: String,
    cases: usize,
    different: Vec<String>,
}

fn yaml(text: &str, of: &str) -> Value {
    text::yaml(text, TextLimits::FILE).unwrap_or_else(|error| panic!("{of}: {error}"))
}

/// `base` with `value` at a path such as `to[0].default`.
fn with(mut base: Value, at: &str, value: Value) -> Value {
    let mut place = &mut base;
    for step in at.replace('[', ".").replace(']', "").split('.').filter(|step| !step.is_empty()) {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
    base
}

impl VerdictTable {
    fn read(file: &Path) -> Self {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let kind = registry::by_name(&name).unwrap_or_else(|| panic!("no kind {name}"));
        let mut table = Self { kind, base: Value::Null, at: String::new(), cases: 0, different: Vec::new() };
        for (i, line) in fs::read_to_string(file).unwrap().lines().enumerate() {
            let at = format!("{name}, line {}", i + 1);
            match line.split_once(' ') {
                None if line.is_empty() => {}
                Some(("#", _)) => {}
                Some(("@base", base)) => (table.base, table.at) = (yaml(base, &at), String::new()),
                Some(("@at", path)) => path.clone_into(&mut table.at),
                _ => table.case(line, &at),
            }
        }
        table
    }

    fn case(&mut self, line: &str, of: &str) {
        let (value, expected) = line.split_once(" => ").unwrap_or((line, ""));
        let spec = with(self.base.clone(), &self.at, yaml(value, of));
        let mut found = said(self.kind, &spec);
        let expected: Vec<_> = expected.split(" ;; ").filter(|part| !part.is_empty()).collect();
        let missed: Vec<_> = expected.into_iter().filter(|part| !self.is_met(part, &mut found)).collect();
        if !missed.is_empty() || !found.is_empty() {
            self.different.push(format!("{of}: not said: {missed:?}, said: {found:?}"));
        }
        self.cases += 1;
    }

    /// Whether it is among what was said, from which it is taken.
    fn is_met(&self, expected: &str, found: &mut Vec<(String, String)>) -> bool {
        let (field, reason) = match expected.split_once(": ") {
            Some((field, reason)) => (field, Some(reason)),
            None => (expected, None),
        };
        let field = match field.strip_prefix('/') {
            Some(field) => field.to_owned(),
            None => {
                let top = if self.kind.is_json() { "spec" } else { "" };
                let steps = [top, &self.at, if field == "." { "" } else { field }];
                let steps: Vec<_> = steps.into_iter().filter(|step| !step.is_empty()).collect();
                steps.join(".").replace(".[", "[")
            }
        };
        let place = found.iter().position(|(at, said)| *at == field && reason.is_none_or(|r| r == said));
        place.map(|place| found.remove(place)).is_some()
    }
}

#[test]
fn verdicts_are_those_of_kuma() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("registry/tests/verdicts");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let tables: Vec<_> = files.iter().map(|file| VerdictTable::read(file)).collect();
    for table in &tables {
        println!("{:>4} {}", table.cases, table.kind.name);
    }
    let cases: usize = tables.iter().map(|table| table.cases).sum();
    let different: Vec<_> = tables.iter().flat_map(|table| &table.different).map(String::as_str).collect();
    println!("{cases} verdicts about {} kinds, {} differ", tables.len(), different.len());
    assert!(different.is_empty(), "{} of {cases} differ:\n{}", different.len(), different.join("\n"));
    // Whoever adds a policy adds what is said of it.
    for kind in registry::ALL.iter().filter(|kind| kind.policy.is_some()) {
        assert!(tables.iter().any(|table| std::ptr::eq(table.kind, *kind)), "no table for {}", kind.name);
    }
}
