//! The kind a user means, and where it is served.

use anyhow::anyhow;
use common::model::{Kind, registry};

/// The kind named on the command line: argument, path, type name or short name, in any case.
pub(crate) fn find(word: &str) -> anyhow::Result<&'static Kind> {
    let lower = word.to_lowercase();
    let found = registry::by_argument(word)
        .or_else(|| registry::by_argument(&lower))
        .or_else(|| registry::ALL.iter().copied().find(|kind| kind.name.eq_ignore_ascii_case(word)));
    found.filter(|kind| !kind.path.is_empty()).ok_or_else(|| unknown(&lower))
}

fn unknown(word: &str) -> anyhow::Error {
    let served = || registry::ALL.iter().filter(|kind| !kind.path.is_empty());
    let names = served().flat_map(|kind| [kind.arg, kind.path, kind.short]).filter(|name| !name.is_empty());
    let close = names.max_by(|a, b| likeness(word, a).total_cmp(&likeness(word, b)));
    match close.filter(|name| likeness(word, name) > 0.8) {
        Some(close) => anyhow!("there is no resource type {word:?}; did you mean {close}?"),
        None => {
            let all: Vec<&str> = served().map(|kind| kind.path).collect();
            anyhow!("there is no resource type {word:?}; types are: {}", all.join(", "))
        }
    }
}

fn likeness(a: &str, b: &str) -> f64 {
    strsim::jaro_winkler(a, b)
}

/// Path of the collection; `mesh` is ignored for kinds outside meshes.
pub(crate) fn collection(kind: &Kind, mesh: &str) -> String {
    if kind.is_mesh_scoped() { format!("/meshes/{mesh}/{}", kind.path) } else { format!("/{}", kind.path) }
}

/// Path of one resource.
pub(crate) fn item(kind: &Kind, mesh: &str, name: &str) -> String {
    format!("{}/{name}", collection(kind, mesh))
}

/// A resource as messages call it.
pub(crate) fn title(kind: &Kind, mesh: &str, name: &str) -> String {
    if kind.is_mesh_scoped() {
        format!("{} {mesh}/{name}", kind.name)
    } else {
        format!("{} {name}", kind.name)
    }
}
