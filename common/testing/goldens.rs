//! Runners of the golden cases: recorded behaviour of Kuma that must be ours.

mod policy_matchers;
mod policy_rules;
mod rest;

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

pub use policy_matchers::policy_matchers;
pub use policy_rules::policy_rules;
pub use rest::{rest_crud, rest_inspect, rest_validation};

/// The name of a case inside its family, and why it failed.
pub type Outcome = (String, Result<(), String>);

/// The names of the cases in `dir`: its files that end with `suffix`, without it, in order.
pub fn cases(dir: &Path, suffix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter_map(|n| Some(n.strip_suffix(suffix)?.to_owned())).collect();
    names.sort();
    names
}

/// The names of the cases in `dir` and the folders below it, each with the folders that lead there.
pub fn cases_below(dir: &Path, suffix: &str) -> Vec<String> {
    let mut names = cases(dir, suffix);
    let folders = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        entry.path().is_dir().then(|| entry.file_name().into_string().ok())?
    });
    for folder in folders {
        names.extend(cases_below(&dir.join(&folder), suffix).iter().map(|case| format!("{folder}/{case}")));
    }
    names.sort();
    names
}

/// The text of a file, or which file is missing.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The documents of a YAML text as JSON; empty ones are left out.
pub fn yaml_documents(text: &str) -> Result<Vec<Value>, String> {
    let documents = serde_norway::Deserializer::from_str(text).map(Value::deserialize);
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    Ok(documents.into_iter().filter(|d| !d.is_null()).collect())
}
