//! One group of batches, one Postgres transaction, as few round trips as it takes.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use sqlx::{Connection, PgConnection, Postgres, Transaction};
use tokio::sync::{Notify, watch};

use super::{
    connections::PostgresConnections,
    fate::{self, DoubtfulCommit},
    history,
    silence::{PROMPT, SILENCE, SilenceError, SilenceWatch, unless_silent},
    sums,
};
use crate::{
    model::{Resource, ResourceKey},
    store::{
        Batch, Commit, CommitId, Revision, StoreError, StoreIdentity,
        record::{Columns, LoggedColumns, MetaRecord, ResourceRecord, nanos, number},
        rows::{GroupCommit, LogEntry, Rows},
        wanted::WantedKeys,
        writer::Ledger,
    },
};

/// Rows in one `INSERT`; bounds what one message carries.
const ROWS: usize = 1_000;

/// Puts the commits of all replicas in one order.
pub(super) const LOCK: &str = "SELECT store_id, epoch, revision AS head, oldest FROM meta FOR UPDATE";

const PUT: &str = "\
    INSERT INTO resources (kind, mesh, name, origin_zone, display_name, labels, spec, status, owner_kind, \
        owner_mesh, owner_name, created, modified, revision, checksum) \
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], \
        $8::bytea[], $9::text[], $10::text[], $11::text[], $12::int8[], $13::int8[], $14::int8[], \
        $15::int8[]) \
    ON CONFLICT (kind, mesh, name) DO UPDATE SET origin_zone = excluded.origin_zone, \
        display_name = excluded.display_name, labels = excluded.labels, spec = excluded.spec, \
        status = excluded.status, owner_kind = excluded.owner_kind, owner_mesh = excluded.owner_mesh, \
        owner_name = excluded.owner_name, created = excluded.created, modified = excluded.modified, \
        revision = excluded.revision, checksum = excluded.checksum";

const DELETE: &str = "\
    DELETE FROM resources r USING unnest($1::text[], $2::text[], $3::text[]) AS w (kind, mesh, name) \
    WHERE r.kind = w.kind AND r.mesh = w.mesh AND r.name = w.name";

const LOG: &str = "\
    INSERT INTO changes (revision, ordinal, kind, mesh, name, op, checksum, commit_id) \
    SELECT w.*, $8::int8 FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::text[], $6::text[], \
        $7::int8[]) AS w";

/// The rows of the given keys.
const BY_KEY: &str = "\
    SELECT r.kind, r.mesh, r.name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, checksum \
    FROM unnest($1::text[], $2::text[], $3::text[]) AS w (kind, mesh, name) \
    JOIN resources r ON r.kind = w.kind AND r.mesh = w.mesh AND r.name = w.name";

/// The rows that fall when those with the given keys fall.
const OWNED: &str = "\
    WITH RECURSIVE falling (kind, mesh, name) AS (\
        SELECT kind COLLATE \"C\", mesh COLLATE \"C\", name COLLATE \"C\" \
        FROM unnest($1::text[], $2::text[], $3::text[]) AS w (kind, mesh, name) \
        UNION \
        SELECT r.kind, r.mesh, r.name FROM falling f JOIN resources r \
            ON r.owner_kind = f.kind AND r.owner_mesh = f.mesh AND r.owner_name = f.name) \
    SELECT r.kind, r.mesh, r.name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, checksum \
    FROM falling f JOIN resources r ON r.kind = f.kind AND r.mesh = f.mesh AND r.name = f.name";

/// Writes to one database, among others.
pub(super) struct PostgresLedger {
    connections: PostgresConnections,
    head: Arc<watch::Sender<Revision>>,
    committed: Arc<Notify>,
    identity: StoreIdentity,
    retained: usize,
    /// Entries this process logged since it last trimmed the log.
    logged: usize,
}

/// Why a group failed, and whether that is known for sure.
enum PostgresFailure {
    /// Nothing is committed.
    Undone(StoreError),
    /// The answer to the commit was lost.
    Doubt { verdict: GroupCommit, error: sqlx::Error },
}

