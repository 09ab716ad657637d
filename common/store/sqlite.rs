//! The embedded store: one SQLite file, one process.
//!
//! WAL with `synchronous=FULL`: what is acknowledged survives a power cut. One connection writes, always
//! with `BEGIN IMMEDIATE`; a few others read and cannot write. A lock beside the file keeps a second
//! process out. The file is looked at as a whole when it is opened; what happens to it while it is open is
//! noticed before a write is acknowledged, and [`mend`]ed where that can be done.

mod acknowledged;
mod connections;
mod copy;
mod file;
mod files;
mod history;
mod inspect;
mod journal;
mod ledger;
mod mend;
mod salvage;
#[cfg(test)]
mod tests;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{
    Connection, SqliteConnection,
    migrate::{MigrateError, Migrator},
};
use tokio::sync::watch;
use uuid::Uuid;

pub(super) use self::salvage::SqliteWreck;
use self::{
    acknowledged::Acknowledged,
    connections::{Pen, Reader, SqliteConnections},
    file::FileLock,
    ledger::SqliteLedger,
    mend::Keeper,
};
use super::{
    Batch, Changes, Commit, Lease, Point, RETAINED, Revision, Snapshot, Store, StoreError, StoreHealth,
    StoreIdentity,
    health::Vitals,
    history::{HistoryLimits, HistoryQuery, PastChanges},
    meter::MeasuredWrite,
    recent::Recent,
    record::{
        self, ALL_RESOURCES, HEAD_COMMIT, META, MetaRecord, PAGE_BYTES, ResourceRecord, number, session_sum,
    },
    sessions,
    writer::Writer,
};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");

/// The feed after `$1`, about `$2` entries: a page that ends with a whole batch, and begins none after `$3` bytes. The first
/// entry about a resource has it as it is now. There is always one row, which says where the store is.
const CHANGES_SINCE: &str = "\
    WITH logged AS (\
        SELECT revision, ordinal, kind, mesh, name, op, checksum, commit_id, \
            ROW_NUMBER() OVER (PARTITION BY kind, mesh, name ORDER BY revision, ordinal) AS nth \
        FROM changes WHERE revision > $1 AND revision <= COALESCE((\
            SELECT p.revision FROM changes p WHERE p.revision > $1 \
            ORDER BY p.revision, p.ordinal LIMIT 1 OFFSET $2 - 1), (SELECT revision FROM meta))\
    ), sized AS (\
        SELECT l.*, SUM(LENGTH(r.labels) + LENGTH(r.spec) + IFNULL(LENGTH(r.status), 0)) OVER (\
            ORDER BY l.revision GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
        FROM logged l LEFT JOIN resources r \
            ON l.nth = 1 AND r.kind = l.kind AND r.mesh = l.mesh AND r.name = l.name\
    ) \
    SELECT m.store_id, m.epoch, m.revision AS head, m.oldest, \
        (SELECT commit_id FROM changes WHERE revision = $1 LIMIT 1) AS after_commit, \
        c.revision AS at, c.kind AS c_kind, c.mesh AS c_mesh, c.name AS c_name, c.op, \
        IFNULL(c.checksum, -1) AS c_checksum, c.commit_id, \
        r.kind, r.mesh, r.name, r.origin_zone, r.display_name, r.labels, r.spec, r.status, \
        r.owner_kind, r.owner_mesh, r.owner_name, r.created, r.modified, r.revision, \
        IFNULL(r.checksum, -1) AS checksum \
    FROM meta m LEFT JOIN sized c ON IFNULL(c.before, 0) < $3 \
    LEFT JOIN resources r ON c.nth = 1 AND r.kind = c.kind AND r.mesh = c.mesh AND r.name = c.name \
    ORDER BY c.revision, c.ordinal";

/// The store in one file.
pub struct SqliteStore {
    identity: StoreIdentity,
    writer: Writer,
    connections: Arc<SqliteConnections>,
    head: Arc<watch::Sender<Revision>>,
    /// Filled by the writer; no other process writes to this file.
    recent: Arc<Recent>,
    vitals: Arc<Vitals>,
}

