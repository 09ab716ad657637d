//! The services of a mesh: those that are resources, and those outside it.

use std::sync::Arc;

use common::{
    model::{Resource, ResourceKey, kinds},
    store::index::Index,
};

use super::{MeshState, MeshUpdate};
use crate::mesh::{
    ExternalService, MultiZoneService, Provenance, ZoneService, authority::Secrets, topology::Difference,
    virtual_outbound::Announced,
};

impl MeshState {
    /// Where services exist as resources only they have no other addresses.
    pub(super) fn tagged_addresses(&mut self, update: &mut MeshUpdate) {
        let exclusive = self.context.services_are_exclusive();
        let after = if exclusive { Arc::default() } else { Arc::clone(&self.tagged) };
        let virtuals = &mut self.context.virtual_outbounds;
        // Whether everything is reached follows from the mesh itself.
        update.change.virtual_outbounds |=
            virtuals.replace(&self.tagged_in_use, &after) || update.change.everything;
        self.tagged_in_use = after;
    }

    pub(super) fn mesh_service(
        &mut self,
        key: &ResourceKey,
        resource: Option<&Arc<Resource>>,
        update: &mut MeshUpdate,
    ) {
        let read = resource.map(|resource| ZoneService::read(resource, &self.context.zone));
        let after = self.usable(key, read, update).map(Arc::new);
        let before = self.context.mesh_services.set(&key.name, after.clone());
        self.population.selects(&key.name, before.as_deref(), after.as_deref());
        let announced = |service: &Arc<ZoneService>| {
            let ports = service.spec.ports.iter().map(|port| (port.port, service.callee(port)));
            let is_here = service.remote_zone.is_none();
            let provenance = if is_here { Provenance::Here } else { Provenance::Elsewhere };
            Announced::of_service(&service.resource, provenance, ports)
        };
        self.announce(before.as_ref().map(announced), after.as_ref().map(announced), update);
        for service in [&before, &after].into_iter().flatten() {
            update.touched.extend(service.spec.ports.iter().map(|port| service.callee(port)));
        }
        let same_meaning = match (&before, &after) {
            (Some(before), Some(after)) => before.means_the_same(after),
            _ => false,
        };
        if !same_meaning {
            // What is said about it may follow from more than its endpoints.
            for service in [&before, &after].into_iter().flatten() {
                let names = [service.resource.name().to_owned(), service.kri.name.clone()];
                update.change.references.extend(names);
                let ports = service.spec.ports.iter().map(|port| service.callee(port));
                update.change.services.extend(ports.map(|port| (port, Difference::Character)));
                self.composed_of(service, update);
            }
        }
    }

    pub(super) fn multi_zone_service(
        &mut self,
        key: &ResourceKey,
        resource: Option<&Arc<Resource>>,
        update: &mut MeshUpdate,
    ) {
        let after = self.usable(key, resource.map(MultiZoneService::read), update).map(Arc::new);
        let before = self.context.multi_zone_services.set(&key.name, after.clone());
        self.population.composes(&key.name, before.as_deref(), after.as_deref());
        let announced = |service: &Arc<MultiZoneService>| {
            let ports = service.spec.ports.iter().map(|port| (port.port, service.callee(port)));
            Announced::of_service(&service.resource, Provenance::Global, ports)
        };
        self.announce(before.as_ref().map(announced), after.as_ref().map(announced), update);
        let same_meaning = match (&before, &after) {
            (Some(before), Some(after)) => before.means_the_same(after),
            _ => false,
        };
        for service in [&before, &after].into_iter().flatten().filter(|_| !same_meaning) {
            update.touched.extend(service.callees());
            update.change.references.extend([service.resource.name().to_owned(), service.kri.name.clone()]);
            let differ = service.callees().map(|callee| (callee, Difference::Character));
            update.change.services.extend(differ);
        }
    }

    /// What is made of `service`, which came, went or changed. How its proxies identify themselves is part of how
    /// that is called.
    fn composed_of(&self, service: &ZoneService, update: &mut MeshUpdate) {
        for name in self.population.composed_of(service) {
            let Some(composed) = self.context.multi_zone_services.get(&name) else { continue };
            update.touched.extend(composed.callees());
            let differ = composed.callees().map(|callee| (callee, Difference::Character));
            update.change.services.extend(differ);
        }
    }

    /// Takes in a service outside the mesh.
    pub(super) fn external(
        &mut self,
        key: &ResourceKey,
        resource: Option<&Arc<Resource>>,
        index: &Index,
        update: &mut MeshUpdate,
    ) {
        let (zone, mesh) = (&*Arc::clone(&self.context.zone), &*Arc::clone(&self.context.mesh));
        let secrets = Secrets { zone, mesh, index };
        let read = resource.map(|resource| ExternalService::read(resource, &|name| secrets.named(name)));
        let (after, problems) = match read {
            Some(Ok(service)) => {
                let problems = service.problems.clone();
                (Some(Arc::new(service)), problems)
            }
            Some(Err(problem)) => (None, vec![problem]),
            None => (None, Vec::new()),
        };
        self.note(key, problems, update);
        let is_resource = key.kind == &kinds::mesh_external_service::KIND;
        let before = match &after {
            Some(service) => self.context.external.put(service),
            None => self.context.external.remove(&key.name, is_resource),
        };
        let announced = |service: &Arc<ExternalService>| {
            let port = service.is_resource().then(|| (service.port, service.destination.clone()));
            Announced::of_service(&service.resource, Provenance::Global, port.into_iter())
        };
        self.announce(before.as_ref().map(announced), after.as_ref().map(announced), update);
        for service in [&before, &after].into_iter().flatten() {
            update.touched.insert(service.destination.clone());
            update.change.services.insert(service.destination.clone(), Difference::Character);
            if let Some(kri) = &service.kri {
                update.change.references.extend([service.resource.name().to_owned(), kri.name.clone()]);
            }
        }
    }

    /// Takes in at which addresses and by which names a service is called now.
    fn announce(&mut self, before: Option<Announced>, after: Option<Announced>, update: &mut MeshUpdate) {
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        update.change.virtual_outbounds |= self.context.virtual_outbounds.replace(&before, &after);
    }
}
