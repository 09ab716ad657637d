//! `straitctl completions` and `straitctl man`: what shells and `man` read.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

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

/// Writes a page for each command, as `man` finds them in `share/man/man1`.
#[derive(Args)]
pub(crate) struct Man {
    /// Where to; it is made when it is not there
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = self.folder.display();
        fs::create_dir_all(&self.folder).with_context(|| format!("make folder {folder}"))?;
        clap_mangen::generate_to(Cli::command(), &self.folder)
            .with_context(|| format!("write manual pages to {folder}"))
    }
}
