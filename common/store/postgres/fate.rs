//! What became of a commit whose answer was lost.

use std::time::Duration;

use sqlx::Connection;

use super::{
    connections::PostgresConnections,
    silence::{PROMPT, unless_silent},
};
use crate::store::{
    CommitId, Revision, StoreError, StoreIdentity,
    record::{MetaRecord, number},
};

/// How long and how often it is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);

/// Waits for whoever is committing: the transaction itself, if it is still under way.
const SETTLED: &str = "SELECT store_id, epoch, revision AS head, oldest FROM meta FOR SHARE";
const LOGGED: &str = "SELECT EXISTS (SELECT FROM changes WHERE revision = $1 AND commit_id = $2)";

/// A commit whose answer was lost, by what no other has. The number of its transaction is none of that: a server that took
/// over without it gives the same one to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubtfulCommit {
    pub(super) store: StoreIdentity,
    /// Its last revision.
    pub(super) revision: Revision,
    pub(super) commit: CommitId,
}

/// Asks what became of a transaction whose commit was not answered; fails unless it happened.
pub(super) async fn settle(
    connections: &PostgresConnections,
    doubtful: DoubtfulCommit,
    error: sqlx::Error,
) -> Result<(), StoreError> {
    let asking = async {
        loop {
            match fate(connections, doubtful).await {
                Ok(Some(committed)) => return committed,
                Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(StoreError::backend("commit to the database, which did not happen", error)),
        Err(_) => {
            let doing = "commit to the database; whether that happened could not be learnt";
            Err(StoreError::backend(doing, error))
        }
    }
}

/// Whether it happened; `None` where the log does not reach back to it any more.
///
/// # Errors
/// When the server cannot be asked, does not take writes, or has another store.
pub(super) async fn fate(
    connections: &PostgresConnections,
    doubtful: DoubtfulCommit,
) -> Result<Option<bool>, StoreError> {
    let asked: sqlx::Result<(MetaRecord, bool)> = unless_silent(PROMPT, async |watch| {
        let mut connection = connections.take(&watch).await?;
        let mut transaction = connection.begin().await?;
        let meta = sqlx::query_as(SETTLED).fetch_one(&mut *transaction).await?;
        let logged =
            sqlx::query_scalar(LOGGED).bind(number(doubtful.revision)).bind(doubtful.commit.column());
        let is_logged = logged.fetch_one(&mut *transaction).await?;
        transaction.rollback().await?;
        Ok((meta, is_logged))
    })
    .await;
    let (meta, is_logged) =
        asked.map_err(|error| StoreError::backend("ask what became of a commit", error))?;
    meta.must_be(doubtful.store)?;
    let is_told = is_logged || meta.oldest() < doubtful.revision;
    Ok(is_told.then_some(is_logged))
}

/// Whether the server gave this answer because it, or this connection, is going down: a commit may
/// have happened all the same.
pub(super) fn is_shutdown(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code());
    code.is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
}
