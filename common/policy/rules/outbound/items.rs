//! Items of `to` lists, filed by what they point at.

use std::{
    cmp::Ordering,
    hash::{BuildHasher, RandomState},
    sync::{Arc, OnceLock},
};

use imbl::{OrdMap, OrdSet};
use serde_json::Value;

use crate::model::labels;
use crate::policy::rules::{
    Destinations, Element, Policy, ResourceRule, RulesError, Subset, Tag, TagRule, TagRules, TargetResource,
    destinations::{Handle, points_at},
    merge::Layers,
    order,
    resource::{is_mesh, rule},
    subset::Confined,
    tag::{TagItem, rules_of},
    to::tag_items,
};

/// A policy by its place in the order of policies.
#[derive(Clone, Debug)]
pub(super) struct Ranked(pub(super) Arc<Policy>);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        order::by_policy_and_key(&self.0, &other.0)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// An item among those for tags: by policy, then as they follow each other there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TagPlace(Ranked, usize);

/// An item among those for resources, by policy and index.
#[derive(Clone, Debug)]
pub(super) struct ResourcePlace(Arc<Policy>, usize);

impl Ord for ResourcePlace {
    fn cmp(&self, other: &Self) -> Ordering {
        order::by_item((&self.0, self.1), (&other.0, other.1))
    }
}

impl PartialOrd for ResourcePlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ResourcePlace {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ResourcePlace {}

/// The items of a policy with the groups they are for: index, group.
pub(super) struct Filed(Vec<(usize, Subset)>);

impl Filed {
    /// Those of `policy`.
    ///
    /// # Errors
    /// [`RulesError`] when the route it is for does not exist, or has too many rules for it.
    pub(super) fn of(policy: &Arc<Policy>, destinations: &Destinations) -> Result<Self, RulesError> {
        let items = tag_items(policy, destinations)?;
        Ok(Self(items.into_iter().map(|(subset, item)| (item.index, subset)).collect()))
    }
}

/// What applies to everything, with its configurations merged step by step once.
#[derive(Debug)]
struct Baseline<P> {
    places: Vec<P>,
    layers: Layers,
}

/// Items for groups of destinations by tags.
#[derive(Clone, Debug, Default)]
pub(super) struct TagItems {
    /// Items for all destinations, and for one service; the value is the index of the item.
    by_service: OrdMap<(Option<String>, Option<TagPlace>), usize>,
    /// Items for other groups: with these nothing can be told from the service alone.
    otherwise: OrdMap<TagPlace, (usize, Subset)>,
    /// What [`TagItems::by_service`] has for all destinations, when somebody asked.
    shared: Arc<OnceLock<Baseline<(TagPlace, usize)>>>,
    /// The rules of all groups, when somebody asked and there are other groups.
    all: Arc<OnceLock<Result<TagRules, RulesError>>>,
}

impl TagItems {
    pub(super) fn insert(&mut self, filed: &Filed, policy: &Arc<Policy>) {
        for (sequence, (index, subset)) in filed.0.iter().enumerate() {
            let place = TagPlace(Ranked(Arc::clone(policy)), sequence);
            match subset.confined() {
                Confined::Nothing => {
                    self.shared = Arc::default();
                    self.by_service.insert((None, Some(place)), *index);
                }
                Confined::Service(name) => {
                    self.by_service.insert((Some(name.to_owned()), Some(place)), *index);
                }
                Confined::Otherwise => drop(self.otherwise.insert(place, (*index, subset.clone()))),
            }
        }
        self.all = Arc::default();
    }

    pub(super) fn remove(&mut self, policy: &Arc<Policy>) {
        self.all = Arc::default();
        let place = |sequence| TagPlace(Ranked(Arc::clone(policy)), sequence);
        let others: Vec<TagPlace> = self
            .otherwise
            .range(place(0)..)
            .map(|(place, _)| place.clone())
            .take_while(|TagPlace(ranked, _)| ranked.cmp(&place(0).0).is_eq())
            .collect();
        for place in others {
            self.otherwise.remove(&place);
        }
        let subsets = policy.to.iter().filter_map(|item| policy.group(item));
        for (sequence, subset) in subsets.enumerate() {
            let group = match subset.confined() {
                Confined::Nothing => None,
                Confined::Service(name) => Some(name.to_owned()),
                Confined::Otherwise => continue,
            };
            if group.is_none() {
                self.shared = Arc::default();
            }
            self.by_service.remove(&(group, Some(place(sequence))));
        }
    }