impl SqliteStore {
    /// Opens the store in the file at `path`, making it, and the folder it is in, when there is none.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when the file is in use, is not a store or was written by a newer version;
    /// [`StoreError::Damaged`] when it is not what was written; [`StoreError::Backend`] when it cannot be
    /// read or written.
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
        let lock = FileLock::take(path).await?;
        let existed = file::check(path).await?;
        let connections = Arc::new(SqliteConnections::new(path, lock));
        let unusable = |error: std::io::Error| opening(path, error.into());
        connections.files().begin().map_err(unusable)?;
        let mut anchor = connections.anchor().await.map_err(|error| opening(path, error))?;
        let meta = prepare(&mut anchor, path).await?;
        let identity = meta.identity().map_err(|error| about(path, error))?;
        let acknowledged = Acknowledged::open(path, identity, meta.head(), existed)?;
        // What the journal holds from here on was written by the connection that writes.
        if let Err(error) = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut anchor).await {
            tracing::debug!(%error, "the journal of the last run is folded into the database later");
        }
        connections.files().settle().map_err(unusable)?;
        connections.open().await.map_err(|error| opening(path, error))?;

        let head = Arc::new(watch::Sender::new(meta.head()));
        let (recent, vitals) = (Arc::new(recent), Vitals::new());
        let keeper = Keeper::new(Arc::clone(&connections), anchor, acknowledged, &meta)?;
        let ledger = SqliteLedger::new(keeper, Arc::clone(&head), Arc::clone(&recent), retained);
        let writer = Writer::start(ledger, Arc::clone(&vitals));
        Ok(Self { identity, writer, connections, head, recent, vitals })
    }

    /// The connection for what is written beside the change feed.
    async fn pen(&self) -> Result<Pen, StoreError> {
        if let Some(damage) = self.vitals.damage() {
            return Err(StoreError::Unwritable(damage));
        }
        self.connections.pen().await.map_err(|error| error.into_error(self.connections.path()))
    }

    /// `pen` wrote it; it counts once it can be found again.
    async fn written(&self, pen: Pen) -> Result<(), StoreError> {
        pen.done().await.map_err(|trouble| trouble.into_error(self.connections.path()))
    }

    async fn reader(&self) -> Result<Reader, StoreError> {
        self.connections.reader().await.map_err(|error| error.into_error(self.connections.path()))
    }

    /// What reading failed with while `doing`: damage is told to everyone.
    fn unread(&self, doing: &str, error: sqlx::Error) -> StoreError {
        if !inspect::is_damage(&error) {
            return StoreError::backend(doing, error);
        }
        self.noticed(inspect::error(self.connections.path(), error.into()))
    }

    /// What writing failed with while `doing`: what keeps a row from being written keeps all of them, and is told
    /// at once. The writer finds out when it is over.
    fn unwritten(&self, doing: impl Display, error: sqlx::Error) -> StoreError {
        if inspect::is_damage(&error) {
            return self.noticed(inspect::error(self.connections.path(), error.into()));
        }
        let error = StoreError::backend(format!("{doing} in {}", self.connections.path().display()), error);
        self.vitals.failed(&error);
        error
    }

    /// What was read is not what was written here, or belongs to another history.
    fn misread(&self, error: StoreError) -> StoreError {
        self.noticed(about(self.connections.path(), error))
    }

    fn noticed(&self, error: StoreError) -> StoreError {
        if let StoreError::Damaged(_) = error {
            self.vitals.damaged(&error);
        }
        error
    }

    async fn snapshot_of(
        &self,
        reader: &mut SqliteConnection,
    ) -> sqlx::Result<(MetaRecord, Option<i64>, Vec<ResourceRecord>)> {
        // The first read fixes what the transaction sees.
        let mut view = reader.begin().await?;
        let meta = sqlx::query_as(META).fetch_one(&mut *view).await?;
        let commit: Option<Option<i64>> = sqlx::query_scalar(HEAD_COMMIT).fetch_optional(&mut *view).await?;
        let rows = sqlx::query_as(ALL_RESOURCES).fetch_all(&mut *view).await?;
        view.rollback().await?;
        Ok((meta, commit.flatten(), rows))
    }
}

/// Looks at all of the file, brings its tables up to date, and reads where it is.
async fn prepare(anchor: &mut SqliteConnection, path: &Path) -> Result<MetaRecord, StoreError> {
    let found = |finding| inspect::error(path, finding);
    inspect::structure(anchor).await.map_err(found)?;
    MIGRATIONS.run_direct(None, anchor, false).await.map_err(|error| migrating(path, error))?;
    let meta = identify(anchor).await.map_err(|error| opening(path, error))?;
    inspect::contents(anchor).await.map_err(found)?;
    Ok(meta)
}

async fn identify(anchor: &mut SqliteConnection) -> sqlx::Result<MetaRecord> {
    let mut transaction = anchor.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(
        "INSERT INTO meta (id, store_id, epoch, revision, oldest) VALUES (1, $1, 1, 0, 0) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(Uuid::new_v4().to_string())
    .execute(&mut *transaction)
    .await?;
    inspect::fill(&mut transaction).await?;
    let meta = sqlx::query_as(META).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(meta)
}

/// What is wrong with a row, as an error about the file.
fn about(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged(what) | StoreError::Foreign(what) => {
            file::damaged(path, &format!("is damaged: {what}"))
        }
        other => other,
    }
}

