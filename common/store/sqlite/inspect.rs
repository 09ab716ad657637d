//! Whether the file holds what was written to it.

use futures::TryStreamExt;
use sqlx::{Row, SqliteConnection};

use crate::store::{
    StoreError,
    record::{ALL_RESOURCES, LoggedColumns, ResourceRecord, identity_sum, session_sum},
};

/// What was found, or that nothing could be read.
pub(super) enum Finding {
    /// This is damaged.
    Damage(String),
    /// Reading failed for another reason.
    Failure(sqlx::Error),
}

impl From<sqlx::Error> for Finding {
    fn from(error: sqlx::Error) -> Self {
        if is_damage(&error) { Self::Damage(error.to_string()) } else { Self::Failure(error) }
    }
}

/// SQLite's codes for a file that is damaged or no database; the high bytes say how.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code()?.parse::<u32>().ok());
    // A value that does not decode was written as another.
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        || code.is_some_and(|code| matches!(code & 0xff, 11 | 26))
}

/// Everything.
pub(super) async fn whole(connection: &mut SqliteConnection) -> Result<(), Finding> {
    structure(connection).await?;
    contents(connection).await
}

/// The structure of every page, and every index against its table. Takes the time it takes to read the
/// file; for a start, before anything is built on it.
pub(super) async fn structure(connection: &mut SqliteConnection) -> Result<(), Finding> {
    pragma(connection, "PRAGMA integrity_check(1)").await
}

/// The structure of every page, without the indexes; for a file in use.
pub(super) async fn pages(connection: &mut SqliteConnection) -> Result<(), Finding> {
    pragma(connection, "PRAGMA quick_check(1)").await
}

async fn pragma(connection: &mut SqliteConnection, check: &'static str) -> Result<(), Finding> {
    let said: Vec<String> = sqlx::query_scalar(check).fetch_all(connection).await?;
    match said.first() {
        Some(first) if first == "ok" => Ok(()),
        first => Err(Finding::Damage(first.cloned().unwrap_or_default())),
    }
}

/// Every row against its checksum, and the change log against the head.
pub(super) async fn contents(connection: &mut SqliteConnection) -> Result<(), Finding> {
    identity(connection).await?;
    let mut rows = sqlx::query_as::<_, ResourceRecord>(ALL_RESOURCES).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        row.into_resource().map_err(|error| Finding::Damage(error.to_string()))?;
    }
    drop(rows);
    log(connection).await?;
    let sessions = "SELECT key, document, checksum FROM sessions";
    for row in sqlx::query(sessions).fetch_all(connection).await? {
        let (key, document): (&str, &str) = (row.try_get("key")?, row.try_get("document")?);
        if row.try_get::<Option<i64>, _>("checksum")? != Some(session_sum(key, document)) {
            return Err(Finding::Damage(format!("the session document {key} is not what was written")));
        }
    }
    Ok(())
}

async fn identity(connection: &mut SqliteConnection) -> Result<(), Finding> {
    let (store_id, epoch, sum): (String, i64, Option<i64>) =
        sqlx::query_as("SELECT store_id, epoch, checksum FROM meta").fetch_one(connection).await?;
    if sum == Some(identity_sum(&store_id, epoch)) {
        return Ok(());
    }
    Err(Finding::Damage("the identity of the store is not what was written".to_owned()))
}

/// Each entry against its checksum; together they must be dense from the oldest to the head.
async fn log(connection: &mut SqliteConnection) -> Result<(), Finding> {
    let (mut last, head): (i64, i64) =
        sqlx::query_as("SELECT oldest, revision FROM meta").fetch_one(&mut *connection).await?;
    let entries = "SELECT revision, kind, mesh, name, op, checksum FROM changes ORDER BY revision, ordinal";
    for row in sqlx::query(entries).fetch_all(connection).await? {
        let revision = row.try_get("revision")?;
        let logged = LoggedColumns {
            revision,
            kind: row.try_get("kind")?,
            mesh: row.try_get("mesh")?,
            name: row.try_get("name")?,
            op: row.try_get("op")?,
        };
        let follows = revision == last || revision == last + 1;
        if !follows || row.try_get::<Option<i64>, _>("checksum")? != Some(logged.sum()) {
            return Err(Finding::Damage(format!("the change log is not what was written at {revision}")));
        }
        last = revision;
    }
    if last == head {
        return Ok(());
    }
    Err(Finding::Damage(format!("the change log ends at {last}, the store is at {head}")))
}

/// Gives rows of a version without checksums theirs, once.
pub(super) async fn fill(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let identity: Option<(String, i64)> =
        sqlx::query_as("SELECT store_id, epoch FROM meta WHERE checksum IS NULL")
            .fetch_optional(&mut *connection)
            .await?;
    let Some((store_id, epoch)) = identity else { return Ok(()) };
    let rows: Vec<ResourceRecord> = sqlx::query_as(UNSUMMED).fetch_all(&mut *connection).await?;
    for row in &rows {
        let (kind, mesh, name) = row.place();
        let put = "UPDATE resources SET checksum = $1 WHERE kind = $2 AND mesh = $3 AND name = $4";
        let put = sqlx::query(put).bind(row.sum()).bind(kind).bind(mesh).bind(name);
        put.execute(&mut *connection).await?;
    }
    let entries = "SELECT revision, ordinal, kind, mesh, name, op FROM changes WHERE checksum IS NULL";
    for row in sqlx::query(entries).fetch_all(&mut *connection).await? {
        let revision: i64 = row.try_get("revision")?;
        let (kind, mesh) = (row.try_get("kind")?, row.try_get("mesh")?);
        let logged =
            LoggedColumns { revision, kind, mesh, name: row.try_get("name")?, op: row.try_get("op")? };
        let put = "UPDATE changes SET checksum = $1 WHERE revision = $2 AND ordinal = $3";
        let put = sqlx::query(put).bind(logged.sum()).bind(revision).bind(row.try_get::<i64, _>("ordinal")?);
        put.execute(&mut *connection).await?;
    }
    let documents = "SELECT key, document FROM sessions WHERE checksum IS NULL";
    let documents: Vec<(String, String)> = sqlx::query_as(documents).fetch_all(&mut *connection).await?;
    for (key, document) in documents {
        let put = sqlx::query("UPDATE sessions SET checksum = $1 WHERE key = $2");
        put.bind(session_sum(&key, &document)).bind(&key).execute(&mut *connection).await?;
    }
    // Last: it says that all have one.
    let sum = identity_sum(&store_id, epoch);
    sqlx::query("UPDATE meta SET checksum = $1").bind(sum).execute(connection).await?;
    Ok(())
}

const UNSUMMED: &str = "\
    SELECT kind, mesh, name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, checksum \
    FROM resources WHERE checksum IS NULL";

/// A finding as an error of the store, about the file that `name` says.
pub(super) fn error(name: &std::path::Path, finding: Finding) -> StoreError {
    match finding {
        Finding::Damage(what) => super::file::damaged(
            name,
            &format!("is damaged or no SQLite database ({what}): restore it from a backup"),
        ),
        Finding::Failure(error) => {
            StoreError::backend(format!("check the database file {}", name.display()), error)
        }
    }
}
