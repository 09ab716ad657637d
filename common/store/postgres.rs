//! The shared store: one Postgres database, any number of processes.
//!
//! The one row of `meta` is both the revision and the lock that puts the commits of all replicas in one
//! order: it is locked first, because a batch is judged on what it reads, and written last. `NOTIFY` is
//! an empty hint sent after the commit; a reader that misses it looks by itself a moment later.

mod hint;
mod history;
mod ledger;
mod salvage;
mod sums;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, Executor, PgPool,
    migrate::{MigrateError, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::watch;
use uuid::Uuid;

pub(super) use self::salvage::PostgresWreck;
use self::{hint::Hints, ledger::PostgresLedger};
use super::{
    Batch, Changes, Commit, Lease, Point, RETAINED, Revision, Snapshot, Store, StoreConnections, StoreError,
    StoreHealth, StoreIdentity, epoch,
    health::Vitals,
    history::{HistoryLimits, HistoryQuery, PastChanges},
    masked,
    meter::MeasuredWrite,
    nudge::{Nudge, Nudges},
    past,
    record::{self, ALL_RESOURCES, HEAD_COMMIT, META, MetaRecord, ResourceRecord, number, session_sum},
    sessions,
    writer::Writer,
};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// Connections for readers, leases and sessions.
const READERS: u32 = 8;
/// How long a caller waits for a connection, also while the server is away.
const CONNECT: Duration = Duration::from_secs(5);
/// No connection may block others for long, whatever becomes of this process. Compiling our statements
/// takes the server far longer than running them.
const SESSION: &str = "SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '15s'; SET jit = off";

/// The feed after `$1`, about `$2` entries: a page that ends with a whole batch, each entry with the
/// resource as it is now. There is always one row, which says where the store is. `LATERAL` with a
/// limit keeps the planner, which does not know how short a page is, from reading all resources.
const CHANGES_SINCE: &str = "\
    SELECT m.store_id, m.epoch, m.revision AS head, m.oldest, \
        (SELECT commit_id FROM changes WHERE revision = $1 LIMIT 1) AS after_commit, \
        c.at, c.c_kind, c.c_mesh, c.c_name, c.op, c.c_checksum, c.commit_id, \
        r.kind, r.mesh, r.name, r.origin_zone, r.display_name, r.labels, r.spec, r.status, \
        r.owner_kind, r.owner_mesh, r.owner_name, r.created, r.modified, r.revision, r.checksum \
    FROM meta m LEFT JOIN (\
        SELECT revision AS at, ordinal, kind AS c_kind, mesh AS c_mesh, name AS c_name, op, \
            checksum AS c_checksum, commit_id FROM changes \
        WHERE revision > $1 ORDER BY revision FETCH FIRST ($2) ROWS WITH TIES\
    ) c ON true LEFT JOIN LATERAL (\
        SELECT * FROM resources WHERE kind = c.c_kind AND mesh = c.c_mesh AND name = c.c_name LIMIT 1\
    ) r ON true ORDER BY c.at, c.ordinal";

/// The store in one database.
pub struct PostgresStore {
    identity: StoreIdentity,
    writer: Writer,
    hints: Hints,
    pool: PgPool,
    /// One connection, so that readers cannot keep the writer waiting.
    write: PgPool,
    head: Arc<watch::Sender<Revision>>,
    vitals: Arc<Vitals>,
}

impl PostgresStore {
    /// Opens the store in the database at `url`, making its tables when the database is empty.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when the URL is none, or the database belongs to another program or to a
    /// newer version; [`StoreError::Backend`] when it cannot be reached.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let options = url.parse().map_err(|error| {
            StoreError::Foreign(format!("{} is no URL of a Postgres database: {error}", masked(url)))
        })?;
        Self::connect(options, RETAINED).await
    }

    /// Opens the store at `options` with a change log of about `retained` entries.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn connect(options: PgConnectOptions, retained: usize) -> Result<Self, StoreError> {
        let options = options.application_name("strait");
        let meta = prepare(&options).await?;
        let identity = meta.identity()?;
        let pool = pool(READERS).connect_lazy_with(options.clone());
        let write = pool_of_one().connect_lazy_with(options.clone());
        let head = Arc::new(watch::Sender::new(meta.head()));
        let hints = Hints::start(pool.clone(), pool_of_one().connect_lazy_with(options), Arc::clone(&head));
        let ledger =
            PostgresLedger::new(write.clone(), Arc::clone(&head), hints.committed(), identity, retained);
        let vitals = Vitals::new();
        let writer = Writer::start(ledger, Arc::clone(&vitals));
        Ok(Self { identity, writer, hints, pool, write, head, vitals })
    }

    fn noticed(&self, error: StoreError) -> StoreError {
        if let StoreError::Damaged(_) = error {
            self.vitals.damaged(&error);
        }
        error
    }
}

