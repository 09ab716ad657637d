//! Files that were cut off in place, as `: > file` does, or a file system that loses the end of one.

use std::{io, sync::Arc};

use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

use super::{
    super::{
        connections::{NoPen, Pen, close},
        copy::Copy,
        file,
        files::{Trouble, aside},
        inspect,
    },
    Keeper,
};
use crate::store::{
    StoreError,
    record::{META, MetaRecord},
};

/// Room for all that a connection has in memory, in KiB.
const WIDE: &str = "PRAGMA cache_size = -1048576";

const FORGOTTEN: &str =
    "the end of its journal was cut off under the running process, and is not in memory any more";

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

    /// Writes what was cut off again, where all of it was read back before, and says whether it was.
    pub(super) async fn write_journal_again(&mut self) -> Result<bool, StoreError> {
        let path = self.connections.path();
        // Held, so that nobody writes meanwhile. Where there is none, nobody can: none is made to files that are cut off.
        let pen = self.connections.same_pen().await.map_err(|error| error.into_error(path))?;
        let written = self.connections.files().write_journal_again().await;
        if let Some(pen) = pen {
            pen.put_down();
        }
        written.map_err(|error| self.unwritten(error.into()))
    }

    /// Writes the database again from what the connection that wrote has in memory: that is also what was cut off before it
    /// was read back, in the middle of a write. What comes of it is looked at as at a start.
    pub(super) async fn remember(&mut self) -> Result<(), StoreError> {
        let same = self.connections.same_pen().await;
        let same = same.map_err(|error| error.into_error(self.connections.path()))?;
        let Some(mut pen) = same else { return Err(self.lost(FORGOTTEN)) };
        let copy = Arc::new(Copy::beside(self.connections.path()));
        let copied = self.copy_from(&mut pen, &copy).await;
        // Also when there was no room for a copy: what it has in memory is still there the next time.
        if let Err(error) = copied {
            tracing::error!(%error, "the database cannot be written again from memory");
            pen.put_down();
            let given_up = Arc::clone(&copy);
            let removed: io::Result<()> = aside(move || given_up.give_up()).await;
            if let Err(error) = removed {
                tracing::debug!(%error, "what was copied of the database is removed later");
            }
            return Err(if let StoreError::Damaged(_) = error { self.lost(FORGOTTEN) } else { error });
        }
        // From here on a start takes the copy. Closing a database without its name folds nothing into it.
        let (whole, files) = (Arc::clone(&copy), Arc::clone(self.connections.files()));
        let replaced: io::Result<()> = aside(move || {
            whole.finish()?;
            files.free_name()
        })
        .await;
        if let Err(error) = replaced {
            pen.put_down();
            return Err(self.unwritten(error.into()));
        }
        self.copy = Some(copy);
        self.connections.close(Some(pen)).await;
        Ok(())
    }

    async fn copy_from(&self, pen: &mut Pen, copy: &Arc<Copy>) -> Result<(), StoreError> {
        let path = self.connections.path();
        let begun = Arc::clone(copy);
        let target: io::Result<String> = aside(move || begun.begin()).await;
        let target = target.map_err(|error| self.unwritten(error.into()))?;
        // Nothing that is in memory makes room for what is read.
        sqlx::query(WIDE).execute(&mut **pen).await.map_err(|error| self.unwritten(error))?;
        let copied = sqlx::query("VACUUM INTO $1").bind(target.clone()).execute(&mut **pen).await;
        if let Err(error) = copied {
            // That does not say whether something cannot be read, which is lost, or cannot be written now.
            let is_lost = inspect::is_broken_off(&error) && inspect::pages(pen).await.is_err();
            return Err(if is_lost {
                file::damaged(path, &error.to_string())
            } else {
                self.unwritten(error)
            });
        }
        let opened = SqliteConnectOptions::new().filename(target).pragma("query_only", "ON").connect().await;
        let mut fresh = opened.map_err(|error| self.unwritten(error))?;
        let sound = inspect::whole(&mut fresh).await;
        let meta = sqlx::query_as::<_, MetaRecord>(META).fetch_one(&mut fresh).await;
        close(fresh).await;
        sound.map_err(|finding| inspect::error(path, finding))?;
        self.must_be_ours(&meta.map_err(|error| inspect::error(path, error.into()))?)
    }

    /// Why the database is not written again.
    fn unwritten(&self, error: sqlx::Error) -> StoreError {
        let path = self.connections.path();
        if inspect::is_damage(&error) {
            return file::damaged(path, &error.to_string());
        }
        StoreError::backend(
            format!("write the database file {} again, whose journal was cut off", path.display()),
            error,
        )
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
