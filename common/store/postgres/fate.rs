//! What became of a commit whose answer was lost.

use std::time::Duration;

use super::{
    connections::PostgresConnections,
    silence::{PROMPT, unless_silent},
};
use crate::store::StoreError;

/// How long and how often it is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);

/// Asks what became of a transaction whose commit was not answered; fails unless it happened.
pub(super) async fn settle(
    connections: &PostgresConnections,
    id: &str,
    error: sqlx::Error,
) -> Result<(), StoreError> {
    let asking = async {
        loop {
            match fate(connections, id).await {
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

/// Whether the transaction committed; `None` while it is still under way.
pub(super) async fn fate(connections: &PostgresConnections, id: &str) -> sqlx::Result<Option<bool>> {
    let known: sqlx::Result<Option<String>> = unless_silent(PROMPT, async |watch| {
        let mut connection = connections.take(&watch).await?;
        let status = sqlx::query_scalar("SELECT pg_xact_status($1::xid8)").bind(id);
        status.fetch_one(&mut *connection).await
    })
    .await;
    match known {
        Ok(status) => Ok(match status.as_deref() {
            Some("committed") => Some(true),
            Some("in progress") => None,
            _ => Some(false),
        }),
        // The server crashed before it wrote down even the number.
        Err(error) if error.as_database_error().is_some_and(|e| e.code().as_deref() == Some("22023")) => {
            Ok(Some(false))
        }
        Err(error) => Err(error),
    }
}

/// Whether the server gave this answer because it, or this connection, is going down: a commit may
/// have happened all the same.
pub(super) fn is_shutdown(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code());
    code.is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
}
