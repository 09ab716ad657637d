//! A store that forgets: for tests and simulation. Deterministic, no clock but tokio's.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::watch, time::Instant};
use uuid::Uuid;

use crate::model::{Resource, ResourceKey};

use super::{
    Batch, Change, Changes, Commit, CommitId, Lease, Nudge, Nudges, Point, RETAINED, Revision, Snapshot,
    Store, StoreError, StoreIdentity,
    history::{Author, HistoryLimits, HistoryQuery, PastChange, PastChanges},
    nudge,
    rows::Rows,
    shares::{Amount, HistoryShare, HistoryShares},
};

/// Numbers of commits, over all stores of the process.
static COMMITS: AtomicI64 = AtomicI64::new(1);

/// The store. Cheap to share as `Arc<MemoryStore>`.
pub struct MemoryStore {
    identity: StoreIdentity,
    retained: usize,
    state: Mutex<MemoryState>,
    head: watch::Sender<Revision>,
    nudges: watch::Sender<Nudges>,
}

#[derive(Clone, Default)]
struct MemoryState {
    revision: Revision,
    rows: Rows,
    /// Without what became of them: that is in the rows.
    changes: VecDeque<(Revision, ResourceKey)>,
    /// Which commit made each revision that `changes` reach back to.
    commits: BTreeMap<Revision, CommitId>,
    /// Oldest first, of whole batches.
    history: VecDeque<PastChange>,
    floor: Revision,
    leases: BTreeMap<String, HeldLease>,
    sessions: BTreeMap<String, String>,
}

#[derive(Clone)]
struct HeldLease {
    lease: Lease,
    until: Instant,
}

impl MemoryStore {
    /// An empty store with this identity (given, so that a simulation is repeatable).
    pub fn new(store_id: Uuid) -> Self {
        Self::with_retention(store_id, RETAINED)
    }

    /// An empty store that remembers at most about `retained` changes.
    pub fn with_retention(store_id: Uuid, retained: usize) -> Self {
        let identity = StoreIdentity { store_id, epoch: 1 };
        let (head, nudges) = (watch::Sender::new(0), watch::Sender::default());
        Self { identity, retained, state: Mutex::default(), head, nudges }
    }

    /// A store that has what this one has now, and goes on by itself.
    pub fn copy(&self) -> Self {
        let state = self.lock().clone();
        let head = watch::Sender::new(state.revision);
        let (identity, retained) = (self.identity, self.retained);
        Self { identity, retained, state: Mutex::new(state), head, nudges: watch::Sender::default() }
    }

