//! Every resource that leaves, in the form it leaves in: encoded once per change, shared by every stream
//! that sends it.
//!
//! Outgoing resources belong to one index. The next one is made from it at the cost of what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::{OrdMap, OrdSet, ordmap::DiffItem};

use self::{
    namesakes::{NamesakeStanding, Namesakes},
    withheld::WithheldReasons,
};
use super::{codec, filter::Audience, mapper::MapError};
use crate::{
    model::{Resource, ResourceKey, kinds, labels, transcode},
    store::index::Index,
    xds::{Name, Wanted},
};

mod namesakes;
mod selection;
mod shared;
mod withheld;
pub use selection::{Everything, ReceiverSelection, SelectedOfType, SelectedTypes};
pub use shared::SharedOutgoing;
pub use withheld::WithheldResource;

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
    /// Its place among others that would leave under this name.
    standing: NamesakeStanding,
}

impl PartialEq for OutgoingResource {
    /// Whether no receiver could tell the two apart.
    fn eq(&self, other: &Self) -> bool {
        self.wanted.version == other.wanted.version && self.audience == other.audience
    }
}

type ByKind = OrdMap<&'static str, OrdMap<Name, Namesakes>>;

/// All resources that leave, at the revision of one index.
#[derive(Clone, Debug)]
pub struct OutgoingResources {
    /// What it was made of.
    pub index: Arc<Index>,
    /// Zones an operator took out of cross-zone traffic.
    pub disabled: Arc<BTreeSet<Arc<str>>>,
    by_kind: ByKind,
    /// Names under which several would leave.
    contested: OrdMap<&'static str, OrdSet<Name>>,
    withheld: OrdMap<ResourceKey, Vec<Arc<WithheldResource>>>,
}

/// Names of what differs between the outgoing resources of two indexes, by type.
pub type ChangedNames = BTreeMap<&'static str, Vec<Name>>;

