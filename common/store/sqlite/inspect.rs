//! Whether the file holds what was written to it.

use futures::TryStreamExt;
use sqlx::{Row, SqliteConnection};

use crate::store::{
    StoreError,
    record::{
        ALL_RESOURCES, LoggedColumns, OUT_OF_STEP, ResourceRecord, damaged, identity_sum, out_of_step,
        session_sum,
    },
};

/// What was found, or that nothing could be read.
pub(super) enum SqliteFinding {
    /// The structure of the file is damaged: which rows there are is not known.
    Damage(String),
    /// A row is not what was written; this says which, and what can be done.
    Row(String),
    /// Reading failed for another reason.
    Failure(sqlx::Error),
}

impl SqliteFinding {
    fn row(which: std::fmt::Arguments<'_>) -> Self {
        Self::Row(damaged(which).to_string())
    }
}

impl From<sqlx::Error> for SqliteFinding {
    fn from(error: sqlx::Error) -> Self {
        match error {
            error @ (sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => {
                Self::row(format_args!("a row ({error})"))
            }
            error if is_damage(&error) => Self::Damage(error.to_string()),
            error => Self::Failure(error),
        }
    }
}

/// SQLite's codes for a file that is damaged or no database; the high bytes say how.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code()?.parse::<u32>().ok());
    // A value that does not decode was written as another.
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        || code.is_some_and(|code| matches!(code & 0xff, 11 | 26))
}

/// Whether a file could not be read or written, other than for want of room. What is copied ends with this where a file is
/// shorter than it should be.
pub(super) fn is_broken_off(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code()?.parse::<u32>().ok());
    code.is_some_and(|code| code & 0xff == 10)
}

/// Everything.
pub(super) async fn whole(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    structure(connection).await?;
    contents(connection).await
}

/// The structure of every page, and every index against its table. Takes the time it takes to read the
/// file; for a start, before anything is built on it.
pub(super) async fn structure(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    schema(connection).await?;
    pragma(connection, "PRAGMA integrity_check(1)").await
}

/// The structure of every page, without the indexes; for a file in use.
pub(super) async fn pages(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    pragma(connection, "PRAGMA quick_check(1)").await
}

/// The words of the schema. The driver takes the names and types of columns for text, and its thread, with whoever
/// waits for it, does not survive that they are not.
async fn schema(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    let words =
        "SELECT CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(IFNULL(sql, '') AS BLOB) FROM sqlite_schema";
    let rows: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = sqlx::query_as(words).fetch_all(connection).await?;
    for (name, table, definition) in rows {
        if [&name, &table, &definition].into_iter().any(|word| std::str::from_utf8(word).is_err()) {
            let name = String::from_utf8_lossy(&name).into_owned();
            return Err(SqliteFinding::Damage(format!("the definition of {name:?} is not text")));
        }
    }
    Ok(())
}

async fn pragma(connection: &mut SqliteConnection, check: &'static str) -> Result<(), SqliteFinding> {
    let said: Vec<String> = sqlx::query_scalar(check).fetch_all(connection).await?;
    match said.first() {
        Some(first) if first == "ok" => Ok(()),
        first => Err(SqliteFinding::Damage(first.cloned().unwrap_or_default())),
    }
}

/// Every row against its checksum, and the change log against the head.
pub(super) async fn contents(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    identity(connection).await?;
    let mut rows = sqlx::query_as::<_, ResourceRecord>(ALL_RESOURCES).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        row.into_resource().map_err(|error| SqliteFinding::Row(error.to_string()))?;
    }
    drop(rows);
    log(connection).await?;
    let sessions = "SELECT key, document, checksum FROM sessions";
    for row in sqlx::query(sessions).fetch_all(connection).await? {
        let (key, document): (&str, &str) = (row.try_get("key")?, row.try_get("document")?);
        if row.try_get::<Option<i64>, _>("checksum")? != Some(session_sum(key, document)) {
            return Err(SqliteFinding::row(format_args!("the session document {key}")));
        }
    }
    Ok(())
}

async fn identity(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    let (store_id, epoch, sum): (String, i64, Option<i64>) =
        sqlx::query_as("SELECT store_id, epoch, checksum FROM meta").fetch_one(connection).await?;
    if sum == Some(identity_sum(&store_id, epoch)) {
        return Ok(());
    }
    Err(SqliteFinding::row(format_args!("the identity of the store")))
}

/// Each entry against its checksum; together they must be dense from the oldest to the head, and end where the
/// resources are.
async fn log(connection: &mut SqliteConnection) -> Result<(), SqliteFinding> {
    let (mut last, head): (i64, i64) =
        sqlx::query_as("SELECT oldest, revision FROM meta").fetch_one(&mut *connection).await?;
    let entries = "SELECT revision, kind, mesh, name, op, checksum FROM changes ORDER BY revision, ordinal";
    for row in sqlx::query(entries).fetch_all(&mut *connection).await? {
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
            return Err(SqliteFinding::row(format_args!("the change log at {revision}")));
        }
        last = revision;
    }
    let strange: Option<(String, String, String)> =
        sqlx::query_as(OUT_OF_STEP).fetch_optional(&mut *connection).await?;
    if let Some(row) = strange {
        return Err(SqliteFinding::Row(out_of_step(&row).to_string()));
    }
    if last == head {
        return Ok(());
    }
    Err(SqliteFinding::row(format_args!(
        "the change log, which ends at {last} while the store is at {head},"
    )))
}

/// Whether the change log is what was written.
pub(super) async fn is_logged(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    match log(connection).await {
        Ok(()) => Ok(true),
        Err(SqliteFinding::Damage(_) | SqliteFinding::Row(_)) => Ok(false),
        Err(SqliteFinding::Failure(error)) => Err(error),
    }
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
pub(super) fn error(name: &std::path::Path, finding: SqliteFinding) -> StoreError {
    match finding {
        SqliteFinding::Damage(what) => super::file::damaged(
            name,
            &format!("is damaged or no SQLite database ({what}): restore it from a backup"),
        ),
        SqliteFinding::Row(what) => super::file::damaged(name, &format!("is damaged: {what}")),
        SqliteFinding::Failure(error) => {
            StoreError::backend(format!("check the database file {}", name.display()), error)
        }
    }
}
