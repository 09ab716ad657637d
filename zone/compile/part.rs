//! Parts: what is compiled once and shared, with who uses it and what it follows from.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use super::{
    admission,
    front::Front,
    grpc,
    outbound::{self, CalledBy, CompiledCluster, CompiledListener, OutboundCall},
};
use crate::{
    generator::{Backend, Encoded, Nearness, Placement, XdsClient, backend},
    mesh::{Destination, Lookup, MeshContext, Problem, problem::EnvoyResource},
    policy::{Outside, Profile},
};

/// Names a profile for as long as somebody has it.
pub(super) type ProfileId = u32;
/// Names a set for as long as somebody has it.
pub(super) type SetId = u32;

/// Something that is compiled once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// Endpoints, as one class of clients sees them.
    Assignment(Assigned),
    /// The cluster that reaches a destination.
    Cluster(ProfileId, Destination),
    /// The listener by which something is called.
    Listener(ProfileId, Arc<OutboundCall>),
    /// What a builtin gateway shows.
    Front(ProfileId, Arc<Front>),
}

/// Endpoints of a destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Assigned {
    pub(super) destination: Destination,
    /// Where they are to those who call them; `None` when that is the same for every proxy of the mesh.
    pub(super) placement: Option<Arc<Placement>>,
    /// Who reads them.
    pub(super) client: XdsClient,
}

impl Assigned {
    /// As clients with these tags see them, of which the cluster made for their profile tells what is near to them.
    pub(super) fn seen(
        destination: &Destination,
        cluster: &CompiledPart,
        tags: &BTreeMap<String, String>,
    ) -> Self {
        let placement = cluster.nearness().map(|nearness| Arc::new(nearness.to(tags)));
        Self { destination: destination.clone(), placement, client: cluster.client() }
    }
}

/// What became of a part.
#[derive(Clone, Debug)]
pub(super) enum CompiledPart {
    /// Its destination does not exist any more.
    Nothing,
    /// Endpoints that no Envoy would take.
    Refused(Arc<BTreeSet<Problem>>),
    /// Endpoints.
    Assignment(Arc<Encoded>),
    /// A cluster.
    Cluster(Arc<CompiledCluster>),
    /// A listener, or something else that a gateway shows.
    Listener(Arc<CompiledListener>),
}

impl CompiledPart {
    fn assignment(encoded: Arc<Encoded>) -> Self {
        let mut problems = BTreeSet::new();
        match admission::admitted(encoded, &mut problems) {
            Some(encoded) => Self::Assignment(encoded),
            None => Self::Refused(Arc::new(problems)),
        }
    }

    /// The resource.
    pub(super) fn encoded(&self) -> Option<&Arc<Encoded>> {
        match self {
            Self::Nothing | Self::Refused(_) => None,
            Self::Assignment(encoded) => Some(encoded),
            Self::Cluster(compiled) => compiled.cluster.as_ref(),
            Self::Listener(compiled) => compiled.listener.as_ref(),
        }
    }

    fn listener(&self) -> Option<&CompiledListener> {
        match self {
            Self::Listener(compiled) => Some(compiled),
            Self::Nothing | Self::Refused(_) | Self::Assignment(_) | Self::Cluster(_) => None,
        }
    }

    /// Which endpoints of a cluster are near.
    pub(super) fn nearness(&self) -> Option<&Nearness> {
        match self {
            Self::Cluster(compiled) => compiled.nearness.as_ref(),
            Self::Nothing | Self::Refused(_) | Self::Assignment(_) | Self::Listener(_) => None,
        }
    }

    /// Who reads a cluster.
    fn client(&self) -> XdsClient {
        match self {
            Self::Cluster(compiled) => compiled.client,
            Self::Nothing | Self::Refused(_) | Self::Assignment(_) | Self::Listener(_) => XdsClient::Envoy,
        }
    }

    /// What it sends traffic to.
    pub(super) fn backends(&self) -> impl Iterator<Item = &Destination> {
        self.listener().into_iter().flat_map(|compiled| &compiled.backends)
    }

