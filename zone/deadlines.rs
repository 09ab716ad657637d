//! What is due when. Each thing has one time, and however many there are, neither that of one nor the next of all is
//! looked for among the rest: strangers may make many.

use std::collections::{BTreeMap, BTreeSet};

/// Times by thing, and things by time.
#[derive(Debug)]
pub(crate) struct Deadlines<K, T> {
    by_time: BTreeSet<(T, K)>,
    by_key: BTreeMap<K, T>,
}

impl<K, T> Default for Deadlines<K, T> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, T: Ord + Copy> Deadlines<K, T> {
    /// This is due then, and at no other time.
    pub(crate) fn set(&mut self, key: K, at: T) {
        self.remove(&key);
        self.by_time.insert((at, key.clone()));
        self.by_key.insert(key, at);
    }

    /// This is due then; `None`: at no time.
    pub(crate) fn note(&mut self, key: &K, at: Option<T>) {
        match at {
            Some(at) => self.set(key.clone(), at),
            None => self.remove(key),
        }
    }

    /// Whether this is due at some time.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// This is not due any more.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    /// Takes out what is due by `now`, in order of time.
    pub(crate) fn take(&mut self, now: T) -> Vec<K> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.by_time.pop_first() else { break };
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<T> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_due_once_at_the_time_that_was_said_last() {
        let mut deadlines = Deadlines::default();
        for (key, at) in [("a", 5), ("b", 3), ("a", 1), ("c", 2)] {
            deadlines.set(key, at);
        }
        deadlines.remove(&"c");
        deadlines.remove(&"d");
        assert_eq!(deadlines.next(), Some(1));
        assert!(deadlines.has(&"a") && !deadlines.has(&"c"));
        assert_eq!(deadlines.take(0), [""; 0]);
        assert_eq!(deadlines.take(4), ["a", "b"]);
        assert_eq!((deadlines.next(), deadlines.take(9)), (None, vec![]));
    }
}
