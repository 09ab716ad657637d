//! The shared store: one Postgres database, any number of processes.
//!
//! The one row of `meta` is both the revision and the lock that puts the commits of all replicas in one
//! order: it is locked first, because a batch is judged on what it reads, and written last. `NOTIFY` is
//! an empty hint sent after the commit; a reader that misses it looks by itself a moment later.

mod connections;
mod fate;
mod hint;
mod history;
mod ledger;
mod listener;
mod prepare;
mod salvage;
mod silence;
mod sums;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Connection, Postgres,
    postgres::{PgArguments, PgConnectOptions},
    query::Query,
};
use tokio::sync::watch;

pub(super) use self::salvage::PostgresWreck;
use self::{
    connections::PostgresConnections,
    hint::Hints,
    ledger::PostgresLedger,
    prepare::{fill, prepare},
    silence::{PROMPT, SILENCE, unless_silent},
};
use super::{
    Batch, Changes, Commit, Lease, Point, RETAINED, Revision, Snapshot, Store, StoreConnections, StoreError,
    StoreHealth, StoreIdentity, epoch,
    health::Vitals,
    history::{HistoryLimits, HistoryQuery, PastChanges},
    masked,
    meter::MeasuredWrite,
    nudge::{Nudge, Nudges},
    past,
    record::{
        self, ALL_RESOURCES, HEAD_COMMIT, META, MetaRecord, PAGE_BYTES, ResourceRecord, number, session_sum,
    },
    sessions,
    writer::Writer,
};

/// Connections for the feed, leases and sessions.
const READERS: u32 = 8;
/// Connections for what people ask about the past, which may take long: the others never wait for these.
const HISTORIANS: u32 = 2;

/// The feed after `$1`, about `$2` entries: a page that ends with a whole batch, and begins none after `$3` bytes. The first
/// entry about a resource has it as it is now. There is always one row, which says where the store is. `LATERAL` with a
/// limit keeps the planner, which does not know how short a page is, from reading all resources.
const CHANGES_SINCE: &str = "\
    SELECT m.store_id, m.epoch, m.revision AS head, m.oldest, \
        (SELECT commit_id FROM changes WHERE revision = $1 LIMIT 1) AS after_commit, \
        c.at, c.c_kind, c.c_mesh, c.c_name, c.op, c.c_checksum, c.commit_id, \
        r.kind, r.mesh, r.name, r.origin_zone, r.display_name, r.labels, r.spec, r.status, \
        r.owner_kind, r.owner_mesh, r.owner_name, r.created, r.modified, r.revision, r.checksum \
    FROM meta m LEFT JOIN (\
        SELECT l.*, SUM(s.bytes) OVER (\
            ORDER BY l.at GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
        FROM (\
            SELECT revision AS at, ordinal, kind AS c_kind, mesh AS c_mesh, name AS c_name, op, \
                checksum AS c_checksum, commit_id, \
                ROW_NUMBER() OVER (PARTITION BY kind, mesh, name ORDER BY revision, ordinal) AS nth \
            FROM (\
                SELECT * FROM changes WHERE revision > $1 ORDER BY revision FETCH FIRST ($2) ROWS WITH TIES\
            ) p\
        ) l LEFT JOIN LATERAL (\
            SELECT octet_length(labels) + octet_length(spec) + COALESCE(octet_length(status), 0) AS bytes \
            FROM resources \
            WHERE l.nth = 1 AND kind = l.c_kind AND mesh = l.c_mesh AND name = l.c_name LIMIT 1\
        ) s ON true\
    ) c ON COALESCE(c.before, 0) < $3 LEFT JOIN LATERAL (\
        SELECT * FROM resources \
        WHERE c.nth = 1 AND kind = c.c_kind AND mesh = c.c_mesh AND name = c.c_name LIMIT 1\
    ) r ON true ORDER BY c.at, c.ordinal";