    /// What was left out of it.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Problem> {
        let problems = match self {
            Self::Nothing | Self::Assignment(_) => None,
            Self::Refused(problems) => Some(&**problems),
            Self::Cluster(compiled) => Some(&compiled.problems),
            Self::Listener(compiled) => Some(&compiled.problems),
        };
        problems.into_iter().flatten()
    }

    /// Whether proxies would notice a change from `other` to this.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let version =
            |made: &Self| made.encoded().map(|encoded| (Arc::clone(&encoded.name), encoded.version));
        version(self) == version(other)
            && self.backends().eq(other.backends())
            && self.nearness() == other.nearness()
            && self.problems().eq(other.problems())
    }
}

/// A part and its users.
#[derive(Debug, Default)]
pub(super) struct PartSlot {
    /// `None` until it was compiled for the first time.
    pub(super) made: Option<CompiledPart>,
    /// It is to be compiled, again or for the first time.
    pub(super) dirty: bool,
    /// Sets it is in.
    pub(super) sets: BTreeSet<SetId>,
}

/// All parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    slots: HashMap<Part, PartSlot>,
    /// What has to be looked at when anything but the endpoints of a service changed.
    followers: HashMap<Destination, HashSet<Part>>,
    /// Whose endpoints are taken from those of a service.
    assignments: HashMap<Destination, BTreeSet<Assigned>>,
    /// Listeners for which references were looked up.
    by_lookup: HashMap<Lookup, HashSet<Part>>,
    by_profile: HashMap<ProfileId, HashSet<Part>>,
    /// By what they were made to: several may have one name.
    by_place: BTreeSet<PlacedPart>,
}

/// What a part was made to, under its profile. Without a part it comes before all there are of that place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacedPart {
    profile: Option<ProfileId>,
    place: EnvoyResource,
    part: Option<Part>,
}

impl PlacedPart {
    fn of(part: &Part, made: Option<&CompiledPart>) -> Option<Self> {
        let place = made.and_then(CompiledPart::encoded)?.place();
        Some(Self { profile: part.profile(), place, part: Some(part.clone()) })
    }
}

impl Parts {
    /// One part.
    pub(super) fn get(&self, part: &Part) -> Option<&PartSlot> {
        self.slots.get(part)
    }

