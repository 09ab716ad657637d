//! The truth everyone reads: all resources at one revision, immutable and cheap to share.

mod of_kind;

pub use of_kind::OfKind;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use tokio::{sync::watch, time::timeout};

use super::{Change, CommitId, Point, Revision, Snapshot, StoreIdentity};
use crate::model::{Kind, Origin, Resource, ResourceKey, names};

/// Mesh and name of a resource inside its kind, in list order.
type ListKey = (Arc<str>, Arc<str>);

/// Every resource of the store at [`Index::revision`]. Cloning shares; applying a change copies only the
/// path to it.
#[derive(Clone, Debug)]
pub struct Index {
    /// Which history the revision belongs to.
    pub store: StoreIdentity,
    /// The revision this is at.
    pub revision: Revision,
    /// Which commit made it, where that is known.
    commit: Option<CommitId>,
    by_kind: OrdMap<&'static str, OrdMap<ListKey, Arc<Resource>>>,
    /// What zones own, by zone and kind.
    owned: OrdMap<(Arc<str>, &'static str), Owned>,
    /// Names of what is called otherwise by its label, and not by a hash that is made of it; by kind, and by mesh and label.
    renamed: OrdMap<&'static str, OrdMap<ListKey, OrdSet<Arc<str>>>>,
}

/// How much a zone owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Resources.
    pub items: usize,
    /// Bytes of all that they say: names and labels too, and what each takes that says nothing.
    pub bytes: usize,
}

/// Bytes that a resource takes besides what it says: a row, a change, and its place in the index.
pub const AROUND_RESOURCE: usize = 256;
/// The same of a label.
const AROUND_LABEL: usize = 8;

impl Owned {
    /// One resource.
    pub fn one(resource: &Resource) -> Self {
        let status = resource.status.as_ref().map_or(0, |status| status.len());
        let labels: usize =
            resource.labels.iter().map(|(name, value)| name.len() + value.len() + AROUND_LABEL).sum();
        let name = resource.mesh().len() + resource.name().len();
        Self { items: 1, bytes: resource.spec.len() + status + labels + name + AROUND_RESOURCE }
    }

    /// As much more.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self { items: self.items + more.items, bytes: self.bytes.saturating_add(more.bytes) }
    }

    /// As much less.
    #[must_use]
    pub fn without(self, less: Self) -> Self {
        Self { items: self.items.saturating_sub(less.items), bytes: self.bytes.saturating_sub(less.bytes) }
    }
}

impl Index {
    /// The index of an empty store.
    pub fn empty(store: StoreIdentity) -> Self {
        Self {
            store,
            revision: 0,
            commit: None,
            by_kind: OrdMap::new(),
            owned: OrdMap::new(),
            renamed: OrdMap::new(),
        }
    }

    /// The index of a snapshot.
    pub fn of(store: StoreIdentity, snapshot: Snapshot) -> Self {
        let mut index = Self::empty(store);
        for resource in snapshot.resources {
            index.put(resource);
        }
        index.reach(Point { revision: snapshot.revision, commit: snapshot.commit });
        index
    }

    /// Where in the history of the store this is.
    pub fn point(&self) -> Point {
        Point { revision: self.revision, commit: self.commit }
    }

    /// Everything up to this point is applied.
    pub fn reach(&mut self, point: Point) {
        (self.revision, self.commit) = (point.revision, point.commit);
    }

    /// Moves to the revision of `change`; which commit made it, [`Index::reach`] says.
    pub fn apply(&mut self, change: &Change) {
        match &change.resource {
            Some(resource) => self.put(Arc::clone(resource)),
            None => {
                let kind = self.by_kind.get_mut(change.key.kind.name);
                if let Some(gone) = kind.and_then(|kind| kind.remove(&place(&change.key))) {
                    self.account(&gone, false);
                    self.call(&gone, false);
                }
            }
        }
        self.reach(change.revision.into());
    }

    fn put(&mut self, resource: Arc<Resource>) {
        self.account(&resource, true);
        let kind = self.by_kind.entry(resource.kind().name).or_default();
        let before = kind.insert(place(&resource.key), Arc::clone(&resource));
        if let Some(before) = before {
            self.account(&before, false);
            self.call(&before, false);
        }
        self.call(&resource, true);
    }

