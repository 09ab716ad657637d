//! What the pages say is there: links lead somewhere, every page is found from the first one, and settings, variables and
//! the command lines of the servers are those of this version. Those of `straitctl` are tried in `cli/documented.rs`.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use clap::Command;
use common::{
    config::{self, Asked, Config, WITHOUT_EFFECT, leaves},
    control_plane::process,
    testing::{
        markdown::{self, MarkdownPage},
        shell,
    },
};
use global::{config::GlobalConfig, relay::config::RelayConfig};
use serde_json::Value;
use tempfile::TempDir;
use zone::config::ZoneConfig;

/// Where readers begin.
const INDEX: &str = "docs/README.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<MarkdownPage> {
    let pages = markdown::pages(root());
    assert!(pages.iter().any(|page| page.path == Path::new(INDEX)), "{INDEX} is not there");
    pages
}

/// Those for operators that somebody wrote; references are made from the code, which other tests see to.
fn manual() -> Vec<MarkdownPage> {
    let is_manual =
        |page: &MarkdownPage| page.path.starts_with("docs") || page.path == Path::new("README.md");
    let is_made = |page: &MarkdownPage| page.path.starts_with("docs/reference");
    let manual: Vec<MarkdownPage> =
        pages().into_iter().filter(|page| is_manual(page) && !is_made(page)).collect();
    assert!(manual.len() > 50, "only {} pages are looked at", manual.len());
    manual
}

/// The file, from the root, and the heading that a link on `page` names; nothing for what is not in this project.
fn target(page: &Path, link: &str) -> Option<(PathBuf, String)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return Some((page.to_owned(), heading.to_owned()));
    }
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{}: {link} leaves the project", page.display()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some((path, heading.to_owned()))
}

