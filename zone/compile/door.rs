//! Doors of an edge: the server names by which it is passed, each with the cluster it leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    behind::{Behind, ClusterClaim},
    server_name,
};
use crate::{
    generator::type_url,
    mesh::{
        Destination, Problem,
        problem::{EnvoyResource, Subject},
    },
};

/// A server name and the cluster it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SniRoute {
    pub(super) server_name: String,
    pub(super) cluster: String,
    /// Whether the cluster is called as the service is, and not as a part of it.
    pub(super) at_will: bool,
}

impl SniRoute {
    /// What it is to be reached by, as that of what is called in this mesh.
    pub(super) fn claim(&self, mesh: &Arc<str>, destination: &Destination) -> ClusterClaim {
        ClusterClaim {
            at_will: self.at_will,
            mesh: Arc::clone(mesh),
            destination: destination.clone(),
            server_name: self.server_name.clone(),
        }
    }

    fn has_upper(&self) -> bool {
        self.server_name.bytes().any(|byte| byte.is_ascii_uppercase())
    }
}

/// A door, with its mesh and what is called there.
pub(super) type MeshDoor<'a> = (&'a Arc<str>, &'a Destination, &'a SniRoute);

/// By what one of several doors of one name is opened: that of a service known by its tag before one of a resource, then one
/// in lower case, and then the one that was there first. Of resources, zones may have several of one name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DoorRank {
    is_of_resource: bool,
    has_upper: bool,
    is_later: bool,
}

/// Server names and clusters of those of `all` that are opened, in their order. Which is not, because another one of its
/// name or cluster comes first, is one of the `problems`. `held` says who had a name first.
pub(super) fn opened<'a>(
    all: impl Iterator<Item = MeshDoor<'a>>,
    behind: &Behind,
    held: &BTreeMap<String, ClusterClaim>,
    problems: &mut BTreeSet<Problem>,
) -> Vec<(&'a str, &'a str)> {
    let mut open: Vec<(String, MeshDoor<'a>)> = Vec::new();
    for (mesh, called, door) in all.filter(|(_, _, door)| server_name::is_taken(&door.server_name)) {
        if behind.leads_to(&door.cluster, || door.claim(mesh, called)) {
            open.push((server_name::compared(&door.server_name), (mesh, called, door)));
        } else {
            problems.insert(displaced(door));
        }
    }
    let mut first: BTreeMap<&str, (DoorRank, &SniRoute)> = BTreeMap::new();
    for (name, (mesh, called, door)) in &open {
        let is_held = held.get(name).is_some_and(|held| *held == door.claim(mesh, called));
        let rank = DoorRank {
            is_of_resource: called.is_of_resource(),
            has_upper: door.has_upper(),
            is_later: !is_held,
        };
        if first.get(name.as_str()).is_none_or(|(known, _)| rank < *known) {
            first.insert(name, (rank, door));
        }
    }
    let mut doors = Vec::new();
    for (name, (_, _, door)) in &open {
        match first.get(name.as_str()) {
            Some((_, holder)) if !std::ptr::eq(*holder, *door) => {
                problems.insert(yields(door, holder));
            }
            _ => doors.push((door.server_name.as_str(), door.cluster.as_str())),
        }
    }
    doors
}

/// A door that another one comes before.
fn yields(door: &SniRoute, holder: &SniRoute) -> Problem {
    if door.server_name != holder.server_name {
        return server_name::taken(&door.server_name, &holder.server_name);
    }
    let subject = Subject::Part(format!("server name {:?}", door.server_name));
    let (to, lost) = (&holder.cluster, &door.cluster);
    let reason = format!("leads to {to:?}, so nobody gets to {lost:?}, which is called so, too");
    Problem { subject, reason }
}

/// A door that would lead to others.
fn displaced(door: &SniRoute) -> Problem {
    let place = EnvoyResource { type_url: type_url::CLUSTER, name: door.cluster.as_str().into() };
    let reason = format!("is that of a part of another service, so nobody gets in by {:?}", door.server_name);
    Problem { subject: Subject::Contested(place), reason }
}