    fn call(&mut self, resource: &Resource, is_there: bool) {
        let (kind, called) = (resource.kind().name, resource.display_name());
        // All that came from elsewhere has a hashed name, and is found by that.
        if called == resource.name() || names::hashed_name(resource) == resource.name() {
            return;
        }
        let of_kind = self.renamed.entry(kind).or_default();
        let place: ListKey = (Arc::clone(&resource.key.mesh), called.into());
        let namesakes = of_kind.entry(place.clone()).or_default();
        match is_there {
            true => drop(namesakes.insert(Arc::clone(&resource.key.name))),
            false => drop(namesakes.remove(&resource.key.name)),
        }
        if namesakes.is_empty() {
            of_kind.remove(&place);
        }
    }

    /// What is called so in a mesh by who wrote it, whatever it is stored under, other than under a hashed name.
    pub fn called<'a>(
        &'a self,
        kind: &'static Kind,
        mesh: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        let place: ListKey = (mesh.into(), name.into());
        let renamed = self.renamed.get(kind.name).and_then(|of_kind| of_kind.get(&place));
        let plain = self.find(kind, mesh, name).filter(|resource| resource.display_name() == name);
        let renamed = renamed.into_iter().flatten().filter_map(move |name| self.find(kind, mesh, name));
        plain.into_iter().chain(renamed)
    }

    fn account(&mut self, resource: &Resource, is_there: bool) {
        let Origin::Zone(zone) = &resource.origin else { return };
        let key = (Arc::clone(zone), resource.kind().name);
        let owned = self.owned.entry(key.clone()).or_default();
        let one = Owned::one(resource);
        *owned = if is_there { owned.and(one) } else { owned.without(one) };
        if owned.items == 0 {
            self.owned.remove(&key);
        }
    }

    /// What a zone owns of a kind.
    pub fn owned_of(&self, zone: &Arc<str>, kind: &Kind) -> Owned {
        self.owned.get(&(Arc::clone(zone), kind.name)).copied().unwrap_or_default()
    }

    /// What a zone owns.
    pub fn owned(&self, zone: &Arc<str>) -> Owned {
        let of_zone = self.owned.range((Arc::clone(zone), "")..).take_while(|((owner, _), _)| owner == zone);
        of_zone.fold(Owned::default(), |all, (_, owned)| all.and(*owned))
    }

    /// One resource.
    pub fn get(&self, key: &ResourceKey) -> Option<&Arc<Resource>> {
        self.by_kind.get(key.kind.name)?.get(&place(key))
    }

    /// One resource by kind, mesh and name.
    pub fn find(&self, kind: &'static Kind, mesh: &str, name: &str) -> Option<&Arc<Resource>> {
        self.get(&ResourceKey::new(kind, mesh, name))
    }

    /// All resources of a kind, by mesh, then name.
    pub fn list<'a>(&'a self, kind: &Kind) -> impl Iterator<Item = &'a Arc<Resource>> + use<'a> {
        self.by_kind.get(kind.name).into_iter().flat_map(OrdMap::values)
    }

    /// The resources of a kind in one mesh, by name.
    pub fn list_in_mesh<'a>(
        &'a self,
        kind: &Kind,
        mesh: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> + use<'a> {
        let from: ListKey = (mesh.into(), "".into());
        let resources = self.by_kind.get(kind.name).into_iter();
        resources
            .flat_map(move |all| all.range(from.clone()..))
            .take_while(move |((m, _), _)| &**m == mesh)
            .map(|(_, resource)| resource)
    }

    /// The meshes that resources of a kind say they are in, whether these exist or not. Costs their number.
    pub fn meshes_of<'a>(&'a self, kind: &Kind) -> BTreeSet<&'a str> {
        let Some(all) = self.by_kind.get(kind.name) else { return BTreeSet::new() };
        let mut found = BTreeSet::new();
        let mut next = all.get_min().map(|((mesh, _), _)| mesh);
        while let Some(mesh) = next {
            found.insert(&**mesh);
            // Nothing is between a text and the same with a NUL.
            let behind: ListKey = (format!("{mesh}\0").into(), "".into());
            next = all.range(behind..).next().map(|((mesh, _), _)| mesh);
        }
        found
    }

    /// The resources of a kind, to be kept and compared.
    pub fn of_kind(&self, kind: &Kind) -> OfKind {
        OfKind(self.by_kind.get(kind.name).cloned().unwrap_or_default())
    }

    /// How many resources of a kind there are.
    pub fn count(&self, kind: &Kind) -> usize {
        self.by_kind.get(kind.name).map_or(0, OrdMap::len)
    }

    /// All resources, by kind, mesh, name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_kind.values().flat_map(OrdMap::values)
    }

    /// The keys whose resource differs between `older` and this index. Costs the size of the
    /// difference: parts the two share are skipped.
    pub fn changed_since(&self, older: &Self) -> Vec<ResourceKey> {
        let none = OrdMap::new();
        let kinds: BTreeSet<&'static str> =
            self.by_kind.keys().chain(older.by_kind.keys()).copied().collect();
        let mut changed = Vec::new();
        for kind in kinds {
            let new = self.by_kind.get(kind).unwrap_or(&none);
            let old = older.by_kind.get(kind).unwrap_or(&none);
            if new.ptr_eq(old) {
                continue;
            }
            changed.extend(old.diff(new).filter_map(|item| match item {
                DiffItem::Add(_, resource) | DiffItem::Remove(_, resource) => Some(resource.key.clone()),
                DiffItem::Update { old: (_, before), new: (_, after) } => {
                    (!Arc::ptr_eq(before, after)).then(|| after.key.clone())
                }
            }));
        }
        changed
    }
}