impl From<sqlx::Error> for PostgresFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Undone(StoreError::backend("commit to the database", error))
    }
}

impl From<SilenceError> for PostgresFailure {
    fn from(silence: SilenceError) -> Self {
        sqlx::Error::from(silence).into()
    }
}

impl From<StoreError> for PostgresFailure {
    fn from(error: StoreError) -> Self {
        Self::Undone(error)
    }
}

impl PostgresLedger {
    pub(super) fn new(
        connections: PostgresConnections,
        head: Arc<watch::Sender<Revision>>,
        committed: Arc<Notify>,
        identity: StoreIdentity,
        retained: usize,
    ) -> Self {
        // As if full, so that the first write after a start trims what an earlier setting left.
        Self { connections, head, committed, identity, retained, logged: retained }
    }

    async fn write(&self, group: &[Batch]) -> Result<GroupCommit, PostgresFailure> {
        let watch = SilenceWatch::default();
        let mut connection = self.connections.take(&watch).await?;
        let deciding = self.decide(&mut connection, group);
        let (transaction, verdict) = watch.hear(SILENCE, deciding).await?;
        if verdict.log.is_empty() {
            watch.hear(SILENCE, transaction.rollback()).await?;
            return Ok(verdict);
        }
        match watch.hear(SILENCE, transaction.commit()).await {
            Ok(()) => Ok(verdict),
            // The server answered: it did not commit.
            Err(error @ sqlx::Error::Database(_)) if !fate::is_shutdown(&error) => Err(error.into()),
            Err(error) => Err(PostgresFailure::Doubt { verdict, error }),
        }
    }

    /// Judges the group and writes down what comes of it, all but the commit.
    async fn decide<'c>(
        &self,
        connection: &'c mut PgConnection,
        group: &[Batch],
    ) -> Result<(Transaction<'c, Postgres>, GroupCommit), PostgresFailure> {
        let mut transaction = connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        // From here on no other replica commits. A later statement sees all that committed before.
        let meta: MetaRecord = sqlx::query_as(LOCK).fetch_one(&mut *transaction).await?;
        meta.must_be(self.identity)?;
        let wanted = WantedKeys::of(group);
        let epochs = epochs(&mut transaction, &wanted).await?;
        let mut rows = Rows::default();
        for record in load(&mut transaction, &wanted).await? {
            if let Some(row) = record.into_resource()? {
                rows.insert(row);
            }
        }
        let verdict = GroupCommit::of(group, &mut rows, meta.head(), &epochs);
        if !verdict.log.is_empty() {
            store(&mut transaction, &verdict, &rows).await?;
        }
        Ok((transaction, verdict))
    }

    /// Cuts the log back to about `retained` entries, whole batches, never the newest one.
    async fn trim(&self, watch: SilenceWatch) -> sqlx::Result<()> {
        let mut connection = self.connections.take(&watch).await?;
        let mut transaction = connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let meta: MetaRecord = sqlx::query_as(LOCK).fetch_one(&mut *transaction).await?;
        let beyond: Option<i64> = sqlx::query_scalar(
            "SELECT revision FROM changes ORDER BY revision DESC, ordinal DESC LIMIT 1 OFFSET $1",
        )
        .bind(i64::try_from(self.retained).unwrap_or(i64::MAX))
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(beyond) = beyond else { return transaction.rollback().await };
        let last = beyond.min(number(meta.head()) - 1);
        sqlx::query("DELETE FROM changes WHERE revision <= $1").bind(last).execute(&mut *transaction).await?;
        sqlx::query("UPDATE meta SET oldest = GREATEST(oldest, $1)")
            .bind(last)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    async fn commit(&mut self, group: &[Batch]) -> Result<Vec<Result<Commit, StoreError>>, StoreError> {
        let verdict = match self.write(group).await {
            Ok(verdict) => verdict,
            Err(PostgresFailure::Undone(error)) => return Err(error),
            Err(PostgresFailure::Doubt { verdict, error }) => {
                let (revision, commit) = (verdict.head, verdict.commit);
                let doubtful = DoubtfulCommit { store: self.identity, revision, commit };
                fate::settle(&self.connections, doubtful, error).await?;
                verdict
            }
        };
        self.logged += verdict.log.len();
        self.head.send_if_modified(|head| {
            let newer = verdict.head > *head;
            *head = verdict.head.max(*head);
            newer
        });
        if !verdict.log.is_empty() {
            self.committed.notify_one();
        }
        Ok(verdict.replies)
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let doing = "look whether the database takes writes";
        let looked = unless_silent(PROMPT, async |watch| {
            let mut connection = self.connections.take(&watch).await?;
            sqlx::query_as(LOOK).fetch_optional(&mut *connection).await
        });
        let meta: Option<MetaRecord> = looked.await.map_err(|error| StoreError::backend(doing, error))?;
        match meta {
            Some(meta) => meta.must_be(self.identity),
            None => Err(StoreError::backend(doing, "it is read-only, a standby, or has lost its identity")),
        }
    }

    async fn probe(&mut self) -> Result<(), StoreError> {
        self.look().await?;
        let probed = unless_silent(SILENCE, async |watch| {
            let mut connection = self.connections.take(&watch).await?;
            let mut transaction = connection.begin().await?;
            for statement in ROOM {
                sqlx::query(statement).execute(&mut *transaction).await?;
            }
            transaction.rollback().await?;
            sqlx::query(PROBE).execute(&mut *connection).await
        });
        probed.await.map(|_| ()).map_err(|error| StoreError::backend("commit to the database", error))
    }

    async fn heal(&mut self) -> Result<(), StoreError> {
        unless_silent(SILENCE, |watch| sums::compare(&self.connections, watch)).await
    }

    async fn tidy(&mut self) {
        if self.logged <= self.retained / 10 {
            return;
        }
        self.logged = 0;
        if let Err(error) = unless_silent(SILENCE, |watch| self.trim(watch)).await {
            tracing::warn!(%error, "cannot trim the change log, it is tried again later");
        }
    }
}

