//! The resources of one type that a proxy gets: what is its own, beside what it shares with others.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use common::xds::Version;
use imbl::{OrdMap, ordmap::DiffItem};
use itertools::Itertools;

use super::{Encoded, particulars::Particulars};

/// Resources by name.
pub(super) type EncodedResources = OrdMap<Arc<str>, Arc<Encoded>>;

/// Names in order.
type OrderedNames = Arc<[Arc<str>]>;

/// How many older versions it is remembered of how they differ. Who is told a change holds the one before it, or
/// one of those before that when it is slow.
const REMEMBERED: usize = 4;

/// What many proxies share of a type. All of them go from one version to the next, so how the two differ is found
/// out once.
#[derive(Debug, Default)]
pub(super) struct SharedOfType {
    resources: EncodedResources,
    /// The names that differ from older versions.
    differences: Mutex<Vec<(Weak<Self>, OrderedNames)>>,
}

impl SharedOfType {
    pub(super) fn new(resources: EncodedResources) -> Arc<Self> {
        Arc::new(Self { resources, differences: Mutex::default() })
    }

    /// The names that differ from `older`, in order.
    fn changes_since(&self, older: &Arc<Self>) -> OrderedNames {
        // Whoever comes meanwhile wants the same and waits for it.
        let mut known = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(of, _): &&(Weak<Self>, OrderedNames)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(older));
        if let Some((_, names)) = known.iter().find(is_it) {
            return Arc::clone(names);
        }
        let names: OrderedNames = differences(&self.resources, &older.resources).cloned().collect();
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        // A weak reference keeps the place, so nothing else comes to be where it is.
        known.push((Arc::downgrade(older), Arc::clone(&names)));
        names
    }
}

/// Resources of one type: what is a proxy's own, beside what it shares with others, which it has precedence over.
#[derive(Clone, Debug, Default)]
pub struct OfType {
    own: EncodedResources,
    shared: Arc<SharedOfType>,
    /// Of the proxy, for the markers in what is shared; `None` where there are none.
    particulars: Option<Arc<Particulars>>,
}

impl OfType {
    pub(super) fn new(own: EncodedResources, shared: Arc<SharedOfType>) -> Self {
        Self { own, shared, particulars: None }
    }

    /// What is shared, beside `own`, for the proxy with these particulars.
    pub(super) fn beside(&self, own: EncodedResources, particulars: Option<Arc<Particulars>>) -> Self {
        Self { own, shared: Arc::clone(&self.shared), particulars }
    }

    /// Whether it is `own` beside what `alone` shares, without a look at either.
    pub(super) fn is_beside(
        &self,
        own: &EncodedResources,
        alone: &Self,
        particulars: Option<&Arc<Particulars>>,
    ) -> bool {
        self.own.ptr_eq(own)
            && Arc::ptr_eq(&self.shared, &alone.shared)
            && self.particulars.as_ref() == particulars
    }

    /// Whether what is shared is `resources`, without a look at them.
    pub(super) fn shares(&self, resources: &EncodedResources) -> bool {
        self.shared.resources.ptr_eq(resources)
    }

    /// The same with `newer` in place of those that are shared, of which it has older versions; `None` if there
    /// are none.
    pub(super) fn renewed(&self, newer: &[Arc<Encoded>]) -> Option<Self> {
        let known = &self.shared.resources;
        let is_older =
            |new: &&Arc<Encoded>| known.get(&new.name).is_some_and(|old| old.version != new.version);
        let mut newer = newer.iter().filter(is_older).peekable();
        newer.peek()?;
        let mut resources = known.clone();
        resources.extend(newer.map(|new| (Arc::clone(&new.name), Arc::clone(new))));
        let (own, particulars) = (self.own.clone(), self.particulars.clone());
        Some(Self { own, shared: SharedOfType::new(resources), particulars })
    }

