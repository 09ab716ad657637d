//! Sets of parts: what the proxies that call the same under one profile have in common.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    front::Front,
    outbound::OutboundCall,
    part::{Assigned, CompiledPart, Part, PartSlot, Parts, ProfileId, SetId},
};
use crate::{
    generator::{Encoded, ResourceCollection, SharedResources, type_url},
    mesh::{
        Destination, Problem,
        problem::{EnvoyResource, Subject},
    },
};

/// One set.
#[derive(Debug)]
pub(super) struct Set {
    id: SetId,
    pub(super) profile: ProfileId,
    pub(super) calls: Arc<[Arc<OutboundCall>]>,
    /// What its proxies show as a builtin gateway.
    pub(super) fronts: Arc<[Arc<Front>]>,
    /// By which its proxies see which endpoints are near.
    pub(super) affinity: Affinity,
    /// What the calls send traffic to.
    backends: BTreeMap<Destination, Backing>,
    /// Parts it has that are to be compiled. What was staged is published when there are none.
    waiting: usize,
    staged: ResourceCollection,
    /// What proxies have; `None` until every part was there once.
    pub(super) published: Option<SharedResources>,
    changed: bool,
    /// Parts of which something was left out.
    troubled: BTreeSet<Part>,
    /// Names under which several parts have something, with what is told where that is not the same.
    contested: BTreeMap<EnvoyResource, Option<Problem>>,
    /// Counts how often it had other problems than before.
    pub(super) troubles: u64,
    /// Proxies that have it.
    pub(super) members: BTreeSet<Arc<str>>,
}

/// Tags by which proxies see which endpoints are near, as far as somebody asks for them.
pub(super) type Affinity = Arc<BTreeMap<String, String>>;

/// What tells one set from another.
type Content = (ProfileId, Arc<[Arc<OutboundCall>]>, Arc<[Arc<Front>]>, Affinity);

/// A destination that is called.
#[derive(Debug, Default)]
struct Backing {
    /// How many of the calls send traffic to it.
    users: u32,
    /// Its endpoints; `None` until its cluster was made, which says where they are.
    assigned: Option<Assigned>,
    /// The name under which they are staged.
    staged: Option<Arc<str>>,
}

/// All sets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    next: SetId,
    all: HashMap<SetId, Set>,
    by_content: HashMap<Content, SetId>,
}

