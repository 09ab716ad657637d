//! A store that forgets: for tests and simulation. Deterministic, no clock but tokio's.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::watch, time::Instant};
use uuid::Uuid;

use super::{
    Batch, Change, Changes, Commit, Lease, Nudge, Nudges, RETAINED, Revision, Snapshot, Store, StoreError,
    StoreIdentity, nudge, rows::Rows,
};

/// The store. Cheap to share as `Arc<MemoryStore>`.
pub struct MemoryStore {
    identity: StoreIdentity,
    retained: usize,
    state: Mutex<MemoryState>,
    head: watch::Sender<Revision>,
    nudges: watch::Sender<Nudges>,
}

#[derive(Default)]
struct MemoryState {
    revision: Revision,
    rows: Rows,
    changes: VecDeque<Change>,
    leases: BTreeMap<String, HeldLease>,
    sessions: BTreeMap<String, String>,
}

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

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // A batch applies whole or undoes itself, and nothing in between can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    /// Drops the oldest whole batches beyond `retained` entries, never the newest batch.
    fn trim(&mut self, retained: usize) {
        while self.changes.len() > retained {
            let (Some(oldest), Some(newest)) = (self.changes.front(), self.changes.back()) else { return };
            let oldest = oldest.revision;
            if oldest == newest.revision {
                return;
            }
            while self.changes.front().is_some_and(|c| c.revision == oldest) {
                self.changes.pop_front();
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
        let changed = state.rows.apply(&batch.writes, revision)?;
        if changed.is_empty() {
            return Ok(Commit { revision: state.revision, changed });
        }
        for key in &changed {
            let resource = state.rows.get(key).cloned();
            state.changes.push_back(Change { revision, key: key.clone(), resource });
        }
        state.revision = revision;
        state.trim(self.retained);
        // Sent under the lock, so that the head never seems to go back.
        self.head.send_replace(revision);
        Ok(Commit { revision, changed })
    }

    async fn changes_since(&self, revision: Revision, limit: usize) -> Result<Changes, StoreError> {
        let state = self.lock();
        let oldest = state.changes.front().map_or(state.revision, |c| c.revision - 1);
        if revision > state.revision || revision < oldest {
            return Ok(Changes::Resync);
        }
        let start = state.changes.partition_point(|c| c.revision <= revision);
        let mut taken: Vec<Change> = Vec::new();
        for change in state.changes.range(start..) {
            let in_batch = taken.last().is_some_and(|last| last.revision == change.revision);
            if taken.len() >= limit.max(1) && !in_batch {
                break;
            }
            taken.push(change.clone());
        }
        let whole = start + taken.len() == state.changes.len();
        let upto = taken.last().filter(|_| !whole).map_or(state.revision, |last| last.revision);
        Ok(Changes::Since { changes: taken, upto })
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = self.lock();
        Ok(Snapshot { revision: state.revision, resources: state.rows.values().cloned().collect() })
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