    /// Has what `earlier` has, as a database under whose address a standby took over that was behind.
    pub fn go_back_to(&self, earlier: &Self) {
        let state = earlier.lock().clone();
        let mut now = self.lock();
        *now = state;
        self.head.send_replace(now.revision);
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // A batch applies whole or undoes itself, and nothing in between can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    /// Drops the oldest whole batches of the history beyond these numbers, of each share by itself.
    fn forget(&mut self, limits: &HistoryLimits) -> u64 {
        let weight =
            |change: &PastChange| change.before.as_ref().map_or(0, |before| before.spec.len() as u64);
        let before = self.history.len();
        let mut held = HistoryShares::default();
        for change in &self.history {
            held.add(&change.author.to_string(), 1, weight(change));
        }
        for (share, most) in held.excessive(limits) {
            let is_of = |change: &PastChange| HistoryShare::of(&change.author.to_string()) == share;
            let mut stays = Amount::default();
            let gone = self.history.iter().rev().filter(|change| is_of(change)).find(|change| {
                stays.add(1, weight(change));
                stays.exceeds(most)
            });
            if let Some(last) = gone.map(|change| change.revision) {
                self.history.retain(|change| change.revision > last || !is_of(change));
                self.floor = self.floor.max(last);
            }
        }
        (before - self.history.len()) as u64
    }

    /// Drops the oldest whole batches beyond `retained` entries, never the newest batch.
    fn trim(&mut self, retained: usize) {
        while self.changes.len() > retained {
            let (Some(oldest), Some(newest)) = (self.changes.front(), self.changes.back()) else { return };
            let oldest = oldest.0;
            if oldest == newest.0 {
                return;
            }
            while self.changes.front().is_some_and(|(revision, _)| *revision == oldest) {
                self.changes.pop_front();
            }
            while self.commits.first_key_value().is_some_and(|(revision, _)| *revision < oldest) {
                self.commits.pop_first();
            }
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn identity(&self) -> StoreIdentity {
        self.identity
    }

    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(fence) = &batch.fence {
            fence.check(state.leases.get(&fence.name).map_or(0, |held| held.lease.epoch))?;
        }
        let revision = state.revision + 1;
        let before = state.rows.apply(&batch.writes, revision)?;
        state.history.extend(state.rows.history(revision, &before, &batch));
        let changed: Vec<ResourceKey> = before.into_keys().collect();
        if changed.is_empty() {
            return Ok(Commit { revision: state.revision, changed });
        }
        state.changes.extend(changed.iter().map(|key| (revision, key.clone())));
        state.revision = revision;
        state.commits.insert(revision, CommitId::from_column(COMMITS.fetch_add(1, Ordering::Relaxed)));
        state.trim(self.retained);
        // Twice as much, because to look takes as long as there is.
        if state.history.len() / 2 > self.retained {
            let changes = self.retained as u64;
            state.forget(&HistoryLimits { age: Duration::MAX, changes, bytes: u64::MAX });
        }
        // Sent under the lock, so that the head never seems to go back.
        self.head.send_replace(revision);
        Ok(Commit { revision, changed })
    }

    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        let state = self.lock();
        let oldest = state.changes.front().map_or(state.revision, |(revision, _)| revision - 1);
        if after.revision < oldest {
            return Ok(Changes::Resync);
        }
        let commit_of = |revision| state.commits.get(&revision).copied();
        if after.revision > state.revision || !after.is_where(commit_of(after.revision)) {
            return Ok(Changes::Parted);
        }
        let start = state.changes.partition_point(|(revision, _)| *revision <= after.revision);
        let mut taken: Vec<Change> = Vec::new();
        for (revision, key) in state.changes.range(start..) {
            let in_batch = taken.last().is_some_and(|last| last.revision == *revision);
            if taken.len() >= limit.max(1) && !in_batch {
                break;
            }
            let resource = state.rows.get(key).cloned();
            taken.push(Change { revision: *revision, key: key.clone(), resource });
        }
        let whole = start + taken.len() == state.changes.len();
        let upto = taken.last().filter(|_| !whole).map_or(state.revision, |last| last.revision);
        let upto = Point { revision: upto, commit: commit_of(upto) };
        Ok(Changes::Since { changes: taken, upto, head: state.revision })
    }

    async fn history(&self, query: &HistoryQuery) -> Result<PastChanges, StoreError> {
        let state = self.lock();
        let asked = state.history.iter().filter(|change| query.asks_for(change));
        let mut changes: Vec<PastChange> = asked.cloned().collect();
        if !query.oldest_first {
            // Stable: within a revision the order of keys stays.
            changes.sort_by_key(|change| Reverse(change.revision));
        }
        changes.truncate(query.limit);
        if !query.contents {
            changes.iter_mut().for_each(|change| change.before = None);
        }
        for change in &mut changes {
            change.author = Author::Recorded(change.author.to_string().into());
            change.before = change.before.take().map(|before| match before.status {
                None => before,
                Some(_) => Arc::new(Resource { status: None, ..Resource::clone(&before) }),
            });
        }
        let oldest = state.history.iter().find(|change| change.author.is_operator());
        let users_floor = PastChanges::users_floor(state.floor, oldest.map(|change| change.revision));
        Ok(PastChanges { floor: state.floor, users_floor, changes })
    }

    async fn compact_history(&self, limits: &HistoryLimits) -> Result<u64, StoreError> {
        // Nothing here outlives the process, and there is no clock to tell how old something is.
        Ok(self.lock().forget(limits))
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = self.lock();
        let commit = state.commits.get(&state.revision).copied();
        Ok(Snapshot { revision: state.revision, commit, resources: state.rows.values().cloned().collect() })
    }

    fn watch_head(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        steal: bool,
    ) -> Result<Option<Lease>, StoreError> {
        let mut state = self.lock();
        let now = Instant::now();
        let epoch = match state.leases.get(name) {
            None => 1,
            Some(held) if steal || held.until <= now => held.lease.epoch + 1,
            Some(held) if held.lease.holder == holder => held.lease.epoch,
            Some(_) => return Ok(None),
        };
        let lease = Lease { name: name.to_owned(), holder: holder.to_owned(), epoch };
        state.leases.insert(name.to_owned(), HeldLease { lease: lease.clone(), until: now + ttl });
        Ok(Some(lease))
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let mut state = self.lock();
        if let Some(held) = state.leases.get_mut(&lease.name).filter(|h| h.lease == *lease) {
            // The epoch stays, so that the next holder gets a higher one.
            held.until = Instant::now();
        }
        Ok(())
    }

    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        let mut state = self.lock();
        for (key, document) in rows {
            match document {
                Some(document) => state.sessions.insert(key, document),
                None => state.sessions.remove(&key),
            };
        }
        Ok(())
    }

    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        let mut state = self.lock();
        let there = state.sessions.entry(key.to_owned()).or_insert_with(|| document.to_owned());
        if instead_of == Some(there.as_str()) {
            document.clone_into(there);
        }
        Ok(there.clone())
    }

    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let state = self.lock();
        let from = state.sessions.range(prefix.to_owned()..);
        let matching = from.take_while(|(key, _)| key.starts_with(prefix));
        Ok(matching.map(|(key, document)| (key.clone(), document.clone())).collect())
    }

    async fn nudge(&self, nudge: Nudge) -> Result<(), StoreError> {
        nudge::note(&self.nudges, [nudge]);
        Ok(())
    }

    fn nudged(&self) -> watch::Receiver<Nudges> {
        self.nudges.subscribe()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;
    use crate::{model::kinds, store::Write};

    #[tokio::test]
    async fn the_log_of_changes_keeps_nothing_of_what_was_replaced() {
        let store = MemoryStore::new(Uuid::nil());
        let key = ResourceKey::new(&kinds::dataplane::KIND, "default", "web-1");
        let put = async |byte: u8| {
            let resource = Resource::new(key.clone(), DateTime::UNIX_EPOCH).with_spec(vec![byte; 1_000]);
            store.transact(Batch::of([Write::put(resource)])).await.unwrap();
        };
        put(1).await;
        let replaced = Arc::downgrade(&store.snapshot().await.unwrap().resources[0]);
        put(2).await;
        assert!(replaced.upgrade().is_none());
        let Changes::Since { changes, .. } = store.changes_since(0.into(), 10).await.unwrap() else {
            panic!()
        };
        let told: Vec<_> =
            changes.iter().map(|c| (c.revision, c.resource.as_ref().unwrap().spec[0])).collect();
        assert_eq!(told, [(1, 2), (2, 2)], "each change, with the resource as it is");
    }
}