impl Sets {
    /// One set.
    pub(super) fn get(&self, id: SetId) -> Option<&Set> {
        self.all.get(&id)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Makes `name` a member of the set of these calls; gives the set and the parts that are new with it.
    pub(super) fn join(
        &mut self,
        name: &Arc<str>,
        profile: ProfileId,
        calls: Arc<[Arc<OutboundCall>]>,
        fronts: Arc<[Arc<Front>]>,
        affinity: Affinity,
        parts: &mut Parts,
    ) -> (SetId, Vec<Part>) {
        let content = (profile, Arc::clone(&calls), Arc::clone(&fronts), Arc::clone(&affinity));
        if let Some(id) = self.by_content.get(&content) {
            let set = self.all.get_mut(id).expect("sets are in both maps or in none");
            set.members.insert(Arc::clone(name));
            return (*id, Vec::new());
        }
        let calls: Arc<[Arc<OutboundCall>]> =
            calls.iter().map(|call| parts.interned(profile, Arc::clone(call))).collect();
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let mut set = Set {
            id,
            profile,
            calls: Arc::clone(&calls),
            fronts: Arc::clone(&fronts),
            affinity: Arc::clone(&affinity),
            backends: BTreeMap::new(),
            waiting: 0,
            staged: ResourceCollection::default(),
            published: None,
            changed: true,
            troubled: BTreeSet::new(),
            contested: BTreeMap::new(),
            troubles: 0,
            members: [Arc::clone(name)].into(),
        };
        let mut new = Vec::new();
        for call in calls.iter() {
            set.take(id, Part::Listener(profile, Arc::clone(call)), parts, &mut new);
        }
        for front in fronts.iter() {
            set.take(id, Part::Front(profile, Arc::clone(front)), parts, &mut new);
        }
        set.publish();
        self.by_content.insert((profile, calls, fronts, affinity), id);
        self.all.insert(id, set);
        (id, new)
    }

    /// Takes `name` from the members of a set, which goes with the last one.
    pub(super) fn leave(&mut self, id: SetId, name: &Arc<str>, parts: &mut Parts) {
        let Some(set) = self.all.get_mut(&id) else { return };
        set.members.remove(name);
        if !set.members.is_empty() {
            return;
        }
        let Some(set) = self.all.remove(&id) else { return };
        for call in set.calls.iter() {
            parts.leave(&Part::Listener(set.profile, Arc::clone(call)), id);
        }
        for front in set.fronts.iter() {
            parts.leave(&Part::Front(set.profile, Arc::clone(front)), id);
        }
        for (destination, backing) in set.backends {
            parts.leave(&Part::Cluster(set.profile, destination), id);
            if let Some(assigned) = backing.assigned {
                parts.leave(&Part::Assignment(assigned), id);
            }
        }
        self.by_content.remove(&(set.profile, set.calls, set.fronts, set.affinity));
    }

    /// A part of these sets is to be compiled again.
    pub(super) fn await_part(&mut self, sets: &BTreeSet<SetId>) {
        for id in sets {
            if let Some(set) = self.all.get_mut(id) {
                set.waiting += 1;
            }
        }
    }

    /// Takes in a part that was compiled: what it was, unless nothing is different. Gives the parts that are
    /// new with it and the members of sets that are complete again.
    pub(super) fn compiled(
        &mut self,
        part: &Part,
        before: Option<Option<CompiledPart>>,
        parts: &mut Parts,
    ) -> (Vec<Part>, BTreeSet<Arc<str>>) {
        let (mut new, mut complete) = (Vec::new(), BTreeSet::new());
        let Some(slot) = parts.get(part) else { return (new, complete) };
        let (ids, made) = (slot.sets.clone(), slot.made.clone());
        for id in ids {
            let Some(set) = self.all.get_mut(&id) else { continue };
            set.waiting -= 1;
            if let (Some(before), Some(made)) = (&before, &made) {
                set.changed = true;
                let known = before.iter().flat_map(CompiledPart::problems);
                set.troubles += u64::from(!known.eq(made.problems()));
                set.put(part, made, before.as_ref().and_then(CompiledPart::encoded), parts);
                // First what is added, or what it shares with what goes would be made again.
                for destination in made.backends() {
                    set.add_backend(id, destination, parts, &mut new);
                }
                for destination in before.iter().flat_map(CompiledPart::backends) {
                    set.drop_backend(id, destination, parts);
                }
                if let Part::Cluster(_, destination) = part {
                    set.assign(id, destination, parts, &mut new);
                }
            }
            set.publish();
            if set.waiting == 0 {
                // Also when nothing is different: what is their own may have waited for it.
                complete.extend(set.members.iter().cloned());
            }
        }
        (new, complete)
    }

    /// Takes in endpoints that were renewed: they are published at once, whatever the set waits for. Gives
    /// the members of the sets, who may also have them from another set they had before.
    pub(super) fn reassigned(
        &mut self,
        encoded: &Arc<Encoded>,
        sets: &BTreeSet<SetId>,
        parts: &Parts,
    ) -> BTreeSet<Arc<str>> {
        let mut members = BTreeSet::new();
        for id in sets {
            let Some(set) = self.all.get_mut(id) else { continue };
            if set.contested.contains_key(&encoded.place()) {
                set.changed = true;
                set.decide(&encoded.place(), parts);
                if set.is_waiting() {
                    // Whose are sent follows from what is waited for.
                    continue;
                }
                set.publish();
            } else {
                set.staged.insert(Arc::clone(encoded));
                if let Some(published) = &mut set.published {
                    published.renew(encoded);
                }
            }
            members.extend(set.members.iter().cloned());
        }
        members
    }
}

impl Set {
    /// Makes `part` a part of the set, with what it brings along.
    fn take(&mut self, id: SetId, part: Part, parts: &mut Parts, new: &mut Vec<Part>) {
        if parts.join(&part, id) {
            self.waiting += 1;
            new.push(part);
            return;
        }
        let Some(slot) = parts.get(&part) else { return };
        if slot.dirty {
            self.waiting += 1;
        }
        let Some(made) = slot.made.clone() else { return };
        self.changed = true;
        self.troubles += u64::from(made.problems().next().is_some());
        self.put(&part, &made, None, parts);
        for destination in made.backends() {
            self.add_backend(id, destination, parts, new);
        }
    }

