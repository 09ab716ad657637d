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
        labels,
    },
    proto::kuma::{mesh::v1alpha1::mesh::mesh_services::Mode, system::v1alpha1::Config},
};
use imbl::OrdMap;
use prost::Message;

use super::{
    AddressBook, Dataplane, Destination, MeshContext, Naming, Provenance, Reference,
    address_book::{Entry, Named},
    problem::{Problem, Subject},
    redirection::Reachable,
    virtual_names::{AnnouncedName, NameOrigin, VirtualNames},
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
    names: VirtualNames,
}

/// Values by key, each with how many announce it: what one takes back another may announce still.
type CountedValues<K, V> = OrdMap<K, OrdMap<V, u32>>;

/// What one resource adds to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    outbounds: Vec<(AddressPort, Destination)>,
    names: Vec<AnnouncedName>,
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
            let (owner, origin): (Arc<str>, _) = (entry.named.key().into(), origin(&entry));
            let names = entry.names(naming).into_iter().enumerate();
            announced.names.extend(names.map(|(n, name)| AnnouncedName {
                name: name.into(),
                address,
                is_alias: n > 0,
                owner: Arc::clone(&owner),
                origin: origin.clone(),
            }));
            let outbounds = entry.outbounds(naming).into_iter();
            let called = outbounds.filter_map(|(port, tags)| Some((port, Destination::tagged(tags)?)));
            announced.outbounds.extend(called.map(|(port, called)| ((address, port), called)));
        }
        Ok(announced)
    }

    /// Those of a service that is a resource, which exists by this word, as its status has them: what is called by each
    /// of its ports.
    pub(super) fn of_service(
        resource: &Resource,
        provenance: Provenance,
        ports: impl Iterator<Item = (u32, Destination)>,
    ) -> Self {
        let status = ServiceStatus::of(resource);
        let owner: Arc<str> = format!("{}:{}", resource.kind().name, resource.name()).into();
        let named = |hostname: &str, address| AnnouncedName {
            name: hostname.into(),
            address,
            is_alias: false,
            owner: Arc::clone(&owner),
            origin: NameOrigin::Known(provenance),
        };
        let ports: Vec<(u32, Destination)> = ports.collect();
        let mut announced = Self::default();
        for address in status.ips() {
            announced.outbounds.extend(ports.iter().map(|(port, called)| ((address, *port), called.clone())));
            announced.names.extend(status.addresses.iter().map(|name| named(&name.hostname, address)));
        }
        announced
    }
}

