//! What comes into a zone by an ingress of the mesh alone: TLS is passed through to those who serve here what the client
//! asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{admission, outbound::CompiledListener};
use crate::{
    generator::{ListenerDraft, names, sni, zone_listener},
    mesh::{Destination, Lookup, MeshContext, Problem, ZoneListener, problem::Subject},
    policy::{Outside, route::Uses},
};

/// The listener and what it follows from: every service of this zone, and every one made of several zones.
pub(super) fn listener(outside: Outside<'_>, listener: &ZoneListener, reuses_port: bool) -> CompiledListener {
    let mut problems = BTreeSet::new();
    let mut uses = Uses::new(outside.mesh);
    // One that comes may be meant as well.
    uses.lookups.insert(Lookup::Labels);
    let mut chains = BTreeMap::new();
    if outside.mesh.services_are_exclusive() {
        let mut seen = BTreeSet::new();
        for port in ports(outside.mesh) {
            let backend = uses.backend(&Destination::Here(Arc::new(port)));
            let Some((kri, backend)) =
                backend.and_then(|backend| Some((backend.resource.clone()?.kri, backend)))
            else {
                continue;
            };
            match sni::of_kri(&kri).filter(|name| seen.insert(name.to_lowercase())) {
                Some(name) => {
                    let chain = zone_listener::passage(&name, &uses.cluster_of(&backend));
                    chains.insert(name, chain);
                }
                None => {
                    let reason = "nobody gets to it from other zones: a part of its identifier cannot stand in a \
                                  host name";
                    let subject = Subject::Part(backend.cluster);
                    problems.insert(Problem { subject, reason: reason.to_owned() });
                }
            }
        }
    } else {
        problems.insert(closed(listener));
    }
    let draft = zone_listener::listener(listener, reuses_port, chains.into_values().collect());
    let patches = outside.profile.patches();
    let finish = |draft: ListenerDraft| admission::patched(draft.encode(), patches, || None, &mut problems);
    CompiledListener {
        listener: draft.and_then(finish),
        backends: uses.backends.into_values().collect(),
        consulted: uses.consulted,
        lookups: uses.lookups,
        problems,
    }
}

fn closed(listener: &ZoneListener) -> Problem {
    let reason = "nobody comes in by it: the mesh does not have meshServices.mode Exclusive";
    Problem { subject: Subject::Part(names::zone_listener(listener)), reason: reason.to_owned() }
}

/// The ports of the services of this zone by name, then of those of several.
fn ports(mesh: &MeshContext) -> impl Iterator<Item = Destination> {
    let here = mesh.mesh_services.iter().filter(|service| service.remote_zone.is_none());
    let here = here.flat_map(|service| service.spec.ports.iter().map(|port| service.callee(port)));
    let composed = mesh.multi_zone_services.iter();
    here.chain(composed.flat_map(|service| service.spec.ports.iter().map(|port| service.callee(port))))
}