/// The store in one database.
pub struct PostgresStore {
    identity: StoreIdentity,
    writer: Writer,
    hints: Hints,
    read: PostgresConnections,
    past: PostgresConnections,
    /// One connection, so that readers cannot keep the writer waiting.
    write: PostgresConnections,
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
        let [read, past] = [READERS, HISTORIANS].map(|most| PostgresConnections::several(most, &options));
        let [write, listen] = [(); 2].map(|()| PostgresConnections::one(&options));
        let head = Arc::new(watch::Sender::new(meta.head()));
        let hints = Hints::start(read.clone(), listen, Arc::clone(&head));
        let ledger =
            PostgresLedger::new(write.clone(), Arc::clone(&head), hints.committed(), identity, retained);
        let vitals = Vitals::new();
        let writer = Writer::start(ledger, Arc::clone(&vitals));
        Ok(Self { identity, writer, hints, read, past, write, head, vitals })
    }

    /// One statement of those that a server that is well executes at once.
    async fn execute(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<()> {
        let executing = async |watch| query.execute(&mut *self.read.take(&watch).await?).await.map(|_| ());
        unless_silent(PROMPT, executing).await
    }

    fn noticed(&self, error: StoreError) -> StoreError {
        if let StoreError::Damaged(_) = error {
            self.vitals.damaged(&error);
        }
        error
    }
}

