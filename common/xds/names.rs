//! The names a peer asks for. Peers with the same configuration ask for the same thousands of names, so a
//! list is kept once, and what a peer changes in it is noted beside it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::interner::Interner;

/// Changes that are noted beside a list before a new one is made of both.
const NOTED: usize = 16;

/// Sorted names in two allocations.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct NameList {
    text: Box<str>,
    /// Where each name ends.
    ends: Box<[u32]>,
}

impl NameList {
    fn of_sorted<'a>(names: &[&'a str]) -> Self {
        let text: String = names.iter().copied().collect();
        let end = |at: &mut usize, name: &&'a str| {
            *at += name.len();
            // A message that is longer than this is never read.
            Some(u32::try_from(*at).expect("the names of one request fit into 4 GiB"))
        };
        let ends = names.iter().scan(0, end).collect();
        Self { text: text.into(), ends }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn at(&self, i: usize) -> &str {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[i] as usize]
    }

    fn contains(&self, name: &str) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).cmp(name) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.at(i))
    }
}

/// A set of names: a list that others may share, and what differs from it.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    list: Arc<NameList>,
    added: BTreeSet<Arc<str>>,
    removed: BTreeSet<Arc<str>>,
    bytes: usize,
    /// Whether others may share the list.
    pooled: bool,
}

impl NameSet {
    /// Whether `name` is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.added.contains(name) || (self.list.contains(name) && !self.removed.contains(name))
    }

    /// All of them, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let listed = self.list.iter().filter(|name| self.removed.is_empty() || !self.removed.contains(*name));
        listed.chain(self.added.iter().map(|name| &**name))
    }

    /// All of them in order, where they are kept so.
    pub(super) fn in_order(&self) -> Option<impl Iterator<Item = &str>> {
        self.added.is_empty().then(|| self.iter())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len() - self.removed.len() + self.added.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, name: &str) -> bool {
        let is_new =
            self.removed.remove(name) || (!self.list.contains(name) && self.added.insert(Arc::from(name)));
        if is_new {
            self.bytes += name.len();
        }
        is_new
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        let was_there =
            self.added.remove(name) || (self.list.contains(name) && self.removed.insert(Arc::from(name)));
        if was_there {
            self.bytes -= name.len();
        }
        was_there
    }

    /// Makes one list of everything when that takes less than the notes beside it.
    pub(super) fn share(&mut self, pool: &NamePool) {
        let noted = self.added.len() + self.removed.len();
        if noted > NOTED + self.list.len() / 8 {
            *self = Self::from_iter(self.iter());
        }
        if !std::mem::replace(&mut self.pooled, true) {
            self.list = pool.shared(Arc::clone(&self.list));
        }
    }
}

impl<'a> FromIterator<&'a str> for NameSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let list = NameList::of_sorted(&names);
        Self { bytes: list.text.len(), list: Arc::new(list), ..Self::default() }
    }
}

/// The lists of all peers of one server. A list is kept for as long as a peer has it.
#[derive(Debug, Default)]
pub struct NamePool(Mutex<Interner<NameList>>);

impl NamePool {
    /// The list that others have already, if it is the same.
    fn shared(&self, list: Arc<NameList>) -> Arc<NameList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).shared(list)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::{NamePool, NameSet};

    proptest! {
        #[test]
        fn a_set_is_a_set_however_it_is_kept(
            listed in vec("[a-c]{0,3}", 0..40), steps in vec((any::<bool>(), any::<bool>(), "[a-c]{0,3}"), 0..80),
        ) {
            let pool = NamePool::default();
            let mut model: BTreeSet<String> = listed.iter().cloned().collect();
            let mut names = NameSet::from_iter(listed.iter().map(String::as_str));
            for (insert, share, name) in &steps {
                if *insert {
                    prop_assert_eq!(names.insert(name), model.insert(name.clone()));
                } else {
                    prop_assert_eq!(names.remove(name), model.remove(name));
                }
                if *share {
                    names.share(&pool);
                }
                prop_assert_eq!(names.contains(name), model.contains(name));
                prop_assert_eq!(names.len(), model.len());
                prop_assert_eq!(names.bytes(), model.iter().map(String::len).sum::<usize>());
                let all: BTreeSet<String> = names.iter().map(str::to_owned).collect();
                prop_assert_eq!(&all, &model);
            }
        }
    }

    #[test]
    fn peers_that_ask_for_the_same_share_the_list() {
        let pool = NamePool::default();
        let ask = |names: &[&str]| {
            let mut names = NameSet::from_iter(names.iter().copied());
            names.share(&pool);
            names
        };
        let (one, two, other) = (ask(&["a", "b"]), ask(&["b", "a", "b"]), ask(&["a", "c"]));
        assert!(std::sync::Arc::ptr_eq(&one.list, &two.list));
        assert!(!std::sync::Arc::ptr_eq(&one.list, &other.list));
        drop((one, two));
        assert_eq!(pool.0.lock().map(|lists| lists.in_use()).ok(), Some(1));
    }
}
