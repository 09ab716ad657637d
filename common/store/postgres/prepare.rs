//! Makes a database ready for use.

use sqlx::{
    ConnectOptions, Connection, PgConnection,
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    connections::CONNECT,
    place,
    silence::{LONG, unless_silent},
    sums, unread,
};
use crate::store::{
    StoreError,
    record::{META, MetaRecord},
};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// Connects once, by itself, so that a wrong host or password is named and not hidden by a pool that
/// tries again; then brings the tables up to date.
pub(super) async fn prepare(options: &PgConnectOptions) -> Result<MetaRecord, StoreError> {
    let place = place(options);
    let connecting = timeout(CONNECT, options.connect()).await;
    let connected = connecting.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let alone = connected.map_err(|error| failed("connect to", &place, error))?;
    // Without the limits of a session: a migration may take its time.
    unless_silent(LONG, |_| make(alone, &place)).await
}

fn failed(what: &str, place: &str, error: sqlx::Error) -> StoreError {
    StoreError::backend(format!("{what} the database {place}"), error)
}

/// Makes or renews the tables.
async fn make(mut alone: PgConnection, place: &str) -> Result<MetaRecord, StoreError> {
    if is_foreign(&mut alone).await.map_err(|error| failed("look into", place, error))? {
        return Err(StoreError::Foreign(format!(
            "the database {place} has tables of another program: create an empty one and name that"
        )));
    }
    MIGRATIONS.run_direct(None, &mut alone, false).await.map_err(|error| migrating(place, error))?;
    let meta = identify(&mut alone).await.map_err(|error| failed("identify", place, error))?;
    fill(&mut alone).await?;
    alone.close().await.map_err(|error| failed("leave", place, error))?;
    Ok(meta)
}

async fn is_foreign(alone: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT to_regclass('_sqlx_migrations') IS NULL AND EXISTS (\
             SELECT 1 FROM pg_tables WHERE schemaname = current_schema())",
    )
    .fetch_one(alone)
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

async fn identify(alone: &mut PgConnection) -> sqlx::Result<MetaRecord> {
    sqlx::query(
        "INSERT INTO meta (id, store_id, epoch, revision, oldest) VALUES (1, $1, 1, 0, 0) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(Uuid::new_v4().to_string())
    .execute(&mut *alone)
    .await?;
    sqlx::query_as(META).fetch_one(alone).await
}

/// Rows without a checksum get one, and are counted: a replica that knows none wrote them.
pub(super) async fn fill(connection: &mut PgConnection) -> Result<(), StoreError> {
    let filled = sums::fill(connection).await;
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
