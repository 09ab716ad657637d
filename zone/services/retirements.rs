//! When services and workloads go that nobody stands behind any more.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use common::model::ResourceKey;

/// What goes, and when. Cost follows what is asked for, not how much goes.
#[derive(Debug, Default)]
pub(super) struct Retirements {
    in_order: BTreeSet<(DateTime<Utc>, ResourceKey)>,
    of: BTreeMap<ResourceKey, DateTime<Utc>>,
}

impl Retirements {
    /// Notes when it goes; `None` when it stays.
    pub(super) fn set(&mut self, key: &ResourceKey, at: Option<DateTime<Utc>>) {
        if let Some(before) = self.of.remove(key) {
            self.in_order.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.of.insert(key.clone(), at);
            self.in_order.insert((at, key.clone()));
        }
    }

    /// The next one that should have gone by `now`, which is not listed any more then.
    pub(super) fn pop_due(&mut self, now: DateTime<Utc>) -> Option<ResourceKey> {
        let (_, key) = self.in_order.first().filter(|(at, _)| *at <= now)?.clone();
        self.set(&key, None);
        Some(key)
    }

    /// When the next one goes.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        self.in_order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use common::model::kinds::mesh_service;

    use super::*;

    #[test]
    fn each_goes_once_and_when_it_was_noted_last() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let key = |name: &str| ResourceKey::new(&mesh_service::KIND, "default", name);
        let mut retirements = Retirements::default();
        retirements.set(&key("a"), Some(at(1)));
        retirements.set(&key("a"), Some(at(3)));
        retirements.set(&key("b"), Some(at(2)));
        retirements.set(&key("c"), Some(at(2)));
        retirements.set(&key("c"), None);
        assert_eq!((retirements.next(), retirements.pop_due(at(1))), (Some(at(2)), None));
        assert_eq!(retirements.pop_due(at(9)), Some(key("b")));
        assert_eq!(retirements.pop_due(at(9)), Some(key("a")));
        assert_eq!((retirements.next(), retirements.pop_due(at(9))), (None, None));
    }
}