    fn add_backend(&mut self, id: SetId, destination: &Destination, parts: &mut Parts, new: &mut Vec<Part>) {
        let backing = self.backends.entry(destination.clone()).or_default();
        backing.users += 1;
        if backing.users == 1 {
            self.take(id, Part::Cluster(self.profile, destination.clone()), parts, new);
            self.assign(id, destination, parts, new);
        }
    }

    /// Takes the endpoints of a destination as its cluster says that they are seen, in place of what it had.
    fn assign(&mut self, id: SetId, destination: &Destination, parts: &mut Parts, new: &mut Vec<Part>) {
        let cluster = parts.get(&Part::Cluster(self.profile, destination.clone()));
        let Some(made) = cluster.and_then(|slot| slot.made.as_ref()) else { return };
        let assigned = Assigned::seen(destination, made, &self.affinity);
        let Some(backing) = self.backends.get_mut(destination) else { return };
        if backing.assigned.as_ref() == Some(&assigned) {
            return;
        }
        let before = backing.assigned.replace(assigned.clone());
        self.take(id, Part::Assignment(assigned), parts, new);
        if let Some(before) = before {
            self.drop_part(id, &Part::Assignment(before), parts);
        }
    }

    fn drop_backend(&mut self, id: SetId, destination: &Destination, parts: &mut Parts) {
        let Some(backing) = self.backends.get_mut(destination) else { return };
        backing.users -= 1;
        if backing.users > 0 {
            return;
        }
        let Some(gone) = self.backends.remove(destination) else { return };
        if let Some(name) = gone.staged {
            self.take_out(EnvoyResource { type_url: type_url::ENDPOINT, name }, parts);
        }
        if let Some(assigned) = gone.assigned {
            self.drop_part(id, &Part::Assignment(assigned), parts);
        }
        let cluster = Part::Cluster(self.profile, destination.clone());
        let made = parts.get(&cluster).and_then(|slot| slot.made.as_ref());
        if let Some(gone) = made.and_then(CompiledPart::encoded).map(|gone| gone.place()) {
            self.take_out(gone, parts);
        }
        self.drop_part(id, &cluster, parts);
    }

    fn drop_part(&mut self, id: SetId, part: &Part, parts: &mut Parts) {
        if let Some(slot) = parts.get(part) {
            self.waiting -= usize::from(slot.dirty);
        }
        self.troubles += u64::from(self.troubled.remove(part));
        parts.leave(part, id);
    }

