//! Doors of an edge: the server names by which it is passed, each with the cluster it leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    behind::{Behind, ClusterClaim},
    server_name,
};
use crate::mesh::{Destination, Problem, problem::Subject};

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

/// A server name that is wanted, and since when: who came earlier has the lower number.
#[derive(Clone, Debug)]
pub(super) struct StandingDoor {
    pub(super) route: SniRoute,
    pub(super) since: u64,
}

/// A door, with its mesh and what is called there.
pub(super) type MeshDoor<'a> = (&'a Arc<str>, &'a Destination, &'a StandingDoor);

/// By what one of several doors of one name is opened: that of a service known by its tag before one of a resource, then one
/// in lower case, and then the one that was there first. Of resources, zones may have several of one name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DoorRank {
    is_of_resource: bool,
    has_upper: bool,
    since: u64,
}

/// How many of the doors that are not opened are told by name. Other zones may have as many as they like.
const TOLD: usize = 8;

/// Doors that are not opened.
#[derive(Default)]
struct ClosedDoors {
    told: Vec<Problem>,
    beyond: usize,
}

impl ClosedDoors {
    fn note(&mut self, why: impl FnOnce() -> Problem) {
        if self.told.len() < TOLD {
            self.told.push(why());
        } else {
            self.beyond += 1;
        }
    }

    fn tell(self, problems: &mut BTreeSet<Problem>) {
        problems.extend(self.told);
        if self.beyond > 0 {
            let reason =
                format!("nobody gets in by {} more, which others have or lead to others", self.beyond);
            problems.insert(Problem { subject: Subject::ServerName("...".to_owned()), reason });
        }
    }
}

/// Server names and clusters of those of `all` that are opened, in their order. Which is not, because another one of its
/// name or cluster comes first, is one of the `problems`, of which some are told by name.
pub(super) fn opened<'a>(
    all: impl Iterator<Item = MeshDoor<'a>>,
    behind: &Behind,
    problems: &mut BTreeSet<Problem>,
) -> Vec<(&'a str, &'a str)> {
    let mut open: Vec<(String, MeshDoor<'a>)> = Vec::new();
    let mut closed = ClosedDoors::default();
    for (mesh, called, door) in all.filter(|(_, _, door)| server_name::is_taken(&door.route.server_name)) {
        if behind.leads_to(&door.route.cluster, || door.route.claim(mesh, called)) {
            open.push((server_name::compared(&door.route.server_name), (mesh, called, door)));
        } else {
            closed.note(|| displaced(&door.route));
        }
    }
    let mut first: BTreeMap<&str, (DoorRank, &StandingDoor)> = BTreeMap::new();
    for (name, (_, called, door)) in &open {
        let rank = DoorRank {
            is_of_resource: called.is_of_resource(),
            has_upper: door.route.has_upper(),
            since: door.since,
        };
        if first.get(name.as_str()).is_none_or(|(known, _)| rank < *known) {
            first.insert(name, (rank, door));
        }
    }
    let mut doors = Vec::new();
    for (name, (_, _, door)) in &open {
        match first.get(name.as_str()) {
            Some((_, holder)) if !std::ptr::eq(*holder, *door) => {
                closed.note(|| yields(&door.route, &holder.route));
            }
            _ => doors.push((door.route.server_name.as_str(), door.route.cluster.as_str())),
        }
    }
    closed.tell(problems);
    doors
}

/// A door that another one comes before.
fn yields(door: &SniRoute, holder: &SniRoute) -> Problem {
    if door.server_name != holder.server_name {
        return server_name::taken(&door.server_name, &holder.server_name);
    }
    let (to, lost) = (&holder.cluster, &door.cluster);
    let reason = format!("leads to {to:?}, so nobody gets to {lost:?}, which is called so, too");
    Problem { subject: Subject::ServerName(door.server_name.clone()), reason }
}

/// A door that would lead to others.
fn displaced(door: &SniRoute) -> Problem {
    let reason = format!("nobody gets in by it: {:?} is that of a part of another service", door.cluster);
    Problem { subject: Subject::ServerName(door.server_name.clone()), reason }
}
