//! Which endpoints serve which service, seen from a proxy of the local zone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::model::{kinds::mesh_service::Port, labels};

use super::{Dataplane, MeshService, Protocol, ZoneIngress};

/// Where an endpoint is, as far as load balancing cares.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locality {
    /// Zone of the endpoint.
    pub zone: Option<String>,
    /// 0 is tried first.
    pub priority: u32,
}

/// One address that serves a service: a proxy of this zone, or the ingress of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address of the proxy or ingress.
    pub address: IpAddr,
    /// Its port.
    pub port: u32,
    /// Share of the traffic.
    pub weight: u32,
    /// Tags of the inbound behind it.
    pub tags: BTreeMap<String, String>,
    /// Labels of the dataplane behind it; empty for an ingress.
    pub labels: BTreeMap<String, String>,
    /// Where it is.
    pub locality: Locality,
    /// Whether it is the ingress of another zone.
    pub remote: bool,
}

impl Endpoint {
    /// Whether it carries all of `tags`; `*` stands for any value.
    pub fn has_tags(&self, tags: &BTreeMap<String, String>) -> bool {
        tags.iter().all(|(key, value)| match self.tags.get(key) {
            Some(own) => value == "*" || own == value,
            None => false,
        })
    }
}

/// A service and its endpoints, in the order Envoy gets them: by locality, address, port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Who serves it.
    pub endpoints: Vec<Endpoint>,
    /// What all of them speak.
    pub protocol: Protocol,
    /// Whether all of them are known to accept mesh TLS, which matters while a mesh permits plaintext.
    pub tls_ready: bool,
}

impl Service {
    /// What anything but its list of endpoints may follow from: what is spoken, whether it can be spoken
    /// over TLS, who its proxies say they are, and in which other zones there are some.
    fn character(&self) -> (Protocol, bool, bool, BTreeSet<&str>, BTreeSet<&str>) {
        let local = self.endpoints.iter().filter(|e| !e.remote);
        let identities = local.filter_map(|e| e.tags.get(labels::TAG_SERVICE)).map(String::as_str).collect();
        let elsewhere = !self.endpoints.is_empty() && self.endpoints.iter().all(|e| e.remote);
        (self.protocol, self.tls_ready, elsewhere, identities, self.other_zones())
    }

    /// Other zones where it is served.
    pub fn other_zones(&self) -> BTreeSet<&str> {
        self.endpoints.iter().filter(|e| e.remote).filter_map(|e| e.locality.zone.as_deref()).collect()
    }
}

/// How a service differs between two topologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// In its endpoints, and in nothing that follows from them.
    Endpoints,
    /// Also in what is spoken to it, or how.
    Character,
}

/// All services of a mesh: by service tag, and those that are resources by the name of their cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    services: BTreeMap<String, Arc<Service>>,
    destinations: BTreeMap<String, Arc<Service>>,
}

/// What a topology is computed from.
pub struct TopologyInput<'a> {
    /// The local zone.
    pub zone: &'a str,
    /// The mesh.
    pub mesh: &'a str,
    /// Proxies of the local zone.
    pub dataplanes: &'a [Arc<Dataplane>],
    /// Ingresses of every zone.
    pub ingresses: &'a [Arc<ZoneIngress>],
    /// Services that are resources.
    pub mesh_services: &'a [Arc<MeshService>],
    /// Other zones are reached over mesh TLS only, so without it they do not exist.
    pub mtls: bool,
    /// Endpoints of other zones are used only when none is left here.
    pub locality_aware: bool,
    /// Names of proxies that hold a certificate of the mesh.
    pub certified: &'a BTreeSet<Arc<str>>,
}

impl Topology {
    /// Computes it. Services that are the same in `previous` are shared with it.
    pub fn compute(input: &TopologyInput<'_>, previous: Option<&Self>) -> Self {
        let mut services: BTreeMap<String, Service> = BTreeMap::new();
        let ingresses = if input.mtls { add_remote(input, &mut services) } else { 0 };
        add_local(input, ingresses.max(1), &mut services);
        for service in services.values_mut() {
            let spoken = service.endpoints.iter().map(|e| Protocol::of_tags(&e.tags));
            service.protocol = Protocol::common(spoken);
        }
        let destinations = destinations(input);
        Self {
            services: shared(services, previous.map(|p| &p.services)),
            destinations: shared(destinations, previous.map(|p| &p.destinations)),
        }
    }

    /// The service of this name; an empty one when nobody serves it.
    pub fn service(&self, name: &str) -> Arc<Service> {
        self.services.get(name).cloned().unwrap_or_default()
    }

    /// The port of a service that is a resource, by the name of its cluster.
    pub fn destination(&self, name: &str) -> Arc<Service> {
        self.destinations.get(name).cloned().unwrap_or_default()
    }

    /// The services, of either sort, that look different in `other`, and how.
    pub fn differences(&self, other: &Self) -> BTreeMap<String, Difference> {
        let both = [(&self.services, &other.services), (&self.destinations, &other.destinations)];
        let mut differences = BTreeMap::new();
        for (name, difference) in both.into_iter().flat_map(|(ours, theirs)| differing(ours, theirs)) {
            let known = differences.entry(name.clone()).or_insert(difference);
            *known = difference.max(*known);
        }
        differences
    }

    /// All services known by their tag, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Service>)> {
        self.services.iter().map(|(name, service)| (name.as_str(), service))
    }
}