    fn put(&mut self, part: &Part, made: &CompiledPart, old: Option<&Arc<Encoded>>, parts: &Parts) {
        if made.problems().next().is_some() {
            self.troubled.insert(part.clone());
        } else {
            self.troubled.remove(part);
        }
        let new = made.encoded();
        let mut had = old.map(|old| old.place());
        if let Part::Assignment(assigned) = part
            && let Some(backing) = self.backends.get_mut(&assigned.destination)
        {
            // What it was may be of another part, which saw them elsewhere.
            let old = std::mem::replace(&mut backing.staged, new.map(|new| Arc::clone(&new.name)));
            had = old.map(|name| EnvoyResource { type_url: type_url::ENDPOINT, name }).or(had);
        }
        let new = new.map(|new| (new.place(), new));
        let same = new.as_ref().is_some_and(|(place, _)| had.as_ref() == Some(place));
        if let Some(had) = had.filter(|_| !same) {
            self.take_out(had, parts);
        }
        let Some((place, new)) = new else { return };
        // What is the same now may not be when its endpoints are renewed.
        let is_others = !same && self.staged.get(place.type_url, &place.name).is_some();
        if is_others || self.contested.contains_key(&place) {
            self.decide(&place, parts);
        } else {
            self.staged.insert(Arc::clone(new));
        }
    }

    fn take_out(&mut self, place: EnvoyResource, parts: &Parts) {
        if self.contested.contains_key(&place) {
            self.decide(&place, parts);
        } else {
            self.staged.remove(place.type_url, &place.name);
        }
    }

    /// Stages of what several parts have under one name that of the part that comes first, the same for a cluster and
    /// for its endpoints.
    fn decide(&mut self, place: &EnvoyResource, parts: &Parts) {
        self.troubles += 1;
        let here = parts.at(self.profile, place).filter_map(|part| {
            let slot = parts.get(part).filter(|slot| self.is_made_of(part, slot))?;
            let encoded = slot.made.as_ref()?.encoded()?;
            Some(((part.is_named_at_will(), part.clone()), Arc::clone(encoded)))
        });
        let here: BTreeMap<(bool, Part), Arc<Encoded>> = here.collect();
        let Some(first) = here.values().next() else {
            self.contested.remove(place);
            self.staged.remove(place.type_url, &place.name);
            return;
        };
        self.staged.insert(Arc::clone(first));
        if here.len() == 1 {
            self.contested.remove(place);
            return;
        }
        let others = here.values().filter(|other| other.version != first.version).count();
        let parts_of_others = here.keys().filter(|(at_will, _)| !at_will).count();
        let (which, subject): (_, fn(EnvoyResource) -> Subject) = match parts_of_others {
            1 => ("that of no service of this name", Subject::Displaced),
            _ => ("one of them", Subject::Contested),
        };
        let reason = format!("is there {} times, and not the same: {which} is sent", others + 1);
        let problem = Problem { subject: subject(place.clone()), reason };
        self.contested.insert(place.clone(), (others > 0).then_some(problem));
    }

    /// Whether it is made of `part`, and not about to drop it.
    fn is_made_of(&self, part: &Part, slot: &PartSlot) -> bool {
        slot.sets.contains(&self.id)
            && match part {
                Part::Listener(..) | Part::Front(..) => true,
                Part::Cluster(_, destination) => self.backends.contains_key(destination),
                Part::Assignment(assigned) => {
                    let backing = self.backends.get(&assigned.destination);
                    backing.is_some_and(|backing| backing.assigned.as_ref() == Some(assigned))
                }
            }
    }

    /// Whether this is what it has under that name, and not what another part has there.
    pub(super) fn has(&self, encoded: &Encoded) -> bool {
        self.staged
            .get(encoded.type_url, &encoded.name)
            .is_some_and(|staged| staged.version == encoded.version)
    }

    /// Whether parts of it are to be compiled.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Publishes what is staged when nothing is waited for.
    fn publish(&mut self) {
        if self.waiting == 0 && std::mem::take(&mut self.changed) {
            self.published = Some(SharedResources::new(self.staged.clone(), self.published.as_ref()));
        }
    }

    /// What was left out of its parts.
    pub(super) fn problems<'a>(&'a self, parts: &'a Parts) -> impl Iterator<Item = &'a Problem> {
        let made = self.troubled.iter().filter_map(|part| parts.get(part)?.made.as_ref());
        made.flat_map(CompiledPart::problems).chain(self.contested.values().flatten())
    }
}

#[cfg(test)]
mod tests;
