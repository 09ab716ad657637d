//! The newest entries, to be searched. When there is no more room the oldest goes, and of who has more than his share his
//! own oldest, so that nobody crowds out the others.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::AuditEntry;

/// So many entries.
#[derive(Debug)]
pub(super) struct KeptEntries {
    most: usize,
    /// Of one user, once there is no more room.
    share: usize,
    next: u64,
    entries: BTreeMap<u64, AuditEntry>,
    /// The numbers of each user's, in order.
    by_user: HashMap<String, VecDeque<u64>>,
}

impl KeptEntries {
    /// At most so many, and this many of each user where there is no room for more.
    pub(super) fn new(most: usize, share: usize) -> Self {
        Self { most, share, next: 0, entries: BTreeMap::new(), by_user: HashMap::new() }
    }

    /// Adds the newest.
    pub(super) fn push(&mut self, entry: AuditEntry) {
        if self.entries.len() >= self.most {
            let own = self.by_user.get(&entry.user).filter(|own| own.len() >= self.share);
            let oldest = own.and_then(|own| own.front()).or_else(|| self.entries.keys().next());
            if let Some(oldest) = oldest.copied() {
                self.forget(oldest);
            }
        }
        let number = self.next;
        self.next += 1;
        match self.by_user.get_mut(&entry.user) {
            Some(own) => own.push_back(number),
            None => {
                self.by_user.insert(entry.user.clone(), [number].into());
            }
        }
        self.entries.insert(number, entry);
    }

    fn forget(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        // The oldest of all is the oldest of its user.
        if let Some(own) = self.by_user.get_mut(&entry.user) {
            own.pop_front();
            if own.is_empty() {
                self.by_user.remove(&entry.user);
            }
        }
    }

    /// The newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &AuditEntry> {
        self.entries.values().rev()
    }
}
