//! The rooms of a crate, and a check that none of them lean on each other in a circle.
//!
//! A room is a module, beside others in the same one. It leans on another when something in it names something
//! in there. What stands in the module around both is common to them and counts for neither.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Names from the root of a crate down to a module.
type Module = Vec<String>;
/// Which room leans on which, and in which file that shows.
type Leanings = BTreeMap<(Module, Module), PathBuf>;

/// How deep rooms are looked at: those of the crate, and the rooms in these.
const DEPTH: usize = 2;

/// How a path starts that leads to another room; both have the same length.
const STARTS: [&str; 2] = ["crate::", "super::"];

/// Fails when rooms of the crate with its sources in `folder` lean on each other in a circle.
///
/// # Panics
/// Then, with who leans on whom and where.
pub fn assert_no_circles(folder: impl AsRef<Path>) {
    let folder = folder.as_ref();
    let files = sources(folder);
    assert!(!files.is_empty(), "there are no sources in {}", folder.display());
    let circles = circles(leanings(&files));
    let shown = circles.iter().map(|((from, to), file)| {
        format!("\n  {} leans on {} in {}", from.join("::"), to.join("::"), file.display())
    });
    assert!(circles.is_empty(), "rooms lean on each other in a circle:{}", shown.collect::<String>());
}

/// The modules of the crate in `folder` with their files, but for tests and what helps them.
fn sources(folder: &Path) -> BTreeMap<Module, PathBuf> {
    let files = rust_files(folder).into_iter().filter_map(|path| {
        let module = path.strip_prefix(folder).ok()?.with_extension("");
        let module: Module = module.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let left_out = ["lib", "main", "tests", "testing"];
        let counts = !module.iter().any(|part| left_out.contains(&part.as_str()));
        counts.then_some((module, path))
    });
    files.collect()
}

/// All sources in a folder, at any depth.
pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let paths = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn leanings(files: &BTreeMap<Module, PathBuf>) -> Leanings {
    let is_module = |path: &[String]| files.keys().any(|module| module.starts_with(path));
    let mut found = Leanings::new();
    for (module, file) in files {
        let source = fs::read_to_string(file).unwrap_or_default();
        for named in named_in(&source, module) {
            let around = module.iter().zip(&named).take_while(|(own, other)| own == other).count();
            if around < DEPTH.min(module.len()).min(named.len()) && is_module(&named[..=around]) {
                let leaning = (module[..=around].to_vec(), named[..=around].to_vec());
                found.entry(leaning).or_insert_with(|| file.clone());
            }
        }
    }
    found
}

/// What the code of a module names in its crate.
fn named_in(source: &str, module: &Module) -> BTreeSet<Module> {
    // The tests of a module stand at its end.
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let (mut rest, mut paths) = (code.as_str(), Vec::new());
    while let Some(at) = STARTS.iter().filter_map(|start| rest.find(start)).min() {
        let (before, path) = rest.split_at(at);
        rest = match before.ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before)) {
            true => &path[STARTS[0].len()..],
            false => read_tree(path, &[], &mut paths),
        };
    }
    paths.into_iter().map(|path| absolute(&path, module)).collect()
}

/// The path from the root of the crate.
fn absolute(path: &[&str], module: &Module) -> Module {
    let up = path.iter().take_while(|part| **part == "super").count();
    let from = if up == 0 { &[][..] } else { &module[..module.len().saturating_sub(up)] };
    let down = path.iter().filter(|part| !["super", "crate", "self"].contains(*part));
    from.iter().cloned().chain(down.map(|part| (*part).to_owned())).collect()
}

/// Reads a path, or the tree of paths of a `use`; gives what stands behind it.
fn read_tree<'a>(mut text: &'a str, before: &[&'a str], paths: &mut Vec<Vec<&'a str>>) -> &'a str {
    let mut path = before.to_vec();
    loop {
        if let Some(mut inner) = text.strip_prefix('{') {
            while inner.trim_start().starts_with(|next| next != '}') {
                let behind = read_tree(inner.trim_start(), &path, paths);
                let end = behind.find([',', '}']).unwrap_or(behind.len());
                inner = behind[end..].strip_prefix(',').unwrap_or(&behind[end..]);
            }
            return inner.trim_start().strip_prefix('}').unwrap_or(inner);
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        if end > 0 {
            path.push(&text[..end]);
        }
        match text[end..].strip_prefix("::") {
            Some(next) if end > 0 => text = next,
            _ => {
                paths.push(path);
                return &text[end..];
            }
        }
    }
}

/// The leanings that are part of a circle, or lead from one to another.
fn circles(mut leanings: Leanings) -> Leanings {
    loop {
        let before = leanings.len();
        let leaning: BTreeSet<Module> = leanings.keys().map(|(from, _)| from.clone()).collect();
        let leant_on: BTreeSet<Module> = leanings.keys().map(|(_, to)| to.clone()).collect();
        leanings.retain(|(from, to), _| leaning.contains(to) && leant_on.contains(from));
        if leanings.len() == before {
            return leanings;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_here_lean_on_each_other_in_no_circle() {
        assert_no_circles(env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn what_a_module_names() {
        let module = ["a", "b"].map(str::to_owned).to_vec();
        let named = |source: &str| -> Vec<String> {
            named_in(source, &module).into_iter().map(|path| path.join("::")).collect()
        };
        assert_eq!(named("use crate::{c::{d, self}, e as f};"), ["c", "c::d", "e"]);
        assert_eq!(named("use super::{super::g, c::*};\nlet x = crate::h::i(1);"), ["a::c", "g", "h::i"]);
        assert_eq!(named("// use crate::c;\n#[cfg(test)]\nmod tests { use crate::d; }"), [""; 0]);
        assert_eq!(named("$crate::c std::crate::d"), [""; 0]);
    }

    #[test]
    fn a_circle_is_found() {
        let module = |name: &str| vec![name.to_owned()];
        let leans = |pairs: &[(&str, &str)]| -> Leanings {
            pairs.iter().map(|(from, to)| ((module(from), module(to)), PathBuf::new())).collect()
        };
        assert!(circles(leans(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let found = circles(leans(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
        assert_eq!(found, leans(&[("b", "c"), ("c", "b")]));
    }
}
