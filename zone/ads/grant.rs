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
use tokio_util::sync::CancellationToken;

use super::{
    proxies::StreamId,
    signals::{Signal, StreamSignals},
};

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
pub(super) struct GrantWatch(Mutex<BTreeMap<ResourceKey, BTreeMap<StreamId, Arc<StreamSignals>>>>);

/// The place of one stream there, until it is dropped.
pub(super) struct Lookout {
    watch: Arc<GrantWatch>,
    stream: StreamId,
    keys: Vec<ResourceKey>,
    signals: Arc<StreamSignals>,
}

impl GrantWatch {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceKey, BTreeMap<StreamId, Arc<StreamSignals>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes `stream` from now on when something changes on which `grant` rests.
    pub(super) fn watch(
        self: &Arc<Self>,
        stream: StreamId,
        grant: &Grant,
        signals: &Arc<StreamSignals>,
    ) -> Lookout {
        let (watch, signals) = (Arc::clone(self), Arc::clone(signals));
        let mut lookout = Lookout { watch, stream, keys: Vec::new(), signals };
        lookout.follow(grant);
        lookout
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
                stream.raise(Signal::Grant);
            }
            drop(streams);
            seen = newest;
        }
    }
}

impl Lookout {
    /// From now on it is about `grant`. What changed before that is not told.
    pub(super) fn follow(&mut self, grant: &Grant) {
        let rests_on = grant.rests_on.iter().map(|(key, _)| key);
        if rests_on.clone().eq(&self.keys) {
            return;
        }
        self.leave();
        self.keys = rests_on.cloned().collect();
        let mut streams = self.watch.lock();
        for key in &self.keys {
            streams.entry(key.clone()).or_default().insert(self.stream, Arc::clone(&self.signals));
        }
    }

    fn leave(&self) {
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

impl Drop for Lookout {
    fn drop(&mut self) {
        self.leave();
    }
}
