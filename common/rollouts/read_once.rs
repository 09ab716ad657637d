//! What was read of resources: each is read once, and again when it was written.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{Kind, Resource},
    store::index::Index,
};

/// What was read of all resources of one kind that is in no mesh, by name. A resource in an index never changes, so the
/// same one means the same.
#[derive(Debug)]
pub(super) struct ReadOnce<T>(Arc<BTreeMap<Arc<str>, SeenResource<T>>>);

#[derive(Debug)]
struct SeenResource<T> {
    stored: Arc<Resource>,
    read: Arc<T>,
}

impl<T> Clone for SeenResource<T> {
    fn clone(&self) -> Self {
        Self { stored: Arc::clone(&self.stored), read: Arc::clone(&self.read) }
    }
}

impl<T> Clone for ReadOnce<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for ReadOnce<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> ReadOnce<T> {
    /// The same of another index: `read` gets what was written since, with what was read of it before.
    pub(super) fn moved_to(
        &self,
        index: &Index,
        kind: &Kind,
        read: impl Fn(&Arc<Resource>, Option<&T>) -> T,
    ) -> Self {
        // Both are in the order of names.
        let mut pairs = index.list(kind).zip(self.0.values());
        if index.count(kind) == self.0.len() && pairs.all(|(is, seen)| Arc::ptr_eq(is, &seen.stored)) {
            return self.clone();
        }
        let seen = index.list(kind).map(|stored| {
            let name = Arc::clone(&stored.key.name);
            let seen = match self.0.get(&name) {
                Some(seen) if Arc::ptr_eq(&seen.stored, stored) => seen.clone(),
                former => {
                    let read = Arc::new(read(stored, former.map(|former| &*former.read)));
                    SeenResource { stored: Arc::clone(stored), read }
                }
            };
            (name, seen)
        });
        Self(Arc::new(seen.collect()))
    }

    /// Whether nothing was written in between.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// All of them, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.0.iter().map(|(name, seen)| (name, &*seen.read))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::RefCell;

    use chrono::DateTime;
    use uuid::Uuid;

    use super::*;
    use crate::{
        model::{ResourceKey, kinds::rollout::KIND},
        store::{Change, StoreIdentity},
    };

    #[test]
    fn what_was_not_written_is_not_read_again() {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let put = |index: &mut Index, name: &str, is_there: bool| {
            let key = ResourceKey::global(&KIND, name);
            let resource = is_there.then(|| Arc::new(Resource::new(key.clone(), DateTime::UNIX_EPOCH)));
            index.apply(&Change { revision: index.revision + 1, key, resource });
        };
        let read = RefCell::new(Vec::new());
        let mut seen = ReadOnce::default();
        let mut look = |index: &Index| {
            seen = seen.moved_to(index, &KIND, |stored, former: Option<&usize>| {
                read.borrow_mut().push(stored.name().to_owned());
                former.copied().unwrap_or_default() + 1
            });
            let times: Vec<usize> = seen.iter().map(|(_, times)| *times).collect();
            (std::mem::take(&mut *read.borrow_mut()), times)
        };
        for name in ["a", "b", "c"] {
            put(&mut index, name, true);
        }
        assert_eq!(look(&index).0, ["a", "b", "c"]);
        assert_eq!(look(&index).0, Vec::<String>::new());
        put(&mut index, "b", true);
        assert_eq!(look(&index), (vec!["b".to_owned()], vec![1, 2, 1]));
        // As many as before, and others.
        put(&mut index, "a", false);
        put(&mut index, "d", true);
        assert_eq!(look(&index), (vec!["d".to_owned()], vec![2, 1, 1]));
        put(&mut index, "c", false);
        assert_eq!(look(&index), (Vec::new(), vec![2, 1]));
    }
}