    /// One resource.
    pub fn get(&self, name: &str) -> Option<Arc<Encoded>> {
        self.stored_as(name).map(|resource| self.told(resource))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Arc<Encoded>)> {
        self.stored().map(|(name, resource)| (name, self.told(resource)))
    }

    /// The version of one.
    pub fn version(&self, name: &str) -> Option<Version> {
        self.stored_as(name).map(|resource| self.told_version(resource))
    }

    /// All names, with versions.
    pub fn versions(&self) -> impl Iterator<Item = (&Arc<str>, Version)> {
        self.stored().map(|(_, resource)| (&resource.name, self.told_version(resource)))
    }

    /// As the proxy is told it.
    fn told(&self, stored: &Arc<Encoded>) -> Arc<Encoded> {
        match &self.particulars {
            Some(particulars) => stored.filled(particulars),
            None => Arc::clone(stored),
        }
    }

    /// Version and message of a resource that is kept here, as the proxy is told it.
    pub fn content(&self, stored: &Encoded) -> (Version, Bytes) {
        match &self.particulars {
            Some(particulars) => stored.content_for(particulars),
            None => (stored.version, stored.value.clone()),
        }
    }

    fn told_version(&self, stored: &Encoded) -> Version {
        self.particulars.as_ref().map_or(stored.version, |particulars| stored.filled_version(particulars))
    }

    /// One resource as it is kept, for whoever it is told to.
    pub fn stored_as(&self, name: &str) -> Option<&Arc<Encoded>> {
        self.own.get(name).or_else(|| self.shared.resources.get(name))
    }

    /// All of them as they are kept, by name.
    pub fn stored(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Encoded>)> {
        let shared = self.shared.resources.iter().filter(|(name, _)| !self.own.contains_key(*name));
        self.own.iter().merge_by(shared, |(a, _), (b, _)| a <= b)
    }

    /// Those whose name begins with `prefix`.
    pub fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = Arc<Encoded>> + 'a {
        let after = || (Bound::Included(prefix), Bound::Unbounded);
        let below = move |resources: &'a EncodedResources| {
            resources.range::<_, str>(after()).take_while(move |(name, _)| name.starts_with(prefix))
        };
        let shared = below(&self.shared.resources).filter(|(name, _)| !self.own.contains_key(*name));
        let stored = below(&self.own).merge_by(shared, |(a, _), (b, _)| a <= b);
        stored.map(|(_, resource)| self.told(resource))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let twice = self.own.keys().filter(|name| self.shared.resources.contains_key(*name)).count();
        self.own.len() + self.shared.resources.len() - twice
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.resources.is_empty()
    }

    /// Whether anything differs from `previous`. What the two share is not looked at.
    pub(super) fn differs_from(&self, previous: &Self) -> bool {
        differences(&self.own, &previous.own).next().is_some() || !self.shared_since(previous).is_empty()
    }

    /// The names that differ from `previous`, unless there are more than `most`.
    pub(super) fn few_changes_since(&self, previous: &Self, most: usize) -> Option<BTreeSet<Arc<str>>> {
        let few: Vec<_> = self.changes_since(previous).take(most + 1).collect();
        (few.len() <= most).then(|| few.into_iter().collect())
    }

    /// The names that differ from `previous`. What the two share is not looked at.
    pub fn changes_since<'a>(&'a self, previous: &'a Self) -> impl Iterator<Item = Arc<str>> + 'a {
        let shared = self.shared_since(previous);
        let shared = (0..shared.len()).map(move |i| Arc::clone(&shared[i]));
        differences(&self.own, &previous.own).cloned().merge(shared).dedup()
    }

    fn shared_since(&self, previous: &Self) -> OrderedNames {
        if self.particulars != previous.particulars {
            return self.particular_since(previous);
        }
        if Arc::ptr_eq(&self.shared, &previous.shared) {
            return Arc::default();
        }
        self.shared.changes_since(&previous.shared)
    }

    /// The same where the proxy itself is known as something else than before.
    fn particular_since(&self, previous: &Self) -> OrderedNames {
        let versions = |of: &Self| -> BTreeMap<Arc<str>, Version> {
            let all = of.shared.resources.iter();
            all.map(|(name, stored)| (Arc::clone(name), of.told_version(stored))).collect()
        };
        let (new, mut old) = (versions(self), versions(previous));
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        for (name, version) in new {
            if old.remove(&name) != Some(version) {
                names.insert(name);
            }
        }
        names.extend(old.into_keys());
        names.into_iter().collect()
    }
}