fn opening(path: &Path, error: sqlx::Error) -> StoreError {
    if inspect::is_damage(&error) {
        return inspect::error(path, error.into());
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
        let measured = MeasuredWrite::of(&batch);
        let outcome = self.writer.submit(batch).await;
        measured.ended(&outcome);
        outcome
    }

    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        // When there is nothing new the file is read all the same: it shows whether it is still ours.
        if let Some(changes) = self.recent.since(after, limit) {
            return Ok(changes);
        }
        let doing = "read the change feed";
        let mut reader = self.reader().await?;
        let rows = sqlx::query(CHANGES_SINCE)
            .bind(number(after.revision))
            .bind(i64::try_from(limit.max(1)).unwrap_or(i64::MAX))
            .bind(PAGE_BYTES)
            .fetch_all(&mut *reader)
            .await
            .map_err(|error| self.unread(doing, error))?;
        reader.put_down();
        record::changes(&rows, self.identity, after).map_err(|error| self.misread(error))
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut reader = self.reader().await?;
        let read = self.snapshot_of(&mut reader).await;
        let (meta, commit, rows) = read.map_err(|error| self.unread("read a snapshot", error))?;
        reader.put_down();
        meta.must_be(self.identity).map_err(|error| self.misread(error))?;
        record::snapshot(&meta, commit, rows).map_err(|error| self.misread(error))
    }

    async fn history(&self, query: &HistoryQuery) -> Result<PastChanges, StoreError> {
        self.past(query).await
    }

    async fn compact_history(&self, limits: &HistoryLimits) -> Result<u64, StoreError> {
        self.drop_past(limits).await
    }

    async fn go_on_as(&self, identity: StoreIdentity, at_least: Revision) -> Result<(), StoreError> {
        self.begin_another(identity, at_least).await
    }

    fn health(&self) -> watch::Receiver<StoreHealth> {
        self.vitals.watch()
    }

    async fn check(&self) -> Result<(), StoreError> {
        let mut reader = self.reader().await?;
        let checked = inspect::pages(&mut reader).await;
        checked.map_err(|finding| self.noticed(inspect::error(self.connections.path(), finding)))?;
        reader.put_down();
        Ok(())
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
        let mut pen = self.pen().await?;
        // All of the answer is taken: the statement commits behind its last row, and what becomes of that is not
        // told to who leaves after the first.
        let epochs: Vec<i64> = sqlx::query_scalar(
            "INSERT INTO leases (name, holder, epoch, until) VALUES ($1, $2, 1, unixepoch('subsec') + $3) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, \
             epoch = epoch + CASE WHEN $4 OR until <= unixepoch('subsec') THEN 1 ELSE 0 END \
             WHERE $4 OR until <= unixepoch('subsec') OR holder = excluded.holder RETURNING epoch",
        )
        .bind(name)
        .bind(holder)
        .bind(ttl.as_secs_f64())
        .bind(steal)
        .fetch_all(&mut *pen)
        .await
        .map_err(|error| self.unwritten(format!("take the lease {name}"), error))?;
        self.written(pen).await?;
        Ok(epochs.first().map(|epoch| Lease {
            name: name.to_owned(),
            holder: holder.to_owned(),
            epoch: epoch.unsigned_abs(),
        }))
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let mut pen = self.pen().await?;
        // The row stays, so that the next holder gets a higher epoch.
        sqlx::query("UPDATE leases SET until = 0 WHERE name = $1 AND holder = $2 AND epoch = $3")
            .bind(&lease.name)
            .bind(&lease.holder)
            .bind(number(lease.epoch))
            .execute(&mut *pen)
            .await
            .map_err(|error| self.unwritten(format!("give back the lease {}", lease.name), error))?;
        self.written(pen).await
    }

    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        let failed = |error| self.unwritten("write session documents", error);
        let (kept, removed) = sessions::split(rows);
        let kept: Vec<(&str, &str, i64)> =
            kept.iter().map(|(k, d)| (&**k, &**d, session_sum(k, d))).collect();
        let mut pen = self.pen().await?;
        let mut transaction = pen.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        sqlx::query(
            "INSERT INTO sessions (key, document, checksum) \
             SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) WHERE true \
             ON CONFLICT (key) DO UPDATE SET document = excluded.document, checksum = excluded.checksum",
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
        transaction.commit().await.map_err(failed)?;
        self.written(pen).await
    }

    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        let doing = || format!("claim the session document {key}");
        let mut pen = self.pen().await?;
        // All of the answer is taken, as of a lease.
        let mut there: Vec<String> = sqlx::query_scalar(sessions::CLAIM)
            .bind(key)
            .bind(document)
            .bind(session_sum(key, document))
            .bind(instead_of)
            .fetch_all(&mut *pen)
            .await
            .map_err(|error| self.unwritten(doing(), error))?;
        self.written(pen).await?;
        there.pop().ok_or_else(|| StoreError::backend(doing(), sqlx::Error::RowNotFound))
    }

    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let doing = "read session documents";
        let mut reader = self.reader().await?;
        let rows = sqlx::query(sessions::WITH_PREFIX).bind(prefix).fetch_all(&mut *reader).await;
        let rows = rows.map_err(|error| self.unread(doing, error))?;
        reader.put_down();
        sessions::read(&rows).map_err(|error| self.misread(error))
    }

    async fn close(&self) {
        self.writer.close().await;
        self.connections.close(None).await;
        self.connections.lock().release();
    }
}
