//! What lies around a mesh: the zone, its proxies for other zones, and the other meshes.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    model::{Kind, ResourceKey, kinds},
    store::index::Index,
};
use imbl::OrdMap;

use super::{AgentSocket, Hosts, Naming, Neighbour, Problem, ZoneEgress, ZoneIngress};

/// What decides about a mesh as others see it, besides the mesh itself and the proxies that run its gateways.
static OF_MESHES: [&Kind; 4] =
    [&kinds::mesh_gateway::KIND, &kinds::secret::SECRET, &kinds::mesh_trust::KIND, &kinds::identity::KIND];

/// What all meshes of a zone have in common.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The local zone.
    pub zone: Arc<str>,
    /// How services that are known by their tags are called.
    pub naming: Naming,
    /// Where agents who hand out identities listen, unless a proxy says otherwise.
    pub agent_socket: AgentSocket,
    /// Host names that occur in addresses.
    pub hosts: Hosts,
    /// The ingresses of every zone, by name.
    pub ingresses: OrdMap<Arc<str>, Arc<ZoneIngress>>,
    /// The egresses of every zone, by name.
    pub egresses: OrdMap<Arc<str>, Arc<ZoneEgress>>,
    /// All meshes, by name.
    pub neighbours: OrdMap<Arc<str>, Arc<Neighbour>>,
}

impl Surroundings {
    /// Reads again the ingresses and egresses among `keys`; says what could not be used.
    pub fn update(&mut self, keys: &[ResourceKey], index: &Index) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.follow_meshes(keys, index);
        for key in keys {
            let name = &key.name;
            if key.kind == &kinds::zone_ingress::KIND {
                let read = index.get(key).map(|resource| ZoneIngress::read(resource, &self.hosts));
                let found = |ingress: &ZoneIngress| ingress.problems.clone();
                follow(&mut self.ingresses, name, read, found, &mut problems);
            } else if key.kind == &kinds::zone_egress::KIND {
                let read = index.get(key).map(|resource| ZoneEgress::read(resource, &self.hosts));
                let found = |egress: &ZoneEgress| egress.problems.clone();
                follow(&mut self.egresses, name, read, found, &mut problems);
            }
        }
        problems
    }

    /// Reads again the meshes that `keys` are about, as far as others call their gateways.
    fn follow_meshes(&mut self, keys: &[ResourceKey], index: &Index) {
        let mut concerned: BTreeSet<Arc<str>> = BTreeSet::new();
        for key in keys {
            if key.kind == &kinds::mesh::KIND {
                concerned.insert(Arc::clone(&key.name));
            } else if OF_MESHES.contains(&key.kind) {
                concerned.insert(Arc::clone(&key.mesh));
            } else if key.kind == &kinds::secret::GLOBAL_SECRET {
                concerned.extend(self.neighbours.keys().cloned());
            } else if key.kind == &kinds::dataplane::KIND
                && !concerned.contains(&key.mesh)
                && self.neighbours.get(&key.mesh).is_some_and(|n| n.concerns(&key.name, index.get(key)))
            {
                concerned.insert(Arc::clone(&key.mesh));
            }
        }
        for mesh in concerned {
            let known = self.neighbours.get(&mesh);
            match Neighbour::read(&mesh, &self.zone, index, &self.hosts, known.map(|known| &**known)) {
                None => {
                    self.neighbours.remove(&mesh);
                }
                Some(now)
                    if known.is_some_and(|known| {
                        Arc::ptr_eq(&known.resource, &now.resource) && known.is_like(&now)
                    }) => {}
                Some(now) => {
                    self.neighbours.insert(mesh, Arc::new(now));
                }
            }
        }
    }
}

/// Keeps in `all` what was read under `name`, and nothing when it is gone or cannot be used.
fn follow<T: Clone>(
    all: &mut OrdMap<Arc<str>, Arc<T>>,
    name: &Arc<str>,
    read: Option<Result<T, Problem>>,
    found: impl Fn(&T) -> Vec<Problem>,
    problems: &mut Vec<Problem>,
) {
    match read {
        Some(Ok(usable)) => {
            problems.extend(found(&usable));
            all.insert(Arc::clone(name), Arc::new(usable));
            return;
        }
        Some(Err(problem)) => problems.push(problem),
        None => {}
    }
    all.remove(name);
}
