//! One group of batches, one SQLite transaction, a handful of statements.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde::Serialize;
use sqlx::{Connection, FromRow, QueryBuilder, Row, Sqlite, SqliteConnection, sqlite::SqliteArguments};
use tokio::sync::watch;

use super::{history, mend::Keeper};
use crate::{
    model::{Resource, ResourceKey},
    store::{
        Batch, Commit, CommitId, Revision, StoreError, StoreIdentity,
        recent::Recent,
        record::{Columns, LoggedColumns, MetaRecord, NO_META, ResourceRecord, nanos, number},
        rows::{GroupCommit, LogEntry, Rows},
        wanted::WantedKeys,
        writer::Ledger,
    },
};

/// Rows in one `INSERT`. SQLite compiles the statement anew for each size, so there are few sizes.
const ROWS: usize = 100;

/// The journal is folded into the database when it took about so many bytes since the last time, or after
/// so many looks.
const JOURNAL: usize = 4 << 20;
const IDLE: u32 = 30;
/// What one row takes beside its spec: the pages of the row, of its indexes and of its entry in the log.
const ROW: usize = 3 * 4_096;

const COLUMNS: &str = "INSERT INTO resources (kind, mesh, name, origin_zone, display_name, labels, spec, status, \
    owner_kind, owner_mesh, owner_name, created, modified, revision, checksum) ";

const REPLACE: &str = " ON CONFLICT (kind, mesh, name) DO UPDATE SET origin_zone = excluded.origin_zone, \
    display_name = excluded.display_name, labels = excluded.labels, spec = excluded.spec, \
    status = excluded.status, owner_kind = excluded.owner_kind, owner_mesh = excluded.owner_mesh, \
    owner_name = excluded.owner_name, created = excluded.created, modified = excluded.modified, \
    revision = excluded.revision, checksum = excluded.checksum";

/// Where the store is, with the rows of the keys in `$1`. There is always one row; it has no resource
/// when none of the keys exists.
const STATE: &str = "\
    SELECT m.store_id, m.epoch, m.revision AS head, m.oldest, \
        r.kind, r.mesh, r.name, r.origin_zone, r.display_name, r.labels, r.spec, r.status, \
        r.owner_kind, r.owner_mesh, r.owner_name, r.created, r.modified, r.revision, \
        IFNULL(r.checksum, -1) AS checksum \
    FROM meta m LEFT JOIN json_each($1) w LEFT JOIN resources r \
        ON r.kind = w.value ->> 0 AND r.mesh = w.value ->> 1 AND r.name = w.value ->> 2";

/// The rows that fall when the keys in `$1` fall, these not included.
const OWNED: &str = "\
    WITH RECURSIVE falling (kind, mesh, name) AS (\
        SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) \
        UNION \
        SELECT r.kind, r.mesh, r.name FROM falling f JOIN resources r \
            ON r.owner_kind = f.kind AND r.owner_mesh = f.mesh AND r.owner_name = f.name) \
    SELECT r.kind, r.mesh, r.name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, IFNULL(checksum, -1) AS checksum \
    FROM falling f JOIN resources r ON r.kind = f.kind AND r.mesh = f.mesh AND r.name = f.name";

const DELETE: &str = "\
    DELETE FROM resources WHERE (kind, mesh, name) IN (\
        SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(";

/// Writes to one file, alone.
pub(super) struct SqliteLedger {
    keeper: Keeper,
    head: Arc<watch::Sender<Revision>>,
    recent: Arc<Recent>,
    retained: usize,
    /// Entries logged since the log was last trimmed.
    logged: usize,
    /// About how many bytes the journal took since it was last folded into the database.
    journal: usize,
    /// Looks since then.
    idle: u32,
}

impl SqliteLedger {
    pub(super) fn new(
        keeper: Keeper,
        head: Arc<watch::Sender<Revision>>,
        recent: Arc<Recent>,
        retained: usize,
    ) -> Self {
        // As if full, so that the first write after a start trims what an earlier setting left.
        Self { keeper, head, recent, retained, logged: retained, journal: 0, idle: 0 }
    }

    async fn write(&mut self, group: &[Batch]) -> Result<GroupCommit, StoreError> {
        let mut pen = self.keeper.pen().await?;
        let committed = commit(&mut pen, group, self.keeper.identity()).await;
        let (verdict, rows) = committed.map_err(|failure| self.keeper.failed(failure))?;
        self.keeper.committed(pen, verdict.head).await?;
        self.recent.push(&verdict, &rows);
        self.journal += verdict.outcome(&rows).0.iter().map(|row| ROW + row.spec.len()).sum::<usize>() + ROW;
        Ok(verdict)
    }

    /// Folds the journal into the database, after the commit and not during it.
    async fn settle_journal(&mut self) {
        (self.journal, self.idle) = (0, 0);
        if let Err(error) = self.keeper.settle_journal().await {
            tracing::debug!(%error, "the journal is folded into the database later");
        }
    }

