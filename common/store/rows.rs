//! What a batch does to rows: the rules every store shares, without IO.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Batch, Commit, CommitId, Fence, Precondition, Revision, StoreError, Write, history::PastChange};
use crate::model::{Resource, ResourceKey};

/// Resources by key, and who owns whom. The memory store keeps everything in one; a SQL store loads
/// what a group of batches may touch.
#[derive(Clone, Default)]
pub(super) struct Rows {
    by_key: BTreeMap<ResourceKey, Arc<Resource>>,
    owned: BTreeMap<ResourceKey, BTreeSet<ResourceKey>>,
}

/// The keys a batch changed, each with the row as it was before.
pub(super) type Before = BTreeMap<ResourceKey, Option<Arc<Resource>>>;

impl Rows {
    pub(super) fn get(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        self.by_key.get(key)
    }

    /// All rows in key order.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_key.values()
    }

    pub(super) fn insert(&mut self, row: Arc<Resource>) {
        self.set(&row.key.clone(), Some(row));
    }

    fn set(&mut self, key: &ResourceKey, row: Option<Arc<Resource>>) -> Option<Arc<Resource>> {
        if let Some(owner) = row.as_ref().and_then(|r| r.owner.clone()) {
            self.owned.entry(owner).or_default().insert(key.clone());
        }
        let owner = row.as_ref().and_then(|r| r.owner.clone());
        let before = match row {
            Some(row) => self.by_key.insert(key.clone(), row),
            None => self.by_key.remove(key),
        };
        if let Some(left) =
            before.as_ref().and_then(|r| r.owner.as_ref()).filter(|o| Some(*o) != owner.as_ref())
            && let Some(siblings) = self.owned.get_mut(left)
        {
            siblings.remove(key);
            if siblings.is_empty() {
                self.owned.remove(left);
            }
        }
        before
    }

    /// Applies the writes as revision `revision`, all or none, and says what was there of what changed.
    pub(super) fn apply(&mut self, writes: &[Write], revision: Revision) -> Result<Before, StoreError> {
        let mut before = Before::new();
        let outcome = writes.iter().try_for_each(|write| self.write(write, revision, &mut before));
        if outcome.is_ok() {
            // What ends as it began was never seen by anyone: it is not a change.
            let same: Vec<ResourceKey> = before
                .iter()
                .filter(|(key, was)| self.unchanged(key, was.as_deref()))
                .map(|(k, _)| k.clone())
                .collect();
            for key in same {
                let was = before.remove(&key).flatten();
                self.set(&key, was);
            }
            return Ok(before);
        }
        for (key, was) in before {
            self.set(&key, was);
        }
        outcome.map(|()| Before::new())
    }

    /// What the history keeps of a batch that was applied.
    pub(super) fn history<'a>(
        &'a self,
        revision: Revision,
        before: &'a Before,
        batch: &'a Batch,
    ) -> impl Iterator<Item = PastChange> + use<'a> {
        before.iter().filter_map(move |(key, was)| {
            PastChange::of(revision, key, (was.as_ref(), self.get(key)), &batch.author)
        })
    }

    fn unchanged(&self, key: &ResourceKey, was: Option<&Resource>) -> bool {
        match (was, self.get(key)) {
            (None, None) => true,
            (Some(was), Some(is)) => was.same_content(is),
            _ => false,
        }
    }

    fn write(&mut self, write: &Write, revision: Revision, before: &mut Before) -> Result<(), StoreError> {
        match write {
            Write::Put { resource, when } => {
                when.check(&resource.key, self.get(&resource.key).map(Arc::as_ref))?;
                self.put(Resource::clone(resource), revision, before);
            }
            Write::PutStatus { key, status, now } => {
                if let Some(existing) = self.get(key).filter(|r| r.status != *status) {
                    let mut changed = Resource::clone(existing);
                    changed.status.clone_from(status);
                    changed.modified = *now;
                    self.put(changed, revision, before);
                }
            }
            Write::Delete { key, when } => {
                when.check(key, self.get(key).map(Arc::as_ref))?;
                self.delete(key, before);
            }
        }
        Ok(())
    }

    fn put(&mut self, mut resource: Resource, revision: Revision, before: &mut Before) {
        if let Some(existing) = self.get(&resource.key) {
            if existing.same_content(&resource) {
                return;
            }
            resource.created = existing.created;
        }
        resource.revision = revision;
        self.replace(&resource.key.clone(), Some(Arc::new(resource)), before);
    }

    fn delete(&mut self, key: &ResourceKey, before: &mut Before) {
        let mut doomed = vec![key.clone()];
        while let Some(key) = doomed.pop() {
            if self.by_key.contains_key(&key) {
                self.replace(&key, None, before);
                doomed.extend(self.owned.get(&key).into_iter().flatten().cloned());
            }
        }
    }

    fn replace(&mut self, key: &ResourceKey, row: Option<Arc<Resource>>, before: &mut Before) {
        let was = self.set(key, row);
        before.entry(key.clone()).or_insert(was);
    }
}