fn place(key: &ResourceKey) -> ListKey {
    (Arc::clone(&key.mesh), Arc::clone(&key.name))
}

/// How long somebody waits for the index to show what the store has.
const PATIENCE: Duration = Duration::from_secs(15);

/// A reader's handle on the newest index.
#[derive(Clone)]
pub struct IndexReader {
    index: watch::Receiver<Arc<Index>>,
    /// How often the store was found to have lost its end.
    losses: watch::Receiver<u64>,
}

impl IndexReader {
    /// A handle on what the sender of `receiver` publishes.
    pub fn new(receiver: watch::Receiver<Arc<Index>>) -> Self {
        Self { index: receiver, losses: watch::channel(0).1 }
    }

    /// The same, of a store that may lose its end: `losses` is told after the index is that of what is left.
    #[must_use]
    pub(super) fn hearing_of(self, losses: watch::Receiver<u64>) -> Self {
        Self { losses, ..self }
    }

    /// The newest index.
    pub fn current(&self) -> Arc<Index> {
        Arc::clone(&self.index.borrow())
    }

    /// The newest index, marking it seen for [`IndexReader::changed`].
    pub fn latest(&mut self) -> Arc<Index> {
        Arc::clone(&self.index.borrow_and_update())
    }

    /// Waits until an index newer than the last seen one is published; `false` when the publisher is
    /// gone, at shutdown.
    pub async fn changed(&mut self) -> bool {
        self.index.changed().await.is_ok()
    }

    /// Waits until the index has reached `revision`: read your own writes. `None` at shutdown.
    pub async fn wait_for(&self, revision: Revision) -> Option<Arc<Index>> {
        let mut receiver = self.index.clone();
        let index = receiver.wait_for(|index| index.revision >= revision).await.ok()?;
        Some(Arc::clone(&index))
    }

    /// The same, but for a store that does not get there: one that lost its end may not have this revision for long. Then
    /// what there is.
    pub async fn wait_long_for(&self, revision: Revision) -> Option<Arc<Index>> {
        match timeout(PATIENCE, self.wait_for(revision)).await {
            Ok(reached) => reached,
            Err(_) => {
                tracing::warn!(
                    revision,
                    "the index does not come to what the store has, or had: going on without"
                );
                Some(self.current())
            }
        }
    }

    /// Waits until the index shows more than `seen`, up to the revision `head` which somebody else may have written; or
    /// less, when the store lost its end. `None` at shutdown.
    pub async fn wait_for_newer(&self, seen: &Index, head: Revision) -> Option<Arc<Index>> {
        let newer = head.max(seen.revision + 1);
        let mut receiver = self.index.clone();
        let moved = receiver.wait_for(|index| index.revision >= newer || index.revision < seen.revision);
        match timeout(PATIENCE, moved).await {
            Ok(moved) => moved.ok().map(|index| Arc::clone(&index)),
            Err(_) => Some(self.current()),
        }
    }

    /// Ends when the store, from now on, is found to have lost its end: what was stored may not be there any more. The
    /// index shows what is left then.
    pub fn loss(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut losses = self.losses.clone();
        losses.mark_unchanged();
        async move {
            if losses.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }
}