    /// Cuts the log back to about `retained` entries, whole batches, never the newest one.
    async fn trim(&mut self) -> Result<(), StoreError> {
        let mut pen = self.keeper.pen().await?;
        let trimmed = trim(&mut pen, self.retained).await;
        trimmed.map_err(|error| self.keeper.failed(SqliteFailure::Statement(error)))?;
        pen.put_down();
        Ok(())
    }
}

/// Why a group is not committed.
pub(super) enum SqliteFailure {
    /// What was read is not usable.
    Read(StoreError),
    /// The database refused a statement.
    Statement(sqlx::Error),
}

impl From<sqlx::Error> for SqliteFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

impl From<StoreError> for SqliteFailure {
    fn from(error: StoreError) -> Self {
        Self::Read(error)
    }
}

async fn commit(
    connection: &mut SqliteConnection,
    group: &[Batch],
    identity: StoreIdentity,
) -> Result<(GroupCommit, Rows), SqliteFailure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let wanted = WantedKeys::of(group);
    let (meta, mut rows) = load(&mut transaction, &wanted).await?;
    meta.must_be(identity)?;
    let head = meta.head();
    let epochs = epochs(&mut transaction, &wanted).await?;
    let verdict = GroupCommit::of(group, &mut rows, head, &epochs);
    if verdict.log.is_empty() {
        transaction.rollback().await?;
    } else {
        store(&mut transaction, &verdict, &rows).await?;
        transaction.commit().await?;
    }
    Ok((verdict, rows))
}

async fn trim(connection: &mut SqliteConnection, retained: usize) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let last: Option<i64> = sqlx::query_scalar(
        "SELECT MIN(c.revision, m.revision - 1) FROM changes c, meta m \
         ORDER BY c.revision DESC, c.ordinal DESC LIMIT 1 OFFSET $1",
    )
    .bind(i64::try_from(retained).unwrap_or(i64::MAX))
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(last) = last else { return transaction.rollback().await };
    sqlx::query("DELETE FROM changes WHERE revision <= $1").bind(last).execute(&mut *transaction).await?;
    sqlx::query("UPDATE meta SET oldest = MAX(oldest, $1)").bind(last).execute(&mut *transaction).await?;
    transaction.commit().await
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn commit(&mut self, group: &[Batch]) -> Result<Vec<Result<Commit, StoreError>>, StoreError> {
        let verdict = self.write(group).await?;
        self.logged += verdict.log.len();
        self.head.send_if_modified(|head| std::mem::replace(head, verdict.head) != verdict.head);
        Ok(verdict.replies)
    }

    async fn tidy(&mut self) {
        if self.journal > JOURNAL {
            self.settle_journal().await;
        }
        if self.logged <= self.retained / 10 {
            return;
        }
        self.logged = 0;
        if let Err(error) = self.trim().await {
            tracing::warn!(%error, "cannot trim the change log, it is tried again later");
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        self.idle += 1;
        if self.idle >= IDLE {
            self.settle_journal().await;
        }
        self.keeper.pen().await?.put_down();
        // Whoever asks is told before somebody's write fails.
        if self.keeper.is_short_of_room().await { self.probe().await } else { Ok(()) }
    }

    async fn shortage(&mut self) -> Option<Arc<str>> {
        self.keeper.shortage().await
    }

    async fn probe(&mut self) -> Result<(), StoreError> {
        let mut pen = self.keeper.pen().await?;
        let head = probe(&mut pen).await;
        let head = head.map_err(|error| self.keeper.failed(SqliteFailure::Statement(error)))?;
        self.keeper.committed(pen, head.unsigned_abs()).await
    }

    async fn close(&mut self) {
        self.keeper.look_again().await;
        self.keeper.close().await;
    }
}

/// Writes again what is there, in about as many pages as a write takes: a single page finds room on a full disk,
/// where a larger write that failed has left a little behind.
const PROBE: [&str; 3] = [
    "UPDATE meta SET revision = revision",
    "UPDATE changes SET op = op WHERE revision > (SELECT revision - 200 FROM meta)",
    "UPDATE resources SET modified = modified WHERE rowid IN (SELECT rowid FROM resources ORDER BY rowid DESC LIMIT 200)",
];

/// Changes nothing, needs the disk like any other write, and says where the store is.
async fn probe(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for statement in PROBE {
        sqlx::query(statement).persistent(false).execute(&mut *transaction).await?;
    }
    let head = sqlx::query_scalar("SELECT revision FROM meta").fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(head)
}

/// A JSON text of strings, as `json_each` reads it.
pub(super) fn json(strings: &impl Serialize) -> String {
    // Strings, pairs and lists of them always have a JSON form.
    serde_json::to_string(strings).unwrap_or_else(|_| "[]".to_owned())
}

fn keys<'a>(keys: impl IntoIterator<Item = &'a ResourceKey>) -> String {
    let parts: Vec<[&str; 3]> = keys.into_iter().map(|k| [k.kind.name, &k.mesh, &k.name]).collect();
    json(&parts)
}

