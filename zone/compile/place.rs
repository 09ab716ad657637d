//! Where proxies are: which profile and set each has, and by what others find it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::policy::rules::{Policy, Reach};

use super::part::{ProfileId, SetId};
use crate::{
    generator::{Particulars, direct_access::ANY},
    mesh::{Dataplane, Edge, Lookup, Problem, Target},
};

/// Where the proxies of a mesh are, as far as others look for them, and whose place is not known (any more).
#[derive(Debug, Default)]
pub(super) struct Located {
    /// Who is to be placed, and whether what they call may be something else too.
    pub(super) unknown: BTreeMap<Arc<str>, bool>,
    /// By what policies select.
    by_reach: BTreeMap<Reach, BTreeSet<Arc<str>>>,
    /// By the services whose endpoints they call at their own addresses.
    by_direct: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// By the references of their outbounds.
    by_lookup: BTreeMap<Lookup, BTreeSet<Arc<str>>>,
    /// Those that let out what leaves the mesh.
    ways_out: BTreeSet<Arc<str>>,
}

/// Where a proxy is.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) now: Option<(ProfileId, SetId)>,
    /// Where it was before, for as long as what it gets now was not made: it goes on with the endpoints of
    /// what it has.
    pub(super) former: Option<(ProfileId, SetId)>,
    /// The dataplane under which it is found by others.
    pub(super) filed: Option<Arc<Dataplane>>,
    /// Its texts for the markers in what it shares with others.
    pub(super) particulars: Arc<Particulars>,
    /// Calls that lead nowhere.
    pub(super) problems: BTreeSet<Problem>,
}

impl Place {
    /// The set it has.
    pub(super) fn set(&self) -> Option<SetId> {
        self.now.map(|(_, set)| set)
    }
}

impl Located {
    /// Whether everybody has a place.
    pub(super) fn is_settled(&self) -> bool {
        self.unknown.is_empty()
    }

    /// Whether the place of `name` is not known.
    pub(super) fn awaits(&self, name: &str) -> bool {
        self.unknown.contains_key(name)
    }

    /// Who may be selected by `policy`, as far as one thing about each tells.
    pub(super) fn within_reach(&self, policy: &Policy) -> impl Iterator<Item = &Arc<str>> {
        let reach = match policy.reach() {
            // Both ask for nothing in particular.
            Reach::Alike | Reach::Route => Reach::Everybody,
            reach => reach,
        };
        self.at(&reach)
    }

    /// Who is filed under `reach`.
    pub(super) fn at<'a>(&'a self, reach: &Reach) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        self.by_reach.get(reach).into_iter().flatten()
    }

    /// Who calls the endpoints of this service at their own addresses.
    pub(super) fn calling_directly(&self, service: &str) -> Vec<Arc<str>> {
        let callers = [service, ANY].into_iter().filter_map(|service| self.by_direct.get(service));
        callers.flatten().cloned().collect()
    }

    /// Whose outbounds may refer to one of the services with these names.
    pub(super) fn referring(&self, names: &BTreeSet<String>) -> BTreeSet<Arc<str>> {
        let lookups = names.iter().map(|name| Lookup::Name(name.clone())).chain([Lookup::Labels]);
        lookups.filter_map(|lookup| self.by_lookup.get(&lookup)).flatten().cloned().collect()
    }

    /// Who lets out what leaves the mesh.
    pub(super) fn ways_out(&self) -> impl Iterator<Item = &Arc<str>> {
        self.ways_out.iter()
    }

    /// Notes by what others find `name`.
    pub(super) fn file(&mut self, name: &Arc<str>, dataplane: &Dataplane) {
        if dataplane.edges(Edge::Egress).next().is_some() {
            self.ways_out.insert(Arc::clone(name));
        }
        for reach in reaches(dataplane) {
            self.by_reach.entry(reach).or_default().insert(Arc::clone(name));
        }
        for lookup in lookups(dataplane) {
            self.by_lookup.entry(lookup).or_default().insert(Arc::clone(name));
        }
        for service in direct(dataplane) {
            self.by_direct.entry(service.clone()).or_default().insert(Arc::clone(name));
        }
    }

    /// Takes back what [`file`](Self::file) noted.
    pub(super) fn unfile(&mut self, name: &Arc<str>, dataplane: &Dataplane) {
        self.ways_out.remove(name);
        for reach in reaches(dataplane) {
            take_out(&mut self.by_reach, &reach, name);
        }
        for lookup in lookups(dataplane) {
            take_out(&mut self.by_lookup, &lookup, name);
        }
        for service in direct(dataplane) {
            take_out(&mut self.by_direct, service, name);
        }
    }
}

fn reaches(dataplane: &Dataplane) -> BTreeSet<Reach> {
    let mut reaches = dataplane.subject.as_ref().map(|subject| subject.reaches()).unwrap_or_default();
    // Everybody stands for them.
    reaches.retain(|reach| !matches!(reach, Reach::Alike | Reach::Route));
    reaches
}

fn lookups(dataplane: &Dataplane) -> BTreeSet<Lookup> {
    let references = dataplane.outbounds.iter().filter_map(|outbound| match &outbound.target {
        Target::Resource(reference) => Some(reference),
        Target::Tagged(_) => None,
    });
    let reachable = dataplane.reachable.iter().flat_map(|limits| limits.lookups());
    references.map(|reference| reference.lookup()).chain(reachable).collect()
}

fn direct(dataplane: &Dataplane) -> impl Iterator<Item = &String> {
    dataplane.reachable.iter().flat_map(|limits| &limits.direct)
}

fn take_out<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Arc<str>>>, key: &K, name: &Arc<str>) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
