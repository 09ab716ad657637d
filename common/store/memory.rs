//! A store that forgets: for tests and simulation. Deterministic, no clock but tokio's.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::watch, time::Instant};
use uuid::Uuid;

use super::{
    Batch, Change, Changes, Commit, Lease, Precondition, Revision, Snapshot, Store, StoreError,
    StoreIdentity, Write,
};
use crate::model::{Resource, ResourceKey};

/// Changes kept for [`Store::changes_since`] by default.
const RETAINED: usize = 100_000;

/// The store. Cheap to share as `Arc<MemoryStore>`.
pub struct MemoryStore {
    identity: StoreIdentity,
    retained: usize,
    state: Mutex<State>,
    head: watch::Sender<Revision>,
}

#[derive(Default)]
struct State {
    revision: Revision,
    resources: BTreeMap<ResourceKey, Arc<Resource>>,
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
        Self { identity, retained, state: Mutex::default(), head: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A batch touches the state only once it is complete, so a panic elsewhere cannot tear it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uncommitted effect of one batch over the committed state.
struct Transaction<'a> {
    base: &'a BTreeMap<ResourceKey, Arc<Resource>>,
    written: BTreeMap<ResourceKey, Option<Arc<Resource>>>,
    revision: Revision,
}

impl Transaction<'_> {
    fn get(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        match self.written.get(key) {
            Some(written) => written.as_ref(),
            None => self.base.get(key),
        }
    }

    fn apply(&mut self, write: Write) -> Result<(), StoreError> {
        match write {
            Write::Put { resource, when } => {
                when.check(&resource.key, self.get(&resource.key).map(Arc::as_ref))?;
                self.put(*resource);
            }
            Write::PutStatus { key, status, now } => {
                if let Some(existing) = self.get(&key).filter(|r| r.status != status) {
                    let mut changed = Resource::clone(existing);
                    changed.status = status;
                    changed.modified = now;
                    self.put(changed);
                }
            }
            Write::Delete { key, when } => {
                when.check(&key, self.get(&key).map(Arc::as_ref))?;
                self.delete(&key);
            }
        }
        Ok(())
    }

    fn put(&mut self, mut resource: Resource) {
        if let Some(existing) = self.get(&resource.key) {
            if existing.same_content(&resource) {
                return;
            }
            resource.created = existing.created;
        }
        resource.revision = self.revision;
        self.written.insert(resource.key.clone(), Some(Arc::new(resource)));
    }

    fn delete(&mut self, key: &ResourceKey) {
        if self.get(key).is_none() {
            return;
        }
        self.written.insert(key.clone(), None);
        let keys = self.base.keys().chain(self.written.keys());
        let owned: Vec<ResourceKey> =
            keys.filter(|k| self.get(k).is_some_and(|r| r.owner.as_ref() == Some(key))).cloned().collect();
        for key in owned {
            self.delete(&key);
        }
    }
}

impl State {
    fn check_fence(&self, batch: &Batch) -> Result<(), StoreError> {
        let Some(fence) = &batch.fence else { return Ok(()) };
        let actual = self.leases.get(&fence.name).map_or(0, |held| held.lease.epoch);
        if actual == fence.epoch {
            return Ok(());
        }
        Err(StoreError::Fenced { name: fence.name.clone(), held: fence.epoch, actual })
    }

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

impl Precondition {
    /// Whether `existing` allows a write under this condition.
    pub(super) fn check(&self, key: &ResourceKey, existing: Option<&Resource>) -> Result<(), StoreError> {
        match (self, existing) {
            (Self::Absent, Some(_)) => Err(StoreError::AlreadyExists { key: key.clone() }),
            (Self::Exists | Self::At(_), None) => Err(StoreError::NotFound { key: key.clone() }),
            (Self::At(expected), Some(r)) if r.revision != *expected => {
                Err(StoreError::Conflict { key: key.clone(), expected: *expected, actual: r.revision })
            }
            (Self::OwnedBy(writer), Some(r)) if r.origin != *writer => Err(StoreError::ForeignOrigin {
                key: key.clone(),
                owner: r.origin.clone(),
                writer: writer.clone(),
            }),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn identity(&self) -> StoreIdentity {
        self.identity
    }

    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        let mut state = self.lock();
        state.check_fence(&batch)?;
        let revision = state.revision + 1;
        let mut transaction = Transaction { base: &state.resources, written: BTreeMap::new(), revision };
        for write in batch.writes {
            transaction.apply(write)?;
        }
        let mut written = transaction.written;
        // Created and deleted within one batch: nobody ever saw it.
        written.retain(|key, resource| resource.is_some() || state.resources.contains_key(key));
        if written.is_empty() {
            return Ok(Commit { revision: state.revision, changed: Vec::new() });
        }
        let changed: Vec<ResourceKey> = written.keys().cloned().collect();
        for (key, resource) in written {
            match &resource {
                Some(resource) => state.resources.insert(key.clone(), Arc::clone(resource)),
                None => state.resources.remove(&key),
            };
            state.changes.push_back(Change { revision, key, resource });
        }
        state.revision = revision;
        state.trim(self.retained);
        drop(state);
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
            if taken.len() >= limit && !in_batch {
                break;
            }
            taken.push(change.clone());
        }
        Ok(Changes::Since(taken))
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = self.lock();
        Ok(Snapshot { revision: state.revision, resources: state.resources.values().cloned().collect() })
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
}