fn nothing_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let anchors: BTreeMap<&Path, BTreeSet<String>> =
        pages.iter().map(|page| (&*page.path, page.anchors())).collect();
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for page in &pages {
        for link in page.links() {
            let Some((path, heading)) = target(&page.path, &link.what) else { continue };
            looked_at += 1;
            let at = format!("{}:{}: {}", page.path.display(), link.line, link.what);
            if !root().join(&path).exists() {
                wrong.push(format!("{at}: there is no such file"));
            } else if !heading.is_empty()
                && !anchors.get(&*path).is_some_and(|headings| headings.contains(&heading))
            {
                wrong.push(format!("{at}: there is no such heading"));
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(looked_at > 100, "only {looked_at} links were looked at");
}

#[test]
fn every_page_is_found_from_the_first_one() {
    let pages = pages();
    let by_path: BTreeMap<&Path, &MarkdownPage> = pages.iter().map(|page| (&*page.path, page)).collect();
    let mut found = BTreeSet::new();
    let mut next = vec![PathBuf::from(INDEX)];
    while let Some(path) = next.pop() {
        let Some(page) = by_path.get(&*path) else { continue };
        if found.insert(path) {
            let targets = page.links().into_iter().filter_map(|link| target(&page.path, &link.what));
            // What is only named by a page outside of the manual is not found by its readers.
            next.extend(targets.map(|(path, _)| path).filter(|path| path.starts_with("docs")));
        }
    }
    let lost: Vec<String> = pages
        .iter()
        .filter(|page| page.path.starts_with("docs") && !found.contains(&page.path))
        .map(|page| format!("{} is not found from {INDEX}", page.path.display()))
        .collect();
    nothing_wrong(&lost);
    let readme = by_path[Path::new("README.md")].links();
    assert!(readme.iter().any(|link| link.what == INDEX), "README.md does not lead to {INDEX}");
}

#[test]
fn every_command_of_a_server_is_one() {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for page in manual() {
        for block in page.blocks().into_iter().filter(|block| block.what.language == "sh") {
            for command in shell::commands(&block.what.text) {
                let Some(start) = command.words.iter().position(|word| word.starts_with("strait-")) else {
                    continue;
                };
                let words = &command.words[start..];
                let server = match &*words[0] {
                    "strait-global" => process::command::<GlobalConfig>(Command::new("strait-global")),
                    "strait-zone" => process::command::<ZoneConfig>(Command::new("strait-zone")),
                    "strait-relay" => process::command::<RelayConfig>(Command::new("strait-relay")),
                    _ => continue,
                };
                tried += 1;
                if let Err(error) = server.try_get_matches_from(words) {
                    let at = format!("{}:{}", page.path.display(), block.line);
                    wrong.push(format!("{at}: {}: {error}", words.join(" ")));
                }
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(tried > 15, "only {tried} commands were tried");
}

/// What there is to set, in any of the processes.
struct Settings {
    paths: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl Settings {
    fn all() -> Self {
        let defaults = [
            serde_json::to_value(GlobalConfig::default()).unwrap(),
            serde_json::to_value(ZoneConfig::default()).unwrap(),
            serde_json::to_value(RelayConfig::default()).unwrap(),
        ];
        let leaves: Vec<_> = defaults.iter().flat_map(leaves).collect();
        let idle = WITHOUT_EFFECT.iter().map(|(path, _)| (*path).to_owned());
        let variables = leaves.iter().flat_map(|leaf| ["STRAIT", "KUMA"].map(|prefix| leaf.variable(prefix)));
        let variables = variables.collect();
        Self { paths: leaves.iter().map(|leaf| leaf.path.clone()).chain(idle).collect(), variables }
    }

    fn has(&self, path: &str) -> bool {
        let is_within = |known: &String| {
            known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.paths.iter().any(is_within)
    }

    /// Whether a path that begins so can be nothing but that of a setting.
    fn is_section(&self, name: &str) -> bool {
        // These two are also parts of resources.
        !["proxy", "metrics"].contains(&name) && self.has(name)
    }
}

/// The path of a setting that `code` is about, if it looks like one: `a.b.c`, with a value or not, and for all in a
/// section `a.b.*`.
fn setting(code: &str) -> Option<&str> {
    let path = code.split([' ', ':', '=']).next()?.trim_start_matches("--");
    let path = path.trim_end_matches(".*").trim_end_matches(".…");
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    (is_plain && path.contains('.') && path.split('.').all(|part| !part.is_empty())).then_some(path)
}

#[test]
fn every_setting_and_variable_that_is_named_exists() {
    let settings = Settings::all();
    let (mut wrong, mut looked_at) = (Vec::new(), [0, 0]);
    for page in manual() {
        let spans = page.spans().into_iter().map(|span| (span.line, span.what));
        let blocks = page.blocks().into_iter().map(|block| (block.line, block.what.text));
        for (line, code) in spans.chain(blocks) {
            let at = format!("{}:{line}", page.path.display());
            if let Some(path) =
                setting(&code).filter(|path| settings.is_section(path.split('.').next().unwrap()))
            {
                looked_at[0] += 1;
                if !settings.has(path) {
                    wrong.push(format!("{at}: there is no setting {path}"));
                }
            }
            let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_' || c == '…';
            // Between signs of percent it is what a proxy fills into a line of a log.
            for name in code.split('%').step_by(2).flat_map(|part| part.split(|c: char| !is_part(c))) {
                if !["STRAIT_", "KUMA_"].iter().any(|prefix| name.starts_with(prefix)) || name.contains('…')
                {
                    continue;
                }
                looked_at[1] += 1;
                if !settings.variables.contains(name) {
                    wrong.push(format!("{at}: there is no variable {name}"));
                }
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(looked_at[0] > 60 && looked_at[1] > 2, "only {looked_at:?} were looked at");
}

/// Reads a file of settings as a process does.
fn read<C: Config>(file: &Path) -> Result<(), String> {
    let matches = config::command::<C>(Command::new("server"));
    let matches = matches.get_matches_from(["server".into(), "-c".into(), file.as_os_str().to_owned()]);
    match config::load::<C>(&matches) {
        Ok(Asked::Run(_)) => Ok(()),
        Ok(Asked::Print(text)) => Err(text),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_file_of_settings_is_taken() {
    let settings = Settings::all();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("settings.yaml");
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for page in manual() {
        for block in page.blocks().into_iter().filter(|block| block.what.language == "yaml") {
            let Ok(Value::Object(members)) = serde_norway::from_str(&block.what.text) else { continue };
            if members.is_empty() || !members.keys().all(|name| settings.is_section(name)) {
                continue;
            }
            tried += 1;
            fs::write(&file, &block.what.text).unwrap();
            let read = [read::<GlobalConfig>(&file), read::<ZoneConfig>(&file), read::<RelayConfig>(&file)];
            if read.iter().all(Result::is_err) {
                wrong.push(format!("{}:{}: no process takes it: {read:?}", page.path.display(), block.line));
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(tried > 2, "only {tried} files were tried");
}

#[test]
fn what_is_wrong_on_a_page_is_noticed() {
    assert_eq!(target(Path::new("docs/a.md"), "../b/c.md#d"), Some(("b/c.md".into(), "d".to_owned())));
    assert_eq!(target(Path::new("docs/a.md"), "#d"), Some(("docs/a.md".into(), "d".to_owned())));
    assert_eq!(target(Path::new("docs/a.md"), "https://a.example/b"), None);
    let settings = Settings::all();
    for (code, path, exists) in [
        ("multizone.zone.name", "multizone.zone.name", true),
        ("--store.type postgres", "store.type", true),
        ("access.static.*", "access.static", true),
        ("apiServer.readOnly: true", "apiServer.readOnly", true),
        ("multizone.zone.nam", "multizone.zone.nam", false),
    ] {
        assert_eq!(setting(code), Some(path));
        assert_eq!(settings.has(path), exists, "{path}");
    }
    assert!(
        ["zone-1.token", "spec.to[0]", "a b", "…", "resources"].iter().all(|code| setting(code).is_none())
    );
}
