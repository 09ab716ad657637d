//! Resources by the revision with which each was last written.

use std::{
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use imbl::OrdMap;

use super::{Revision, index::Index};
use crate::model::{Resource, ResourceKey};

/// They at the index somebody last asked about, once somebody has. Those of another index are made of them at the cost of
/// what differs.
#[derive(Debug, Default)]
pub struct LastWritten(Mutex<Option<(Index, ByRevision)>>);

impl LastWritten {
    /// Those of `index`.
    pub fn at(&self, index: &Index) -> ByRevision {
        // They are replaced whole, so a panic while holding the lock leaves the last ones intact.
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match place.take() {
            Some((at, written)) if at.store == index.store => match at.point() == index.point() {
                true => written,
                false => written.moved(&at, index),
            },
            _ => ByRevision::default().moved(&Index::empty(index.store), index),
        };
        let (_, written) = place.insert((index.clone(), next));
        written.clone()
    }
}

/// All resources of one index in the order in which they were written. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct ByRevision(OrdMap<(Revision, Option<ResourceKey>), Arc<Resource>>);

impl ByRevision {
    /// Those that were written after one revision and not after another.
    pub fn between(&self, after: Revision, until: Revision) -> impl Iterator<Item = &Arc<Resource>> {
        // No key is less than any.
        let from = (after.saturating_add(1), None);
        let later = self.0.range((Bound::Included(from), Bound::Unbounded));
        later
            .take_while(move |((revision, _), _)| *revision > after && *revision <= until)
            .map(|(_, one)| one)
    }

    fn moved(mut self, from: &Index, to: &Index) -> Self {
        for key in to.changed_since(from) {
            if let Some(old) = from.get(&key) {
                self.0.remove(&(old.revision, Some(key.clone())));
            }
            if let Some(new) = to.get(&key) {
                self.0.insert((new.revision, Some(key)), Arc::clone(new));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::{
        policy::mesh_timeout,
        store::{Change, StoreIdentity},
    };

    fn names(
        index: &Index,
        written: &ByRevision,
        after: Revision,
        until: Revision,
    ) -> (Vec<String>, Vec<String>) {
        let is_between = |one: &&Arc<Resource>| one.revision > after && one.revision <= until;
        let mut expected: Vec<&Arc<Resource>> = index.iter().filter(is_between).collect();
        expected.sort_by_key(|one| (one.revision, one.key.clone()));
        let shown = |one: &Arc<Resource>| format!("{} {}", one.revision, one.key);
        (written.between(after, until).map(shown).collect(), expected.into_iter().map(shown).collect())
    }

    proptest! {
        #[test]
        fn they_are_those_of_the_index_wherever_it_goes(
            steps in proptest::collection::vec((0..6usize, any::<bool>(), any::<bool>()), 0..30),
            (after, until) in (0..30u64, 0..30u64),
        ) {
            let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
            let (written, mut seen) = (LastWritten::default(), vec![index.clone()]);
            for (name, is_there, is_asked) in steps {
                let (revision, key) = (index.revision + 1, ResourceKey::new(&mesh_timeout::KIND, "m", &format!("t{name}")));
                let resource = Resource { revision, ..Resource::new(key.clone(), DateTime::UNIX_EPOCH) };
                index.apply(&Change { revision, key, resource: is_there.then(|| Arc::new(resource)) });
                seen.push(index.clone());
                if is_asked {
                    let (found, expected) = names(&index, &written.at(&index), after, until);
                    prop_assert_eq!(found, expected);
                }
            }
            // Also of one that is older than the last.
            for index in seen {
                let (found, expected) = names(&index, &written.at(&index), after, until);
                prop_assert_eq!(found, expected);
            }
        }
    }
}
