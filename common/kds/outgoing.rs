//! Every resource that leaves, in the form it leaves in: encoded once per change, shared by every stream
//! that sends it.
//!
//! Outgoing resources belong to one index. The next one is made from it at the cost of what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};

use super::{codec, filter::Audience, mapper::MapError, names::delta_name};
use crate::{
    model::{Resource, ResourceKey, kinds, labels, transcode},
    store::index::Index,
    xds::{Name, Wanted},
};

mod selection;
mod shared;
pub use selection::{Everything, ReceiverSelection, SelectedOfType, SelectedTypes};
pub use shared::SharedOutgoing;

/// Withheld resources of one type that are told by name.
const TOLD: usize = 10;

/// Which resources leave in one direction, and how they look then.
pub trait OutgoingForm: Send + Sync + 'static {
    /// Whom `resource` is for, once for each form it leaves in. Nobody when it stays.
    fn audiences(&self, resource: &Resource) -> Vec<Audience>;

    /// The form it leaves in for `audience`.
    ///
    /// # Errors
    /// [`MapError`] when it has none; it is withheld then.
    fn map(&self, resource: &Resource, audience: &Audience) -> Result<Resource, MapError>;

    /// The largest resource that can be sent, in bytes.
    fn largest(&self) -> usize;
}

/// A resource and its form.
#[derive(Debug)]
pub struct OutgoingResource {
    /// As it is stored here.
    pub resource: Arc<Resource>,
    /// Whom it is for.
    pub audience: Audience,
    /// As it leaves.
    pub wanted: Wanted,
}

impl PartialEq for OutgoingResource {
    /// Whether no receiver could tell the two apart.
    fn eq(&self, other: &Self) -> bool {
        self.wanted.version == other.wanted.version && self.audience == other.audience
    }
}

/// A resource that should leave and cannot.
#[derive(Debug)]
pub struct WithheldResource {
    /// Whom it is for.
    pub audience: Audience,
    /// Why it stays, for the person who can change it.
    pub reason: String,
}

type ByKind = OrdMap<&'static str, OrdMap<Name, Arc<OutgoingResource>>>;

/// All resources that leave, at the revision of one index.
#[derive(Clone, Debug)]
pub struct OutgoingResources {
    /// What it was made of.
    pub index: Arc<Index>,
    /// Zones an operator took out of cross-zone traffic.
    pub disabled: Arc<BTreeSet<Arc<str>>>,
    by_kind: ByKind,
    withheld: OrdMap<ResourceKey, Vec<Arc<WithheldResource>>>,
}

/// Names of what differs between the outgoing resources of two indexes, by type.
pub type ChangedNames = BTreeMap<&'static str, Vec<Name>>;

impl OutgoingResources {
    /// Those of `index`.
    pub fn of(index: &Arc<Index>, form: &impl OutgoingForm) -> Self {
        let disabled = Arc::new(disabled_zones(index));
        let (by_kind, withheld) = (OrdMap::new(), OrdMap::new());
        let mut outgoing = Self { index: Arc::clone(index), disabled, by_kind, withheld };
        for resource in index.iter() {
            outgoing.put(resource, form);
        }
        outgoing
    }

    /// Those of a later index.
    pub fn moved_to(&self, index: &Arc<Index>, form: &impl OutgoingForm) -> Self {
        if index.store != self.index.store {
            return Self::of(index, form);
        }
        let changed = index.changed_since(&self.index);
        let disabled = match changed.iter().any(|key| *key.kind == kinds::zone::KIND) {
            true => Arc::new(disabled_zones(index)),
            false => Arc::clone(&self.disabled),
        };
        let mut next = Self { index: Arc::clone(index), disabled, ..self.clone() };
        // All that goes first: another resource may take its name.
        for old in changed.iter().filter_map(|key| self.index.get(key)) {
            next.remove(old, form);
        }
        for new in changed.iter().filter_map(|key| index.get(key)) {
            next.put(new, form);
        }
        next
    }

