//! One group of batches, one SQLite transaction, a handful of statements.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde::Serialize;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool, sqlite::SqliteArguments};
use tokio::sync::watch;

use super::file::FileLock;
use crate::{
    model::{Resource, ResourceKey},
    store::{
        Batch, Commit, Revision, StoreError,
        record::{Columns, META, MetaRecord, ResourceRecord, nanos, number},
        rows::{LogEntry, Rows, Verdict},
        wanted::Wanted,
        writer::Ledger,
    },
};

/// Rows in one `INSERT`. SQLite compiles the statement anew for each size, so there are few sizes.
const ROWS: usize = 100;

const COLUMNS: &str = "INSERT INTO resources (kind, mesh, name, origin_zone, display_name, labels, spec, status, \
    owner_kind, owner_mesh, owner_name, created, modified, revision) ";

const REPLACE: &str = " ON CONFLICT (kind, mesh, name) DO UPDATE SET origin_zone = excluded.origin_zone, \
    display_name = excluded.display_name, labels = excluded.labels, spec = excluded.spec, \
    status = excluded.status, owner_kind = excluded.owner_kind, owner_mesh = excluded.owner_mesh, \
    owner_name = excluded.owner_name, created = excluded.created, modified = excluded.modified, \
    revision = excluded.revision";

/// The rows of the keys in `$1`.
const BY_KEY: &str = "\
    SELECT r.kind, r.mesh, r.name, origin_zone, labels, spec, status, owner_kind, owner_mesh, owner_name, \
        created, modified, revision \
    FROM json_each($1) w JOIN resources r \
        ON r.kind = w.value ->> 0 AND r.mesh = w.value ->> 1 AND r.name = w.value ->> 2";

/// The rows that fall when the keys in `$1` fall, these not included.
const OWNED: &str = "\
    WITH RECURSIVE falling (kind, mesh, name) AS (\
        SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) \
        UNION \
        SELECT r.kind, r.mesh, r.name FROM falling f JOIN resources r \
            ON r.owner_kind = f.kind AND r.owner_mesh = f.mesh AND r.owner_name = f.name) \
    SELECT r.kind, r.mesh, r.name, origin_zone, labels, spec, status, owner_kind, owner_mesh, owner_name, \
        created, modified, revision \
    FROM falling f JOIN resources r ON r.kind = f.kind AND r.mesh = f.mesh AND r.name = f.name";

const DELETE: &str = "\
    DELETE FROM resources WHERE (kind, mesh, name) IN (\
        SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1))";

/// Writes to one file, alone.
pub(super) struct SqliteLedger {
    pool: SqlitePool,
    head: Arc<watch::Sender<Revision>>,
    retained: usize,
    /// Entries logged since the log was last trimmed.
    logged: usize,
    _lock: Arc<FileLock>,
}

impl SqliteLedger {
    pub(super) fn new(
        pool: SqlitePool,
        head: Arc<watch::Sender<Revision>>,
        retained: usize,
        lock: Arc<FileLock>,
    ) -> Self {
        // As if full, so that the first write after a start trims what an earlier setting left.
        Self { pool, head, retained, logged: retained, _lock: lock }
    }

