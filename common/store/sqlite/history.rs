//! The history in the file.

use sqlx::{Connection, QueryBuilder, Sqlite, SqliteConnection};

use crate::store::{
    history::{HistoryLimits, HistoryQuery, PastChange},
    past::{
        COMPACTED, DELETE, FLOOR, HistoryColumns, HistoryRecord, OF_ALL, OF_ALL_OLDEST, OF_ONE,
        OF_ONE_OLDEST, RAISE_FLOOR, STEP,
    },
    record::number,
};

/// Writes entries down, within the transaction of the changes.
pub(super) async fn write(connection: &mut SqliteConnection, entries: &[PastChange]) -> sqlx::Result<()> {
    let rows: Vec<HistoryColumns<'_>> = entries.iter().map(HistoryColumns::of).collect();
    let mut query: QueryBuilder<Sqlite> = QueryBuilder::new(
        "INSERT INTO history (revision, kind, mesh, name, op, author, before, bytes, checksum) ",
    );
    query.push_values(&rows, |mut row, columns| {
        let change = columns.change;
        row.push_bind(number(change.revision))
            .push_bind(change.key.kind.name)
            .push_bind(&*change.key.mesh)
            .push_bind(&*change.key.name)
            .push_bind(change.op.as_str())
            .push_bind(columns.author.as_str())
            .push_bind(columns.before.as_deref())
            .push_bind(columns.bytes())
            .push_bind(columns.sum());
    });
    // Every number of rows is another text; the one of a lone write is worth keeping compiled.
    query.build().persistent(rows.len() == 1).execute(connection).await?;
    Ok(())
}

/// The floor, and what is asked for.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    query: &HistoryQuery,
) -> sqlx::Result<(i64, Vec<HistoryRecord>)> {
    let statement = match (&query.key, query.oldest_first) {
        (Some(_), false) => OF_ONE,
        (Some(_), true) => OF_ONE_OLDEST,
        (None, false) => OF_ALL,
        (None, true) => OF_ALL_OLDEST,
    };
    let [kind, mesh, name] = query.place();
    let rows = sqlx::query_as(statement)
        .bind(kind)
        .bind(mesh)
        .bind(name)
        .bind(number(query.after))
        .bind(number(query.until))
        .bind(query.since_millis())
        .bind(query.author.as_deref().unwrap_or_default())
        .bind(number(query.limit as u64))
        .bind(query.contents)
        .fetch_all(&mut *connection)
        .await?;
    let floor = sqlx::query_scalar(FLOOR).fetch_one(connection).await?;
    Ok((floor, rows))
}

/// The newest revision beyond the limits.
pub(super) async fn beyond(
    connection: &mut SqliteConnection,
    limits: &HistoryLimits,
) -> sqlx::Result<Option<i64>> {
    let now: i64 = sqlx::query_scalar("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")
        .fetch_one(&mut *connection)
        .await?;
    sqlx::query_scalar(COMPACTED)
        .bind(number(limits.changes))
        .bind(number(limits.bytes))
        .bind(limits.oldest(now))
        .fetch_one(connection)
        .await
}

/// Drops a part of what lies at or before `last`, and says how many changes that were.
pub(super) async fn drop_step(connection: &mut SqliteConnection, last: i64) -> sqlx::Result<u64> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let step: Option<i64> = sqlx::query_scalar(STEP).bind(last).fetch_one(&mut *transaction).await?;
    let Some(step) = step else {
        transaction.rollback().await?;
        return Ok(0);
    };
    let dropped = sqlx::query(DELETE).bind(step).execute(&mut *transaction).await?.rows_affected();
    sqlx::query(RAISE_FLOOR).bind(step).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(dropped)
}
