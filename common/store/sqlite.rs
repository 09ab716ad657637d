//! The embedded store: one SQLite file, one process.
//!
//! WAL with `synchronous=FULL`: what is acknowledged survives a power cut. One connection writes, always
//! with `BEGIN IMMEDIATE`; a few others read and cannot write. A lock beside the file keeps a second
//! process out.

mod file;
mod ledger;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{
    SqlitePool,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::watch;
use uuid::Uuid;

use self::{file::FileLock, ledger::SqliteLedger};
use super::{
    Batch, Changes, Commit, Lease, RETAINED, Revision, Snapshot, Store, StoreError, StoreIdentity,
    recent::Recent,
    record::{self, ALL_RESOURCES, META, MetaRecord, ResourceRecord, number},
    sessions,
    writer::Writer,
};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");

/// Connections that read.
const READERS: u32 = 4;
/// How long a connection waits for the write lock; only an operator's own tool can hold it that long.
const BUSY: Duration = Duration::from_secs(10);
/// The journal is cut back to this size after a checkpoint.
const JOURNAL_BYTES: &str = "67108864";

/// The feed after `$1`, about `$2` entries: a page that ends with a whole batch, each entry with the
/// resource as it is now. There is always one row, which says where the store is.
const CHANGES_SINCE: &str = "\
    SELECT m.store_id, m.epoch, m.revision AS head, m.oldest, \
        c.revision AS at, c.kind AS c_kind, c.mesh AS c_mesh, c.name AS c_name, \
        r.kind, r.mesh, r.name, r.origin_zone, r.labels, r.spec, r.status, \
        r.owner_kind, r.owner_mesh, r.owner_name, r.created, r.modified, r.revision \
    FROM meta m \
    LEFT JOIN changes c ON c.revision > $1 AND c.revision <= COALESCE((\
        SELECT p.revision FROM changes p WHERE p.revision > $1 \
        ORDER BY p.revision, p.ordinal LIMIT 1 OFFSET $2 - 1), m.revision) \
    LEFT JOIN resources r ON r.kind = c.kind AND r.mesh = c.mesh AND r.name = c.name \
    ORDER BY c.revision, c.ordinal";

/// The store in one file.
pub struct SqliteStore {
    identity: StoreIdentity,
    writer: Writer,
    /// One connection, shared with the writer task: leases and sessions are written between groups.
    write: SqlitePool,
    read: SqlitePool,
    head: Arc<watch::Sender<Revision>>,
    /// Filled by the writer; no other process writes to this file.
    recent: Arc<Recent>,
    lock: Mutex<Option<Arc<FileLock>>>,
}

impl SqliteStore {
    /// Opens the store in the file at `path`, making it, and the folder it is in, when there is none.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when the file is in use, is not a store, is damaged or was written by a
    /// newer version; [`StoreError::Backend`] when it cannot be read or written.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with_retention(path, RETAINED).await
    }

    /// The same with a change log of about `retained` entries.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn open_with_retention(path: impl AsRef<Path>, retained: usize) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), retained, Recent::new(retained)).await
    }

    /// The same with this much room for recent changes.
    pub(super) async fn open_with(path: &Path, retained: usize, recent: Recent) -> Result<Self, StoreError> {
        let lock = Arc::new(FileLock::take(path).await?);
        file::check(path).await?;
        let opening = |error| opening(path, error);
        let base = connect_options(path);
        let one = SqlitePoolOptions::new().max_connections(1).min_connections(1);
        let write = lasting(one).connect_with(base.clone()).await.map_err(opening)?;
        MIGRATIONS.run(&write).await.map_err(|error| migrating(path, error))?;
        let meta = identify(&write).await.map_err(opening)?;
        let several = SqlitePoolOptions::new().max_connections(READERS);
        let read = lasting(several).connect_lazy_with(base.pragma("query_only", "ON"));
        let head = Arc::new(watch::Sender::new(meta.head()));
        let recent = Arc::new(recent);
        let ledger = SqliteLedger::new(
            write.clone(),
            Arc::clone(&head),
            Arc::clone(&recent),
            retained,
            Arc::clone(&lock),
        );
        Ok(Self {
            identity: meta.identity()?,
            writer: Writer::start(ledger),
            write,
            read,
            head,
            recent,
            lock: Mutex::new(Some(lock)),
        })
    }
}

fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY)
        .pragma("journal_size_limit", JOURNAL_BYTES)
        .thread_name(|id| format!("sqlite-{id}"))
}

/// Connections to a file do not go stale: they live as long as the pool, unchecked.
fn lasting(options: SqlitePoolOptions) -> SqlitePoolOptions {
    options.idle_timeout(None).max_lifetime(None).test_before_acquire(false)
}

