//! The kind a user means, and where it is served.

use anyhow::anyhow;
use common::{model::Kind, registry};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stays as it is in a part of a path or query.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const HELP_WIDTH: usize = 96;

/// The kind named on the command line: argument, path, type name or short name, in any case.
pub(crate) fn find(word: &str) -> anyhow::Result<&'static Kind> {
    let lower = word.to_lowercase();
    let found = registry::by_argument(word)
        .or_else(|| registry::by_argument(&lower))
        .or_else(|| registry::ALL.iter().copied().find(|kind| kind.name.eq_ignore_ascii_case(word)));
    found.filter(|kind| !kind.path.is_empty()).ok_or_else(|| unknown(&lower))
}

/// Nothing is called `word`; names what is meant, or everything there is.
pub(crate) fn unknown(word: &str) -> anyhow::Error {
    let served = || registry::ALL.iter().filter(|kind| !kind.path.is_empty());
    let names = served().flat_map(|kind| [kind.arg, kind.path, kind.short, kind.name]);
    let lower = word.to_lowercase();
    let likeness = |name: &&str| likeness(&lower, &name.to_lowercase());
    let close = names.filter(|name| !name.is_empty()).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match close.filter(|name| likeness(name) > 0.8) {
        Some(close) => anyhow!("there is no resource type {word:?}; did you mean {close}?"),
        None => {
            anyhow!("there is no resource type {word:?}; `straitctl get --help` lists the types")
        }
    }
}

fn likeness(a: &str, b: &str) -> f64 {
    strsim::jaro_winkler(a, b)
}

/// The types a command takes, for its help.
pub(crate) fn help() -> String {
    let mut help = "Types, with their short names:".to_owned();
    let mut line = String::new();
    for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty()) {
        let name = if kind.arg.is_empty() { kind.path } else { kind.arg };
        let word = if kind.short.is_empty() { name.to_owned() } else { format!("{name} ({})", kind.short) };
        if line.is_empty() || line.len() + word.len() > HELP_WIDTH {
            help.push_str(&std::mem::take(&mut line));
            line = format!("\n  {word}");
        } else {
            line = format!("{line}, {word}");
        }
    }
    help + &line
}

/// A name as a part of a path.
pub(crate) fn segment(name: &str) -> impl std::fmt::Display {
    utf8_percent_encode(name, PART)
}

/// The query with these parameters, empty when there is none.
pub(crate) fn query(parameters: &[(&str, String)]) -> String {
    let parts = parameters.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, PART)));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// Path of the collection; `mesh` is ignored for kinds outside meshes.
pub(crate) fn collection(kind: &Kind, mesh: &str) -> String {
    match kind.is_mesh_scoped() {
        true => format!("/meshes/{}/{}", segment(mesh), kind.path),
        false => format!("/{}", kind.path),
    }
}

/// Path of one resource.
pub(crate) fn item(kind: &Kind, mesh: &str, name: &str) -> String {
    format!("{}/{}", collection(kind, mesh), segment(name))
}

/// A resource as messages call it.
pub(crate) fn title(kind: &Kind, mesh: &str, name: &str) -> String {
    if kind.is_mesh_scoped() {
        format!("{} {mesh}/{name}", kind.name)
    } else {
        format!("{} {name}", kind.name)
    }
}