    /// One part, to be changed.
    pub(super) fn get_mut(&mut self, part: &Part) -> Option<&mut PartSlot> {
        self.slots.get_mut(part)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// `call` as others under this profile know it, so that it is kept once.
    pub(super) fn interned(&self, profile: ProfileId, call: Arc<OutboundCall>) -> Arc<OutboundCall> {
        let part = Part::Listener(profile, call);
        match (self.slots.get_key_value(&part), part) {
            (Some((Part::Listener(_, known), _)), _) => Arc::clone(known),
            (_, Part::Listener(_, call)) => call,
            (_, Part::Assignment(_) | Part::Cluster(..) | Part::Front(..)) => {
                unreachable!("it was made a listener above")
            }
        }
    }

    /// Adds `set` to the users of `part`; says whether the part is new.
    pub(super) fn join(&mut self, part: &Part, set: SetId) -> bool {
        if let Some(slot) = self.slots.get_mut(part) {
            slot.sets.insert(set);
            return false;
        }
        match part {
            Part::Assignment(assigned) => {
                let whole = assigned.destination.whole();
                self.assignments.entry(whole).or_default().insert(assigned.clone());
            }
            Part::Cluster(_, destination) => {
                self.followers.entry(destination.whole()).or_default().insert(part.clone());
            }
            Part::Listener(..) | Part::Front(..) => {}
        }
        if let Some(profile) = part.profile() {
            self.by_profile.entry(profile).or_default().insert(part.clone());
        }
        self.slots.insert(part.clone(), PartSlot { made: None, dirty: true, sets: [set].into() });
        true
    }

    /// Takes `set` from the users of `part`, which goes with the last one.
    pub(super) fn leave(&mut self, part: &Part, set: SetId) {
        let Some(slot) = self.slots.get_mut(part) else { return };
        slot.sets.remove(&set);
        if !slot.sets.is_empty() {
            return;
        }
        let slot = self.slots.remove(part);
        if let Some(placed) = PlacedPart::of(part, slot.as_ref().and_then(|slot| slot.made.as_ref())) {
            self.by_place.remove(&placed);
        }
        if let Some(profile) = part.profile()
            && let Some(parts) = self.by_profile.get_mut(&profile)
        {
            parts.remove(part);
            if parts.is_empty() {
                self.by_profile.remove(&profile);
            }
        }
        match part {
            Part::Assignment(assigned) => {
                let whole = assigned.destination.whole();
                if let Some(all) = self.assignments.get_mut(&whole) {
                    all.remove(assigned);
                    if all.is_empty() {
                        self.assignments.remove(&whole);
                    }
                }
            }
            Part::Cluster(_, destination) => take_out(&mut self.followers, &destination.whole(), part),
            Part::Listener(..) | Part::Front(..) => {
                let made = slot.and_then(|slot| slot.made);
                self.follow_from(part, made.as_ref().and_then(CompiledPart::listener), None);
            }
        }
    }

    /// Notes what a listener follows from now, in place of what it followed from.
    fn follow_from(&mut self, part: &Part, old: Option<&CompiledListener>, new: Option<&CompiledListener>) {
        let consulted =
            |made: Option<&CompiledListener>| made.map(|m| m.consulted.clone()).unwrap_or_default();
        let lookups = |made: Option<&CompiledListener>| made.map(|m| m.lookups.clone()).unwrap_or_default();
        replace(&mut self.followers, part, &consulted(old), &consulted(new));
        replace(&mut self.by_lookup, part, &lookups(old), &lookups(new));
    }

    /// Takes in what became of a part; gives what it was, when proxies notice a difference. `None` also for
    /// a part nobody uses any more.
    pub(super) fn made(&mut self, part: &Part, made: CompiledPart) -> Option<Option<CompiledPart>> {
        let slot = self.slots.get_mut(part)?;
        slot.dirty = false;
        let noticed = slot.made.as_ref().is_none_or(|known| !made.is_like(known));
        let before = slot.made.replace(made.clone());
        let (was, is) = (PlacedPart::of(part, before.as_ref()), PlacedPart::of(part, Some(&made)));
        if was != is {
            if let Some(was) = was {
                self.by_place.remove(&was);
            }
            self.by_place.extend(is);
        }
        self.follow_from(part, before.as_ref().and_then(CompiledPart::listener), made.listener());
        noticed.then_some(before)
    }

    /// What was made to that resource: of this profile, and what is of none.
    pub(super) fn at(&self, profile: ProfileId, place: &EnvoyResource) -> impl Iterator<Item = &Part> {
        [None, Some(profile)].into_iter().flat_map(move |profile| {
            let first = PlacedPart { profile, place: place.clone(), part: None };
            let all = self.by_place.range(first..);
            let all = all.take_while(move |placed| placed.profile == profile && placed.place == *place);
            all.filter_map(|placed| placed.part.as_ref())
        })
    }

    /// Whose endpoints are taken from those of `service`.
    pub(super) fn assignments_of(&self, service: &Destination) -> impl Iterator<Item = &Assigned> {
        self.assignments.get(service).into_iter().flatten()
    }

    /// What follows from more than the endpoints of `service`.
    pub(super) fn followers_of(&self, service: &Destination) -> impl Iterator<Item = &Part> {
        self.followers.get(service).into_iter().flatten()
    }

    /// What was made by looking up references that may mean services with these names.
    pub(super) fn referring(&self, names: &BTreeSet<String>) -> impl Iterator<Item = &Part> {
        let lookups = names.iter().map(|name| Lookup::Name(name.clone())).chain([Lookup::Labels]);
        lookups.filter_map(|lookup| self.by_lookup.get(&lookup)).flatten()
    }

    /// What was made of one of these secrets.
    pub(super) fn holding(&self, secrets: &BTreeSet<Arc<str>>) -> impl Iterator<Item = &Part> {
        let lookups = secrets.iter().map(|name| Lookup::Secret(Arc::clone(name)));
        lookups.filter_map(|lookup| self.by_lookup.get(&lookup)).flatten()
    }

    /// The parts of one profile.
    pub(super) fn of_profile(&self, profile: ProfileId) -> impl Iterator<Item = &Part> {
        self.by_profile.get(&profile).into_iter().flatten()
    }

    /// All parts.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.slots.keys()
    }
}