    /// The same as if `index` were what they were made of, which leaves in the same form.
    fn shown_at(&self, index: Arc<Index>) -> Self {
        Self { index, ..self.clone() }
    }

    /// Whether nothing differs that could leave, or cannot.
    fn is_same(&self, other: &Self) -> bool {
        self.by_kind.ptr_eq(&other.by_kind)
            && self.withheld.ptr_eq(&other.withheld)
            && Arc::ptr_eq(&self.disabled, &other.disabled)
    }

    fn put(&mut self, resource: &Arc<Resource>, form: &impl OutgoingForm) {
        for audience in form.audiences(resource) {
            match leaving(resource, &audience, form) {
                Ok(wanted) => {
                    let item = OutgoingResource { resource: Arc::clone(resource), audience, wanted };
                    let kind = self.by_kind.entry(resource.kind().name).or_default();
                    kind.insert(Arc::clone(&item.wanted.name), Arc::new(item));
                }
                Err(reason) => {
                    let type_name = resource.kind().name;
                    metrics::counter!("kds_resources_withheld_total", "resource_type" => type_name)
                        .increment(1);
                    tracing::warn!(resource = %resource.key, reason, "resource is withheld from sync");
                    let withheld = self.withheld.entry(resource.key.clone()).or_default();
                    withheld.push(Arc::new(WithheldResource { audience, reason }));
                }
            }
        }
    }

    fn remove(&mut self, resource: &Resource, form: &impl OutgoingForm) {
        // Most changes are of what stays; they leave this as it is, and every reader sees that at once.
        for audience in form.audiences(resource) {
            self.withheld.remove(&resource.key);
            let Ok(mapped) = form.map(resource, &audience) else { continue };
            let name = delta_name(mapped.name(), mapped.mesh());
            let Some(kind) = self.by_kind.get_mut(resource.kind().name) else { return };
            if kind.get(name.as_str()).is_some_and(|item| item.resource.key == resource.key) {
                kind.remove(name.as_str());
            }
        }
    }

    /// All of one type, by name.
    pub fn list<'a>(&'a self, type_name: &str) -> impl Iterator<Item = &'a Arc<OutgoingResource>> + use<'a> {
        self.by_kind.get(type_name).into_iter().flat_map(OrdMap::values)
    }

    /// One by type and delta name.
    pub fn get(&self, type_name: &str, name: &str) -> Option<&Arc<OutgoingResource>> {
        self.by_kind.get(type_name)?.get(name)
    }

    /// The forms in which `resource` leaves; `form` is the one that these have.
    pub fn of_resource<'a>(
        &'a self,
        resource: &Resource,
        form: &impl OutgoingForm,
    ) -> impl Iterator<Item = &'a Arc<OutgoingResource>> {
        let mapped = form.audiences(resource).into_iter().filter_map(|to| form.map(resource, &to).ok());
        let names: Vec<String> = mapped.map(|mapped| delta_name(mapped.name(), mapped.mesh())).collect();
        let found = names.into_iter().filter_map(|name| self.get(resource.kind().name, &name));
        found.filter(|item| item.resource.key == resource.key)
    }

    /// Why `resource` cannot leave in some form, and for whom that one would be.
    pub fn withheld_of(&self, resource: &ResourceKey) -> impl Iterator<Item = &Arc<WithheldResource>> {
        self.withheld.get(resource).into_iter().flatten()
    }

    /// What differs between `older` and this, at the cost of the difference.
    pub fn changed_since(&self, older: &Self) -> ChangedNames {
        if self.by_kind.ptr_eq(&older.by_kind) {
            return ChangedNames::new();
        }
        let none = OrdMap::new();
        let kinds: BTreeSet<&'static str> =
            self.by_kind.keys().chain(older.by_kind.keys()).copied().collect();
        let mut changed = ChangedNames::new();
        for kind in kinds {
            let new = self.by_kind.get(kind).unwrap_or(&none);
            let old = older.by_kind.get(kind).unwrap_or(&none);
            if new.ptr_eq(old) {
                continue;
            }
            let names = old.diff(new).map(|item| match item {
                DiffItem::Add(name, _)
                | DiffItem::Remove(name, _)
                | DiffItem::Update { new: (name, _), .. } => Arc::clone(name),
            });
            let names: Vec<Name> = names.collect();
            if !names.is_empty() {
                changed.insert(kind, names);
            }
        }
        changed
    }

    /// What should leave and cannot, in the order of keys.
    pub fn withheld(&self) -> impl Iterator<Item = (&ResourceKey, &Arc<WithheldResource>)> {
        self.withheld.iter().flat_map(|(key, withheld)| withheld.iter().map(move |withheld| (key, withheld)))
    }

    /// The key under which what is called `name` on the wire is stored here.
    pub fn key_of(&self, type_name: &str, name: &str) -> Option<&ResourceKey> {
        self.get(type_name, name).map(|item| &item.resource.key)
    }
}

