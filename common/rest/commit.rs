//! From a decision to a commit: decided again whenever somebody else was faster.

use std::{future::ready, sync::Arc, time::Duration};

use axum::response::Response;
use tokio::time::timeout;

use super::{
    Api, ApiError, READ_YOUR_WRITES,
    precondition::{self, Conditions},
};
use crate::{
    keys::{KeyError, KeySupply},
    mode::Mode,
    model::Resource,
    store::{Batch, Change, Fence, Revision, StoreError, Write, history::Author, index::Index},
};

/// How often a write that lost a race against another is tried again.
const ATTEMPTS: usize = 8;
/// Longest wait for another replica's write to arrive.
const NEXT_INDEX: Duration = Duration::from_millis(250);

/// A write that may be committed, decided on one index.
pub(super) struct Prepared {
    pub(super) title: &'static str,
    pub(super) batch: Batch,
    pub(super) created: bool,
    pub(super) warnings: Vec<String>,
}

/// What came of a commit. On an answer it says so to who takes down what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    /// The revision of the store after it.
    pub(super) revision: Revision,
    /// Whether something is not as it was.
    pub(super) changed: bool,
}

impl Committed {
    /// The answer about it.
    pub(super) fn answered(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }

    /// What was committed for this answer, if anything was.
    pub(super) fn of(response: &Response) -> Option<Self> {
        response.extensions().get::<Self>().copied()
    }
}

/// What makes a write of what the index shows.
pub(super) type WriteDecision = dyn Fn(&Index, &mut KeySupply) -> Result<Prepared, ApiError> + Send + Sync;

impl Api {
    /// Decides on the newest index and commits on the condition that the resource has not changed since;
    /// decides again when it has, or when the keys it lacked are made. Returns once the index shows the write.
    pub(super) async fn commit(
        &self,
        prepare: impl Fn(&Index, &mut KeySupply) -> Result<Prepared, ApiError>,
        fence: Option<&Fence>,
        author: &Author,
    ) -> Result<(Prepared, Committed), ApiError> {
        let decide = move |index: Arc<Index>, mut keys: KeySupply| {
            let prepared = prepare(&index, &mut keys).and_then(|prepared| {
                self.require_free(&index, &prepared.batch.writes, None)?;
                Ok(prepared)
            });
            ready((keys, prepared))
        };
        self.commit_decided(decide, fence, author).await
    }

    /// Refuses what a rollout is on its way with, and what goes out by another rollout only than the one it goes `by`.
    pub(super) fn require_free(
        &self,
        index: &Index,
        writes: &[Write],
        by: Option<&str>,
    ) -> Result<(), ApiError> {
        if self.config.mode != Mode::Global {
            return Ok(());
        }
        match self.rollouts.objection(index, writes, by) {
            None => Ok(()),
            Some(objection) if objection.passes() => Err(ApiError::conflict(objection.to_string())),
            Some(objection) => Err(ApiError::forbidden(objection.to_string())),
        }
    }

    /// The same for what looks itself whether a rollout is against it, and may be long: it is decided off the threads
    /// that serve everybody.
    pub(super) async fn commit_apart(
        &self,
        prepare: Arc<WriteDecision>,
        author: &Author,
    ) -> Result<(Prepared, Committed), ApiError> {
        let decide = |index: Arc<Index>, mut keys: KeySupply| {
            let prepare = Arc::clone(&prepare);
            self.making.long(move || {
                let prepared = prepare(&index, &mut keys);
                (keys, prepared)
            })
        };
        self.commit_decided(decide, None, author).await
    }

    async fn commit_decided<F: Future<Output = (KeySupply, Result<Prepared, ApiError>)>>(
        &self,
        decide: impl Fn(Arc<Index>, KeySupply) -> F,
        fence: Option<&Fence>,
        author: &Author,
    ) -> Result<(Prepared, Committed), ApiError> {
        let mut keys = KeySupply::default();
        let mut attempt = 1;
        loop {
            keys.begin();
            let (supply, prepared) = decide(self.index.current(), keys).await;
            keys = supply;
            let mut prepared = prepared?;
            if !keys.missing().is_empty() {
                self.keys.fill(&mut keys, &author.to_string()).await.map_err(|error| match error {
                    KeyError::Busy => ApiError::busy(prepared.title, error.to_string()),
                    other => ApiError::internal(prepared.title, other),
                })?;
                continue;
            }
            let batch = std::mem::take(&mut prepared.batch).by(author.clone());
            let batch = Batch { fence: fence.cloned(), ..batch };
            match self.store.transact(batch).await {
                Ok(commit) => {
                    self.catch_up(commit.revision).await;
                    let changed = !commit.changed.is_empty();
                    return Ok((prepared, Committed { revision: commit.revision, changed }));
                }
                Err(error) if attempt < ATTEMPTS && lost_race(&error) => {
                    attempt += 1;
                    self.see_the_winner().await;
                }
                Err(error) => return Err(ApiError::store(prepared.title, &error)),
            }
        }
    }

    /// Waits for the index to show what the client has read, perhaps on another replica.
    pub(super) async fn see_what_is_known(&self, conditions: &Conditions) {
        let head = *self.store.watch_head().borrow();
        if let Some(revision) = precondition::awaited(conditions, &self.index, head) {
            self.catch_up(revision).await;
        }
    }

    /// Waits for the index to show what another writer, perhaps on another replica, has just stored.
    async fn see_the_winner(&self) {
        let mut index = self.index.clone();
        let before = index.latest().revision;
        let head = *self.store.watch_head().borrow();
        self.catch_up(head).await;
        if self.index.current().revision == before {
            // The head is only a hint and may lag behind as well; trying again too early costs one attempt.
            let _changed = timeout(NEXT_INDEX, index.changed()).await;
        }
    }

    pub(super) async fn catch_up(&self, revision: u64) {
        // The write is safe already; a slow index only delays when readers see it.
        if timeout(READ_YOUR_WRITES, self.index.wait_for(revision)).await.is_err() {
            tracing::warn!(revision, "the index is far behind the store");
        }
    }
}

/// Shows what `write` does in `scratch`, as the index will show it, but for the revision.
pub(super) fn foresee(scratch: &mut Index, write: &Write) {
    let resource = match write {
        Write::Put { resource, .. } => Some(Arc::new(Resource::clone(resource))),
        Write::PutStatus { .. } => return,
        Write::Delete { .. } => None,
    };
    let revision = scratch.revision;
    scratch.apply(&Change { revision, key: write.key().clone(), resource });
}

fn lost_race(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Conflict { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. }
    )
}
