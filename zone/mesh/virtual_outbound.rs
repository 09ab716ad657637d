//! Addresses at which a workload calls services by name where its traffic is redirected: they belong to no
//! machine, and its proxy recognises them.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use common::{
    model::{
        Resource,
        kinds::{
            destinations::{MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
            mesh_service,
            service_status::ServiceStatus,
        },
    },
    proto::kuma::{mesh::v1alpha1::mesh::mesh_services::Mode, system::v1alpha1::Config},
};
use imbl::OrdMap;
use prost::Message;

use super::{
    AddressBook, Dataplane, Destination, MeshContext, Naming, Reference,
    problem::{Problem, Subject},
    redirection::Reachable,
};

/// An address with a port.
pub(super) type AddressPort = (IpAddr, u32);

/// All of a mesh. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct VirtualOutbounds {
    /// Who wants an address first in order has it.
    by_address: CountedValues<AddressPort, Destination>,
    /// The same by what is called, subsets under their service.
    by_destination: CountedValues<Destination, AddressPort>,
    /// What names stand for.
    names: CountedValues<Arc<str>, IpAddr>,
}

/// Values by key, each with how many announce it: what one takes back another may announce still.
type CountedValues<K, V> = OrdMap<K, OrdMap<V, u32>>;

/// What one resource adds to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    outbounds: Vec<(AddressPort, Destination)>,
    names: Vec<(Arc<str>, IpAddr)>,
}

impl Announced {
    /// The addresses of services that are known by their tags.
    ///
    /// # Errors
    /// The problem, when nobody can read them.
    pub(super) fn of_tagged(resource: &Resource, naming: &Naming) -> Result<Self, Problem> {
        let problem = |reason: String| Problem { subject: Subject::of(resource), reason };
        let config = Config::decode(&resource.spec[..]).map_err(|error| problem(error.to_string()))?;
        let book = AddressBook::parse(&config.config).map_err(|error| problem(error.to_string()))?;
        let mut announced = Self::default();
        for entry in book.entries() {
            let Some(address) = entry.address else { continue };
            announced.names.extend(entry.names(naming).into_iter().map(|name| (name.into(), address)));
            let outbounds = entry.outbounds(naming).into_iter();
            let called = outbounds.filter_map(|(port, tags)| Some((port, Destination::tagged(tags)?)));
            announced.outbounds.extend(called.map(|(port, called)| ((address, port), called)));
        }
        Ok(announced)
    }

    /// Those of a service that is a resource, as its status has them: what is called by each of its ports.
    pub(super) fn of_service(resource: &Resource, ports: impl Iterator<Item = (u32, Destination)>) -> Self {
        let status = ServiceStatus::of(resource);
        let names: Vec<Arc<str>> =
            status.addresses.iter().map(|address| address.hostname.as_str().into()).collect();
        let ports: Vec<(u32, Destination)> = ports.collect();
        let mut announced = Self::default();
        for address in status.ips() {
            announced.outbounds.extend(ports.iter().map(|(port, called)| ((address, *port), called.clone())));
            announced.names.extend(names.iter().map(|name| (Arc::clone(name), address)));
        }
        announced
    }
}

impl VirtualOutbounds {
    /// Takes in what somebody announces now; says whether that makes a difference.
    pub(super) fn replace(&mut self, before: &Announced, after: &Announced) -> bool {
        if before == after {
            return false;
        }
        for (at, called) in &before.outbounds {
            leave(&mut self.by_address, at, called);
            leave(&mut self.by_destination, &called.whole(), at);
        }
        for (name, address) in &before.names {
            leave(&mut self.names, name, address);
        }
        for (at, called) in &after.outbounds {
            join(&mut self.by_address, *at, called.clone());
            join(&mut self.by_destination, called.whole(), *at);
        }
        for (name, address) in &after.names {
            join(&mut self.names, Arc::clone(name), *address);
        }
        true
    }

