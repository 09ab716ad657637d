//! The history in the database.

use sqlx::{Connection, PgConnection};

use crate::store::{
    history::{HistoryLimits, HistoryQuery, PastChange},
    past::{
        AGED, FLOOR, HistoryColumns, HistoryRecord, OF_ALL, OF_ALL_OLDEST, OF_ONE, OF_ONE_OLDEST, RAISE_FLOOR,
    },
    record::number,
    shares::{self, OF_EVERYBODY, Trimming},
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
) -> sqlx::Result<((i64, Option<i64>), Vec<HistoryRecord>)> {
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
    let floor = sqlx::query_as(FLOOR).fetch_one(connection).await?;
    Ok((floor, rows))
}

/// Drops what is beyond the limits, in steps. Several replicas may do so at once.
pub(super) async fn compact(connection: &mut PgConnection, limits: &HistoryLimits) -> sqlx::Result<u64> {
    let now: i64 = sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        .fetch_one(&mut *connection)
        .await?;
    let aged = sqlx::query_scalar(AGED).bind(limits.oldest(now)).fetch_one(&mut *connection).await?;
    let mut dropped = drop_until(connection, &OF_EVERYBODY, "", aged).await?;
    let held = shares::held(sqlx::query_as(shares::HELD).fetch_all(&mut *connection).await?);
    for (share, most) in held.excessive(limits) {
        let (of, author) = (share.trimming(), share.author());
        let last = sqlx::query_scalar(of.beyond)
            .bind(&author)
            .bind(number(most.changes))
            .bind(number(most.bytes))
            .fetch_one(&mut *connection)
            .await?;
        dropped += drop_until(connection, of, &author, last).await?;
    }
    Ok(dropped)
}

/// Drops what of a share lies at or before `last`, and says how many changes that were.
async fn drop_until(
    connection: &mut PgConnection,
    of: &Trimming,
    author: &str,
    last: Option<i64>,
) -> sqlx::Result<u64> {
    let Some(last) = last else { return Ok(0) };
    let mut dropped = 0;
    loop {
        let mut transaction = connection.begin().await?;
        let step = sqlx::query_scalar(of.step).bind(author).bind(last).fetch_one(&mut *transaction);
        let step: Option<i64> = step.await?;
        let Some(step) = step else {
            transaction.rollback().await?;
            return Ok(dropped);
        };
        // The floor first: whoever reads between the two must not miss what goes.
        sqlx::query(RAISE_FLOOR).bind(step).execute(&mut *transaction).await?;
        let delete = sqlx::query(of.delete).bind(author).bind(step).execute(&mut *transaction);
        dropped += delete.await?.rows_affected();
        transaction.commit().await?;
    }
}
