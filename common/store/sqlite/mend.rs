//! What is done when something happens to the files of a running process.
//!
//! | what | done |
//! | --- | --- |
//! | database deleted | written again from the connection that still has it |
//! | database moved or replaced | writes refused until the right file is back, or the name is free |
//! | journal or its index deleted | folded into the database and begun anew |
//! | journal cut off in place, with a name or not | what was cut off written again from memory, or all of the database where it was cut off in the middle of a write |
//! | database cut off in place, or that memory lost | no more writes, and what is left of the files stays as it is |
//! | lock deleted | taken again, unless another process was faster |
//! | database written by somebody else | checked as at a start |

mod cut;

use std::{io, sync::Arc};

use sqlx::SqliteConnection;

use super::{
    about,
    acknowledged::Acknowledged,
    connections::{NoPen, Pen, SqliteConnections, close},
    copy::Copy,
    file,
    files::{Trouble, aside, room},
    inspect,
    ledger::SqliteFailure,
};
use crate::store::{
    Revision, StoreError, StoreIdentity,
    record::{META, MetaRecord},
};

/// Repairs in a row, after which what happens to the files is more than can be followed.
const MENDS: u32 = 4;

/// Less room than this, in bytes, is made sure of by writing.
const SCARCE: u64 = 8 << 20;

/// What a write needs at least.
const LEAST: u64 = 64 << 10;

/// Keeps the connections on the right files.
pub(super) struct Keeper {
    connections: Arc<SqliteConnections>,
    identity: StoreIdentity,
    /// Holds the files. `None` after a repair that went half way.
    anchor: Option<SqliteConnection>,
    /// A whole copy that waits to get the name of the database.
    copy: Option<Arc<Copy>>,
    acknowledged: Acknowledged,
    /// The newest revision that was committed.
    head: Revision,
    /// Something was cut off the files, so that nothing may be folded.
    cut: bool,
    /// What was cut off is nowhere else.
    lost: Option<String>,
}

impl Keeper {
    pub(super) fn new(
        connections: Arc<SqliteConnections>,
        anchor: SqliteConnection,
        acknowledged: Acknowledged,
        meta: &MetaRecord,
    ) -> Result<Self, StoreError> {
        let (identity, head) = (meta.identity()?, meta.head());
        let (anchor, copy) = (Some(anchor), None);
        Ok(Self { connections, identity, anchor, copy, acknowledged, head, cut: false, lost: None })
    }

    /// The history that is kept here.
    pub(super) fn identity(&self) -> StoreIdentity {
        self.identity
    }

    /// The connection that writes, after whatever had to be mended first.
    pub(super) async fn pen(&mut self) -> Result<Pen, StoreError> {
        if let Some(what) = &self.lost {
            return Err(file::damaged(self.connections.path(), what));
        }
        for _ in 0..MENDS {
            if self.anchor.is_none() {
                self.establish().await?;
            }
            if self.connections.is_closed() {
                match self.connections.files().check_names().await {
                    Ok(()) => self.open_pools().await?,
                    Err(trouble) => self.mend(trouble).await?,
                }
            }
            match self.connections.pen().await {
                Ok(pen) => {
                    // Whoever cut something off put it back.
                    self.cut = false;
                    return Ok(pen);
                }
                Err(NoPen::Trouble(trouble)) => self.mend(trouble).await?,
                Err(error) => return Err(error.into_error(self.connections.path())),
            }
        }
        Err(Trouble::Written.into_error(self.connections.path()))
    }

    /// What was written with `pen` is committed, up to `head`: makes sure that it will be found.
    pub(super) async fn committed(&mut self, pen: Pen, head: Revision) -> Result<(), StoreError> {
        self.head = head;
        if let Err(trouble) = pen.done().await {
            self.mend(trouble).await?;
        }
        self.acknowledged.reached(head).await;
        Ok(())
    }

    /// Whether so little room is left on the disk that the next write may not find any.
    pub(super) async fn is_short_of_room(&self) -> bool {
        self.room().await.is_some_and(|bytes| bytes < SCARCE)
    }

    /// What is wrong where there is hardly any. A journal that was longer once takes a few writes even then.
    pub(super) async fn shortage(&self) -> Option<Arc<str>> {
        let bytes = self.room().await.filter(|bytes| *bytes < LEAST)?;
        let path = self.connections.path().display();
        Some(format!("the disk of {path} is full: {bytes} bytes are left").into())
    }