/// Where the store is, and the rows the group may touch.
async fn load(
    connection: &mut SqliteConnection,
    wanted: &WantedKeys<'_>,
) -> Result<(MetaRecord, Rows), SqliteFailure> {
    let state = sqlx::query(STATE).bind(keys(wanted.keys.iter().copied()));
    let state = state.fetch_all(&mut *connection).await?;
    let first = state.first().ok_or_else(|| StoreError::Foreign(NO_META.to_owned()))?;
    let meta = MetaRecord::from_row(first)?;
    let mut records = Vec::new();
    for row in &state {
        if row.try_get::<Option<&str>, _>("kind")?.is_some() {
            records.push(ResourceRecord::from_row(row)?);
        }
    }
    if !wanted.owners.is_empty() {
        let owned = sqlx::query_as(OWNED).bind(keys(wanted.owners.iter().copied()));
        let owned: Vec<ResourceRecord> = owned.fetch_all(connection).await?;
        records.extend(owned);
    }
    let mut rows = Rows::default();
    for record in records {
        if let Some(row) = record.into_resource()? {
            rows.insert(row);
        }
    }
    Ok((meta, rows))
}

async fn epochs(
    connection: &mut SqliteConnection,
    wanted: &WantedKeys<'_>,
) -> sqlx::Result<BTreeMap<String, u64>> {
    if wanted.leases.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT name, epoch FROM leases WHERE name IN (SELECT value FROM json_each($1))")
            .bind(json(&wanted.leases))
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().map(|(name, epoch)| (name, epoch.unsigned_abs())).collect())
}

/// Writes full parts one by one, and what is left over together with the new head: a lone write is one
/// call to the database.
async fn store(connection: &mut SqliteConnection, verdict: &GroupCommit, rows: &Rows) -> sqlx::Result<()> {
    let (kept, gone) = verdict.outcome(rows);
    let (full, kept) = kept.as_chunks::<ROWS>();
    for part in full {
        let mut query = query();
        put(&mut query, part);
        query.build().execute(&mut *connection).await?;
    }
    let (full, log) = verdict.log.as_chunks::<ROWS>();
    for (part, entries) in full.iter().enumerate() {
        let mut query = query();
        log_entries(&mut query, entries, part * ROWS, verdict.commit);
        query.build().execute(&mut *connection).await?;
    }
    for entries in verdict.history.chunks(ROWS) {
        history::write(&mut *connection, entries).await?;
    }
    let mut rest = query();
    put(&mut rest, kept);
    delete(&mut rest, &gone);
    log_entries(&mut rest, log, full.len() * ROWS, verdict.commit);
    rest.push("UPDATE meta SET revision = ").push_bind(number(verdict.head));
    // Every number of rows is another text; the one of a lone write is worth keeping compiled.
    let lone = kept.len() + gone.len() <= 1 && log.len() <= 1;
    rest.build().persistent(lone).execute(connection).await?;
    Ok(())
}

fn query() -> QueryBuilder<Sqlite> {
    QueryBuilder::with_arguments("", SqliteArguments::default())
}

fn put(query: &mut QueryBuilder<Sqlite>, resources: &[&Resource]) {
    if resources.is_empty() {
        return;
    }
    query.push(COLUMNS);
    query.push_values(resources.iter().map(|r| Columns::of(r)), |mut row, columns| {
        let (owner_kind, owner_mesh, owner_name) = columns.owner();
        let resource = columns.resource;
        row.push_bind(resource.kind().name)
            .push_bind(resource.mesh())
            .push_bind(resource.name())
            .push_bind(resource.origin.as_column())
            .push_bind(resource.display_name())
            .push_bind(columns.labels.as_str())
            .push_bind(&resource.spec[..])
            .push_bind(resource.status.as_deref())
            .push_bind(owner_kind)
            .push_bind(owner_mesh)
            .push_bind(owner_name)
            .push_bind(nanos(resource.created))
            .push_bind(nanos(resource.modified))
            .push_bind(number(resource.revision))
            .push_bind(columns.sum());
    });
    query.push(REPLACE).push("; ");
}

fn delete(query: &mut QueryBuilder<Sqlite>, gone: &[&ResourceKey]) {
    if !gone.is_empty() {
        query.push(DELETE).push_bind(keys(gone.iter().copied())).push(")); ");
    }
}

/// Ordinals run through the whole group: within a revision they rise, and no two rows of it share one.
fn log_entries(query: &mut QueryBuilder<Sqlite>, entries: &[LogEntry], from: usize, commit: CommitId) {
    if entries.is_empty() {
        return;
    }
    query.push("INSERT INTO changes (revision, ordinal, kind, mesh, name, op, checksum, commit_id) ");
    query.push_values((from..).zip(entries), |mut row, (ordinal, entry)| {
        row.push_bind(number(entry.revision))
            .push_bind(number(ordinal as u64))
            .push_bind(entry.key.kind.name)
            .push_bind(&*entry.key.mesh)
            .push_bind(&*entry.key.name)
            .push_bind(entry.op())
            .push_bind(LoggedColumns::from(entry).sum())
            .push_bind(commit.column());
    });
    query.push("; ");
}
