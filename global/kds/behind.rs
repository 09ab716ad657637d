//! An instance of global that is behind another one: a zone that comes from there may know more of its history.
//!
//! Told the revision of such an instance, a zone would think that global had gone back in time, and what it resumes would
//! take back what it has. So it is answered when this instance has caught up.

use std::time::Duration;

use common::{
    kds::headers::Upstream,
    store::{Changes, Revision, index::Index},
};
use tokio::time::timeout;
use tonic::Status;

use super::KdsInner;

/// How long a zone waits for this instance. It asks again, or another one.
const PATIENCE: Duration = Duration::from_secs(5);

impl KdsInner {
    /// Waits until this instance has what a zone followed elsewhere. Costs nothing when it has.
    ///
    /// # Errors
    /// `Unavailable` when it cannot find out, or does not catch up. A store that went back is no error: there is
    /// nothing to wait for, and the zone must see it.
    pub(super) async fn catch_up_with(&self, followed: Upstream) -> Result<(), Status> {
        // What a relay shows is not of its own store; its zones hold back by themselves until it has caught up.
        let index = self.index.current();
        if self.onward.is_some() || !is_behind(&index, followed) {
            return Ok(());
        }
        // After the head of the store: it was restored from a backup. Where the log of changes begins after what this
        // instance has read, it says nothing of the kind: the instance is further behind than the log goes back.
        if self.is_unknown(followed.revision).await? && !self.is_unknown(index.revision).await? {
            return Ok(());
        }
        match timeout(PATIENCE, self.index.wait_for(followed.revision)).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Status::unavailable("global is shutting down")),
            Err(_) => Err(Status::unavailable(format!(
                "this instance of global is behind: it has not read revision {} yet; try again, or another instance",
                followed.revision
            ))),
        }
    }
}

impl KdsInner {
    /// Whether the log of changes tells nothing of what came after this revision.
    async fn is_unknown(&self, revision: Revision) -> Result<bool, Status> {
        let changes = self.store.changes_since(revision.into(), 1).await.map_err(|error| {
            tracing::debug!(%error, "cannot find out whether this instance is behind");
            Status::unavailable(
                "this instance of global cannot read its store: try again, or another instance",
            )
        })?;
        Ok(matches!(changes, Changes::Resync | Changes::Parted))
    }
}

/// Whether `index` lacks a part of the same history.
fn is_behind(index: &Index, followed: Upstream) -> bool {
    index.store.store_id == followed.store_id
        && index.store.epoch == followed.epoch
        && index.revision < followed.revision
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::DateTime;
    use common::{
        events::EventBus,
        model::{Resource, ResourceKey, kinds},
        runtime::{Entropy, Env, SystemClock},
        store::{Batch, Store, Write, feed::Feed, memory::MemoryStore},
    };
    use tokio_util::sync::CancellationToken;
    use tonic::Code;
    use uuid::Uuid;

    use super::*;
    use crate::kds::{AnyZone, GlobalKdsSettings, Kds};

    async fn put(store: &MemoryStore, name: &str) -> u64 {
        let key = ResourceKey::global(&kinds::zone::KIND, name);
        let write = Write::put(Resource::new(key, DateTime::UNIX_EPOCH));
        store.transact(Batch::of([write])).await.unwrap().revision
    }

    fn instance(store: &Arc<MemoryStore>, feed: &Feed) -> Kds {
        let env =
            Env { clock: Arc::new(SystemClock), entropy: Entropy::seeded(1), instance_id: "behind".into() };
        let store = Arc::clone(store) as Arc<dyn Store>;
        let settings = GlobalKdsSettings::default();
        Kds::new(settings, store, feed.reader(), EventBus::new(8), env, Arc::new(AnyZone))
    }

    #[tokio::test(start_paused = true)]
    async fn a_zone_is_answered_when_its_instance_has_caught_up() {
        let store = Arc::new(MemoryStore::new(Uuid::from_u128(1)));
        let first = put(&store, "zone-1").await;
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let kds = instance(&store, &feed);
        let second = put(&store, "zone-2").await;
        let at = |revision| Upstream::new(store.identity(), revision);

        // What the instance has, what no instance can have, and what is of another history: no reason to wait.
        for known in [at(first), at(second + 1), Upstream { epoch: 7, ..at(second) }] {
            kds.inner.catch_up_with(known).await.unwrap();
            assert_eq!(kds.inner.index.current().revision, first, "nobody has read on");
        }
        let late = kds.inner.catch_up_with(at(second)).await.unwrap_err();
        assert_eq!(late.code(), Code::Unavailable);
        assert!(late.message().contains("is behind"), "{late}");

        let stop = CancellationToken::new();
        let (followed, caught_up) = tokio::join!(feed.run(stop.clone()), async {
            let caught_up = kds.inner.catch_up_with(at(second)).await;
            stop.cancel();
            caught_up
        });
        followed.unwrap();
        caught_up.unwrap();
        assert_eq!(kds.inner.index.current().revision, second);
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_behind_a_compacted_log_is_not_taken_for_one_that_went_back() {
        let store = Arc::new(MemoryStore::with_retention(Uuid::from_u128(1), 2));
        let first = put(&store, "zone-1").await;
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let kds = instance(&store, &feed);
        let mut revisions = Vec::new();
        for n in 2..8 {
            revisions.push(put(&store, &format!("zone-{n}")).await);
        }
        assert_eq!(
            store.changes_since(revisions[0].into(), 1).await.unwrap(),
            Changes::Resync,
            "the log begins later"
        );
        for revision in revisions {
            let late = kds.inner.catch_up_with(Upstream::new(store.identity(), revision)).await.unwrap_err();
            assert!(late.message().contains("is behind"), "{late}");
        }
        assert_eq!(kds.inner.index.current().revision, first, "nobody has read on");
    }
}