    async fn write(&mut self, group: &[Batch]) -> sqlx::Result<Result<Verdict, StoreError>> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let wanted = Wanted::of(group);
        let mut rows = Rows::default();
        let records = load(&mut transaction, &wanted).await?;
        for record in records {
            match record.into_resource() {
                Ok(Some(row)) => rows.insert(row),
                Ok(None) => {}
                Err(damaged) => return Ok(Err(damaged)),
            }
        }
        let meta: MetaRecord = sqlx::query_as(META).fetch_one(&mut *transaction).await?;
        let epochs = epochs(&mut transaction, &wanted).await?;
        let verdict = Verdict::of(group, &mut rows, meta.head(), &epochs);
        if verdict.log.is_empty() {
            transaction.rollback().await?;
            return Ok(Ok(verdict));
        }
        store(&mut transaction, &verdict, &rows).await?;
        transaction.commit().await?;
        Ok(Ok(verdict))
    }

    /// Cuts the log back to about `retained` entries, whole batches, never the newest one.
    async fn trim(&self) -> sqlx::Result<()> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let last: Option<i64> = sqlx::query_scalar(
            "SELECT MIN(c.revision, m.revision - 1) FROM changes c, meta m \
             ORDER BY c.revision DESC, c.ordinal DESC LIMIT 1 OFFSET $1",
        )
        .bind(i64::try_from(self.retained).unwrap_or(i64::MAX))
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(last) = last else { return transaction.rollback().await };
        sqlx::query("DELETE FROM changes WHERE revision <= $1").bind(last).execute(&mut *transaction).await?;
        sqlx::query("UPDATE meta SET oldest = MAX(oldest, $1)").bind(last).execute(&mut *transaction).await?;
        transaction.commit().await
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn commit(&mut self, group: &[Batch]) -> Result<Vec<Result<Commit, StoreError>>, StoreError> {
        let written = self.write(group).await;
        let verdict =
            written.map_err(|error| StoreError::backend("commit to the database file", error))??;
        self.logged += verdict.log.len();
        self.head.send_if_modified(|head| std::mem::replace(head, verdict.head) != verdict.head);
        Ok(verdict.replies)
    }

    async fn tidy(&mut self) {
        if self.logged <= self.retained / 10 {
            return;
        }
        self.logged = 0;
        if let Err(error) = self.trim().await {
            tracing::warn!(%error, "cannot trim the change log, it is tried again later");
        }
    }
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

async fn load(connection: &mut SqliteConnection, wanted: &Wanted<'_>) -> sqlx::Result<Vec<ResourceRecord>> {
    let by_key = sqlx::query_as(BY_KEY).bind(keys(wanted.keys.iter().copied()));
    let mut records: Vec<ResourceRecord> = by_key.fetch_all(&mut *connection).await?;
    if !wanted.owners.is_empty() {
        let owned = sqlx::query_as(OWNED).bind(keys(wanted.owners.iter().copied()));
        records.extend(owned.fetch_all(connection).await?);
    }
    Ok(records)
}

async fn epochs(
    connection: &mut SqliteConnection,
    wanted: &Wanted<'_>,
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

async fn store(connection: &mut SqliteConnection, verdict: &Verdict, rows: &Rows) -> sqlx::Result<()> {
    let (kept, gone) = verdict.outcome(rows);
    for part in kept.chunks(ROWS) {
        put(part).build().persistent(lasting(part)).execute(&mut *connection).await?;
    }
    if !gone.is_empty() {
        sqlx::query(DELETE).bind(keys(gone)).execute(&mut *connection).await?;
    }
    for (part, entries) in verdict.log.chunks(ROWS).enumerate() {
        log(entries, part * ROWS).build().persistent(lasting(entries)).execute(&mut *connection).await?;
    }
    sqlx::query("UPDATE meta SET revision = $1").bind(number(verdict.head)).execute(connection).await?;
    Ok(())
}

/// Whether the statement for this many rows is worth keeping compiled.
fn lasting<T>(part: &[T]) -> bool {
    part.len() == 1 || part.len() == ROWS
}

fn put(resources: &[&Resource]) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::with_arguments(COLUMNS, SqliteArguments::default());
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
            .push_bind(number(resource.revision));
    });
    query.push(REPLACE);
    query
}

/// Ordinals run through the whole group: within a revision they rise, and no two rows of it share one.
fn log(entries: &[LogEntry], from: usize) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("INSERT INTO changes (revision, ordinal, kind, mesh, name, op) ");
    query.push_values((from..).zip(entries), |mut row, (ordinal, entry)| {
        row.push_bind(number(entry.revision))
            .push_bind(number(ordinal as u64))
            .push_bind(entry.key.kind.name)
            .push_bind(&*entry.key.mesh)
            .push_bind(&*entry.key.name)
            .push_bind(entry.op());
    });
    query
}