    /// Whether there are groups that have parts of several services, or parts of one.
    pub(super) fn overlap(&self) -> bool {
        !self.otherwise.is_empty()
    }

    pub(super) fn lookup(&self, element: &Element) -> Result<Option<TagRule>, RulesError> {
        if self.overlap() {
            let all = self.all.get_or_init(|| self.all());
            return all.as_ref().map(|rules| rules.lookup(element).cloned()).map_err(Clone::clone);
        }
        let shared = self.shared.get_or_init(|| self.shared());
        let service = element.get(labels::TAG_SERVICE);
        let own: Vec<(&TagPlace, usize)> =
            service.map(|name| self.at(Some(name)).collect()).unwrap_or_default();
        let part = match service.filter(|_| !own.is_empty()) {
            Some(name) => Subset(vec![Tag::is(labels::TAG_SERVICE, name)]),
            None => Subset::default(),
        };
        let mut places: Vec<(&TagPlace, usize)> =
            shared.places.iter().map(|(p, i)| (p, *i)).chain(own).collect();
        places.sort_by_key(|(a, _)| *a);
        let leading = places.iter().zip(&shared.places).take_while(|((a, _), (b, _))| *a == b).count();
        let items: Vec<TagItem<'_>> =
            places.into_iter().map(|(place, index)| item(&place.0.0, index)).collect();
        let merge = |strategy, confs: &[&Value]| shared.layers.merge(strategy, leading, confs);
        Ok(rules_of(&part, &items, merge).into_iter().next())
    }

    /// Items for one service, or for all.
    fn at(&self, service: Option<&String>) -> impl Iterator<Item = (&TagPlace, usize)> {
        let service = service.cloned();
        // No place comes before all others.
        let filed = self.by_service.range((service.clone(), None)..);
        let filed = filed.take_while(move |((filed, _), _)| *filed == service);
        filed.filter_map(|((_, place), index)| Some((place.as_ref()?, *index)))
    }

    fn shared(&self) -> Baseline<(TagPlace, usize)> {
        let places: Vec<(TagPlace, usize)> =
            self.at(None).map(|(place, index)| (place.clone(), index)).collect();
        let items = places.iter().map(|(place, index)| item(&place.0.0, *index));
        Baseline { layers: layers(items), places }
    }

    fn all(&self) -> Result<TagRules, RulesError> {
        let group = |service: &Option<String>| {
            Subset(service.iter().map(|name| Tag::is(labels::TAG_SERVICE, name)).collect())
        };
        let by_service = self
            .by_service
            .iter()
            .filter_map(|((service, place), index)| Some((place.as_ref()?, *index, group(service))));
        let otherwise = self.otherwise.iter().map(|(place, (index, subset))| (place, *index, subset.clone()));
        let mut places: Vec<(&TagPlace, usize, Subset)> = by_service.chain(otherwise).collect();
        places.sort_by_key(|(a, ..)| *a);
        let items: Vec<(Subset, TagItem<'_>)> =
            places.into_iter().map(|(place, index, subset)| (subset, item(&place.0.0, index))).collect();
        TagRules::build(&items, None)
    }
}

/// Items for destinations that are resources.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceItems {
    /// By the hash of the handle of what they point at; no place comes before all others.
    by_handle: OrdMap<(u64, Option<ResourcePlace>), ()>,
    hasher: RandomState,
    /// Items for the whole mesh.
    mesh: OrdSet<ResourcePlace>,
    /// The same, when somebody asked.
    shared: Arc<OnceLock<Baseline<ResourcePlace>>>,
}

impl ResourceItems {
    pub(super) fn insert(&mut self, policy: &Arc<Policy>) {
        for (handle, place) in places(policy) {
            if handle == Handle::Mesh {
                self.shared = Arc::default();
                self.mesh.insert(place);
            } else {
                self.by_handle.insert((self.hasher.hash_one(&handle), Some(place)), ());
            }
        }
    }