/// By whose word somebody has his names. What is outside, and what gateways let in of other meshes, global says.
fn origin(entry: &Entry) -> NameOrigin {
    let tags = entry.outbounds.first().map(|outbound| &outbound.tag_set);
    let service = tags.and_then(|tags| tags.get(labels::TAG_SERVICE));
    match (&entry.named, service) {
        (Named::Service(service), _) => NameOrigin::Service(service.as_str().into()),
        (Named::Host(_), _) => NameOrigin::Known(Provenance::Global),
        (Named::Domain(_), _) if tags.is_some_and(|tags| tags.contains_key(labels::MESH)) => {
            NameOrigin::Known(Provenance::Global)
        }
        (Named::Domain(_), Some(service)) => NameOrigin::Service(service.as_str().into()),
        (Named::Domain(_), None) => NameOrigin::Known(Provenance::Elsewhere),
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
        for (at, called) in &after.outbounds {
            join(&mut self.by_address, *at, called.clone());
            join(&mut self.by_destination, called.whole(), *at);
        }
        // Who has a name still has it, be it at another address.
        after.names.iter().for_each(|name| self.names.join(name));
        before.names.iter().for_each(|name| self.names.leave(name));
        true
    }

    /// A service that is known by its tag exists by this word now; says whether a name stands for something else by that.
    pub(super) fn exists_by(&mut self, service: &Arc<str>, provenance: Provenance) -> bool {
        self.names.exists_by(service, provenance)
    }

    /// Gives each name to who comes first, whoever had it.
    pub(super) fn settle(&mut self) {
        self.names.settle();
    }

    /// By whose word a service exists that is known by its tag.
    pub(crate) fn provenance(&self, service: &str) -> Provenance {
        self.names.provenance(service)
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
        self.names.iter()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use chrono::DateTime;
    use common::model::Spec;

    use super::*;
    use crate::mesh::address_book::{self, OutboundEntry};

    fn book(all: &[(Named, OutboundEntry)], before: &AddressBook) -> AddressBook {
        let wanted: BTreeMap<Named, BTreeSet<OutboundEntry>> =
            all.iter().map(|(named, outbound)| (named.clone(), [outbound.clone()].into())).collect();
        before.with(&wanted, &Naming::default())
    }

    fn announced(book: &AddressBook) -> Announced {
        let spec = Spec::encode(&Config { config: book.text() });
        let resource = Resource::new(address_book::key("demo"), DateTime::UNIX_EPOCH).with_spec(spec);
        Announced::of_tagged(&resource, &Naming::default()).unwrap()
    }

    fn services(all: &[&str], before: &AddressBook) -> AddressBook {
        let all: Vec<_> = all.iter().map(|service| address_book::of_service(service, 0)).collect();
        book(&all, before)
    }

    #[test]
    fn a_name_moves_to_no_service_of_another_zone_by_a_lower_address() {
        let has = |virtuals: &VirtualOutbounds, wanted: &str| {
            let found = virtuals.names().find(|(name, _)| &***name == wanted);
            found.map(|(_, address)| address.to_string())
        };
        let first = services(&["aaa", "bank_api"], &AddressBook::default());
        let hole = services(&["bank_api"], &first);
        let stolen = services(&["bank.api", "bank_api"], &hole);
        for restarted in [false, true] {
            let mut virtuals = VirtualOutbounds::default();
            virtuals.exists_by(&"bank_api".into(), Provenance::Here);
            let mut before = Announced::default();
            for book in [&first, &hole, &stolen].into_iter().skip(if restarted { 2 } else { 0 }) {
                let after = announced(book);
                virtuals.replace(&before, &after);
                before = after;
            }
            if restarted {
                virtuals.settle();
            }
            assert_eq!(has(&virtuals, "bank.api.mesh").as_deref(), Some("240.0.0.1"), "{restarted}");
            assert_eq!(has(&virtuals, "bank_api.mesh").as_deref(), Some("240.0.0.1"), "{restarted}");
            // Nobody serves it here any more.
            assert!(virtuals.exists_by(&"bank_api".into(), Provenance::Elsewhere));
            assert_eq!(has(&virtuals, "bank.api.mesh").as_deref(), Some("240.0.0.0"), "{restarted}");
        }
    }

    #[test]
    fn what_names_are_made_of_says_by_whose_word_they_are() {
        let domain = |tags: &[(&str, &str)]| {
            let tag_set = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            (Named::Domain("x.test".to_owned()), OutboundEntry { port: 80, tag_set, origin: "x".to_owned() })
        };
        let of = |one: (Named, OutboundEntry)| {
            let announced = announced(&book(&[one], &AddressBook::default()));
            announced.names.into_iter().map(|name| name.origin).next().unwrap()
        };
        let known = NameOrigin::Known;
        assert_eq!(of(address_book::of_service("web", 0)), NameOrigin::Service("web".into()));
        assert_eq!(of(domain(&[("kuma.io/service", "web")])), NameOrigin::Service("web".into()));
        let of_gateway = [("kuma.io/mesh", "other"), ("kuma.io/service", "web")];
        assert_eq!(of(domain(&of_gateway)), known(Provenance::Global));
        assert_eq!(of(domain(&[("team", "web")])), known(Provenance::Elsewhere));
        let (_, outbound) = address_book::of_service("web", 443);
        assert_eq!(of((Named::Host("httpbin.org".to_owned()), outbound)), known(Provenance::Global));
    }
}