fn differing<'a>(
    a: &'a BTreeMap<String, Arc<Service>>,
    b: &'a BTreeMap<String, Arc<Service>>,
) -> impl Iterator<Item = (&'a String, Difference)> {
    let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
    names.filter_map(|name| {
        let difference = match (a.get(name), b.get(name)) {
            // What did not change is shared between versions of a topology.
            (Some(a), Some(b)) if a == b => return None,
            (Some(a), Some(b)) if a.character() == b.character() => Difference::Endpoints,
            _ => Difference::Character,
        };
        Some((name, difference))
    })
}

/// Sorted, and with what did not change since `previous` shared with it.
fn shared(
    services: BTreeMap<String, Service>,
    previous: Option<&BTreeMap<String, Arc<Service>>>,
) -> BTreeMap<String, Arc<Service>> {
    let share = |(name, mut service): (String, Service)| {
        service.endpoints.sort_by(|a, b| {
            let order = |e: &Endpoint| (e.locality.clone(), e.address, e.port);
            order(a).cmp(&order(b)).then_with(|| a.tags.cmp(&b.tags))
        });
        let known = previous.and_then(|p| p.get(&name)).filter(|known| ***known == service);
        let service = known.map_or_else(|| Arc::new(service), Arc::clone);
        (name, service)
    };
    services.into_iter().map(share).collect()
}

/// Every port of every service that is a resource.
fn destinations(input: &TopologyInput<'_>) -> BTreeMap<String, Service> {
    let mut destinations = BTreeMap::new();
    for service in input.mesh_services {
        for port in &service.spec.ports {
            let name = service.destination(port);
            let endpoints = match &service.remote_zone {
                Some(zone) if input.mtls => at_ingresses(input, &name, zone),
                Some(_) => Vec::new(),
                None => input.dataplanes.iter().flat_map(|d| behind(service, port, d)).collect(),
            };
            let (protocol, tls_ready) = (MeshService::protocol(port), service.tls_ready);
            destinations.insert(name, Service { endpoints, protocol, tls_ready });
        }
    }
    destinations
}

fn behind<'a>(
    service: &'a MeshService,
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
    })
}

/// The ingresses of `zone`, for one destination there.
fn at_ingresses(input: &TopologyInput<'_>, destination: &str, zone: &str) -> Vec<Endpoint> {
    let of_zone = input.ingresses.iter().filter(|i| i.zone() == Some(zone));
    let public: BTreeSet<(IpAddr, u32)> = of_zone.filter_map(|i| i.public).collect();
    let tags = [(labels::TAG_SERVICE, destination), (labels::ZONE, zone)];
    let tags: BTreeMap<String, String> = tags.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let endpoint = |(address, port)| Endpoint {
        address,
        port,
        weight: 1,
        tags: tags.clone(),
        labels: BTreeMap::new(),
        locality: Locality { zone: Some(zone.to_owned()), priority: 1 },
        remote: true,
    };
    public.into_iter().map(endpoint).collect()
}

/// Adds the ingresses of other zones for what they announce; returns how many distinct ones there are.
fn add_remote(input: &TopologyInput<'_>, services: &mut BTreeMap<String, Service>) -> u32 {
    let mut counted = BTreeSet::new();
    for ingress in input.ingresses.iter().filter(|i| i.is_remote(input.zone)) {
        let Some((address, port)) = ingress.public else { continue };
        // Several ingress resources may stand behind one load balancer. One that announces nothing yet
        // must not hide the others.
        if ingress.spec.available_services.is_empty() || !counted.insert((address, port)) {
            continue;
        }
        for available in ingress.services_of(input.mesh) {
            let Some(name) = available.tags.get(labels::TAG_SERVICE) else { continue };
            // Where the ingress is is known from who sent it; what it says may be somebody else's zone.
            let zone = ingress.zone().map(str::to_owned);
            let mut tags = available.tags.clone();
            tags.extend(zone.clone().map(|zone| (labels::ZONE.to_owned(), zone)));
            services.entry(name.clone()).or_insert_with(ready).endpoints.push(Endpoint {
                address,
                port,
                weight: available.instances,
                tags,
                labels: BTreeMap::new(),
                locality: Locality { zone, priority: u32::from(input.locality_aware) },
                remote: true,
            });
        }
    }
    u32::try_from(counted.len()).unwrap_or(u32::MAX)
}

fn add_local(input: &TopologyInput<'_>, weight: u32, services: &mut BTreeMap<String, Service>) {
    for dataplane in input.dataplanes {
        let certified = input.certified.contains(&dataplane.resource.key.name);
        for inbound in dataplane.inbounds.iter().filter(|i| i.healthy) {
            let Some(name) = inbound.service() else { continue };
            let mut tags = inbound.tags.clone();
            if inbound.protocol != Protocol::Unknown {
                tags.entry(labels::TAG_PROTOCOL.to_owned()).or_insert_with(|| inbound.protocol.to_string());
            }
            let service = services.entry(name.to_owned()).or_insert_with(ready);
            service.tls_ready &= certified;
            service.endpoints.push(Endpoint {
                address: inbound.advertised,
                port: inbound.port,
                weight,
                locality: Locality { zone: tags.get(labels::ZONE).cloned(), priority: 0 },
                tags,
                labels: dataplane.resource.labels.clone(),
                remote: false,
            });
        }
    }
}

fn ready() -> Service {
    Service { tls_ready: true, ..Service::default() }
}