fn take_out<K: Hash + Eq>(index: &mut HashMap<K, HashSet<Part>>, key: &K, part: &Part) {
    if let Some(parts) = index.get_mut(key) {
        parts.remove(part);
        if parts.is_empty() {
            index.remove(key);
        }
    }
}

/// Files `part` under what is `new`, and no more under what is only `old`.
fn replace<K: Clone + Ord + Hash>(
    index: &mut HashMap<K, HashSet<Part>>,
    part: &Part,
    old: &BTreeSet<K>,
    new: &BTreeSet<K>,
) {
    for key in old.difference(new) {
        take_out(index, key, part);
    }
    for key in new.difference(old) {
        index.entry(key.clone()).or_default().insert(part.clone());
    }
}

impl Part {
    /// Of which profile it is; assignments are of none.
    pub(super) fn profile(&self) -> Option<ProfileId> {
        match self {
            Self::Assignment(_) => None,
            Self::Cluster(profile, _) | Self::Listener(profile, _) | Self::Front(profile, _) => {
                Some(*profile)
            }
        }
    }

    /// What it calls; what a gateway shows leads to anything.
    pub(super) fn destination(&self) -> Option<&Destination> {
        match self {
            Self::Assignment(assigned) => Some(&assigned.destination),
            Self::Cluster(_, destination) => Some(destination),
            Self::Listener(_, call) => Some(&call.destination),
            Self::Front(..) => None,
        }
    }

    /// Whether its name is what a service is called, which is up to who serves it. Every other name follows from what it is
    /// of, and somebody may call a service so.
    pub(super) fn is_named_at_will(&self) -> bool {
        self.destination().is_some_and(|destination| matches!(destination, Destination::Service(_)))
    }

    /// Compiles it.
    pub(super) fn compile(&self, mesh: &MeshContext, profile: &Profile) -> CompiledPart {
        let outside = Outside { mesh, profile, place: None };
        let made = match self {
            Self::Assignment(Assigned { destination, placement, client }) => {
                let seen = placement.as_deref();
                let assign = |b: Backend| backend::assignment(mesh, destination, seen, &b.cluster, *client);
                Backend::of(mesh, destination).and_then(assign).map(CompiledPart::assignment)
            }
            Self::Cluster(_, destination) => {
                let made = match profile.caller.client {
                    XdsClient::Envoy => outbound::cluster(outside, destination),
                    XdsClient::Grpc => grpc::cluster(outside, destination),
                };
                made.map(|made| CompiledPart::Cluster(Arc::new(made)))
            }
            Self::Listener(_, call) => {
                let made = match &call.by {
                    CalledBy::Address(ip, port) => {
                        outbound::listener(outside, (*ip, *port), &call.destination)
                    }
                    CalledBy::Name(name) => grpc::listener(outside, name, &call.destination),
                    CalledBy::AnyName => grpc::routes(outside, &call.destination),
                };
                made.map(|made| CompiledPart::Listener(Arc::new(made)))
            }
            Self::Front(_, front) => {
                front.compile(outside).map(|made| CompiledPart::Listener(Arc::new(made)))
            }
        };
        made.unwrap_or(CompiledPart::Nothing)
    }
}