async fn identify(pool: &SqlitePool) -> sqlx::Result<MetaRecord> {
    sqlx::query(
        "INSERT INTO meta (id, store_id, epoch, revision, oldest) VALUES (1, $1, 1, 0, 0) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(Uuid::new_v4().to_string())
    .execute(pool)
    .await?;
    sqlx::query_as(META).fetch_one(pool).await
}

/// SQLite's codes for a file that is damaged or no database.
const DAMAGED: [&str; 2] = ["11", "26"];

fn opening(path: &Path, error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|e| e.code().map(|c| c.into_owned()));
    if code.is_some_and(|code| DAMAGED.contains(&code.as_str())) {
        return file::foreign(path, "is damaged or no SQLite database: restore it from a backup");
    }
    StoreError::backend(format!("open the database file {}", path.display()), error)
}

fn migrating(path: &Path, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_) => {
            file::foreign(path, "was written by another, probably newer, version: run that version")
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => opening(path, error),
        error => StoreError::backend(format!("migrate the database file {}", path.display()), error),
    }
}

/// The path a URL of this store names: what follows `sqlite:`, with or without `//`.
pub(super) fn path_of(rest: &str) -> PathBuf {
    PathBuf::from(rest.strip_prefix("//").unwrap_or(rest))
}

#[async_trait]
impl Store for SqliteStore {
    fn identity(&self) -> StoreIdentity {
        self.identity
    }

    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        self.writer.submit(batch).await
    }

    async fn changes_since(&self, revision: Revision, limit: usize) -> Result<Changes, StoreError> {
        // When there is nothing new the file is read all the same: it shows whether it is still ours.
        if let Some(changes) = self.recent.since(revision, limit) {
            return Ok(changes);
        }
        let rows = sqlx::query(CHANGES_SINCE)
            .bind(number(revision))
            .bind(i64::try_from(limit.max(1)).unwrap_or(i64::MAX))
            .fetch_all(&self.read)
            .await
            .map_err(|error| StoreError::backend("read the change feed", error))?;
        record::changes(&rows, self.identity, revision)
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let failed = |error| StoreError::backend("read a snapshot", error);
        // The first read fixes what the transaction sees.
        let mut view = self.read.begin().await.map_err(failed)?;
        let meta: MetaRecord = sqlx::query_as(META).fetch_one(&mut *view).await.map_err(failed)?;
        let rows: Vec<ResourceRecord> =
            sqlx::query_as(ALL_RESOURCES).fetch_all(&mut *view).await.map_err(failed)?;
        view.rollback().await.map_err(failed)?;
        record::snapshot(&meta, rows)
    }

    fn watch_head(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        steal: bool,
    ) -> Result<Option<Lease>, StoreError> {
        let epoch: Option<i64> = sqlx::query_scalar(
            "INSERT INTO leases (name, holder, epoch, until) VALUES ($1, $2, 1, unixepoch('subsec') + $3) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, \
             epoch = epoch + CASE WHEN $4 OR until <= unixepoch('subsec') THEN 1 ELSE 0 END \
             WHERE $4 OR until <= unixepoch('subsec') OR holder = excluded.holder RETURNING epoch",
        )
        .bind(name)
        .bind(holder)
        .bind(ttl.as_secs_f64())
        .bind(steal)
        .fetch_optional(&self.write)
        .await
        .map_err(|error| StoreError::backend(format!("take the lease {name}"), error))?;
        Ok(epoch.map(|epoch| Lease {
            name: name.to_owned(),
            holder: holder.to_owned(),
            epoch: epoch.unsigned_abs(),
        }))
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        // The row stays, so that the next holder gets a higher epoch.
        sqlx::query("UPDATE leases SET until = 0 WHERE name = $1 AND holder = $2 AND epoch = $3")
            .bind(&lease.name)
            .bind(&lease.holder)
            .bind(number(lease.epoch))
            .execute(&self.write)
            .await
            .map_err(|error| StoreError::backend(format!("give back the lease {}", lease.name), error))?;
        Ok(())
    }

    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        let failed = |error| StoreError::backend("write session documents", error);
        let (kept, removed) = sessions::split(rows);
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        sqlx::query(
            "INSERT INTO sessions (key, document) SELECT value ->> 0, value ->> 1 FROM json_each($1) WHERE true \
             ON CONFLICT (key) DO UPDATE SET document = excluded.document",
        )
        .bind(ledger::json(&kept))
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
        sqlx::query("DELETE FROM sessions WHERE key IN (SELECT value FROM json_each($1))")
            .bind(ledger::json(&removed))
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        sqlx::query_as(sessions::WITH_PREFIX)
            .bind(prefix)
            .fetch_all(&self.read)
            .await
            .map_err(|error| StoreError::backend("read session documents", error))
    }

    async fn close(&self) {
        self.writer.close().await;
        self.read.close().await;
        // The last connection to close folds the journal back into the file.
        self.write.close().await;
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
