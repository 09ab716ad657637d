//! The task that keeps services as they should be while this replica leads its zone.

use std::{future::pending, panic::resume_unwind, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    model::ResourceKey,
    runtime::Env,
    store::{
        Batch, Fence, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use tokio::{
    task::{JoinError, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{ServiceSettings, reconciler::Reconciler};
use crate::leader::Work;

/// Pause after the store refused.
const RETRY: Duration = Duration::from_secs(1);
/// Pause after something was written. Proxies that come one after the other would each write the status anew.
const BREATH: Duration = Duration::from_millis(100);
/// Writes that commit together: one that is refused takes its batch with it.
const TOGETHER: usize = 64;

/// Generates services, gives them addresses and names, and tells their status.
pub(crate) struct Services {
    settings: ServiceSettings,
    store: Arc<dyn Store>,
    env: Env,
    index: IndexReader,
}

impl Services {
    /// For the zone of `settings`.
    pub(crate) fn new(
        settings: ServiceSettings,
        store: Arc<dyn Store>,
        index: IndexReader,
        env: Env,
    ) -> Self {
        Self { settings, store, env, index }
    }

    /// Writes `writes`; says whether all of them went through.
    async fn write(&self, writes: Vec<Write>, fence: &Fence, reconciler: &mut Reconciler) -> bool {
        let mut all = true;
        for together in writes.chunks(TOGETHER) {
            let batch = Batch::of(together.to_vec()).fenced(fence.clone());
            let error = match self.store.transact(batch).await {
                Ok(commit) => {
                    // The next look must not take what was written for what was not.
                    self.index.wait_long_for(commit.revision).await;
                    continue;
                }
                Err(error) => error,
            };
            reconciler.undone(together.iter().map(Write::key));
            all = false;
            match error {
                StoreError::Conflict { .. }
                | StoreError::NotFound { .. }
                | StoreError::AlreadyExists { .. } => {
                    tracing::debug!(%error, "somebody wrote a service at the same time; looking at it again");
                }
                error => tracing::warn!(%error, "cannot store what is known of the services of this zone"),
            }
        }
        all
    }
}

/// What follows from what changed. How much that is others decide, so it is found out on a thread of its own.
async fn stepped(
    mut reconciler: Reconciler,
    index: Arc<Index>,
    changed: Vec<ResourceKey>,
    now: DateTime<Utc>,
) -> (Reconciler, Vec<Write>) {
    let worked = spawn_blocking(move || {
        let writes = reconciler.step(&index, &changed, now);
        (reconciler, writes)
    });
    match worked.await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The process ends, and this with it.
        Err(Err(_cancelled)) => pending().await,
    }
}

impl Work for Services {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        let mut reconciler = Reconciler::new(self.settings.clone());
        let mut reader = self.index.clone();
        let mut known = Arc::new(Index::empty(self.store.identity()));
        loop {
            let index = reader.latest();
            let changed = index.changed_since(&known);
            known = index;
            let now = self.env.now();
            let (back, writes) = stepped(reconciler, Arc::clone(&known), changed, now).await;
            reconciler = back;
            let idle = writes.is_empty();
            let done = self.write(writes, &fence, &mut reconciler).await;
            let due = reconciler.next().map(|at| (at - now).to_std().unwrap_or_default());
            let pause = if done { due } else { Some(self.env.entropy.about(RETRY)) };
            tokio::select! {
                () = stop.cancelled() => return,
                open = reader.changed() => if !open { return },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
            if !idle {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(BREATH) => {}
                }
            }
        }
    }

    fn stand_by(&self) {}
}
