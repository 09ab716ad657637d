//! A damaged file, looked into past what serves it. Its structure must be sound: where pages or indexes are
//! damaged, nobody can say which rows there are.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use sqlx::{FromRow, Row, SqliteConnection};

use super::{
    connections::{SqliteConnections, close},
    file::{self, FileLock},
    inspect::{self, is_logged},
    opening,
};
use crate::store::{
    StoreError,
    finding::{Finding, FindingSubject, Settlement, Wreck},
    record::{RawColumns, identity_sum, session_sum},
};

const RESOURCES: &str = "\
    SELECT CAST(rowid AS TEXT) AS place, CAST(kind AS BLOB) AS kind, CAST(mesh AS BLOB) AS mesh, \
        CAST(name AS BLOB) AS name, CAST(origin_zone AS BLOB) AS origin_zone, \
        CAST(display_name AS BLOB) AS display_name, CAST(labels AS BLOB) AS labels, \
        CAST(spec AS BLOB) AS spec, CAST(status AS BLOB) AS status, CAST(owner_kind AS BLOB) AS owner_kind, \
        CAST(owner_mesh AS BLOB) AS owner_mesh, CAST(owner_name AS BLOB) AS owner_name, \
        CAST(created AS INTEGER) AS created, CAST(modified AS INTEGER) AS modified, \
        CAST(revision AS INTEGER) AS revision, CAST(checksum AS INTEGER) AS checksum \
    FROM resources";

const SESSIONS: &str =
    "SELECT CAST(key AS BLOB), CAST(document AS BLOB), CAST(checksum AS INTEGER) FROM sessions";

/// Whatever follows the store takes all of it anew.
const BEGIN_LOG: [&str; 2] =
    ["DELETE FROM changes", "UPDATE meta SET revision = revision + 1, oldest = revision + 1"];

/// The file, with other processes kept out.
pub(in crate::store) struct SqliteWreck {
    path: PathBuf,
    connection: SqliteConnection,
    /// Held until the end.
    _connections: SqliteConnections,
}

impl SqliteWreck {
    pub(in crate::store) async fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(file::foreign(path, "does not exist: there is nothing to salvage"));
        }
        let lock = FileLock::take(path).await?;
        file::check(path).await?;
        let connections = SqliteConnections::new(path, lock);
        let mut connection = connections.anchor().await.map_err(|error| opening(path, error))?;
        let structure = inspect::structure(&mut connection).await;
        structure.map_err(|finding| inspect::error(path, finding))?;
        Ok(Self { path: path.to_owned(), connection, _connections: connections })
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        StoreError::backend(format!("salvage the database file {}", self.path.display()), error)
    }

    async fn find(&mut self) -> sqlx::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let (store_id, epoch, sum): (String, i64, Option<i64>) =
            sqlx::query_as("SELECT store_id, epoch, checksum FROM meta")
                .fetch_one(&mut self.connection)
                .await?;
        if sum.is_some_and(|sum| sum != identity_sum(&store_id, epoch)) {
            found.push(Finding {
                place: "meta".to_owned(),
                what: FindingSubject::Identity { store_id, epoch },
            });
        }
        for row in sqlx::query(RESOURCES).fetch_all(&mut self.connection).await? {
            let raw = RawColumns::from_row(&row)?;
            if raw.is_damaged() {
                found.push(Finding {
                    place: row.try_get("place")?,
                    what: FindingSubject::Resource(Box::new(raw)),
                });
            }
        }
        let sessions: Vec<(Vec<u8>, Vec<u8>, Option<i64>)> =
            sqlx::query_as(SESSIONS).fetch_all(&mut self.connection).await?;
        for (key, document, sum) in sessions {
            let texts = (str::from_utf8(&key), str::from_utf8(&document));
            let sound = matches!(texts, (Ok(key), Ok(document)) if sum == Some(session_sum(key, document)));
            if !sound {
                found.push(Finding {
                    place: "sessions".to_owned(),
                    what: FindingSubject::Session { key, document },
                });
            }
        }
        if !is_logged(&mut self.connection).await? {
            found.push(Finding { place: "changes".to_owned(), what: FindingSubject::Log });
        }
        Ok(found)
    }

    async fn write(&mut self, finding: &Finding, settlement: Settlement) -> sqlx::Result<()> {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut self.connection).await?;
        let sum = finding.sum();
        let settled = match (&finding.what, settlement) {
            (FindingSubject::Resource(_), Settlement::Remove) => {
                Some(sqlx::query("DELETE FROM resources WHERE rowid = $1").bind(&finding.place))
            }
            (FindingSubject::Resource(_), Settlement::Accept) => {
                let accept = sqlx::query("UPDATE resources SET checksum = $2 WHERE rowid = $1");
                Some(accept.bind(&finding.place).bind(sum))
            }
            (FindingSubject::Session { key, .. }, Settlement::Remove) => {
                Some(sqlx::query("DELETE FROM sessions WHERE CAST(key AS BLOB) = $1").bind(key))
            }
            (FindingSubject::Session { key, .. }, Settlement::Accept) => {
                let accept = sqlx::query("UPDATE sessions SET checksum = $2 WHERE CAST(key AS BLOB) = $1");
                Some(accept.bind(key).bind(sum))
            }
            (FindingSubject::Identity { .. }, _) => {
                Some(sqlx::query("UPDATE meta SET checksum = $1").bind(sum))
            }
            (FindingSubject::Log, _) => None,
        };
        if let Some(settled) = settled
            && settled.execute(&mut self.connection).await?.rows_affected() != 1
        {
            return Err(sqlx::Error::RowNotFound);
        }
        for statement in BEGIN_LOG {
            sqlx::query(statement).execute(&mut self.connection).await?;
        }
        sqlx::query("COMMIT").execute(&mut self.connection).await?;
        Ok(())
    }
}

#[async_trait]
impl Wreck for SqliteWreck {
    async fn findings(&mut self) -> Result<Vec<Finding>, StoreError> {
        let found = self.find().await;
        found.map_err(|error| self.failed(error))
    }

    async fn settle(&mut self, finding: &Finding, settlement: Settlement) -> Result<(), StoreError> {
        let written = self.write(finding, settlement).await;
        written.map_err(|error| self.failed(error))
    }

    async fn close(self: Box<Self>) {
        let Self { connection, _connections: connections, .. } = *self;
        close(connection).await;
        connections.lock().release();
    }
}