fn pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT)
        .after_connect(|connection, _| Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) }))
}

fn pool_of_one() -> PgPoolOptions {
    pool(1).max_lifetime(None).idle_timeout(None)
}

/// Says which database is meant, without who asks.
fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    match options.get_socket() {
        Some(folder) => format!("{database} at {}", folder.display()),
        None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
    }
}

/// Connects once, by itself, so that a wrong host or password is named and not hidden by a pool that
/// tries again; then brings the tables up to date.
async fn prepare(options: &PgConnectOptions) -> Result<MetaRecord, StoreError> {
    let place = place(options);
    let failed = |what: &str| {
        let doing = format!("{what} the database {place}");
        move |error: sqlx::Error| StoreError::backend(doing, error)
    };
    let connecting = tokio::time::timeout(CONNECT, options.connect()).await;
    let connected = connecting.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    connected.map_err(failed("connect to"))?.close().await.map_err(failed("leave"))?;
    // Without limits: a migration may take its time.
    let alone = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.clone());
    if is_foreign(&alone).await.map_err(failed("look into"))? {
        return Err(StoreError::Foreign(format!(
            "the database {place} has tables of another program: create an empty one and name that"
        )));
    }
    MIGRATIONS.run(&alone).await.map_err(|error| migrating(&place, error))?;
    let meta = identify(&alone).await.map_err(failed("identify"))?;
    fill(&alone).await?;
    alone.close().await;
    Ok(meta)
}

async fn is_foreign(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT to_regclass('_sqlx_migrations') IS NULL AND EXISTS (\
             SELECT 1 FROM pg_tables WHERE schemaname = current_schema())",
    )
    .fetch_one(pool)
    .await
}

fn migrating(place: &str, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_) => StoreError::Foreign(format!(
            "the database {place} was written by another, probably newer, version or program: run that \
             version, or name an empty database"
        )),
        error => StoreError::backend(format!("make the tables of the database {place}"), error),
    }
}

async fn identify(pool: &PgPool) -> sqlx::Result<MetaRecord> {
    sqlx::query(
        "INSERT INTO meta (id, store_id, epoch, revision, oldest) VALUES (1, $1, 1, 0, 0) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(Uuid::new_v4().to_string())
    .execute(pool)
    .await?;
    sqlx::query_as(META).fetch_one(pool).await
}

/// Rows without a checksum get one, and are counted: a replica that knows none wrote them.
async fn fill(pool: &PgPool) -> Result<(), StoreError> {
    let filled = sums::fill(pool).await;
    let filled = filled.map_err(|error| unread("give checksums to rows of an older version", error))?;
    metrics::counter!("store_rows_unverified_total").increment(filled);
    if filled > 0 {
        tracing::info!(
            rows = filled,
            "rows that an older version wrote have checksums now; what became of them before is not known"
        );
    }
    Ok(())
}

/// Postgres' codes for a row or an index that is damaged.
const DAMAGE: [&str; 2] = ["XX001", "XX002"];

/// Whether reading failed because of what is stored.
fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // A value that does not decode was written as another.
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        || code.is_some_and(|code| DAMAGE.contains(&&*code))
}

/// What reading failed with while `doing`.
fn unread(doing: &str, error: sqlx::Error) -> StoreError {
    if is_damage(&error) {
        return record::damaged(format_args!("{doing}: {error}: something"));
    }
    StoreError::backend(doing, error)
}

