//! The history in the database.

use sqlx::{Connection, PgConnection};

use crate::store::{
    history::{HistoryLimits, HistoryQuery, PastChange},
    past::{
        COMPACTED, DELETE, FLOOR, HistoryColumns, HistoryRecord, OF_ALL, OF_ALL_OLDEST, OF_ONE,
        OF_ONE_OLDEST, RAISE_FLOOR, STEP,
    },
    record::number,
};

const WRITE: &str = "\
    INSERT INTO history (revision, kind, mesh, name, op, author, before, bytes, checksum) \
    SELECT * FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], \
        $8::int8[], $9::int8[])";

/// Writes entries down, within the transaction of the changes.
pub(super) async fn write(connection: &mut PgConnection, entries: &[PastChange]) -> sqlx::Result<()> {
    let rows: Vec<HistoryColumns<'_>> = entries.iter().map(HistoryColumns::of).collect();
    fn all<'a, T>(rows: &'a [HistoryColumns<'a>], of: impl Fn(&'a HistoryColumns<'a>) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    sqlx::query(WRITE)
        .bind(all(&rows, |c| number(c.change.revision)))
        .bind(all(&rows, |c| c.change.key.kind.name))
        .bind(all(&rows, |c| &*c.change.key.mesh))
        .bind(all(&rows, |c| &*c.change.key.name))
        .bind(all(&rows, |c| c.change.op.as_str()))
        .bind(all(&rows, |c| c.author.as_str()))
        .bind(all(&rows, |c| c.before.as_deref()))
        .bind(all(&rows, HistoryColumns::bytes))
        .bind(all(&rows, HistoryColumns::sum))
        .execute(connection)
        .await?;
    Ok(())
}

/// The floor, and what is asked for.
pub(super) async fn read(
    connection: &mut PgConnection,
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

/// Drops what is beyond the limits, in steps. Several replicas may do so at once.
pub(super) async fn compact(connection: &mut PgConnection, limits: &HistoryLimits) -> sqlx::Result<u64> {
    let now: i64 = sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        .fetch_one(&mut *connection)
        .await?;
    let last: Option<i64> = sqlx::query_scalar(COMPACTED)
        .bind(number(limits.changes))
        .bind(number(limits.bytes))
        .bind(limits.oldest(now))
        .fetch_one(&mut *connection)
        .await?;
    let Some(last) = last else { return Ok(0) };
    let mut dropped = 0;
    loop {
        let mut transaction = connection.begin().await?;
        let step: Option<i64> = sqlx::query_scalar(STEP).bind(last).fetch_one(&mut *transaction).await?;
        let Some(step) = step else {
            transaction.rollback().await?;
            return Ok(dropped);
        };
        // The floor first: whoever reads between the two must not miss what goes.
        sqlx::query(RAISE_FLOOR).bind(step).execute(&mut *transaction).await?;
        dropped += sqlx::query(DELETE).bind(step).execute(&mut *transaction).await?.rows_affected();
        transaction.commit().await?;
    }
}