/// A resource as it leaves, or why it cannot.
fn leaving(resource: &Resource, audience: &Audience, form: &impl OutgoingForm) -> Result<Wanted, String> {
    let wanted = codec::encode(&form.map(resource, audience).map_err(|error| error.to_string())?);
    let (size, largest) = (wanted.size(), form.largest());
    if size > largest {
        return Err(format!(
            "it has {size} bytes, and no more than {largest} fit into a message: make it smaller"
        ));
    }
    Ok(wanted)
}

/// A few words for each resource that is withheld, by type.
pub fn reasons<'a>(
    withheld: impl Iterator<Item = (&'a ResourceKey, &'a Arc<WithheldResource>)>,
) -> BTreeMap<&'static str, String> {
    let mut by_type: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
    for (key, withheld) in withheld {
        let (count, text) = by_type.entry(key.kind.name).or_default();
        *count += 1;
        if *count <= TOLD {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(&format!("{key}: {}", withheld.reason));
        }
    }
    let told = |(count, text): (usize, String)| match count.checked_sub(TOLD) {
        None | Some(0) => text,
        Some(more) => format!("{text}\nand {more} more"),
    };
    by_type.into_iter().map(|(type_name, reasons)| (type_name, told(reasons))).collect()
}

fn disabled_zones(index: &Index) -> BTreeSet<Arc<str>> {
    let zones = index.list(&kinds::zone::KIND);
    zones.filter(|zone| !exports(zone)).map(|zone| Arc::clone(&zone.key.name)).collect()
}

/// Whether others get what this zone exports: it is in, and not withdrawn because it is lost.
pub fn exports(zone: &Resource) -> bool {
    is_enabled(zone) && zone.label(labels::EXPORTS) != Some(labels::EXPORTS_WITHDRAWN)
}

