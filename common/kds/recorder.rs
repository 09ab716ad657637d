//! Writes what a control plane has seen of a sync stream into the `ZoneInsight` of the zone.
//!
//! Connects and disconnects are written at once, counters in intervals, pings never on their own: a zone
//! that does nothing but answer leaves no trace in the change feed.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use prost::Message;

use super::insight::{SubscriptionRecord, close_open, fit, set_health, set_streams};
use crate::{
    events::StreamKind,
    model::{Origin, Resource, ResourceKey, kinds},
    proto::kuma::system::v1alpha1::ZoneInsight,
    runtime::Env,
    store::{
        Batch, Fence, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};

/// The writer of insights.
#[derive(Clone)]
pub struct Recorder {
    /// Where they go.
    pub store: Arc<dyn Store>,
    /// What is there.
    pub index: IndexReader,
    /// Clock and instance.
    pub env: Env,
    /// Whom the insights belong to: global, or the zone that keeps its own.
    pub origin: Origin,
}

/// When a session was opened and last heard, and by which streams; only global keeps it.
#[derive(Clone, Debug)]
pub struct RecordedSession {
    /// First stream.
    pub opened: DateTime<Utc>,
    /// Last sign of life.
    pub heard: DateTime<Utc>,
    /// Those that are open.
    pub streams: Vec<StreamKind>,
}

impl Recorder {
    /// Puts a subscription into the insight of its zone. Global quietly does nothing for a zone that no
    /// longer exists.
    ///
    /// # Errors
    /// Any [`StoreError`]; `Fenced` when the session was replaced.
    pub async fn record(
        &self,
        zone: &str,
        subscription: &SubscriptionRecord,
        seen: Option<RecordedSession>,
        fence: Option<Fence>,
    ) -> Result<(), StoreError> {
        let instance = Arc::clone(&self.env.instance_id);
        self.update(zone, fence, |stored| {
            let mut insight = subscription.put_into(stored);
            if let Some(seen) = &seen {
                set_health(&mut insight, seen.heard);
                set_streams(&mut insight, &instance, seen.opened, &seen.streams);
            }
            Some(insight)
        })
        .await
    }

    /// Ends the subscriptions a crash left open.
    ///
    /// # Errors
    /// Any [`StoreError`].
    pub async fn close(&self, zone: &str) -> Result<(), StoreError> {
        let now = self.env.now();
        self.update(zone, None, |stored| {
            let mut insight = ZoneInsight::decode(stored).ok()?;
            close_open(&mut insight, now).then_some(insight)
        })
        .await
    }

    async fn update(
        &self,
        zone: &str,
        fence: Option<Fence>,
        change: impl Fn(&[u8]) -> Option<ZoneInsight> + Send,
    ) -> Result<(), StoreError> {
        let mut index = self.index.current();
        loop {
            let Some(batch) = self.batch(&index, zone, fence.clone(), &change) else { return Ok(()) };
            match self.store.transact(batch).await {
                Ok(commit) => {
                    self.index.wait_long_for(commit.revision).await;
                    return Ok(());
                }
                // Someone wrote it since; the index will show what.
                Err(
                    StoreError::Conflict { .. }
                    | StoreError::AlreadyExists { .. }
                    | StoreError::NotFound { .. },
                ) => {
                    let head = *self.store.watch_head().borrow();
                    let newer = self.index.wait_for_newer(&index, head).await;
                    let Some(newer) = newer else { return Ok(()) };
                    index = newer;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn batch(
        &self,
        index: &Index,
        zone: &str,
        fence: Option<Fence>,
        change: &impl Fn(&[u8]) -> Option<ZoneInsight>,
    ) -> Option<Batch> {
        let owner = index.find(&kinds::zone::KIND, "", zone);
        if self.origin == Origin::Global && owner.is_none() {
            return None;
        }
        let key = ResourceKey::global(&kinds::zone_insight::KIND, zone);
        let existing = index.get(&key);
        let mut insight = change(existing.map_or(&[], |existing| &existing.spec))?;
        // What a peer says is cut where it comes in; whatever that leaves has room where others store it.
        fit(&mut insight, key.kind.largest);
        let mut resource = match existing {
            Some(existing) => Resource { modified: self.env.now(), ..existing.as_ref().clone() },
            None => Resource::new(key, self.env.now()),
        };
        resource.origin = self.origin.clone();
        resource.owner = owner.map(|zone| zone.key.clone());
        resource.spec = insight.encode_to_vec().into();
        let when = existing.map_or(Precondition::Absent, |existing| Precondition::At(existing.revision));
        // An insight must not outlive its zone.
        let still_there = owner.map(|zone| Write::as_it_is(zone));
        let writes = still_there.into_iter().chain([Write::put_when(resource, when)]).collect();
        Some(Batch { writes, fence, ..Batch::default() })
    }
}

/// Whether an insight has a subscription that nobody ended.
pub fn is_open(insight: &Resource) -> bool {
    let decoded = ZoneInsight::decode(insight.spec.as_ref());
    decoded.is_ok_and(|insight| insight.subscriptions.iter().any(|s| s.disconnect_time.is_none()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;
    use crate::store::{feed::Feed, memory::MemoryStore};

    #[tokio::test]
    async fn an_insight_does_not_outlive_its_zone() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let env = Env::system("test");
        let key = ResourceKey::global(&kinds::zone::KIND, "zone-1");
        let zone = Write::put(Resource::new(key.clone(), env.now()));
        store.transact(Batch::of([zone])).await.unwrap();
        let feed = Feed::load(Arc::clone(&store)).await.unwrap();
        let index = feed.reader();
        let recorder =
            Recorder { store: Arc::clone(&store), index, env: env.clone(), origin: Origin::Global };
        // The index of the writer does not show yet that the zone is gone.
        store.transact(Batch::of([Write::delete_when(key, Precondition::Exists)])).await.unwrap();
        let subscription = SubscriptionRecord::open("s".to_owned(), "global", true, env.now());
        let stop = CancellationToken::new();
        let writing = async {
            recorder.record("zone-1", &subscription, None, None).await.unwrap();
            stop.cancel();
        };
        let ((), followed) = tokio::join!(writing, feed.run(stop.clone()));
        followed.unwrap();
        assert_eq!(store.snapshot().await.unwrap().resources, []);
    }
}
