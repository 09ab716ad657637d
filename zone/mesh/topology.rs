//! Which endpoints serve which service, seen from a proxy of the local zone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::model::{Labels, labels};
use imbl::OrdMap;

use super::{Destination, ExternalService, Protocol};

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
    pub labels: Labels,
    /// Where it is.
    pub locality: Locality,
    /// Whether it is the ingress of another zone.
    pub remote: bool,
    /// Whether that is one of this mesh alone, which knows services by their identifiers.
    pub by_identifier: bool,
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
    /// Where the egresses of this zone find those of its endpoints that are in other zones, when its clients go
    /// through them.
    pub beyond: Vec<Endpoint>,
    /// How it is reached when it is outside the mesh.
    pub exit: Option<Exit>,
}

/// How a service outside the mesh is reached.
#[derive(Clone, Debug)]
pub enum Exit {
    /// By its clients themselves.
    Direct(Vec<Arc<ExternalService>>),
    /// Through an egress, which shows its own certificate.
    Egress,
    /// Through an egress of the mesh alone, which proves to be one of these.
    OwnEgress(Arc<BTreeSet<String>>),
}

impl PartialEq for Exit {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            // What was read anew may be anything else.
            (Self::Direct(a), Self::Direct(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
            }
            (Self::Egress, Self::Egress) => true,
            (Self::OwnEgress(a), Self::OwnEgress(b)) => a == b,
            (Self::Direct(_) | Self::Egress | Self::OwnEgress(_), _) => false,
        }
    }
}

impl Eq for Exit {}

/// What anything but its list of endpoints may follow from.
#[derive(PartialEq, Eq)]
struct Character<'a> {
    protocol: Protocol,
    tls_ready: bool,
    /// All of its endpoints are elsewhere.
    elsewhere: bool,
    /// Who its proxies say they are.
    identities: BTreeSet<&'a str>,
    /// In which other zones there are some.
    zones: BTreeSet<&'a str>,
    /// Those of them whose ingress knows services by their identifiers.
    zones_by_identifier: BTreeSet<&'a str>,
    exit: Option<&'a Exit>,
    /// Nobody serves it, which is a problem of who calls something outside.
    unserved: bool,
    /// Some are reached through an egress, which chooses among zones.
    beyond: bool,
}

impl Service {
    fn character(&self) -> Character<'_> {
        let local = self.endpoints.iter().filter(|e| !e.remote);
        Character {
            protocol: self.protocol,
            tls_ready: self.tls_ready,
            elsewhere: !self.endpoints.is_empty() && self.endpoints.iter().all(|e| e.remote),
            identities: local.filter_map(|e| e.tags.get(labels::TAG_SERVICE)).map(String::as_str).collect(),
            zones: self.other_zones(),
            zones_by_identifier: self.zones_by_identifier(),
            exit: self.exit.as_ref(),
            unserved: self.exit.is_some() && self.endpoints.is_empty(),
            beyond: !self.beyond.is_empty(),
        }
    }

    /// Other zones whose ingress for it knows services by their identifiers.
    pub fn zones_by_identifier(&self) -> BTreeSet<&str> {
        let known = self.endpoints.iter().chain(&self.beyond).filter(|e| e.remote && e.by_identifier);
        known.filter_map(|e| e.locality.zone.as_deref()).collect()
    }

    /// Other zones where it is served.
    pub fn other_zones(&self) -> BTreeSet<&str> {
        self.endpoints.iter().filter(|e| e.remote).filter_map(|e| e.locality.zone.as_deref()).collect()
    }
}

/// How a service differs from what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// In its endpoints, and in nothing that follows from them.
    Endpoints,
    /// Also in what is spoken to it, or how.
    Character,
}

/// Who serves what: an entry for each service with endpoints, and for each port of each `MeshService`.
/// Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Topology(OrdMap<Destination, Arc<Service>>);

impl Topology {
    /// Who serves `destination` or, of a subset, the service it is a part of; an empty one when nobody does.
    pub fn service(&self, destination: &Destination) -> Arc<Service> {
        let found = match destination {
            Destination::Subset(_)
            | Destination::Through(_)
            | Destination::Here(_)
            | Destination::Abroad(_) => self.0.get(&destination.whole()),
            Destination::Service(_)
            | Destination::Port(..)
            | Destination::MultiZone(..)
            | Destination::External(_) => self.0.get(destination),
        };
        found.cloned().unwrap_or_default()
    }

    /// Takes in who serves `destination` now; says how that differs from before.
    pub(super) fn set(&mut self, destination: &Destination, service: Option<Service>) -> Option<Difference> {
        let known = self.0.get(destination);
        match (known, &service) {
            (None, None) => return None,
            (Some(known), Some(new)) if **known == *new => return None,
            _ => {}
        }
        let difference = match (known, &service) {
            (Some(known), Some(new)) if known.character() == new.character() => Difference::Endpoints,
            _ => Difference::Character,
        };
        match service {
            Some(service) => self.0.insert(destination.clone(), Arc::new(service)),
            None => self.0.remove(destination),
        };
        Some(difference)
    }

    /// Every service known by its tag, by name.
    pub fn services(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Service>)> {
        let known =
            self.0.iter().take_while(|(destination, _)| matches!(destination, Destination::Service(_)));
        known.filter_map(|(destination, service)| match destination {
            Destination::Service(name) => Some((name, service)),
            Destination::Subset(_)
            | Destination::Port(..)
            | Destination::MultiZone(..)
            | Destination::External(_)
            | Destination::Through(_)
            | Destination::Here(_)
            | Destination::Abroad(_) => None,
        })
    }

    /// Who serves what, in order.
    pub fn all(&self) -> impl Iterator<Item = (&Destination, &Arc<Service>)> {
        self.0.iter()
    }

    /// Everything that has an entry.
    pub(super) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.0.keys()
    }
}

impl Service {
    /// A service of which nobody is known not to accept mesh TLS.
    pub(super) fn ready() -> Self {
        Self { tls_ready: true, ..Self::default() }
    }

    /// Puts its endpoints into their order.
    pub(super) fn sorted(mut self) -> Self {
        for endpoints in [&mut self.endpoints, &mut self.beyond] {
            endpoints.sort_by(|a, b| {
                let order = |e: &Endpoint| (e.locality.clone(), e.address, e.port);
                order(a).cmp(&order(b)).then_with(|| a.tags.cmp(&b.tags))
            });
        }
        self
    }
}
