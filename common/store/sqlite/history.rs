//! The history in the file.

use sqlx::{Connection, QueryBuilder, Sqlite, SqliteConnection};

use super::SqliteStore;
use crate::store::{
    Revision, StoreError, StoreIdentity, epoch,
    history::{HistoryLimits, HistoryQuery, PastChange, PastChanges},
    past::{
        self, AGED, FLOOR, HistoryColumns, HistoryRecord, OF_ALL, OF_ALL_OLDEST, OF_ONE, OF_ONE_OLDEST,
        RAISE_FLOOR,
    },
    record::number,
    shares::{self, Amount, HistoryShare, HistoryShares, OF_EVERYBODY, Trimming},
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

impl SqliteStore {
    /// What is asked for.
    pub(super) async fn past(&self, query: &HistoryQuery) -> Result<PastChanges, StoreError> {
        let reader = self.connections.historian().await;
        let mut reader = reader.map_err(|error| error.into_error(self.connections.path()))?;
        let read = read(&mut reader, query).await;
        let (floor, rows) = read.map_err(|error| self.unread("read the history", error))?;
        reader.put_down();
        past::changes(floor, rows, query)
    }

    /// Drops what is beyond the limits, in steps between which others write.
    pub(super) async fn drop_past(&self, limits: &HistoryLimits) -> Result<u64, StoreError> {
        let unread = |error| self.unread("look what of the history is over", error);
        let mut reader = self.reader().await?;
        let aged = aged(&mut reader, limits).await.map_err(unread)?;
        reader.put_down();
        let mut dropped = self.drop_until(&OF_EVERYBODY, "", aged).await?;
        let mut reader = self.reader().await?;
        let held = held(&mut reader).await.map_err(unread)?;
        reader.put_down();
        for (share, most) in held.excessive(limits) {
            let mut reader = self.reader().await?;
            let last = beyond(&mut reader, &share, most).await.map_err(unread)?;
            reader.put_down();
            dropped += self.drop_until(share.trimming(), &share.author(), last).await?;
        }
        Ok(dropped)
    }

    /// Drops what of a share lies at or before `last`, and says how many changes that were.
    async fn drop_until(&self, of: &Trimming, author: &str, last: Option<i64>) -> Result<u64, StoreError> {
        let Some(last) = last else { return Ok(0) };
        let mut dropped = 0;
        loop {
            let mut pen = self.pen().await?;
            let step = drop_step(&mut pen, of, author, last).await;
            let step = step.map_err(|error| self.unwritten("drop what of the history is over", error))?;
            self.written(pen).await?;
            if step == 0 {
                return Ok(dropped);
            }
            dropped += step;
        }
    }

    /// Writes down that another history begins.
    pub(super) async fn begin_another(
        &self,
        identity: StoreIdentity,
        at_least: Revision,
    ) -> Result<(), StoreError> {
        let failed = |error| self.unwritten("begin another history", error);
        let (store_id, epoch, at_least, sum) = epoch::columns(identity, at_least);
        let mut pen = self.pen().await?;
        let mut transaction = pen.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        let go_on = sqlx::query(epoch::GO_ON).bind(store_id).bind(epoch).bind(at_least);
        go_on.execute(&mut *transaction).await.map_err(failed)?;
        let summed = sqlx::query("UPDATE meta SET checksum = $1").bind(sum);
        summed.execute(&mut *transaction).await.map_err(failed)?;
        for statement in epoch::FORGET {
            sqlx::query(statement).execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        self.written(pen).await
    }
}

/// The floor, and what is asked for.
async fn read(
    connection: &mut SqliteConnection,
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

/// The newest revision that is too old.
async fn aged(connection: &mut SqliteConnection, limits: &HistoryLimits) -> sqlx::Result<Option<i64>> {
    let now: i64 = sqlx::query_scalar("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")
        .fetch_one(&mut *connection)
        .await?;
    sqlx::query_scalar(AGED).bind(limits.oldest(now)).fetch_one(connection).await
}

async fn held(connection: &mut SqliteConnection) -> sqlx::Result<HistoryShares> {
    Ok(shares::held(sqlx::query_as(shares::HELD).fetch_all(connection).await?))
}

/// The newest revision of a share that goes when so much of it may stay.
async fn beyond(
    connection: &mut SqliteConnection,
    share: &HistoryShare,
    most: Amount,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar(share.trimming().beyond)
        .bind(share.author())
        .bind(number(most.changes))
        .bind(number(most.bytes))
        .fetch_one(connection)
        .await
}

/// Drops a part of what lies at or before `last`, and says how many changes that were.
async fn drop_step(
    connection: &mut SqliteConnection,
    of: &Trimming,
    author: &str,
    last: i64,
) -> sqlx::Result<u64> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let step = sqlx::query_scalar(of.step).bind(author).bind(last).fetch_one(&mut *transaction);
    let step: Option<i64> = step.await?;
    let Some(step) = step else {
        transaction.rollback().await?;
        return Ok(0);
    };
    let delete = sqlx::query(of.delete).bind(author).bind(step).execute(&mut *transaction);
    let dropped = delete.await?.rows_affected();
    sqlx::query(RAISE_FLOOR).bind(step).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(dropped)
}