impl Precondition {
    /// Whether `existing` allows a write under this condition.
    fn check(&self, key: &ResourceKey, existing: Option<&Resource>) -> Result<(), StoreError> {
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

impl Fence {
    /// Whether the lease, now at epoch `actual` (0 when nobody ever held it), lets this writer pass.
    pub(super) fn check(&self, actual: u64) -> Result<(), StoreError> {
        if actual == self.epoch {
            return Ok(());
        }
        Err(StoreError::Fenced { name: self.name.clone(), held: self.epoch, actual })
    }
}

/// One row of the change log.
pub(super) struct LogEntry {
    pub(super) revision: Revision,
    pub(super) key: ResourceKey,
    pub(super) deleted: bool,
}

impl LogEntry {
    /// The column `op`.
    pub(super) fn op(&self) -> &'static str {
        if self.deleted { "delete" } else { "put" }
    }
}

/// What a group of batches does, committed together.
pub(super) struct GroupCommit {
    /// One answer per batch, in order.
    pub(super) replies: Vec<Result<Commit, StoreError>>,
    /// Revision of the store after the group.
    pub(super) head: Revision,
    /// What makes its revisions, if it makes any.
    pub(super) commit: CommitId,
    /// Every change, in order.
    pub(super) log: Vec<LogEntry>,
    /// What the history keeps of them.
    pub(super) history: Vec<PastChange>,
}

impl GroupCommit {
    /// Judges each batch on its own, in order: a refused one leaves no trace, an accepted one that
    /// changes something takes the next revision. `leases` holds the epochs of the leases that fences
    /// name. `rows` is left as the group leaves it.
    pub(super) fn of(
        group: &[Batch],
        rows: &mut Rows,
        head: Revision,
        leases: &BTreeMap<String, u64>,
    ) -> Self {
        let mut verdict = Self {
            replies: Vec::with_capacity(group.len()),
            head,
            commit: CommitId::by_chance(),
            log: Vec::new(),
            history: Vec::new(),
        };
        for batch in group {
            let reply = verdict.judge(batch, rows, leases);
            verdict.replies.push(reply);
        }
        verdict
    }

    fn judge(
        &mut self,
        batch: &Batch,
        rows: &mut Rows,
        leases: &BTreeMap<String, u64>,
    ) -> Result<Commit, StoreError> {
        if let Some(fence) = &batch.fence {
            fence.check(leases.get(&fence.name).copied().unwrap_or(0))?;
        }
        let revision = self.head + 1;
        let before = rows.apply(&batch.writes, revision)?;
        self.history.extend(rows.history(revision, &before, batch));
        let changed: Vec<ResourceKey> = before.into_keys().collect();
        if !changed.is_empty() {
            self.head = revision;
            self.log.extend(changed.iter().map(|key| LogEntry {
                revision,
                key: key.clone(),
                deleted: rows.get(key).is_none(),
            }));
        }
        Ok(Commit { revision: self.head, changed })
    }

    /// The keys whose row the group changed, split into what is left of them and what is gone.
    pub(super) fn outcome<'a>(&'a self, rows: &'a Rows) -> (Vec<&'a Resource>, Vec<&'a ResourceKey>) {
        let keys: BTreeSet<&ResourceKey> = self.log.iter().map(|entry| &entry.key).collect();
        let mut kept = Vec::new();
        let mut gone = Vec::new();
        for key in keys {
            match rows.get(key) {
                Some(row) => kept.push(row.as_ref()),
                None => gone.push(key),
            }
        }
        (kept, gone)
    }
}
