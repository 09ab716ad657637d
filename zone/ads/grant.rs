//! What a stream was let in on: remembered with what that rested on, so that it is judged again when
//! something of it changes or its time is over, and at no other time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use common::{
    model::{Resource, ResourceKey},
    store::index::{Index, IndexReader},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::proxies::StreamId;

/// A token that was found good.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// What decided about it, as it was then; `None` where there was nothing.
    rests_on: Vec<(ResourceKey, Option<Arc<Resource>>)>,
    until: Option<DateTime<Utc>>,
}

impl Grant {
    /// One that rests on these resources as they are in `index`, and ends at `until`.
    pub fn new(keys: Vec<ResourceKey>, until: Option<DateTime<Utc>>, index: &Index) -> Self {
        let now = |key: ResourceKey| {
            let resource = index.get(&key).cloned();
            (key, resource)
        };
        Self { rests_on: keys.into_iter().map(now).collect(), until }
    }

    /// One that rests on what both do.
    pub fn and(mut self, other: Self) -> Self {
        self.rests_on.extend(other.rests_on);
        self.until = self.until.into_iter().chain(other.until).min();
        self
    }

    /// Whether a judgement would find what it found then.
    pub fn holds(&self, index: &Index, now: DateTime<Utc>) -> bool {
        let same = |(key, then): &(ResourceKey, Option<Arc<Resource>>)| match (index.get(key), then) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        };
        self.until.is_none_or(|until| now < until) && self.rests_on.iter().all(same)
    }

    /// When it ends at the latest.
    pub fn until(&self) -> Option<DateTime<Utc>> {
        self.until
    }
}

/// Who is to be told of which change.
#[derive(Default)]
pub(super) struct GrantWatch(Mutex<BTreeMap<ResourceKey, BTreeMap<StreamId, Arc<Notify>>>>);

/// The place of one stream there, until it is dropped.
pub(super) struct Lookout {
    watch: Arc<GrantWatch>,
    stream: StreamId,
    keys: Vec<ResourceKey>,
    changed: Arc<Notify>,
}

impl GrantWatch {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceKey, BTreeMap<StreamId, Arc<Notify>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells `stream` from now on when something changes on which `grant` rests.
    pub(super) fn watch(self: &Arc<Self>, stream: StreamId, grant: &Grant) -> Lookout {
        let changed = Arc::new(Notify::new());
        let keys: Vec<ResourceKey> = grant.rests_on.iter().map(|(key, _)| key.clone()).collect();
        let mut streams = self.lock();
        for key in &keys {
            streams.entry(key.clone()).or_default().insert(stream, Arc::clone(&changed));
        }
        drop(streams);
        Lookout { watch: Arc::clone(self), stream, keys, changed }
    }

    /// Follows the index until `shutdown`.
    pub(super) async fn run(&self, mut index: IndexReader, shutdown: CancellationToken) {
        let mut seen = index.latest();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                more = index.changed() => if !more { return },
            }
            let newest = index.latest();
            let changed = newest.changed_since(&seen);
            let streams = self.lock();
            for stream in changed.iter().filter_map(|key| streams.get(key)).flat_map(BTreeMap::values) {
                stream.notify_one();
            }
            drop(streams);
            seen = newest;
        }
    }
}

impl Lookout {
    /// Waits until something may have changed on which the grant rests.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        let mut streams = self.watch.lock();
        for key in &self.keys {
            if let Some(of_key) = streams.get_mut(key) {
                of_key.remove(&self.stream);
                if of_key.is_empty() {
                    streams.remove(key);
                }
            }
        }
    }
}