    /// What is called at an address.
    pub fn at(&self, at: AddressPort) -> Option<&Destination> {
        first(self.by_address.get(&at)?)
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (AddressPort, &Destination)> {
        self.by_address.iter().filter_map(|(at, called)| Some((*at, first(called)?)))
    }

    /// Names and what they stand for, in order.
    pub fn names(&self) -> impl Iterator<Item = (&Arc<str>, IpAddr)> {
        self.names.iter().filter_map(|(name, addresses)| Some((name, *first(addresses)?)))
    }
}

impl MeshContext {
    /// Whether every workload behind a redirection calls all that `dataplane` may call.
    pub fn reaches_everything(&self, dataplane: &Dataplane) -> bool {
        let limits = dataplane.reachable.as_ref();
        let limited = limits.is_some_and(|limits| !limits.services.is_empty() || limits.backends.is_some());
        !limited && !self.resources_are_asked_for()
    }

    /// What the workload of `dataplane` may call at virtual addresses, in order.
    pub fn reached_by(&self, dataplane: &Dataplane) -> BTreeMap<AddressPort, &Destination> {
        let virtuals = &self.virtual_outbounds;
        if self.reaches_everything(dataplane) {
            return virtuals.all().collect();
        }
        let none = Reachable::default();
        let limits = dataplane.reachable.as_deref().unwrap_or(&none);
        let mut reached = BTreeMap::new();
        let mut take = |wanted: &Destination| {
            let all = virtuals.by_destination.get(wanted).into_iter().flat_map(|all| all.keys());
            reached.extend(all.filter_map(|at| Some((*at, virtuals.at(*at)?))));
        };
        limits.services.iter().for_each(|service| take(&Destination::Service(service.as_str().into())));
        let backends = limits.backends.iter().flatten();
        backends.flat_map(|reference| self.meant_by(reference)).for_each(|called| take(&called));
        let every_service = limits.services.is_empty();
        let every_resource = limits.backends.is_none() && every_service && !self.resources_are_asked_for();
        if every_service || every_resource {
            let wanted =
                |called: &Destination| if called.is_of_resource() { every_resource } else { every_service };
            reached.extend(virtuals.all().filter(|(_, called)| wanted(called)));
        }
        reached
    }

    /// What a reference of those who list what they may call means.
    fn meant_by(&self, reference: &Reference) -> Vec<Destination> {
        if reference.kind == mesh_service::KIND.name {
            let meant = self.mesh_services.meant(reference).into_iter();
            return meant.map(|(service, port)| service.callee(port)).collect();
        }
        if reference.kind == MESH_MULTI_ZONE_SERVICE.name {
            let meant = self.multi_zone_services.meant(reference).into_iter();
            return meant.map(|(service, port)| service.callee(port)).collect();
        }
        if reference.kind == MESH_EXTERNAL_SERVICE.name {
            let meant = self.external.find(reference);
            return meant.map(|service| service.destination.clone()).into_iter().collect();
        }
        Vec::new()
    }

    /// Whether services that are resources are for those who name them only.
    fn resources_are_asked_for(&self) -> bool {
        self.spec.mesh_services.as_ref().is_some_and(|s| s.mode() == Mode::ReachableBackends)
    }
}

fn first<V: Ord + Clone>(values: &OrdMap<V, u32>) -> Option<&V> {
    values.keys().next()
}

fn join<K: Ord + Clone, V: Ord + Clone>(index: &mut CountedValues<K, V>, key: K, value: V) {
    *index.entry(key).or_default().entry(value).or_default() += 1;
}

fn leave<K: Ord + Clone, V: Ord + Clone>(index: &mut CountedValues<K, V>, key: &K, value: &V) {
    let Some(values) = index.get_mut(key) else { return };
    match values.get_mut(value) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(values.remove(value)),
    }
    if values.is_empty() {
        index.remove(key);
    }
}
