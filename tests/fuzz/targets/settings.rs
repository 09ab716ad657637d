//! Settings as operators write them: refused with a message that names the setting, or effective.

use std::{fs, path::PathBuf, sync::LazyLock};

use clap::Command;
use common::config::{self, Asked, Config};
use global::config::GlobalConfig;
use tempfile::TempDir;
use zone::config::ZoneConfig;

use super::{Target, choice};
use crate::corpus::Corpus;

/// A file of settings for a global or a zone.
pub static SETTINGS: Target = Target { name: "settings", costs: 1, run, seeds };

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder"));

fn run(data: &[u8]) {
    let Some((which, text)) = choice(data, 2) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let path = FOLDER.path().join("settings.yaml");
    fs::write(&path, text).expect("the folder can be written");
    if which == 0 { load::<GlobalConfig>(path) } else { load::<ZoneConfig>(path) }
}

fn load<C: Config>(path: PathBuf) {
    let args = ["strait".into(), "--config-file".into(), path.into_os_string()];
    let matches = config::command::<C>(Command::new("strait")).try_get_matches_from(args);
    let matches = matches.expect("the flag exists");
    match config::load::<C>(&matches) {
        Ok(Asked::Run(settings)) => drop(config::masked(&settings)),
        Ok(Asked::Print(_)) => unreachable!("nobody asked to print"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let shown = |which: u8, shown: serde_json::Value| {
        let text = serde_norway::to_string(&shown).unwrap_or_default();
        [&[which][..], text.as_bytes()].concat()
    };
    let some = b"multizone:\n  zone:\n    name: zone-1\n    globalAddress: grpcs://127.0.0.1:5685\n";
    vec![
        shown(0, config::masked(&GlobalConfig::default())),
        shown(1, config::masked(&ZoneConfig::default())),
        [&[1][..], some].concat(),
    ]
}
