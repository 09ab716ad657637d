//! The subcommand `restore` of a server process: its store, filled from a backup, without the server.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use thiserror::Error;

use crate::{
    config::{self, Asked, Config, ConfigError, General, StoreSection},
    control_plane::store_url,
    kds::headers::Upstream,
    store::{
        self, StoreError, StoreIdentity,
        backup::{Backup, BackupError},
    },
};

/// Name of the subcommand.
const RESTORE: &str = "restore";
const FILE: &str = "file";
const REPLACE: &str = "replace";
/// Where global remembers the history it shows to zones, where that is not the one of its store.
const SHOWN: &str = "kds/history";

/// Why it did not work.
#[derive(Debug, Error)]
pub(super) enum RestoreFailure {
    /// The settings do not say which store is meant.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file is not there.
    #[error("open {}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is no backup, or does not go into the store.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No runtime to work in.
    #[error("start the runtime: {0}")]
    Runtime(#[from] io::Error),
}

/// Adds the subcommand, which takes the settings of the server.
pub(super) fn command<C: Config>(server: Command) -> Command {
    let file = Arg::new(FILE).required(true).value_name("FILE").help("What `straitctl backup` wrote");
    let replace = Arg::new(REPLACE)
        .long(REPLACE)
        .action(ArgAction::SetTrue)
        .help("Replace what the store holds, rather than refuse");
    let restore = Command::new(RESTORE)
        .about("Fill the store from a backup, while no process uses it")
        .after_help(
            "Zones follow a global that was restored so without being asked; what was written after the backup is \
             gone. A zone keeps its delete fuse all the same.",
        );
    let restore = config::command::<C>(restore).arg(file).arg(replace);
    server.subcommand_negates_reqs(true).subcommand(restore)
}

/// What was asked for, when it was this subcommand.
pub(super) fn asked(matches: &ArgMatches) -> Option<&ArgMatches> {
    matches.subcommand_matches(RESTORE)
}

/// Does it, and says what there is to say.
pub(super) fn run<C: Config>(
    matches: &ArgMatches,
    store: impl FnOnce(&C) -> (&General, &StoreSection),
) -> Result<String, RestoreFailure> {
    let settings: C = match config::load(matches)? {
        Asked::Run(settings) => settings,
        Asked::Print(text) => return Ok(text),
    };
    let (general, section) = store(&settings);
    let url = store_url(section, general.work_dir.as_ref());
    let path = PathBuf::from(matches.get_one::<String>(FILE).cloned().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(restore(&url, &path, matches.get_flag(REPLACE)))
}

async fn restore(url: &str, path: &Path, replace: bool) -> Result<String, RestoreFailure> {
    let file = File::open(path).map_err(|source| RestoreFailure::File { path: path.to_owned(), source })?;
    let mut backup = Backup::read(BufReader::new(file))?;
    // From now on the store itself is what is shown.
    let known = backup.sessions.iter().find(|(key, _)| key == SHOWN);
    let known = known.and_then(|(_, text)| Upstream::parse(text));
    let known = known.map(|at| StoreIdentity { store_id: at.store_id, epoch: at.epoch });
    backup.sessions.retain(|(key, _)| key != SHOWN);
    let (count, revision, at) = (backup.resources.len(), backup.header.revision, backup.header.at);
    let store = store::open(url).await?;
    let restored = backup.restore(&*store, known, replace).await;
    store.close().await;
    let epoch = restored?.epoch;
    Ok(format!(
        "restored {count} resources as of revision {revision}, {at}; the store is in epoch {epoch} now\n"
    ))
}
