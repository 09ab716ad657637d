//! The subcommand `salvage` of a server process: the way on with damaged rows, by hand and without the server.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};
use thiserror::Error;

use crate::{
    config::{self, Asked, Config, ConfigError, General, StoreSection},
    control_plane::store_url,
    store::salvage::{self, SalvageError, Settlement},
};

/// Name of the subcommand.
const SALVAGE: &str = "salvage";
const LIST: &str = "list";
const REMOVE: &str = "remove";
const ACCEPT: &str = "accept";
const ROW: &str = "row";
const BACKUP: &str = "backup";

/// Why it did not work.
#[derive(Debug, Error)]
pub(super) enum SalvageFailure {
    /// The settings do not say which store is meant.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store.
    #[error(transparent)]
    Salvage(#[from] SalvageError),
    /// No runtime to work in.
    #[error("start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Adds the subcommand, which takes the settings of the server.
pub(super) fn command<C: Config>(server: Command) -> Command {
    let with_row = |name: &'static str, about: &'static str, after: &'static str| {
        let row = Arg::new(ROW).required(true).value_name("ROW").help("What `list` calls it");
        let backup = Arg::new(BACKUP)
            .long(BACKUP)
            .required(true)
            .value_name("FILE")
            .help("Where what it holds is kept first; there must be no such file yet");
        config::command::<C>(Command::new(name).about(about).after_help(after)).arg(row).arg(backup)
    };
    let list = Command::new(LIST).about("List the rows that are not what was written");
    let salvage = Command::new(SALVAGE)
        .about("Go on with a store that has damaged rows and no backup")
        .subcommand_required(true)
        .subcommand(config::command::<C>(list))
        .subcommand(with_row(
            REMOVE,
            "Delete a damaged row",
            "What belongs to the row stays. To write it again, apply `resource` of the file, where there is one, \
             after a look at it.",
        ))
        .subcommand(with_row(ACCEPT, "Take what a damaged row holds for what was written", ""));
    server.subcommand_negates_reqs(true).subcommand(salvage)
}

/// What was asked for, when it was this subcommand.
pub(super) fn asked(matches: &ArgMatches) -> Option<(&str, &ArgMatches)> {
    matches.subcommand_matches(SALVAGE)?.subcommand()
}

/// Does it, and says what there is to say.
pub(super) fn run<C: Config>(
    (action, matches): (&str, &ArgMatches),
    store: impl FnOnce(&C) -> (&General, &StoreSection),
) -> Result<String, SalvageFailure> {
    let settings: C = match config::load(matches)? {
        Asked::Run(settings) => settings,
        Asked::Print(text) => return Ok(text),
    };
    let (general, section) = store(&settings);
    let url = store_url(section, general.work_dir.as_ref());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(act(&url, action, matches)).map_err(SalvageFailure::Salvage)
}

async fn act(url: &str, action: &str, matches: &ArgMatches) -> Result<String, SalvageError> {
    let settlement = match action {
        REMOVE => Settlement::Remove,
        ACCEPT => Settlement::Accept,
        _ => return Ok(listed(&salvage::list(url).await?)),
    };
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let (row, backup) = (text(ROW), PathBuf::from(text(BACKUP)));
    salvage::settle(url, &row, settlement, &backup).await?;
    let done = if settlement == Settlement::Remove { "removed" } else { "accepted" };
    Ok(format!("{row} {done}; what it held is in {}\n", backup.display()))
}

fn listed(found: &[salvage::Finding]) -> String {
    if found.is_empty() {
        return "no damaged rows\n".to_owned();
    }
    let rows = found.iter().map(|finding| format!("{finding}\n"));
    let advice = format!(
        "{} damaged: `{SALVAGE} {REMOVE} ROW --{BACKUP} FILE` deletes one, `{SALVAGE} {ACCEPT} ROW --{BACKUP} FILE` \
         takes it as it is\n",
        found.len()
    );
    rows.chain([advice]).collect()
}
