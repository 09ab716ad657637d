//! `straitctl backup`: all that a control plane holds, in a file.

use std::{
    fs::OpenOptions,
    io::{self, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use common::store::backup::Backup;

use crate::{client::ApiClient, output};

#[derive(Args)]
#[command(
    after_help = "The file holds every secret: keep it as you keep the keys of the mesh. `strait-global restore FILE` \
                        and `strait-zone restore FILE`, with the settings of the process, fill a store from it."
)]
pub(crate) struct BackupArgs {
    /// The file to write, which must not be there yet
    file: PathBuf,
}

impl BackupArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let path = self.file.display();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file)
            .with_context(|| format!("create {path}"))?;
        let taken = take(client, &mut file).await.with_context(|| format!("write {path}"));
        let backup = match taken {
            Ok(backup) => backup,
            Err(error) => {
                // Half of a backup is none.
                let _nothing_to_do = std::fs::remove_file(&self.file);
                return Err(error);
            }
        };
        let (count, revision) = (backup.resources.len(), backup.header.revision);
        output::line(&format!("{path}: {count} resources at revision {revision}"));
        Ok(())
    }
}

/// Writes it, and reads it again: what cannot be restored is no backup.
async fn take(client: &ApiClient, file: &mut std::fs::File) -> anyhow::Result<Backup> {
    client.download("/strait/backup", file).await?;
    file.flush()?;
    file.sync_all()?;
    io::Seek::rewind(file)?;
    Ok(Backup::read(BufReader::new(file))?)
}