    pub(super) fn remove(&mut self, policy: &Arc<Policy>) {
        for (handle, place) in places(policy) {
            if handle == Handle::Mesh {
                self.shared = Arc::default();
                self.mesh.remove(&place);
            } else {
                self.by_handle.remove(&(self.hasher.hash_one(&handle), Some(place)));
            }
        }
    }

    /// The rule for a section of a destination; `None` when no item points at exactly that.
    pub(super) fn rule(
        &self,
        destination: &TargetResource,
        section: &str,
        destinations: &Destinations,
    ) -> Option<ResourceRule> {
        let shared = self.shared.get_or_init(|| self.shared());
        // What is said of a mesh that is not here is said of nothing.
        let of_mesh: &[ResourcePlace] = match shared.places.first() {
            Some(ResourcePlace(policy, _)) if destinations.mesh(policy.resource.mesh()).is_some() => {
                &shared.places
            }
            _ => &[],
        };
        let mut places: Vec<&ResourcePlace> = of_mesh.iter().collect();
        if is_mesh(destination) {
            let this = |p: &&ResourcePlace| p.0.resource.mesh() == destination.resource.name();
            places.first().filter(|place| section.is_empty() && this(place))?;
        } else {
            let own = self.pointing_at(destination);
            own.iter().find(|(_, meant)| meant == section)?;
            places.extend(own.iter().filter(|(_, s)| s.is_empty() || s == section).map(|(place, _)| *place));
            places.sort();
        }
        let leading = places.iter().zip(of_mesh).take_while(|(a, b)| *a == b).count();
        let items: Vec<TagItem<'_>> =
            places.into_iter().map(|ResourcePlace(policy, index)| item(policy, *index)).collect();
        Some(rule(destination, section, &items, leading, &shared.layers))
    }

    /// The items that point at a destination, each with the section.
    fn pointing_at(&self, destination: &TargetResource) -> Vec<(&ResourcePlace, String)> {
        let mut found = Vec::new();
        for handle in destination.handles() {
            let hash = self.hasher.hash_one(&handle);
            let filed = self.by_handle.range((hash, None)..).take_while(|((filed, _), ())| *filed == hash);
            for place in filed.filter_map(|((_, place), ())| place.as_ref()) {
                let ResourcePlace(policy, index) = place;
                let section = points_at(&policy.resource, &policy.to[*index].target, destination);
                found.extend(section.map(|section| (place, section)));
            }
        }
        found
    }

    fn shared(&self) -> Baseline<ResourcePlace> {
        let places: Vec<ResourcePlace> = self.mesh.iter().cloned().collect();
        let layers = layers(places.iter().map(|ResourcePlace(policy, index)| item(policy, *index)));
        Baseline { places, layers }
    }
}

fn item(policy: &Arc<Policy>, index: usize) -> TagItem<'_> {
    TagItem { policy, index, conf: &policy.to[index].conf }
}

fn layers<'a>(items: impl Iterator<Item = TagItem<'a>>) -> Layers {
    let items: Vec<TagItem<'a>> = items.collect();
    let confs: Vec<&Value> = items.iter().map(|i| i.conf).collect();
    items.first().map_or_else(Layers::default, |i| Layers::new(i.policy.strategy(), &confs))
}

/// The items of a policy for resources. One for a route has none.
fn places(policy: &Arc<Policy>) -> Vec<(Handle<'_>, ResourcePlace)> {
    if policy.is_for_route() {
        return Vec::new();
    }
    let place = |(index, handle)| (handle, ResourcePlace(Arc::clone(policy), index));
    let handles = policy.to.iter().map(|item| Handle::of(&item.target)).enumerate();
    handles.filter_map(|(index, handle)| Some((index, handle?))).map(place).collect()
}