fn differences<'a>(
    new: &'a EncodedResources,
    old: &'a EncodedResources,
) -> impl Iterator<Item = &'a Arc<str>> {
    let looked_at = (!new.ptr_eq(old)).then(|| old.diff(new));
    looked_at.into_iter().flatten().filter_map(|item| match item {
        DiffItem::Add(name, _) | DiffItem::Remove(name, _) => Some(name),
        DiffItem::Update { old: (_, old), new: (name, new) } => {
            (!Arc::ptr_eq(old, new) && old.version != new.version).then_some(name)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Encoded, EncodedResources, OfType, REMEMBERED, SharedOfType};
    use crate::generator::type_url;

    fn encoded(name: &str, value: &'static str) -> Arc<Encoded> {
        Arc::new(Encoded::of_bytes(name, type_url::CLUSTER, "test", value.as_bytes().to_vec()))
    }

    fn resources(all: &[(&str, &'static str)]) -> EncodedResources {
        all.iter().map(|(name, value)| (Arc::from(*name), encoded(name, value))).collect()
    }

    #[test]
    fn differences_are_those_of_both_halves_in_order_and_remembered() {
        let before = SharedOfType::new(resources(&[("a", "1"), ("b", "1"), ("c", "1"), ("e", "1")]));
        let after = SharedOfType::new(resources(&[("a", "1"), ("b", "2"), ("d", "1"), ("e", "1")]));
        let had = OfType::new(resources(&[("b", "own"), ("e", "own")]), Arc::clone(&before));
        let has = OfType::new(resources(&[("b", "other"), ("e", "own")]), Arc::clone(&after));
        for _ in 0..2 {
            let names: Vec<Arc<str>> = has.changes_since(&had).collect();
            assert_eq!(names, ["b", "c", "d"].map(Arc::<str>::from));
            assert_eq!(has.few_changes_since(&had, 3).map(|few| few.len()), Some(3));
            assert_eq!(has.few_changes_since(&had, 2), None);
            assert_eq!(after.differences.lock().map(|known| known.len()).ok(), Some(1));
        }
        assert!(Arc::ptr_eq(&after.changes_since(&before), &after.changes_since(&before)));
        assert!(!has.differs_from(&has) && has.differs_from(&had));
    }

    #[test]
    fn not_more_is_remembered_than_a_few() {
        let newest = SharedOfType::new(resources(&[("a", "2")]));
        for _ in 0..3 * REMEMBERED {
            let older = SharedOfType::new(resources(&[("a", "1")]));
            assert_eq!(newest.changes_since(&older).len(), 1);
        }
        assert_eq!(newest.differences.lock().map(|known| known.len()).ok(), Some(REMEMBERED));
    }

    #[test]
    fn only_what_is_there_in_an_older_version_is_renewed() {
        let had =
            OfType::new(EncodedResources::default(), SharedOfType::new(resources(&[("a", "1"), ("b", "1")])));
        assert!(had.renewed(&[encoded("a", "1"), encoded("c", "1")]).is_none());
        let has = had.renewed(&[encoded("a", "2"), encoded("c", "1")]).expect("one is older");
        let names: Vec<Arc<str>> = has.changes_since(&had).collect();
        assert_eq!(names, ["a"].map(Arc::<str>::from));
    }
}
