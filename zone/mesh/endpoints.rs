//! Who serves what: found by what proxies and ingresses have, not by walking all of them.

mod edges;
mod offers;
mod outside;
mod twins;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Bound,
    sync::Arc,
};

use common::model::{
    Labels,
    kinds::mesh_service::{Port, ServiceState},
    labels,
};
use imbl::OrdMap;

use self::{
    edges::{Doors, counted, doors, open, remote},
    offers::{CountedIngress, OF_ZONE, ServiceOffer, of_service, offers, shared, spoken},
    twins::CaseTwins,
};
use super::{
    Abroad, Dataplane, Destination, EGRESS_SERVICE, Edge, ExternalService, Inbound, MeshContext,
    MeshServices, MultiZoneService, Protocol, ZoneAddress, ZoneEgress, ZoneIngress, ZoneService,
    mesh_service::SelectionKey,
    provenance::Provenance,
    topology::{Endpoint, Exit, Locality, Service},
};

type ResourceNames = BTreeSet<Arc<str>>;
/// Names by key and value of what they have.
type ByPair = BTreeMap<(String, String), ResourceNames>;

/// The proxies and ingresses of a mesh by what they are looked up by.
#[derive(Debug, Default)]
pub(super) struct EndpointIndex {
    /// Proxies by the tags of their inbounds.
    by_tag: ByPair,
    /// Proxies by their labels.
    by_label: ByPair,
    /// Proxies that hold a certificate of the mesh.
    certified: ResourceNames,
    /// Services that are resources, by what everything they select has.
    selecting: Selecting,
    /// Services of several zones, under a label that all they are made of have.
    composing: ByPair,
    /// Ingresses of other zones that count, by name, and how much of what they offer does.
    counted: BTreeMap<Arc<str>, CountedIngress>,
    /// Those by the services they offer.
    offering: BTreeMap<Arc<str>, ResourceNames>,
    /// Which of those that are called the same but for case is reached.
    twins: CaseTwins,
    /// Where each zone is reached.
    doors: Doors,
    /// Where the ingresses of this mesh alone are reached in other zones.
    own_doors: Doors,
    /// Where the egresses of this zone are reached.
    exits: BTreeSet<(IpAddr, u32)>,
    /// Where those of this mesh alone are, and who they prove to be, by the name of their proxy.
    own_exits: BTreeMap<Arc<str>, OwnExits>,
}

/// Where a proxy lets out what leaves its mesh.
#[derive(Debug, PartialEq, Eq)]
struct OwnExits {
    doors: BTreeSet<(IpAddr, u32)>,
    /// Any of these names is in its certificate.
    identities: BTreeSet<String>,
}

impl OwnExits {
    /// Those of `dataplane`; `None` when it has none that anybody could believe.
    fn of(mesh: &MeshContext, dataplane: &Dataplane) -> Option<Self> {
        let ready = dataplane.edges(Edge::Egress).filter(|listener| listener.ready);
        let doors: BTreeSet<_> = ready.map(|listener| (listener.listen, listener.port)).collect();
        if doors.is_empty() {
            return None;
        }
        let identities = mesh.names_of(dataplane);
        (!identities.is_empty()).then_some(Self { doors, identities })
    }
}

#[derive(Debug, Default)]
struct Selecting {
    everything: ResourceNames,
    by_name: BTreeMap<String, ResourceNames>,
    by_tag: ByPair,
    by_label: ByPair,
}

/// What follows from ingresses that came, went or changed.
#[derive(Debug, Default)]
pub(super) struct Rerouted {
    /// Services reached through them.
    pub(super) services: ResourceNames,
    /// Zones that are reached elsewhere.
    pub(super) zones: BTreeSet<String>,
    /// There are more or fewer of them.
    pub(super) number: bool,
}

impl EndpointIndex {
    /// Follows the change of a proxy.
    pub(super) fn moved(&mut self, name: &Arc<str>, before: Option<&Dataplane>, after: Option<&Dataplane>) {
        for (key, value) in before.into_iter().flat_map(tags) {
            leave(&mut self.by_tag, &(key.clone(), value.clone()), name);
        }
        for (key, value) in before.into_iter().flat_map(|d| &d.resource.labels) {
            leave(&mut self.by_label, &(key.to_owned(), value.to_owned()), name);
        }
        for (key, value) in after.into_iter().flat_map(tags) {
            join(&mut self.by_tag, (key.clone(), value.clone()), name);
        }
        for (key, value) in after.into_iter().flat_map(|d| &d.resource.labels) {
            join(&mut self.by_label, (key.to_owned(), value.to_owned()), name);
        }
    }