    /// Bytes that are left on the disk. Where nobody can tell, a write will.
    async fn room(&self) -> Option<u64> {
        let path = self.connections.path().to_owned();
        aside(move || room(&path)).await.ok()
    }

    /// Puts what is in the journal into the database, as far as no reader still needs it there. The journal
    /// keeps everything until all of it is there, so a process may die at any moment of this.
    ///
    /// What somebody else writes to the file in that moment is taken for ours; the audit of all pages and rows,
    /// which is taken every few minutes, finds it then.
    pub(super) async fn settle_journal(&mut self) -> Result<(), StoreError> {
        let mut pen = self.pen().await?;
        let folded = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut *pen).await;
        // Also when it went only half way.
        self.connections.files().written().await;
        folded.map_err(|error| self.failed(SqliteFailure::Statement(error)))?;
        pen.put_down();
        Ok(())
    }

    /// Why a group is not committed, as an error about this file.
    pub(super) fn failed(&self, failure: SqliteFailure) -> StoreError {
        let path = self.connections.path();
        match failure {
            SqliteFailure::Read(error) => about(path, error),
            SqliteFailure::Statement(error) if inspect::is_damage(&error) => {
                inspect::error(path, error.into())
            }
            SqliteFailure::Statement(error) => {
                StoreError::backend(format!("commit to the database file {}", path.display()), error)
            }
        }
    }

    async fn mend(&mut self, trouble: Trouble) -> Result<(), StoreError> {
        let trouble = self.worst(trouble).await;
        let path = self.connections.path().display();
        match trouble {
            Trouble::Lock => {
                let lock = Arc::clone(self.connections.lock());
                let renewed = aside(move || io::Result::Ok(lock.renew())).await;
                renewed
                    .map_err(|error| StoreError::backend("take the lock of the database again", error))??;
                tracing::warn!(%path, "the lock file of the database was taken away and is there again");
            }
            Trouble::Written => self.check_again().await?,
            Trouble::Journal => {
                self.fold().await?;
                self.establish().await?;
                let path = self.connections.path().display();
                tracing::warn!(%path, "the journal of the database was taken away and is there again");
            }
            Trouble::Deleted => {
                self.rescue().await?;
                self.establish().await?;
                let path = self.connections.path().display();
                tracing::warn!(
                    %path,
                    "the database was deleted under the running process and is there again: stop the process \
                     first to begin with an empty one"
                );
            }
            Trouble::JournalCut => {
                self.cut = true;
                if self.write_journal_again().await? {
                    self.cut = false;
                } else {
                    self.remember().await?;
                    self.establish().await?;
                }
                let path = self.connections.path().display();
                tracing::warn!(
                    %path,
                    "the end of the journal of the database was cut off under the running process; nothing of it is lost"
                );
            }
            Trouble::DatabaseCut => {
                self.cut = true;
                return Err(self.lost("its end was cut off under the running process"));
            }
            trouble @ (Trouble::Moved | Trouble::Replaced | Trouble::Unknown(_)) => {
                return Err(trouble.into_error(self.connections.path()));
            }
        }
        Ok(())
    }

    /// Somebody else wrote to the file: looks at all of it as at a start.
    async fn check_again(&mut self) -> Result<(), StoreError> {
        let path = self.connections.path();
        // Held meanwhile, so that what changes next is not ours.
        let pen = self.connections.bare_pen().await.map_err(|error| error.into_error(path))?;
        let mut fresh = self.connections.anchor().await.map_err(|e| inspect::error(path, e.into()))?;
        let sound = inspect::whole(&mut fresh).await;
        let meta = sqlx::query_as::<_, MetaRecord>(META).fetch_one(&mut fresh).await;
        close(fresh).await;
        sound.map_err(|finding| inspect::error(path, finding))?;
        self.must_be_ours(&meta.map_err(|error| inspect::error(path, error.into()))?)?;
        self.connections.files().written().await;
        pen.put_down();
        tracing::warn!(path = %path.display(), "somebody else wrote to the database; what is in it is sound");
        Ok(())
    }

    fn must_be_ours(&self, meta: &MetaRecord) -> Result<(), StoreError> {
        if meta.identity()? == self.identity && meta.head() >= self.head {
            return Ok(());
        }
        Err(file::damaged(
            self.connections.path(),
            "holds another history than the running process: put the right one back and restart",
        ))
    }

    /// Puts everything that is in the journal into the database. Nobody reads or writes meanwhile.
    async fn fold(&mut self) -> Result<(), StoreError> {
        let doing =
            || format!("fold the journal into the database file {}", self.connections.path().display());
        self.connections.close(None).await;
        let Some(anchor) = self.anchor.as_mut() else { return Ok(()) };
        let folding = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(anchor).await;
        let (busy, _, _): (i64, i64, i64) = folding.map_err(|error| StoreError::backend(doing(), error))?;
        if busy != 0 {
            return Err(StoreError::backend(doing(), "another process uses it"));
        }
        // Nothing is left in the journal that could be half of something.
        self.cut = false;
        Ok(())
    }

    /// Copies what the anchor still has to a file that then waits for the name of the database.
    async fn rescue(&mut self) -> Result<(), StoreError> {
        let path = self.connections.path();
        let failed = |error: sqlx::Error| {
            StoreError::backend(format!("write the deleted database file {} again", path.display()), error)
        };
        let Some(anchor) = self.anchor.as_mut() else { return Ok(()) };
        // Held, so that nobody writes what is not copied. Where it cannot be had, nobody can write.
        let pen = self.connections.bare_pen().await.ok();
        let copy = Arc::new(Copy::beside(path));
        let begun = Arc::clone(&copy);
        let target = aside(move || begun.begin()).await.map_err(|error: io::Error| failed(error.into()))?;
        sqlx::query("VACUUM INTO $1").bind(target).execute(anchor).await.map_err(failed)?;
        let whole = Arc::clone(&copy);
        aside(move || whole.finish()).await.map_err(|error: io::Error| failed(error.into()))?;
        self.connections.close(pen).await;
        self.copy = Some(copy);
        Ok(())
    }

    /// Closes everything, gives a waiting copy its name, and opens what is there anew. Call it when what is
    /// open is also in the file, or in the copy.
    async fn establish(&mut self) -> Result<(), StoreError> {
        let connections = Arc::clone(&self.connections);
        let path = connections.path();
        let failed = |error| StoreError::backend(format!("open the database file {}", path.display()), error);
        let refused = |error: io::Error| failed(error.into());
        connections.close(None).await;
        // The last connection removes the journal by its name, so it must be gone before there is another.
        self.close().await;
        if let Some(copy) = &self.copy {
            let taken = path.to_owned();
            if aside(move || io::Result::Ok(taken.exists())).await.map_err(refused)? {
                return Err(Trouble::Replaced.into_error(path));
            }
            let copy = Arc::clone(copy);
            aside(move || copy.take_name()).await.map_err(refused)?;
            self.copy = None;
            self.cut = false;
        }
        let files = Arc::clone(connections.files());
        aside(move || files.begin()).await.map_err(refused)?;
        let mut anchor = connections.anchor().await.map_err(failed)?;
        let meta = sqlx::query_as::<_, MetaRecord>(META).fetch_one(&mut anchor).await;
        let meta = meta.map_err(|error| inspect::error(path, error.into()));
        if let Err(error) = meta.and_then(|meta| self.must_be_ours(&meta)) {
            // Not only dropped: it would still be open when the files are opened anew, and lose its locks.
            close(anchor).await;
            return Err(error);
        }
        self.anchor = Some(anchor);
        let files = Arc::clone(connections.files());
        aside(move || files.settle()).await.map_err(refused)?;
        self.open_pools().await
    }

    async fn open_pools(&self) -> Result<(), StoreError> {
        let path = self.connections.path();
        let opened = self.connections.open().await;
        opened
            .map_err(|error| StoreError::backend(format!("open the database file {}", path.display()), error))
    }

    /// Lets go of the files.
    pub(super) async fn close(&mut self) {
        let Some(anchor) = self.anchor.take() else { return };
        if self.cut && self.copy.is_none() {
            // Closing the last connection would fold half of a journal into the database. It ends with the process.
            std::mem::forget(anchor);
        } else {
            close(anchor).await;
        }
    }
}
