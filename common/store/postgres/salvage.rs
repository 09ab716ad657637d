//! A damaged database, looked into past what serves it.

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, FromRow, PgConnection, Row, postgres::PgConnectOptions, postgres::PgRow,
};
use tokio::time::timeout;

use super::{
    connections::{CONNECT, SESSION},
    ledger::LOCK,
    place,
    silence::{LONG, SilenceWatch, unless_silent},
};
use crate::store::{
    StoreError,
    finding::{Finding, FindingSubject, Settlement, Wreck},
    record::{LoggedColumns, MetaRecord, OUT_OF_STEP, RawColumns, number, session_sum},
};

/// Rows as bytes, in the order of their place: an index could be damaged too. `textsend` does not mind bytes
/// that are no text.
const RESOURCES: &str = "\
    SELECT ctid::text AS place, textsend(kind) AS kind, textsend(mesh) AS mesh, textsend(name) AS name, \
        textsend(origin_zone) AS origin_zone, textsend(display_name) AS display_name, \
        textsend(labels) AS labels, spec, status, textsend(owner_kind) AS owner_kind, \
        textsend(owner_mesh) AS owner_mesh, textsend(owner_name) AS owner_name, \
        created, modified, revision, checksum \
    FROM resources";

const SESSIONS: &str = "SELECT ctid::text, textsend(key), textsend(document), checksum FROM sessions";

const LOG: &str = "\
    SELECT revision, textsend(kind), textsend(mesh), textsend(name), textsend(op), checksum FROM changes";

/// Whatever follows the store takes all of it anew.
const BEGIN_LOG: [&str; 2] =
    ["DELETE FROM changes", "UPDATE meta SET revision = revision + 1, oldest = revision + 1"];

/// A session document as it is.
type RawSession = (String, Vec<u8>, Vec<u8>, Option<i64>);
/// An entry of the change log as it is.
type RawEntry = (i64, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Option<i64>);

/// The database, with all writers waiting.
pub(in crate::store) struct PostgresWreck {
    connection: PgConnection,
    place: String,
}

impl PostgresWreck {
    pub(in crate::store) async fn open(url: &str) -> Result<Self, StoreError> {
        let options: PgConnectOptions = url.parse().map_err(|error| {
            StoreError::Foreign(format!("{} is no URL of a Postgres database: {error}", super::masked(url)))
        })?;
        let options = options.application_name("strait salvage");
        let place = place(&options);
        let opened = unless_silent(LONG, async |_| {
            let connecting = timeout(CONNECT, options.connect()).await;
            let mut connection = connecting.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
            sqlx::raw_sql(SESSION).execute(&mut connection).await?;
            for setting in ["SET statement_timeout = 0", "SET idle_in_transaction_session_timeout = 0"] {
                sqlx::query(setting).execute(&mut connection).await?;
            }
            sqlx::query("BEGIN ISOLATION LEVEL READ COMMITTED").execute(&mut connection).await?;
            let _writers_wait: MetaRecord = sqlx::query_as(LOCK).fetch_one(&mut connection).await?;
            // The places of rows are those of the heap, whatever an index says.
            for setting in ["enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"] {
                sqlx::query("SELECT set_config($1, 'off', true)")
                    .bind(setting)
                    .execute(&mut connection)
                    .await?;
            }
            Ok(connection)
        });
        let failed =
            |error: sqlx::Error| StoreError::backend(format!("look into the database {place}"), error);
        let connection = opened.await.map_err(failed)?;
        Ok(Self { connection, place })
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        StoreError::backend(format!("salvage the database {}", self.place), error)
    }

    async fn find(&mut self) -> sqlx::Result<Vec<Finding>> {
        let mut found = Vec::new();
        for row in sqlx::query(RESOURCES).fetch_all(&mut self.connection).await? {
            let raw = RawColumns::from_row(&row)?;
            if raw.is_damaged() {
                found.push(Finding { place: place_of(&row)?, what: FindingSubject::Resource(Box::new(raw)) });
            }
        }
        let sessions: Vec<RawSession> = sqlx::query_as(SESSIONS).fetch_all(&mut self.connection).await?;
        for (place, key, document, sum) in sessions {
            let read = (str::from_utf8(&key), str::from_utf8(&document));
            let sound = matches!(read, (Ok(key), Ok(document)) if sum.is_none_or(|sum| sum == session_sum(key, document)));
            if !sound {
                found.push(Finding { place, what: FindingSubject::Session { key, document } });
            }
        }
        let log: Vec<RawEntry> = sqlx::query_as(LOG).fetch_all(&mut self.connection).await?;
        let strange: Option<(String, String, String)> =
            sqlx::query_as(OUT_OF_STEP).fetch_optional(&mut self.connection).await?;
        if strange.is_some() || !log.iter().all(is_sound) {
            found.push(Finding { place: "changes".to_owned(), what: FindingSubject::Log });
        }
        Ok(found)
    }

    async fn write(&mut self, finding: &Finding, settlement: Settlement) -> sqlx::Result<()> {
        let (remove, accept) = match &finding.what {
            FindingSubject::Resource(_) => (
                "DELETE FROM resources WHERE ctid = $1::tid",
                "UPDATE resources SET checksum = $2 WHERE ctid = $1::tid",
            ),
            FindingSubject::Session { .. } => (
                "DELETE FROM sessions WHERE ctid = $1::tid",
                "UPDATE sessions SET checksum = $2 WHERE ctid = $1::tid",
            ),
            // Begun anew below, and there is no sum of the identity.
            FindingSubject::Log | FindingSubject::Identity { .. } => ("", ""),
        };
        if !remove.is_empty() {
            let settled = match settlement {
                Settlement::Remove => sqlx::query(remove).bind(&finding.place),
                Settlement::Accept => sqlx::query(accept).bind(&finding.place).bind(finding.sum()),
            };
            if settled.execute(&mut self.connection).await?.rows_affected() != 1 {
                return Err(sqlx::Error::RowNotFound);
            }
        }
        for statement in BEGIN_LOG {
            sqlx::query(statement).execute(&mut self.connection).await?;
        }
        sqlx::query("COMMIT").execute(&mut self.connection).await?;
        Ok(())
    }
}

fn place_of(row: &PgRow) -> sqlx::Result<String> {
    row.try_get("place")
}

fn is_sound((revision, kind, mesh, name, op, sum): &RawEntry) -> bool {
    let texts = [kind, mesh, name, op].map(|text| str::from_utf8(text));
    let [Ok(kind), Ok(mesh), Ok(name), Ok(op)] = texts else { return false };
    let revision = number(revision.unsigned_abs());
    sum.is_none_or(|sum| sum == LoggedColumns { revision, kind, mesh, name, op }.sum())
}

#[async_trait]
impl Wreck for PostgresWreck {
    async fn findings(&mut self) -> Result<Vec<Finding>, StoreError> {
        let found = SilenceWatch::default().hear(LONG, self.find()).await;
        found.map_err(|error| self.failed(error))
    }

    async fn settle(&mut self, finding: &Finding, settlement: Settlement) -> Result<(), StoreError> {
        let written = SilenceWatch::default().hear(LONG, self.write(finding, settlement)).await;
        written.map_err(|error| self.failed(error))
    }

    async fn close(self: Box<Self>) {
        // What is not committed by now is undone by the server.
        if let Err(error) = SilenceWatch::default().hear(CONNECT, self.connection.close()).await {
            tracing::debug!(%error, "the connection did not close cleanly");
        }
    }
}
