//! Keeps the history of resources within its limits.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::store::{Store, history::HistoryLimits};

/// How often it is looked whether something is over. What is written meanwhile is kept for so much longer.
const PAUSE: Duration = Duration::from_secs(60);

/// Runs until `shutdown`. Replicas that share a store all do this: what one has dropped the others do not find.
pub(super) async fn keep(
    store: Arc<dyn Store>,
    limits: HistoryLimits,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(PAUSE) => {}
        }
        // A store that fails says so itself.
        match store.compact_history(&limits).await {
            Ok(0) => {}
            Ok(changes) => tracing::debug!(changes, "dropped the oldest of the history"),
            Err(error) => tracing::debug!(%error, "the history is cut back later"),
        }
    }
}