    /// Follows where a proxy lets out what leaves `mesh`, and who it proves to be; says whether that makes a difference.
    pub(super) fn edges_moved(&mut self, name: &Arc<str>, mesh: &MeshContext) -> bool {
        let after = mesh.dataplanes.get(name).and_then(|dataplane| OwnExits::of(mesh, dataplane));
        let differs = self.own_exits.get(name) != after.as_ref();
        match after {
            Some(exits) => self.own_exits.insert(Arc::clone(name), exits),
            None => self.own_exits.remove(name),
        };
        differs
    }

    /// Takes in all addresses of ingresses of this mesh alone.
    pub(super) fn readdressed<'a>(&mut self, all: impl Iterator<Item = &'a Arc<ZoneAddress>>) {
        self.own_doors.clear();
        for address in all {
            open(&mut self.own_doors, &address.zone, address.door);
        }
    }

    /// Notes whether a proxy holds a certificate; says whether that is new.
    pub(super) fn certify(&mut self, name: &Arc<str>, certified: bool) -> bool {
        if certified { self.certified.insert(Arc::clone(name)) } else { self.certified.remove(name) }
    }

    /// Follows the change of a service that is a resource.
    pub(super) fn selects(
        &mut self,
        name: &Arc<str>,
        before: Option<&ZoneService>,
        after: Option<&ZoneService>,
    ) {
        let selecting = &mut self.selecting;
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        match before.and_then(ZoneService::selector) {
            None => {}
            Some(SelectionKey::Everything) => {
                selecting.everything.remove(name);
            }
            Some(SelectionKey::Name(of)) => leave(&mut selecting.by_name, &of.to_owned(), name),
            Some(SelectionKey::Label(key, value)) => leave(&mut selecting.by_label, &pair(key, value), name),
            Some(SelectionKey::Tag(key, value)) => leave(&mut selecting.by_tag, &pair(key, value), name),
        }
        match after.and_then(ZoneService::selector) {
            None => {}
            Some(SelectionKey::Everything) => {
                selecting.everything.insert(Arc::clone(name));
            }
            Some(SelectionKey::Name(of)) => join(&mut selecting.by_name, of.to_owned(), name),
            Some(SelectionKey::Label(key, value)) => join(&mut selecting.by_label, pair(key, value), name),
            Some(SelectionKey::Tag(key, value)) => join(&mut selecting.by_tag, pair(key, value), name),
        }
    }

    /// Follows the change of a service of several zones.
    pub(super) fn composes(
        &mut self,
        name: &Arc<str>,
        before: Option<&MultiZoneService>,
        after: Option<&MultiZoneService>,
    ) {
        let first = |service: &MultiZoneService| {
            service.spec.wanted().iter().next().map(|(key, value)| (key.clone(), value.clone()))
        };
        if let Some(pair) = before.and_then(first) {
            leave(&mut self.composing, &pair, name);
        }
        if let Some(pair) = after.and_then(first) {
            join(&mut self.composing, pair, name);
        }
    }

    /// The services of several zones that `service` may be a part of.
    pub(super) fn composed_of(&self, service: &ZoneService) -> ResourceNames {
        let labels = service.resource.labels.iter();
        let composed =
            labels.filter_map(|(key, value)| self.composing.get(&(key.to_owned(), value.to_owned())));
        composed.flatten().cloned().collect()
    }

    /// Adds to `touched` what is made of what is there.
    pub(super) fn extend_to_composed(&self, mesh: &MeshContext, touched: &mut BTreeSet<Destination>) {
        let mut composed = BTreeSet::new();
        for destination in touched.iter() {
            let Destination::Port(name, port) = destination else { continue };
            let Some(service) = mesh.mesh_services.get(name) else { continue };
            let names = self.composed_of(service).into_iter();
            composed.extend(names.map(|name| Destination::MultiZone(name, *port)));
        }
        touched.extend(composed);
    }

    /// Adds to `touched` what `dataplane` serves.
    pub(super) fn served_by(
        &self,
        dataplane: &Dataplane,
        services: &MeshServices,
        touched: &mut BTreeSet<Destination>,
    ) {
        touched.extend(
            dataplane.inbounds.iter().filter_map(Inbound::service).map(|s| Destination::Service(s.into())),
        );
        let selecting = &self.selecting;
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let by_tag = tags(dataplane).filter_map(|(key, value)| selecting.by_tag.get(&pair(key, value)));
        let labels = dataplane.resource.labels.iter();
        let by_label = labels.filter_map(|(key, value)| selecting.by_label.get(&pair(key, value)));
        let by_name = selecting.by_name.get(dataplane.name()).into_iter();
        let names = by_tag.chain(by_label).chain(by_name).chain([&selecting.everything]).flatten();
        for service in names.filter_map(|name| services.get(name)) {
            let ports = service.spec.ports.iter();
            let behind = ports.filter(|port| service.inbounds(dataplane, port).next().is_some());
            touched.extend(behind.map(|port| service.callee(port)));
        }
    }

    /// Follows the ingresses to `after`, seen from a mesh in `zone`.
    pub(super) fn rerouted(
        &mut self,
        after: &OrdMap<Arc<str>, Arc<ZoneIngress>>,
        zone: &str,
        mesh: &str,
    ) -> Rerouted {
        let mut rerouted = Rerouted::default();
        let doors = doors(after);
        let zones: BTreeSet<&String> = doors.keys().chain(self.doors.keys()).collect();
        let moved = zones.into_iter().filter(|zone| doors.get(*zone) != self.doors.get(*zone));
        rerouted.zones = moved.cloned().collect();
        self.doors = doors;

        let counted = shared(counted(after, zone), mesh, OF_ZONE);
        rerouted.number = counted.len() != self.counted.len();
        let names: ResourceNames = counted.keys().chain(self.counted.keys()).cloned().collect();
        for name in names {
            let (old, new) = (self.counted.get(&name), counted.get(&name));
            if let (Some(old), Some(new)) = (old, new)
                && old.is_like(new)
            {
                continue;
            }
            let place = |counted: &CountedIngress| {
                (counted.ingress.public, counted.ingress.zone().map(str::to_owned))
            };
            let same_place = old.map(place) == new.map(place);
            let offered: BTreeSet<&str> = [old, new]
                .into_iter()
                .flatten()
                .flat_map(|counted| counted.ingress.services(mesh))
                .map(|(name, _)| name)
                .collect();
            for service in offered {
                let (before, now) = (offers(old, mesh, service), offers(new, mesh, service));
                if !same_place || before != now {
                    rerouted.services.insert(service.into());
                }
                match now.is_empty() {
                    true => leave(&mut self.offering, &service.into(), &name),
                    false => join(&mut self.offering, service.into(), &name),
                }
            }
        }
        self.counted = counted;
        rerouted
    }

    /// Follows the egresses to `after`, seen from `zone`; says whether those of this zone are reached elsewhere.
    pub(super) fn left_by(&mut self, after: &OrdMap<Arc<str>, Arc<ZoneEgress>>, zone: &str) -> bool {
        let here = after.values().filter(|egress| !egress.is_remote(zone));
        let exits = here.filter_map(|egress| egress.door()).collect();
        let differ = self.exits != exits;
        self.exits = exits;
        differ
    }

    /// Finds out by whose word `service` exists now; gives that, and the services that are reached from now on, or not any
    /// more, because their names differ from it in case only.
    pub(super) fn trace(
        &mut self,
        service: &Arc<str>,
        mesh: &MeshContext,
    ) -> (Provenance, BTreeSet<Arc<str>>) {
        let is_outside = mesh.external.tagged(service).next().is_some();
        let provenance = if self.by_tag.contains_key(&(labels::TAG_SERVICE.to_owned(), service.to_string())) {
            Provenance::Here
        } else if is_outside {
            Provenance::Global
        } else {
            Provenance::Elsewhere
        };
        let is_reached = is_outside || self.offering.contains_key(service);
        (provenance, self.twins.set(service, is_reached.then_some(provenance)))
    }

    /// What is told of services that are not reached, because the names of others differ from theirs in case only.
    pub(super) fn displaced(&self) -> Vec<String> {
        self.twins.told()
    }

    /// Services that other zones offer.
    pub(super) fn offered(&self) -> impl Iterator<Item = &Arc<str>> {
        self.offering.keys()
    }

    /// Every service somebody here has or another zone offers.
    pub(super) fn services(&self) -> impl Iterator<Item = Arc<str>> {
        let first = (labels::TAG_SERVICE.to_owned(), String::new());
        let here = self.by_tag.range((Bound::Included(first), Bound::Unbounded));
        let here =
            here.take_while(|((key, _), _)| key == labels::TAG_SERVICE).map(|((_, name), _)| name.as_str());
        here.map(Arc::from).chain(self.offering.keys().cloned())
    }

    /// Who serves `destination`; `None` when it does not exist.
    pub(super) fn service(&self, destination: &Destination, mesh: &MeshContext) -> Option<Service> {
        match destination {
            Destination::Service(name) => {
                let service = self.tagged(name, mesh);
                (!service.endpoints.is_empty() || service.exit.is_some()).then(|| service.sorted())
            }
            Destination::Port(name, number) => {
                let service = mesh.mesh_services.get(name)?;
                Some(self.behind(service, service.numbered(*number)?, mesh).sorted())
            }
            Destination::MultiZone(name, number) => {
                let service = mesh.multi_zone_services.get(name)?;
                Some(self.of_parts(service, service.numbered(*number)?, mesh).sorted())
            }
            Destination::External(name) => Some(self.outside(mesh.external.resource(name)?, mesh).sorted()),
            Destination::Abroad(abroad) => self.abroad(abroad, mesh).map(Service::sorted),
            Destination::Subset(_) | Destination::Through(_) | Destination::Here(_) => None,
        }
    }

    /// The gateways of another mesh, here and behind the ingresses of other zones. The members of both meshes have to have
    /// identities.
    fn abroad(&self, abroad: &Abroad, mesh: &MeshContext) -> Option<Service> {
        let neighbour = mesh.neighbours.get(&abroad.mesh).filter(|_| abroad.mesh != mesh.mesh)?;
        let doors = neighbour.doors.iter().filter(|door| door.service == abroad.service);
        let mut service = Service { protocol: Protocol::Http, ..Service::ready() };
        let mut known = false;
        for door in doors {
            known = true;
            service.endpoints.extend(door.endpoints(&mesh.zone));
        }
        let ingresses = self.counted.values().map(|counted| &*counted.ingress);
        let offers = of_service(ingresses.map(|i| (i, i.service(&abroad.mesh, &abroad.service))));
        service.endpoints.extend(offers.into_iter().filter_map(|(i, offer)| remote(i, offer, mesh)));
        let is_believed = neighbour.has_domains() || neighbour.roots().is_some();
        if !mesh.is_encrypted() || !is_believed {
            service.endpoints.clear();
        }
        (known || !service.endpoints.is_empty()).then_some(service)
    }

    /// Everybody behind the same port of the services it is made of. Who is in another zone where nobody can
    /// serve is left out; here that shows by itself.
    fn of_parts(&self, service: &MultiZoneService, port: &Port, mesh: &MeshContext) -> Service {
        let mut together = Service { protocol: ZoneService::protocol(port), ..Service::ready() };
        for part in service.parts(&mesh.mesh_services) {
            let away = part.remote_zone.is_some() && part.spec.state != ServiceState::Available;
            if let Some(port) = part.numbered(port.port).filter(|_| !away) {
                let behind = self.behind(part, port, mesh);
                together.tls_ready &= behind.tls_ready;
                together.endpoints.extend(behind.endpoints);
                together.beyond.extend(behind.beyond);
            }
        }
        together
    }

    /// Who is served here comes first, then what global says is outside the mesh, and then what other zones say. What comes
    /// later decides nothing for what comes before it: neither who is believed nor what is spoken.
    fn tagged(&self, name: &Arc<str>, mesh: &MeshContext) -> Service {
        let mut service = Service::ready();
        let mut unhealthy = Vec::new();
        let here = self.by_tag.get(&(labels::TAG_SERVICE.to_owned(), name.to_string()));
        for dataplane in here.into_iter().flatten().filter_map(|name| mesh.dataplanes.get(name)) {
            for inbound in dataplane.inbounds.iter().filter(|i| i.service() == Some(name)) {
                if inbound.healthy {
                    service.tls_ready &= self.is_ready(dataplane, mesh);
                    service.endpoints.push(self.local(dataplane, inbound, mesh));
                } else {
                    unhealthy.push(inbound.protocol);
                }
            }
        }
        let is_served = !service.endpoints.is_empty();
        if !is_served && self.tagged_outside(name, mesh, &mut service) {
            return service;
        }
        let is_known_here = is_served || !unhealthy.is_empty();
        let of_here = Protocol::common(service.endpoints.iter().map(|e| Protocol::of_tags(&e.tags)));
        let outside: Vec<_> = mesh.external.tagged(name).filter(|_| !is_served).collect();
        let offers = self.offers(name, mesh, is_known_here, &outside);
        service.protocol = match is_served {
            true => of_here,
            false if !outside.is_empty() => {
                Protocol::common(outside.iter().map(|external| external.protocol))
            }
            false if is_known_here => Protocol::common(unhealthy),
            false => spoken(&offers),
        };
        if offers.iter().any(|(_, offer)| offer.external_service) {
            service.exit = Some(Exit::Egress);
        }
        let remote = offers.into_iter().filter_map(|(ingress, offer)| remote(ingress, offer, mesh));
        self.reach(remote.collect(), mesh, &mut service);
        service
    }

    /// What other zones say they offer of a service, as far as that is theirs to say: all of it is in the mesh, or all
    /// outside. They are reached over mesh TLS only, so without it they do not exist. What global says is outside is reached
    /// from the zone that global names. Nobody there is an egress of the mesh, whose identity is believed about all that is
    /// outside.
    fn offers<'a>(
        &'a self,
        name: &str,
        mesh: &MeshContext,
        is_known_here: bool,
        outside: &[&Arc<ExternalService>],
    ) -> Vec<ServiceOffer<'a>> {
        let is_theirs = mesh.mtls.is_some() && name != EGRESS_SERVICE && !self.twins.yields(name);
        let offering = self.offering.get(name).filter(|_| is_theirs);
        let ingresses = offering.into_iter().flatten().filter_map(|name| self.counted.get(name));
        let mut offers = of_service(ingresses.map(|i| (&*i.ingress, i.service(&mesh.mesh, name))));
        if !outside.is_empty() {
            offers.retain(|(ingress, offer)| {
                let from_there =
                    |external: &&Arc<ExternalService>| external.zone.as_deref() == ingress.zone();
                offer.external_service && outside.iter().any(from_there)
            });
        } else if is_known_here || offers.iter().any(|(_, offer)| !offer.external_service) {
            offers.retain(|(_, offer)| !offer.external_service);
        }
        offers
    }

    /// Adds endpoints of other zones: as they are, or with the egresses of this zone before them.
    fn reach(&self, remote: Vec<Endpoint>, mesh: &MeshContext, service: &mut Service) {
        if !mesh.leaves_through_egress() {
            service.endpoints.extend(remote);
            return;
        }
        for endpoint in &remote {
            let through =
                |&(address, port): &(IpAddr, u32)| Endpoint { address, port, weight: 1, ..endpoint.clone() };
            service.endpoints.extend(self.exits.iter().map(through));
        }
        service.beyond.extend(remote);
    }

    /// A strict mesh uses TLS whoever is ready, so who is must not look like a change there.
    fn is_ready(&self, dataplane: &Dataplane, mesh: &MeshContext) -> bool {
        mesh.mtls.as_ref().is_some_and(|mtls| mtls.permissive)
            && self.certified.contains(&dataplane.resource.key.name)
    }

    /// Weighs as much as there are ingresses, so that a zone does not give away more than its share.
    fn local(&self, dataplane: &Dataplane, inbound: &Inbound, mesh: &MeshContext) -> Endpoint {
        let ingresses = if mesh.mtls.is_some() { self.counted.len() } else { 0 };
        let mut tags = inbound.tags.clone();
        if inbound.protocol != Protocol::Unknown {
            tags.entry(labels::TAG_PROTOCOL.to_owned()).or_insert_with(|| inbound.protocol.to_string());
        }
        Endpoint {
            address: inbound.advertised,
            port: inbound.port,
            weight: u32::try_from(ingresses.max(1)).unwrap_or(u32::MAX),
            locality: Locality { zone: tags.get(labels::ZONE).cloned(), priority: 0 },
            tags,
            labels: dataplane.resource.labels.clone(),
            remote: false,
            by_identifier: false,
        }
    }

    /// Who is behind a port of a service that is a resource.
    fn behind(&self, service: &ZoneService, port: &Port, mesh: &MeshContext) -> Service {
        let mut behind = Service {
            protocol: ZoneService::protocol(port),
            tls_ready: service.tls_ready,
            ..Service::default()
        };
        match &service.remote_zone {
            Some(zone) if mesh.is_encrypted() => {
                self.reach(self.at_doors(service, port, zone), mesh, &mut behind);
            }
            Some(_) => {}
            None => behind
                .endpoints
                .extend(self.selected(service, mesh).flat_map(|d| endpoints(service, port, d))),
        }
        behind
    }

    /// Proxies a service may select: all of which it has to be asked one by one.
    fn selected<'a>(
        &'a self,
        service: &'a ZoneService,
        mesh: &'a MeshContext,
    ) -> Box<dyn Iterator<Item = &'a Arc<Dataplane>> + 'a> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let names = match service.selector() {
            None => return Box::new(std::iter::empty()),
            Some(SelectionKey::Everything) => return Box::new(mesh.dataplanes.values()),
            Some(SelectionKey::Name(name)) => return Box::new(mesh.dataplanes.get(name).into_iter()),
            Some(SelectionKey::Label(key, value)) => self.by_label.get(&pair(key, value)),
            Some(SelectionKey::Tag(key, value)) => self.by_tag.get(&pair(key, value)),
        };
        Box::new(names.into_iter().flatten().filter_map(|name| mesh.dataplanes.get(name)))
    }

    /// The ingresses of `zone`, for a port of a service there: those of this mesh alone, else those of all meshes.
    fn at_doors(&self, service: &ZoneService, port: &Port, zone: &str) -> Vec<Endpoint> {
        let own = self.own_doors.get(zone);
        let tags = [(labels::TAG_SERVICE, service.destination(port)), (labels::ZONE, zone.to_owned())];
        let tags: BTreeMap<String, String> = tags.map(|(k, v)| (k.to_owned(), v)).into();
        let endpoint = |&(address, port): &(IpAddr, u32)| Endpoint {
            address,
            port,
            weight: 1,
            tags: tags.clone(),
            labels: Labels::new(),
            locality: Locality { zone: Some(zone.to_owned()), priority: 1 },
            remote: true,
            by_identifier: own.is_some(),
        };
        own.or_else(|| self.doors.get(zone)).into_iter().flatten().map(endpoint).collect()
    }
}

fn endpoints<'a>(
    service: &'a ZoneService,
    port: &'a Port,
    dataplane: &'a Dataplane,
) -> impl Iterator<Item = Endpoint> {
    service.inbounds(dataplane, port).filter(|i| i.healthy).map(|inbound| Endpoint {
        address: inbound.advertised,
        port: inbound.port,
        weight: 1,
        tags: inbound.tags.clone(),
        labels: dataplane.resource.labels.clone(),
        locality: Locality { zone: inbound.tags.get(labels::ZONE).cloned(), priority: 0 },
        remote: false,
        by_identifier: false,
    })
}

/// The tags of all inbounds of `dataplane`.
fn tags(dataplane: &Dataplane) -> impl Iterator<Item = (&String, &String)> {
    dataplane.inbounds.iter().flat_map(|inbound| &inbound.tags)
}

fn join<K: Ord>(index: &mut BTreeMap<K, ResourceNames>, key: K, name: &Arc<str>) {
    index.entry(key).or_default().insert(Arc::clone(name));
}

fn leave<K: Ord>(index: &mut BTreeMap<K, ResourceNames>, key: &K, name: &Arc<str>) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