/// Says which database is meant, without who asks.
fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    match options.get_socket() {
        Some(folder) => format!("{database} at {}", folder.display()),
        None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
    }
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
        [("read", &self.read), ("past", &self.past), ("write", &self.write)]
            .map(|(name, connections)| connections.count(name))
            .to_vec()
    }

    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        let limit = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
        let rows = unless_silent(PROMPT, async |watch| {
            let mut connection = self.read.take(&watch).await?;
            let changes = sqlx::query(CHANGES_SINCE).bind(number(after.revision)).bind(limit);
            changes.bind(PAGE_BYTES).fetch_all(&mut *connection).await
        })
        .await
        .map_err(|error| self.noticed(unread("read the change feed", error)))?;
        record::changes(&rows, self.identity, after).map_err(|error| self.noticed(error))
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let read = unless_silent(SILENCE, async |watch| {
            let mut connection = self.read.take(&watch).await?;
            let mut view = connection.begin_with(begin).await?;
            let meta: MetaRecord = sqlx::query_as(META).fetch_one(&mut *view).await?;
            let commit: Option<Option<i64>> =
                sqlx::query_scalar(HEAD_COMMIT).fetch_optional(&mut *view).await?;
            let rows: Vec<ResourceRecord> = sqlx::query_as(ALL_RESOURCES).fetch_all(&mut *view).await?;
            view.rollback().await?;
            Ok((meta, commit, rows))
        });
        let (meta, commit, rows) =
            read.await.map_err(|error| self.noticed(unread("read a snapshot", error)))?;
        meta.must_be(self.identity)?;
        record::snapshot(&meta, commit.flatten(), rows).map_err(|error| self.noticed(error))
    }

    async fn history(&self, query: &HistoryQuery) -> Result<PastChanges, StoreError> {
        let read = unless_silent(SILENCE, async |watch| {
            let mut connection = self.past.take(&watch).await?;
            history::read(&mut connection, query).await
        });
        let (floor, rows) = read.await.map_err(|error| StoreError::backend("read the history", error))?;
        past::changes(floor, rows, query)
    }

    async fn compact_history(&self, limits: &HistoryLimits) -> Result<u64, StoreError> {
        let dropped = unless_silent(SILENCE, async |watch| {
            let mut connection = self.read.take(&watch).await?;
            history::compact(&mut connection, limits).await
        });
        dropped.await.map_err(|error| StoreError::backend("drop what of the history is over", error))
    }

    async fn go_on_as(&self, identity: StoreIdentity, at_least: Revision) -> Result<(), StoreError> {
        let (store_id, epoch, at_least, _) = epoch::columns(identity, at_least);
        let gone_on = unless_silent(SILENCE, async |watch| {
            let mut connection = self.read.take(&watch).await?;
            let mut transaction = connection.begin().await?;
            let go_on = sqlx::query(epoch::GO_ON).bind(store_id).bind(epoch).bind(at_least);
            go_on.execute(&mut *transaction).await?;
            for statement in epoch::FORGET {
                sqlx::query(statement).execute(&mut *transaction).await?;
            }
            transaction.commit().await
        });
        gone_on.await.map_err(|error| StoreError::backend("begin another history", error))
    }

    fn health(&self) -> watch::Receiver<StoreHealth> {
        self.vitals.watch()
    }

    async fn check(&self) -> Result<(), StoreError> {
        let checked = unless_silent(SILENCE, async |watch| {
            let doing = "give checksums to rows of an older version";
            // What a replica of an older version wrote meanwhile, too.
            let mut connection = self.read.take(&watch).await.map_err(|error| unread(doing, error))?;
            fill(&mut connection).await?;
            drop(connection);
            sums::compare(&self.read, watch).await
        });
        checked.await.map_err(|error| self.noticed(error))
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
        let acquire = sqlx::query_scalar(
            "INSERT INTO leases AS held (name, holder, epoch, until) \
             VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3)) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, \
             epoch = held.epoch + CASE WHEN $4 OR held.until <= clock_timestamp() THEN 1 ELSE 0 END \
             WHERE $4 OR held.until <= clock_timestamp() OR held.holder = excluded.holder RETURNING epoch",
        );
        let acquire = acquire.bind(name).bind(holder).bind(ttl.as_secs_f64()).bind(steal);
        let acquired = unless_silent(PROMPT, async |watch| {
            acquire.fetch_optional(&mut *self.read.take(&watch).await?).await
        });
        let epoch: Option<i64> =
            acquired.await.map_err(|error| StoreError::backend(format!("take the lease {name}"), error))?;
        Ok(epoch.map(|epoch| Lease {
            name: name.to_owned(),
            holder: holder.to_owned(),
            epoch: epoch.unsigned_abs(),
        }))
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        // The row stays, so that the next holder gets a higher epoch.
        let release = "UPDATE leases SET until = '-infinity' WHERE name = $1 AND holder = $2 AND epoch = $3";
        let release = sqlx::query(release).bind(&lease.name).bind(&lease.holder).bind(number(lease.epoch));
        let doing = || format!("give back the lease {}", lease.name);
        self.execute(release).await.map_err(|error| StoreError::backend(doing(), error))
    }

    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        let (kept, removed) = sessions::split(rows);
        let sums: Vec<i64> = kept.iter().map(|(key, document)| session_sum(key, document)).collect();
        let (keys, documents): (Vec<String>, Vec<String>) = kept.into_iter().unzip();
        let put = sqlx::query(
            "WITH gone AS (DELETE FROM sessions WHERE key = ANY ($3::text[])) \
             INSERT INTO sessions (key, document, checksum) \
             SELECT * FROM unnest($1::text[], $2::text[], $4::int8[]) \
             ON CONFLICT (key) DO UPDATE SET document = excluded.document, checksum = excluded.checksum",
        );
        let put = put.bind(keys).bind(documents).bind(removed).bind(sums);
        self.execute(put).await.map_err(|error| StoreError::backend("write session documents", error))
    }

    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        let claiming = unless_silent(PROMPT, async |watch| {
            let mut connection = self.read.take(&watch).await?;
            let claim = sqlx::query_scalar(sessions::CLAIM).bind(key).bind(document);
            claim.bind(session_sum(key, document)).bind(instead_of).fetch_one(&mut *connection).await
        });
        claiming
            .await
            .map_err(|error| StoreError::backend(format!("claim the session document {key}"), error))
    }

    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let rows = unless_silent(PROMPT, async |watch| {
            let mut connection = self.read.take(&watch).await?;
            sqlx::query(sessions::WITH_PREFIX).bind(prefix).fetch_all(&mut *connection).await
        });
        let rows = rows.await.map_err(|error| self.noticed(unread("read session documents", error)))?;
        sessions::read(&rows).map_err(|error| self.noticed(error))
    }

    async fn nudge(&self, nudge: Nudge) -> Result<(), StoreError> {
        let sent = hint::nudge(&self.read, nudge).await;
        sent.map_err(|error| StoreError::backend("notify other replicas", error))
    }

    fn nudged(&self) -> watch::Receiver<Nudges> {
        self.hints.nudged()
    }

    async fn close(&self) {
        self.writer.close().await;
        self.hints.close().await;
        tokio::join!(self.write.close(), self.read.close(), self.past.close());
    }
}
