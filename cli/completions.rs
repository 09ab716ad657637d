//! `straitctl completions` and `straitctl man`: what shells and `man` read.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use common::control_plane::process;
use global::{config::GlobalConfig, relay::config::RelayConfig};
use zone::config::ZoneConfig;

use crate::{Cli, output};

/// Writes completions to standard output.
///
/// For bash: `straitctl completions bash > /etc/bash_completion.d/straitctl`.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "straitctl", &mut script);
        output::text(&String::from_utf8(script).context("the completions are not text")?);
        Ok(())
    }
}

/// Writes a page for each command and each of the servers, as `man` finds them in `share/man/man1`.
#[derive(Args)]
pub(crate) struct Man {
    /// Where to; it is made when it is not there
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = self.folder.display();
        fs::create_dir_all(&self.folder).with_context(|| format!("make folder {folder}"))?;
        for program in [Cli::command()].into_iter().chain(servers()) {
            clap_mangen::generate_to(program, &self.folder)
                .with_context(|| format!("write manual pages to {folder}"))?;
        }
        Ok(())
    }
}

/// The programs that are no commands of this one.
fn servers() -> [Command; 3] {
    let server = |name, about| Command::new(name).version(env!("CARGO_PKG_VERSION")).about(about);
    [
        process::command::<GlobalConfig>(server("strait-global", global::app::ABOUT)),
        process::command::<RelayConfig>(server("strait-relay", global::relay::app::ABOUT)),
        process::command::<ZoneConfig>(server("strait-zone", zone::app::ABOUT)),
    ]
}