impl OutgoingResources {
    /// Those of `index`.
    pub fn of(index: &Arc<Index>, form: &impl OutgoingForm) -> Self {
        let disabled = Arc::new(disabled_zones(index));
        let (by_kind, contested, withheld) = (OrdMap::new(), OrdMap::new(), OrdMap::new());
        let mut outgoing = Self { index: Arc::clone(index), disabled, by_kind, contested, withheld };
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
                Ok((wanted, standing)) => {
                    let resource = Arc::clone(resource);
                    self.join(Arc::new(OutgoingResource { resource, audience, wanted, standing }));
                }
                Err(reason) => {
                    withheld::note(&resource.key, &reason);
                    let withheld = self.withheld.entry(resource.key.clone()).or_default();
                    withheld.push(Arc::new(WithheldResource { audience, reason }));
                }
            }
        }
    }

    /// Puts `item` to those that would leave under its name.
    fn join(&mut self, item: Arc<OutgoingResource>) {
        let (kind, name) = (item.resource.kind().name, Arc::clone(&item.wanted.name));
        let of_kind = self.by_kind.entry(kind).or_default();
        match of_kind.get_mut(&name) {
            None => drop(of_kind.insert(name, Namesakes::of(item))),
            Some(namesakes) => {
                if let Some(behind) = namesakes.put(item) {
                    withheld::note(&behind.resource.key, &behind.behind(namesakes.first()));
                    self.contested.entry(kind).or_default().insert(name);
                }
            }
        }
    }

    fn remove(&mut self, resource: &Resource, form: &impl OutgoingForm) {
        let kind = resource.kind().name;
        // Most changes are of what stays; they leave this as it is, and every reader sees that at once.
        for audience in form.audiences(resource) {
            self.withheld.remove(&resource.key);
            let Ok(mapped) = form.map(resource, &audience) else { continue };
            let (name, rank) = namesakes::place(resource, &mapped);
            let Some(of_kind) = self.by_kind.get_mut(kind) else { return };
            let Some(namesakes) = of_kind.get(name.as_str()).filter(|all| all.get(&rank).is_some()) else {
                continue;
            };
            let rest = namesakes.without(&rank);
            let is_contested = rest.as_ref().is_some_and(Namesakes::are_several);
            match rest {
                Some(rest) => drop(of_kind.insert(Arc::clone(&rest.first().wanted.name), rest)),
                None => drop(of_kind.remove(name.as_str())),
            }
            if !is_contested && let Some(names) = self.contested.get_mut(kind) {
                names.remove(name.as_str());
            }
        }
    }

    /// Those of one type that go first under their names, by name.
    pub fn list<'a>(&'a self, type_name: &str) -> impl Iterator<Item = &'a Arc<OutgoingResource>> + use<'a> {
        self.by_kind.get(type_name).into_iter().flat_map(OrdMap::values).map(Namesakes::first)
    }

    /// All of one type, by name, with those that others go before.
    pub fn candidates<'a>(
        &'a self,
        type_name: &str,
    ) -> impl Iterator<Item = &'a Arc<OutgoingResource>> + use<'a> {
        self.by_kind.get(type_name).into_iter().flat_map(OrdMap::values).flat_map(Namesakes::iter)
    }

    /// The one that goes first, by type and delta name.
    pub fn get(&self, type_name: &str, name: &str) -> Option<&Arc<OutgoingResource>> {
        self.by_kind.get(type_name)?.get(name).map(Namesakes::first)
    }

    /// The forms in which `resource` leaves; `form` is the one that these have.
    pub fn of_resource<'a>(
        &'a self,
        resource: &Resource,
        form: &impl OutgoingForm,
    ) -> impl Iterator<Item = &'a Arc<OutgoingResource>> {
        let mapped = form.audiences(resource).into_iter().filter_map(|to| form.map(resource, &to).ok());
        let places: Vec<_> = mapped.map(|mapped| namesakes::place(resource, &mapped)).collect();
        let of_kind = self.by_kind.get(resource.kind().name);
        places.into_iter().filter_map(move |(name, rank)| of_kind?.get(name.as_str())?.get(&rank))
    }

    /// What `receiver` gets under the name of `item` instead of it, in words for who can change that.
    pub fn hidden(&self, item: &OutgoingResource, receives: impl Fn(&Audience) -> bool) -> Option<String> {
        let namesakes = self.by_kind.get(item.resource.kind().name)?.get(&item.wanted.name)?;
        let first = namesakes.iter().find(|other| receives(&other.audience))?;
        (first.resource.key != item.resource.key).then(|| item.behind(first))
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

    /// What should reach a receiver with this selection and does not, and why: a few words by type.
    pub fn withheld_from(&self, to: &impl ReceiverSelection) -> BTreeMap<&'static str, String> {
        let mut reasons = WithheldReasons::default();
        let withheld = self.withheld.iter().flat_map(|(key, all)| all.iter().map(move |one| (key, one)));
        for (key, withheld) in withheld.filter(|(_, withheld)| to.is_meant(&withheld.audience)) {
            reasons.add(key, &withheld.reason);
        }
        for (kind, names) in &self.contested {
            let of_kind = self.by_kind.get(kind);
            let contested = names.iter().filter_map(|name| of_kind?.get(name));
            reasons.add_namesakes(kind, contested.flat_map(Namesakes::iter), to);
        }
        reasons.told()
    }
}

/// A resource as it leaves and its place among others of that name, or why it cannot leave.
fn leaving(
    resource: &Resource,
    audience: &Audience,
    form: &impl OutgoingForm,
) -> Result<(Wanted, NamesakeStanding), String> {
    let mapped = form.map(resource, audience).map_err(|error| error.to_string())?;
    let wanted = codec::encode(&mapped);
    let (size, largest) = (wanted.size(), form.largest());
    if size > largest {
        return Err(format!(
            "it has {size} bytes, and no more than {largest} fit into a message: make it smaller"
        ));
    }
    Ok((wanted, NamesakeStanding::of(resource, &mapped)))
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
mod tests;
