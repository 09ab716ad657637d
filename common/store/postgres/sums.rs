//! The checksums of the rows that are there: given to those without one, compared with those that have one.

use sqlx::{Connection, PgConnection};

use super::{connections::PostgresConnections, ledger::LOCK, silence::SilenceWatch};
use crate::store::{
    StoreError,
    record::{LoggedColumns, MetaRecord, OUT_OF_STEP, ResourceRecord, damaged, out_of_step},
    sessions,
};

/// Resources read or written at once: the lock of all writers is held for so many at most, and no more than
/// their specs are in memory.
pub(super) const BATCH: usize = 200;
/// Entries of the change log read at once.
const ENTRIES: i64 = 10_000;

/// Rows of a replica that knows no checksums, behind a key.
const UNSUMMED: &str = "\
    SELECT kind, mesh, name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, checksum \
    FROM resources WHERE checksum IS NULL AND (kind, mesh, name) > ($1, $2, $3) \
    ORDER BY kind, mesh, name LIMIT $4";

/// All rows behind a key.
const NEXT: &str = "\
    SELECT kind, mesh, name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, checksum \
    FROM resources WHERE (kind, mesh, name) > ($1, $2, $3) \
    ORDER BY kind, mesh, name LIMIT $4";

const GIVE: &str = "\
    UPDATE resources r SET checksum = w.sum \
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[]) AS w (kind, mesh, name, sum) \
    WHERE r.kind = w.kind AND r.mesh = w.mesh AND r.name = w.name AND r.checksum IS NULL";

const LOG: &str = "\
    SELECT revision, ordinal, kind, mesh, name, op, checksum FROM changes \
    WHERE (revision, ordinal) > ($1, $2) ORDER BY revision, ordinal LIMIT $3";

/// One row of the change log.
type ChangeLogRow = (i64, i64, String, String, String, String, Option<i64>);

/// Gives rows of a replica that knows no checksums theirs, a batch and a transaction at a time, and says how
/// many those were. What they were when they were written cannot be known any more: they are taken as they are.
pub(super) async fn fill(connection: &mut PgConnection) -> sqlx::Result<u64> {
    let mut last = (String::new(), String::new(), String::new());
    let mut filled = 0;
    loop {
        // Behind the lock of the writers: nobody changes what is read here before it has its sum.
        let mut transaction = connection.begin().await?;
        let _writers_wait: MetaRecord = sqlx::query_as(LOCK).fetch_one(&mut *transaction).await?;
        let rows = behind(&mut transaction, UNSUMMED, &last).await?;
        if let Some(row) = rows.last() {
            last = key(row);
        }
        filled += give(&mut transaction, &rows).await?;
        transaction.commit().await?;
        if rows.len() < BATCH {
            return Ok(filled);
        }
    }
}

async fn behind(
    connection: &mut PgConnection,
    select: &'static str,
    (kind, mesh, name): &(String, String, String),
) -> sqlx::Result<Vec<ResourceRecord>> {
    let batch = i64::try_from(BATCH).unwrap_or(i64::MAX);
    sqlx::query_as(select).bind(kind).bind(mesh).bind(name).bind(batch).fetch_all(connection).await
}

fn key(row: &ResourceRecord) -> (String, String, String) {
    let (kind, mesh, name) = row.place();
    (kind.to_owned(), mesh.to_owned(), name.to_owned())
}

async fn give(connection: &mut PgConnection, rows: &[ResourceRecord]) -> sqlx::Result<u64> {
    if rows.is_empty() {
        return Ok(0);
    }
    let given = sqlx::query(GIVE)
        .bind(rows.iter().map(|row| row.place().0).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.place().1).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.place().2).collect::<Vec<_>>())
        .bind(rows.iter().map(ResourceRecord::sum).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(given.rows_affected())
}

/// Compares everything that has a checksum with it.
///
/// # Errors
/// [`StoreError::Damaged`] with the first row that is not what was written.
pub(super) async fn compare(
    connections: &PostgresConnections,
    watch: SilenceWatch,
) -> Result<(), StoreError> {
    let failed = |error| super::unread("compare rows with their checksums", error);
    let mut connection = connections.take(&watch).await.map_err(failed)?;
    let mut last = (String::new(), String::new(), String::new());
    loop {
        let rows = behind(&mut connection, NEXT, &last).await.map_err(failed)?;
        let read = rows.len();
        if let Some(row) = rows.last() {
            last = key(row);
        }
        for row in rows {
            row.into_resource()?;
        }
        if read < BATCH {
            break;
        }
    }
    let mut last = (-1, -1);
    loop {
        let entries: Vec<ChangeLogRow> = sqlx::query_as(LOG)
            .bind(last.0)
            .bind(last.1)
            .bind(ENTRIES)
            .fetch_all(&mut *connection)
            .await
            .map_err(failed)?;
        let Some(end) = entries.last() else { break };
        last = (end.0, end.1);
        for (revision, _, kind, mesh, name, op, sum) in &entries {
            let logged = LoggedColumns { revision: *revision, kind, mesh, name, op };
            if sum.is_some_and(|sum| sum != logged.sum()) {
                return Err(damaged(format_args!("an entry of the change log at revision {revision}")));
            }
        }
    }
    let strange: Option<(String, String, String)> =
        sqlx::query_as(OUT_OF_STEP).fetch_optional(&mut *connection).await.map_err(failed)?;
    if let Some(row) = strange {
        return Err(out_of_step(&row));
    }
    let documents = sqlx::query(sessions::WITH_PREFIX).bind("").fetch_all(&mut *connection).await;
    sessions::read(&documents.map_err(failed)?).map(|_| ())
}