/// A zone is in unless its resource says `enabled: false`.
pub fn is_enabled(zone: &Resource) -> bool {
    let json = transcode::to_json(zone.kind(), &zone.spec);
    json.map_or(true, |json| json.get("enabled").and_then(serde_json::Value::as_bool) != Some(false))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::{
        kds::{features::Features, mapper},
        policy::mesh_timeout,
        store::{Change, StoreIdentity},
    };

    struct Down;

    impl OutgoingForm for Down {
        fn audiences(&self, resource: &Resource) -> Vec<Audience> {
            match (resource.label("stays"), resource.label("x")) {
                (Some(_), _) => Vec::new(),
                (None, Some("halves")) => Audience::of(&signing_key()),
                (None, _) => vec![Audience::default()],
            }
        }

        fn map(&self, resource: &Resource, audience: &Audience) -> Result<Resource, MapError> {
            let mut resource = resource.clone();
            if audience.gets_public_half() {
                let name = format!("half-of-{}", resource.name());
                resource.key = ResourceKey::new(resource.kind(), resource.mesh(), &name);
            }
            mapper::down(&resource, &mapper::DownForm::of(&Features::ours(), &[]))
        }

        fn largest(&self) -> usize {
            LARGEST
        }
    }

    const LARGEST: usize = 1000;

    /// What leaves in two forms.
    fn signing_key() -> Resource {
        let key =
            ResourceKey::new(&kinds::secret::SECRET, "default", "dataplane-token-signing-key-default-1");
        Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::ISSUING, labels::ISSUING_ZONE)
    }

    fn contents(outgoing: &OutgoingResources) -> Vec<(String, String)> {
        outgoing
            .list("MeshTimeout")
            .map(|s| (s.wanted.name.to_string(), s.wanted.version.to_string()))
            .collect()
    }

    fn key(name: usize) -> ResourceKey {
        ResourceKey::new(&mesh_timeout::KIND, "default", &format!("t{name}"))
    }

    #[test]
    fn what_stays_leaves_the_outgoing_resources_as_they_are() {
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        let mut index = Index::empty(store);
        let mut write = |revision, name, label: &str| {
            let resource = Resource::new(key(name), DateTime::UNIX_EPOCH).with_label(label, "x");
            index.apply(&Change { revision, key: key(name), resource: Some(Arc::new(resource)) });
            Arc::new(index.clone())
        };
        let sent = OutgoingResources::of(&write(1, 1, "sent"), &Down);
        let first = sent.moved_to(&write(2, 2, "stays"), &Down);
        let second = first.moved_to(&write(3, 2, "stays"), &Down);
        assert!(first.by_kind.ptr_eq(&sent.by_kind) && second.by_kind.ptr_eq(&sent.by_kind));
        assert_eq!(second.index.revision, 3);
    }

    #[test]
    fn what_does_not_fit_is_withheld_alone_until_it_does() {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let mut outgoing = OutgoingResources::of(&Arc::new(index.clone()), &Down);
        let mut step = |revision, name, text: usize| {
            let resource = Resource::new(key(name), DateTime::UNIX_EPOCH).with_label("x", &"x".repeat(text));
            index.apply(&Change { revision, key: key(name), resource: Some(Arc::new(resource)) });
            outgoing = outgoing.moved_to(&Arc::new(index.clone()), &Down);
            (outgoing.list("MeshTimeout").count(), reasons(outgoing.withheld()))
        };
        assert_eq!(step(1, 1, 1), (1, BTreeMap::new()));
        let (sent, withheld) = step(2, 2, LARGEST);
        assert_eq!(sent, 1);
        assert!(withheld["MeshTimeout"].contains("t2: it has ") && withheld.len() == 1, "{withheld:?}");
        assert_eq!(step(3, 2, 1), (2, BTreeMap::new()));
    }

    proptest! {
        #[test]
        fn moving_on_equals_starting_over(
            steps in proptest::collection::vec((0..5usize, 0..5usize), 0..20),
            cut in 0..20usize,
        ) {
            let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
            let mut moved = OutgoingResources::of(&Arc::new(index.clone()), &Down);
            let mut seen = moved.clone();
            for (revision, (name, what)) in steps.iter().enumerate() {
                let resource = Resource::new(key(*name), DateTime::UNIX_EPOCH);
                let resource = match what {
                    0 => None,
                    1 => Some(resource.with_label("stays", "here")),
                    2 => Some(resource.with_label("x", "halves")),
                    label => Some(resource.with_label("x", &label.to_string())),
                };
                let change = Change { revision: revision as u64 + 1, key: key(*name), resource: resource.map(Arc::new) };
                index.apply(&change);
                moved = moved.moved_to(&Arc::new(index.clone()), &Down);
                if revision == cut {
                    seen = moved.clone();
                }
            }
            let fresh = OutgoingResources::of(&Arc::new(index), &Down);
            prop_assert_eq!(contents(&moved), contents(&fresh));
            // Whatever differs is named.
            let named = moved.changed_since(&seen).remove("MeshTimeout").unwrap_or_default();
            let (old, new) = (contents(&seen), contents(&moved));
            for (name, _) in old.iter().filter(|e| !new.contains(e)).chain(new.iter().filter(|e| !old.contains(e))) {
                prop_assert!(named.iter().any(|n| **n == **name), "{} is not named", name);
            }
        }
    }
}