/// Whether the server takes writes of our history.
const LOOK: &str = "SELECT store_id, epoch, revision AS head, oldest FROM meta \
    WHERE NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::bool";
/// Whether there is room for new pages, which a row that is written again in its place does not need. A table
/// that is emptied is begun anew in a file of its own, which is gone with the transaction.
const ROOM: [&str; 2] =
    ["TRUNCATE probe", "INSERT INTO probe SELECT repeat('x', 2000) FROM generate_series(1, 32)"];
/// Changes nothing, and needs the journal like any other write.
const PROBE: &str = "UPDATE meta SET revision = revision";

/// Keys as one array per column.
struct KeyColumns<'a> {
    kinds: Vec<&'a str>,
    meshes: Vec<&'a str>,
    names: Vec<&'a str>,
}

impl<'a> FromIterator<&'a ResourceKey> for KeyColumns<'a> {
    fn from_iter<I: IntoIterator<Item = &'a ResourceKey>>(keys: I) -> Self {
        let mut columns = Self { kinds: Vec::new(), meshes: Vec::new(), names: Vec::new() };
        for key in keys {
            columns.kinds.push(key.kind.name);
            columns.meshes.push(&key.mesh);
            columns.names.push(&key.name);
        }
        columns
    }
}

async fn load(connection: &mut PgConnection, wanted: &WantedKeys<'_>) -> sqlx::Result<Vec<ResourceRecord>> {
    let keys: KeyColumns<'_> = wanted.keys.iter().copied().collect();
    let by_key = sqlx::query_as(BY_KEY).bind(keys.kinds).bind(keys.meshes).bind(keys.names);
    let mut records: Vec<ResourceRecord> = by_key.fetch_all(&mut *connection).await?;
    if !wanted.owners.is_empty() {
        let keys: KeyColumns<'_> = wanted.owners.iter().copied().collect();
        let owned = sqlx::query_as(OWNED).bind(keys.kinds).bind(keys.meshes).bind(keys.names);
        records.extend(owned.fetch_all(connection).await?);
    }
    Ok(records)
}

