//! The frame of a server process: read the settings, start logging, run, report the end.

use std::{future::Future, process::ExitCode, time::Duration};

use clap::Command;

use super::{restore, salvage};
use crate::{
    config::{self, Asked, Config, General, Logging, StoreSection},
    telemetry,
};

/// What still runs on threads of its own when everything else has ended has this long.
const LEAVE: Duration = Duration::from_secs(1);

/// The settings that every server process has.
pub struct Sections<'a> {
    /// How it logs.
    pub logging: &'a Logging,
    /// Where it works.
    pub general: &'a General,
    /// Where it stores.
    pub store: &'a StoreSection,
}

/// What a server process takes: its settings, and the subcommands that work on its store.
pub fn command<C: Config>(command: Command) -> Command {
    restore::command::<C>(salvage::command::<C>(config::command::<C>(command)))
}

/// Runs a server process and returns its exit code: 0 after a clean stop, 1 when it failed, 2 when its
/// settings are wrong.
pub fn main<C, F>(
    command: Command,
    sections: impl Fn(&C) -> Sections<'_>,
    run: impl FnOnce(C) -> F,
) -> ExitCode
where
    C: Config,
    F: Future<Output = anyhow::Result<()>>,
{
    let matches = self::command::<C>(command).get_matches();
    if let Some(asked) = salvage::asked(&matches) {
        return match salvage::run::<C>(asked, |settings| {
            let Sections { general, store, .. } = sections(settings);
            (general, store)
        }) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error @ salvage::SalvageFailure::Config(_)) => failed(2, &error.into()),
            Err(error) => failed(1, &error.into()),
        };
    }
    if let Some(asked) = restore::asked(&matches) {
        return match restore::run::<C>(asked, |settings| {
            let Sections { general, store, .. } = sections(settings);
            (general, store)
        }) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error @ restore::RestoreFailure::Config(_)) => failed(2, &error.into()),
            Err(error) => failed(1, &error.into()),
        };
    }
    let settings: C = match config::load(&matches) {
        Ok(Asked::Run(settings)) => settings,
        Ok(Asked::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return failed(2, &error.into()),
    };
    if let Err(error) = telemetry::init_logs(sections(&settings).logging.format) {
        return failed(2, &error);
    }
    let unknown = config::unknown_variables::<C>();
    if !unknown.is_empty() {
        tracing::warn!(
            variables = unknown.join(" "),
            "the environment names settings that do not exist, see --help"
        );
    }
    for setting in config::settings_without_effect::<C>(&matches) {
        tracing::info!(setting, "a setting of Kuma that has no effect here");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(1, &error.into()),
    };
    let ended = runtime.block_on(run(settings));
    // A name that nobody resolves and a file on a disk that hangs keep a thread: nothing of it is waited for.
    runtime.shutdown_timeout(LEAVE);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(1, &error),
    }
}

fn failed(code: u8, error: &anyhow::Error) -> ExitCode {
    // To standard error as plain text, since logging may not be up and a person reads this.
    eprintln!("error: {}", told_once(error));
    ExitCode::from(code)
}

/// The error and its causes, each told once: many errors put their cause into their own text.
fn told_once(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| {
        let cause = cause.to_string();
        match told.as_str() {
            "" => cause,
            known if known.contains(&cause) => told,
            known => format!("{known}: {cause}"),
        }
    })
}
