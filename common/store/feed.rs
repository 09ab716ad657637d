//! Keeps the index equal to the store.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Changes, Store, StoreError,
    index::{Index, IndexReader},
};

/// Entries read from the feed at once.
const PAGE: usize = 1_000;
/// The head is only a hint, so the feed is read this often even when nobody woke us.
const IDLE_READ: Duration = Duration::from_secs(5);
/// Pause after a failed read.
const RETRY: Duration = Duration::from_millis(500);

/// The one writer of the index.
pub struct Feed {
    store: Arc<dyn Store>,
    index: watch::Sender<Arc<Index>>,
}

impl Feed {
    /// Loads the index; the process is not ready before this returned.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let index = Index::of(store.identity(), store.snapshot().await?);
        Ok(Self { store, index: watch::Sender::new(Arc::new(index)) })
    }

    /// A handle for readers.
    pub fn reader(&self) -> IndexReader {
        IndexReader::new(self.index.subscribe())
    }

    /// Follows the store until `shutdown`. A store that cannot be read is tried again: readers keep the
    /// last index meanwhile.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut head = self.store.watch_head();
        while !shutdown.is_cancelled() {
            let pause = match self.catch_up().await {
                Ok(()) => IDLE_READ,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the change feed, readers keep the last index");
                    RETRY
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                Ok(()) = head.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        loop {
            let current = Arc::clone(&self.index.borrow());
            let next = match self.store.changes_since(current.revision, PAGE).await? {
                Changes::Since { upto, .. } if upto == current.revision => return Ok(()),
                Changes::Since { changes, upto } => {
                    let mut next = Index::clone(&current);
                    changes.iter().for_each(|change| next.apply(change));
                    next.revision = upto;
                    next
                }
                Changes::Resync => {
                    tracing::info!(
                        current.revision,
                        "the change feed no longer reaches back, taking a snapshot"
                    );
                    Index::of(self.store.identity(), self.store.snapshot().await?)
                }
            };
            self.index.send_replace(Arc::new(next));
        }
    }
}