#[async_trait]
impl Store for PostgresStore {
    fn identity(&self) -> StoreIdentity {
        self.identity
    }

    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        let measured = MeasuredWrite::of(&batch);
        let outcome = self.writer.submit(batch).await;
        measured.ended(&outcome);
        outcome
    }

    fn connections(&self) -> Vec<StoreConnections> {
        [("read", &self.pool), ("write", &self.write)]
            .map(|(name, pool)| {
                let (all, idle) = (pool.size(), u32::try_from(pool.num_idle()).unwrap_or(u32::MAX));
                let most = pool.options().get_max_connections();
                StoreConnections { pool: name, in_use: all.saturating_sub(idle), idle, most }
            })
            .to_vec()
    }

    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        let rows = sqlx::query(CHANGES_SINCE)
            .bind(number(after.revision))
            .bind(i64::try_from(limit.max(1)).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| self.noticed(unread("read the change feed", error)))?;
        record::changes(&rows, self.identity, after).map_err(|error| self.noticed(error))
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let failed = |error| self.noticed(unread("read a snapshot", error));
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let mut view = self.pool.begin_with(begin).await.map_err(failed)?;
        let meta: MetaRecord = sqlx::query_as(META).fetch_one(&mut *view).await.map_err(failed)?;
        meta.must_be(self.identity)?;
        let commit: Option<Option<i64>> =
            sqlx::query_scalar(HEAD_COMMIT).fetch_optional(&mut *view).await.map_err(failed)?;
        let rows: Vec<ResourceRecord> =
            sqlx::query_as(ALL_RESOURCES).fetch_all(&mut *view).await.map_err(failed)?;
        view.rollback().await.map_err(failed)?;
        record::snapshot(&meta, commit.flatten(), rows).map_err(|error| self.noticed(error))
    }

    async fn history(&self, query: &HistoryQuery) -> Result<PastChanges, StoreError> {
        let read = history::read(&self.pool, query).await;
        let (floor, rows) = read.map_err(|error| StoreError::backend("read the history", error))?;
        past::changes(floor, rows, query)
    }

    async fn compact_history(&self, limits: &HistoryLimits) -> Result<u64, StoreError> {
        let dropped = history::compact(&self.pool, limits).await;
        dropped.map_err(|error| StoreError::backend("drop what of the history is over", error))
    }

    async fn go_on_as(&self, identity: StoreIdentity, at_least: Revision) -> Result<(), StoreError> {
        let failed = |error| StoreError::backend("begin another history", error);
        let (store_id, epoch, at_least, _) = epoch::columns(identity, at_least);
        let mut transaction = self.pool.begin().await.map_err(failed)?;
        let go_on = sqlx::query(epoch::GO_ON).bind(store_id).bind(epoch).bind(at_least);
        go_on.execute(&mut *transaction).await.map_err(failed)?;
        for statement in epoch::FORGET {
            sqlx::query(statement).execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    fn health(&self) -> watch::Receiver<StoreHealth> {
        self.vitals.watch()
    }

    async fn check(&self) -> Result<(), StoreError> {
        // What a replica of an older version wrote meanwhile, too.
        fill(&self.pool).await.map_err(|error| self.noticed(error))?;
        sums::compare(&self.pool).await.map_err(|error| self.noticed(error))
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
            "INSERT INTO leases AS held (name, holder, epoch, until) \
             VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3)) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, \
             epoch = held.epoch + CASE WHEN $4 OR held.until <= clock_timestamp() THEN 1 ELSE 0 END \
             WHERE $4 OR held.until <= clock_timestamp() OR held.holder = excluded.holder RETURNING epoch",
        )
        .bind(name)
        .bind(holder)
        .bind(ttl.as_secs_f64())
        .bind(steal)
        .fetch_optional(&self.pool)
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
        sqlx::query("UPDATE leases SET until = '-infinity' WHERE name = $1 AND holder = $2 AND epoch = $3")
            .bind(&lease.name)
            .bind(&lease.holder)
            .bind(number(lease.epoch))
            .execute(&self.pool)
            .await
            .map_err(|error| StoreError::backend(format!("give back the lease {}", lease.name), error))?;
        Ok(())
    }

    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        let (kept, removed) = sessions::split(rows);
        let sums: Vec<i64> = kept.iter().map(|(key, document)| session_sum(key, document)).collect();
        let (keys, documents): (Vec<String>, Vec<String>) = kept.into_iter().unzip();
        sqlx::query(
            "WITH gone AS (DELETE FROM sessions WHERE key = ANY ($3::text[])) \
             INSERT INTO sessions (key, document, checksum) \
             SELECT * FROM unnest($1::text[], $2::text[], $4::int8[]) \
             ON CONFLICT (key) DO UPDATE SET document = excluded.document, checksum = excluded.checksum",
        )
        .bind(keys)
        .bind(documents)
        .bind(removed)
        .bind(sums)
        .execute(&self.pool)
        .await
        .map_err(|error| StoreError::backend("write session documents", error))?;
        Ok(())
    }

    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        sqlx::query_scalar(sessions::CLAIM)
            .bind(key)
            .bind(document)
            .bind(session_sum(key, document))
            .bind(instead_of)
            .fetch_one(&self.pool)
            .await
            .map_err(|error| StoreError::backend(format!("claim the session document {key}"), error))
    }

    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let rows = sqlx::query(sessions::WITH_PREFIX).bind(prefix).fetch_all(&self.pool).await;
        let rows = rows.map_err(|error| self.noticed(unread("read session documents", error)))?;
        sessions::read(&rows).map_err(|error| self.noticed(error))
    }

    async fn nudge(&self, nudge: Nudge) -> Result<(), StoreError> {
        let sent = hint::nudge(&self.pool, nudge).await;
        sent.map_err(|error| StoreError::backend("notify other replicas", error))
    }

    fn nudged(&self) -> watch::Receiver<Nudges> {
        self.hints.nudged()
    }

    async fn close(&self) {
        self.writer.close().await;
        self.hints.close().await;
        self.write.close().await;
        self.pool.close().await;
    }
}
