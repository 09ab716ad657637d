//! The names of types. Each is that of one type in the whole project, so that nobody who reads or searches one has to
//! find out first which is meant.
//!
//! What counts is defined at the top of a file. Generated code, associated types, tests and what is nested in a module
//! or a function of a file do not.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::rooms::rust_files;

/// The folders with sources of the project.
const FOLDERS: [&str; 5] = ["common", "global", "zone", "cli", "benches"];

/// Names that are meant to exist more than once, each with its reason.
const MEANT: [(&str, &str); 0] = [];

/// Types by their names, each as its file and line.
type Definitions = BTreeMap<String, Vec<String>>;

#[test]
fn a_type_name_exists_once() {
    let mut definitions = Definitions::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in FOLDERS {
        let files: Vec<PathBuf> = rust_files(&root.join(folder));
        assert!(!files.is_empty(), "there are no sources in {folder}");
        for file in files {
            let path = file.strip_prefix(&root).unwrap();
            let is_of_tests = |part: &str| ["tests", "testing"].contains(&part);
            if !path.with_extension("").iter().any(|part| is_of_tests(&part.to_string_lossy())) {
                collect(&path.display().to_string(), &fs::read_to_string(&file).unwrap(), &mut definitions);
            }
        }
    }
    definitions.retain(|_, places| places.len() > 1);
    for (name, reason) in MEANT {
        assert!(definitions.remove(name).is_some(), "{name} exists once, so this says nothing: {reason}");
    }
    let shown = definitions.iter().map(|(name, places)| format!("\n  {name}: {}", places.join(", ")));
    assert!(definitions.is_empty(), "names that several types have:{}", shown.collect::<String>());
}

fn collect(path: &str, source: &str, into: &mut Definitions) {
    // The tests of a module stand at its end.
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    for (number, line) in (1..).zip(code.lines()) {
        if let Some(name) = defined(line) {
            into.entry(name.to_owned()).or_default().push(format!("{path}:{number}"));
        }
    }
}

/// The type that begins in a line, where that is not indented.
fn defined(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (keyword, rest) = item.split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    ["struct", "enum", "trait", "type"].contains(&keyword).then_some(&rest[..end])
}

#[test]
fn what_a_line_defines() {
    assert_eq!(defined("struct Lease {"), Some("Lease"));
    assert_eq!(defined("pub enum Lease<T> {"), Some("Lease"));
    assert_eq!(defined("pub(in crate::ads) trait Lease: Send {"), Some("Lease"));
    assert_eq!(defined("pub(super) type Lease = u8;"), Some("Lease"));
    for other in ["    type Lease = u8;", "impl Lease {", "// struct Lease", "pub fn lease() {", ""] {
        assert_eq!(defined(other), None, "{other}");
    }
}

#[test]
fn a_name_that_two_types_have_is_found() {
    let mut definitions = Definitions::new();
    collect("a.rs", "struct Lease;\n\n#[cfg(test)]\nmod tests {\nstruct Holder;\n}\n", &mut definitions);
    collect("b.rs", "enum Holder {}\n\npub type Lease = u8;\n", &mut definitions);
    assert_eq!(definitions["Lease"], ["a.rs:1", "b.rs:3"]);
    assert_eq!(definitions["Holder"], ["b.rs:1"]);
}
