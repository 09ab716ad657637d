//! Files that were cut off in place, as `: > file` does, or a file system that loses the end of one.

use super::{
    super::{connections::NoPen, file, files::Trouble},
    Keeper,
};
use crate::store::StoreError;

const FORGOTTEN: &str = "the end of its journal was cut off under the running process, and is not in memory";

impl Keeper {
    /// What has no name any more may have been cut off before: then half of it would be folded into the database, or
    /// copied.
    pub(super) async fn worst(&self, trouble: Trouble) -> Trouble {
        if !matches!(trouble, Trouble::Journal | Trouble::Deleted) {
            return trouble;
        }
        match self.connections.files().check_journal().await {
            // What it lost is in the database.
            Ok(()) | Err(Trouble::Journal) => trouble,
            Err(worse) => worse,
        }
    }

    /// Writes what was cut off again.
    pub(super) async fn write_journal_again(&mut self) -> Result<(), StoreError> {
        let path = self.connections.path();
        // Held, so that nobody writes meanwhile. Where there is none, nobody can: none is made to files that are cut off.
        let pen = self.connections.same_pen().await.map_err(|error| error.into_error(path))?;
        let written = self.connections.files().write_journal_again().await;
        if let Some(pen) = pen {
            pen.put_down();
        }
        match written {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lost(FORGOTTEN)),
            Err(error) => {
                let doing = format!("write again what was cut off the journal of {}", path.display());
                Err(StoreError::backend(doing, error))
            }
        }
    }

    /// From now on nothing is written.
    pub(super) fn lost(&mut self, what: &str) -> StoreError {
        let what = format!(
            "is damaged: {what}. Nothing is written to it any more. Make a backup of what is served now (straitctl \
             backup), and restore it, or an older one, with the process stopped"
        );
        let error = file::damaged(self.connections.path(), &what);
        self.lost = Some(what);
        error
    }

    /// Looks a last time whether something was cut off, before the last connection folds what is there.
    pub(in super::super) async fn look_again(&mut self) {
        if self.lost.is_some() || self.anchor.is_none() {
            return;
        }
        let mended = match self.connections.pen().await {
            Ok(pen) => {
                self.cut = false;
                return pen.put_down();
            }
            Err(NoPen::Trouble(trouble)) => match self.worst(trouble).await {
                cut @ (Trouble::JournalCut | Trouble::DatabaseCut) => self.mend(cut).await,
                other => Err(other.into_error(self.connections.path())),
            },
            Err(error) => Err(error.into_error(self.connections.path())),
        };
        if let Err(error) = mended {
            tracing::error!(%error, "the store is closed as it is");
        }
    }
}