/// The epochs that fences name, held still until the commit: nobody takes those leases meanwhile.
async fn epochs(
    connection: &mut PgConnection,
    wanted: &WantedKeys<'_>,
) -> sqlx::Result<BTreeMap<String, u64>> {
    if wanted.leases.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<&str> = wanted.leases.iter().copied().collect();
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT name, epoch FROM leases WHERE name = ANY ($1) FOR SHARE")
            .bind(names)
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().map(|(name, epoch)| (name, epoch.unsigned_abs())).collect())
}

/// Writes the verdict down.
async fn store(connection: &mut PgConnection, verdict: &GroupCommit, rows: &Rows) -> sqlx::Result<()> {
    let (kept, gone) = verdict.outcome(rows);
    for part in kept.chunks(ROWS) {
        put(connection, part).await?;
    }
    if !gone.is_empty() {
        let keys: KeyColumns<'_> = gone.into_iter().collect();
        let delete = sqlx::query(DELETE).bind(keys.kinds).bind(keys.meshes).bind(keys.names);
        delete.execute(&mut *connection).await?;
    }
    for (part, entries) in verdict.log.chunks(ROWS).enumerate() {
        log(connection, entries, part * ROWS, verdict.commit).await?;
    }
    for entries in verdict.history.chunks(ROWS) {
        history::write(&mut *connection, entries).await?;
    }
    sqlx::query("UPDATE meta SET revision = $1").bind(number(verdict.head)).execute(connection).await?;
    Ok(())
}

async fn put(connection: &mut PgConnection, resources: &[&Resource]) -> sqlx::Result<()> {
    let rows: Vec<Columns<'_>> = resources.iter().map(|resource| Columns::of(resource)).collect();
    fn all<'a, T>(rows: &'a [Columns<'a>], of: impl Fn(&'a Columns<'a>) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    sqlx::query(PUT)
        .bind(all(&rows, |c| c.resource.kind().name))
        .bind(all(&rows, |c| c.resource.mesh()))
        .bind(all(&rows, |c| c.resource.name()))
        .bind(all(&rows, |c| c.resource.origin.as_column()))
        .bind(all(&rows, |c| c.resource.display_name()))
        .bind(all(&rows, |c| c.labels.as_str()))
        .bind(all(&rows, |c| &c.resource.spec[..]))
        .bind(all(&rows, |c| c.resource.status.as_deref()))
        .bind(all(&rows, |c| c.owner().0))
        .bind(all(&rows, |c| c.owner().1))
        .bind(all(&rows, |c| c.owner().2))
        .bind(all(&rows, |c| nanos(c.resource.created)))
        .bind(all(&rows, |c| nanos(c.resource.modified)))
        .bind(all(&rows, |c| number(c.resource.revision)))
        .bind(all(&rows, Columns::sum))
        .execute(connection)
        .await?;
    Ok(())
}

/// Ordinals run through the whole group: within a revision they rise, and no two rows of it share one.
async fn log(
    connection: &mut PgConnection,
    entries: &[LogEntry],
    from: usize,
    commit: CommitId,
) -> sqlx::Result<()> {
    let keys: KeyColumns<'_> = entries.iter().map(|entry| &entry.key).collect();
    sqlx::query(LOG)
        .bind(entries.iter().map(|e| number(e.revision)).collect::<Vec<_>>())
        .bind((from..from + entries.len()).map(|n| number(n as u64)).collect::<Vec<_>>())
        .bind(keys.kinds)
        .bind(keys.meshes)
        .bind(keys.names)
        .bind(entries.iter().map(LogEntry::op).collect::<Vec<_>>())
        .bind(entries.iter().map(|e| LoggedColumns::from(e).sum()).collect::<Vec<_>>())
        .bind(commit.column())
        .execute(connection)
        .await?;
    Ok(())
}
