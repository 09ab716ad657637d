//! What is reached through ingresses, egresses and in other meshes.

use std::{collections::BTreeSet, sync::Arc};

use super::{MeshState, MeshUpdate};
use crate::mesh::{Abroad, Destination, Neighbour, Problem, Surroundings, ZoneAddress, topology::Difference};
use common::model::ResourceKey;

impl MeshState {
    /// Takes in the other meshes. Whoever is called there is looked at.
    pub(super) fn neighbours(&mut self, around: &Surroundings, update: &mut MeshUpdate) {
        let context = &mut self.context;
        if context.neighbours.ptr_eq(&around.neighbours) {
            return;
        }
        let before = std::mem::replace(&mut context.neighbours, around.neighbours.clone());
        let names: BTreeSet<&Arc<str>> = before.keys().chain(around.neighbours.keys()).collect();
        for name in names {
            let (old, new) = (before.get(name), around.neighbours.get(name));
            if let (Some(old), Some(new)) = (old, new)
                && Arc::ptr_eq(old, new)
            {
                continue;
            }
            let is_own = **name == *context.mesh;
            update.change.meshes |= !is_own;
            if let (Some(old), Some(new)) = (old, new)
                && old.is_like(new)
            {
                continue;
            }
            if is_own {
                // Others come by the ingresses of this zone.
                for door in [old, new].into_iter().flatten().flat_map(|neighbour| &neighbour.doors) {
                    let service = Destination::Service(Arc::clone(&door.service));
                    update.change.services.insert(service, Difference::Character);
                }
                continue;
            }
            // Who calls nobody there needs to believe nobody there.
            let believed = |other: &Arc<Neighbour>| {
                let roots = other.roots().map(str::to_owned);
                (roots, other.domains.clone(), other.has_domains(), other.doors.is_empty())
            };
            update.change.roots |= old.map(believed) != new.map(believed);
            for door in [old, new].into_iter().flatten().flat_map(|neighbour| &neighbour.doors) {
                let destination = Abroad::service(name, &door.service);
                update.change.services.insert(destination.clone(), Difference::Character);
                update.touched.insert(destination);
            }
        }
    }

    /// The gateways of other meshes.
    pub(super) fn abroad(&self) -> impl Iterator<Item = Destination> {
        self.context.others().flat_map(|(name, neighbour)| {
            neighbour.doors.iter().map(move |door| Abroad::service(name, &door.service))
        })
    }

    /// Takes in the ingresses of other zones. Whoever is reached through one that came, went or changed is
    /// looked at, and when their number changed so is everybody here, whose share follows from it.
    pub(super) fn ingresses(&mut self, around: &Surroundings, update: &mut MeshUpdate) {
        if self.context.ingresses.ptr_eq(&around.ingresses) {
            return;
        }
        let zones = around.ingresses.values().filter_map(|ingress| ingress.zone());
        let zones: BTreeSet<String> = zones.map(str::to_owned).collect();
        update.change.zones = *self.context.zones != zones;
        self.context.zones = Arc::new(zones);
        self.context.ingresses = around.ingresses.clone();
        // What they offer of other meshes is not looked through.
        let abroad: Vec<Destination> = self.abroad().collect();
        update.touched.extend(abroad);
        let moved = self.population.rerouted(&around.ingresses, &self.context.zone, &self.context.mesh);
        update.touched.extend(moved.services.into_iter().map(Destination::Service));
        self.zones_moved(&moved.zones, update);
        if moved.number {
            let known = self.context.topology.services();
            update.touched.extend(known.map(|(name, _)| Destination::Service(Arc::clone(name))));
        }
    }

    /// Looks at the services in these zones, which are reached elsewhere. Where a zone is reached seldom changes; what
    /// is offered there does all the time.
    fn zones_moved(&self, zones: &BTreeSet<String>, update: &mut MeshUpdate) {
        for service in self.context.mesh_services.iter().filter(|_| !zones.is_empty()) {
            if service.remote_zone.as_ref().is_some_and(|zone| zones.contains(zone)) {
                update.touched.extend(service.spec.ports.iter().map(|port| service.callee(port)));
            }
        }
    }

    /// Takes in where the ingress of this mesh in another zone is reached.
    pub(super) fn zone_address(
        &mut self,
        key: &ResourceKey,
        read: Option<Result<ZoneAddress, Problem>>,
        update: &mut MeshUpdate,
    ) {
        let after = self.usable(key, read, update).map(Arc::new);
        let before = match &after {
            Some(address) => self.context.zone_addresses.insert(Arc::clone(&key.name), Arc::clone(address)),
            None => self.context.zone_addresses.remove(&key.name),
        };
        if before == after {
            return;
        }
        update.readdressed.extend(before.iter().chain(&after).map(|address| address.zone.clone()));
    }

    /// Looks at what is reached by addresses that came, went or changed: once, however many did.
    pub(super) fn readdressed(&mut self, update: &mut MeshUpdate) {
        let zones = std::mem::take(&mut update.readdressed);
        if !zones.is_empty() {
            self.population.readdressed(self.context.zone_addresses.values());
            self.zones_moved(&zones, update);
        }
    }

    /// Takes in the egresses of this zone, through which everything outside is reached.
    pub(super) fn egresses(&mut self, around: &Surroundings, update: &mut MeshUpdate) {
        if self.context.egresses.ptr_eq(&around.egresses) {
            return;
        }
        self.context.egresses = around.egresses.clone();
        if !self.population.left_by(&around.egresses, &self.context.zone) {
            return;
        }
        update.touched.extend(self.context.external.iter().map(|service| service.destination.clone()));
        if self.context.leaves_through_egress() {
            update.touched.extend(self.population.offered().cloned().map(Destination::Service));
            let elsewhere = self.context.mesh_services.iter().filter(|service| service.remote_zone.is_some());
            for service in elsewhere {
                update.touched.extend(service.spec.ports.iter().map(|port| service.callee(port)));
            }
        }
    }

    /// Takes in the egresses of this mesh alone. Who one proves to be follows from its tags, from the authority of the
    /// mesh and from who gives identities.
    pub(super) fn own_egresses(&mut self, update: &mut MeshUpdate) {
        let mut names = update.change.dataplanes.clone();
        if update.change.everything {
            names.extend(self.context.dataplanes.keys().cloned());
        }
        let mut moved = false;
        for name in names {
            moved |= self.population.edges_moved(&name, &self.context);
        }
        if moved {
            // Whoever calls something outside leaves by them.
            let outside = self.context.external.resources().map(|service| service.destination.clone());
            update.touched.extend(outside);
        }
    }
}
