//! Another mesh, as far as the proxies of this one call its gateways.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    model::{
        Labels, Resource,
        kinds::{self, dataplane_networking::networking, mesh_identity},
        labels, spiffe,
    },
    proto::kuma::mesh::v1alpha1::{self as proto, MeshGateway},
    store::index::Index,
};
use prost::Message;
use proto::dataplane::networking::gateway::GatewayType;

use super::{
    Hosts, Mtls, TrustBundle, Trusts,
    authority::Secrets,
    belief,
    gateway::GatewayTags,
    topology::{Endpoint, Locality},
};

/// A mesh with what it shows to others.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The resource of the mesh.
    pub resource: Arc<Resource>,
    /// Who signs for it.
    pub mtls: Option<Mtls>,
    /// Who is believed about its members, by trust domain.
    pub domains: BTreeMap<String, TrustBundle>,
    /// By what its gateways let in the proxies of other meshes.
    pub doors: Vec<CrossMeshDoor>,
    /// Whether its members are in more trust domains than that of its authority.
    several: bool,
    /// The proxies of this zone that run them.
    proxies: BTreeSet<Arc<str>>,
}

/// A listener of a gateway that proxies of other meshes may call, in this zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossMeshDoor {
    /// The service the gateway is known as.
    pub service: Arc<str>,
    /// The port of the listener.
    pub port: u32,
    /// By which name it is called.
    pub hostname: String,
    /// All tags of the listener, that of the service included.
    pub tags: GatewayTags,
    /// Its proxies in this zone, with all their tags.
    pub endpoints: Vec<(IpAddr, GatewayTags)>,
    /// What these are called by who gives them identities.
    pub given: BTreeSet<String>,
}

/// The host name of a listener: the one it is given, or one made of its gateway where that means several.
pub fn hostname(given: &str, gateway: &str, mesh: &str) -> String {
    match given {
        "" => format!("internal.{gateway}.{mesh}.mesh"),
        several if several.contains('*') => format!("internal.{gateway}.{mesh}.mesh"),
        one => one.to_owned(),
    }
}

impl CrossMeshDoor {
    /// Its proxies, for those who come from `zone`.
    pub fn endpoints(&self, zone: &str) -> impl Iterator<Item = Endpoint> {
        self.endpoints.iter().map(move |(address, tags)| Endpoint {
            address: *address,
            port: self.port,
            weight: 1,
            tags: tags.clone(),
            labels: Labels::new(),
            locality: Locality { zone: Some(zone.to_owned()), priority: 0 },
            remote: false,
            by_identifier: false,
        })
    }
}

impl Neighbour {
    /// The mesh of this name as `index` has it, seen from `zone`.
    pub(super) fn read(
        mesh: &str,
        zone: &str,
        index: &Index,
        hosts: &Hosts,
        known: Option<&Self>,
    ) -> Option<Self> {
        let resource = index.find(&kinds::mesh::KIND, "", mesh)?;
        let spec = proto::Mesh::decode(&resource.spec[..]).ok()?;
        let known = known.and_then(|known| known.mtls.as_ref());
        // What is wrong with it is told by the mesh itself.
        let mtls = Mtls::of(&spec, Secrets { zone, mesh, index }, known, &mut Vec::new());
        let trusts = Trusts::of(index.list_in_mesh(&kinds::mesh_trust::KIND, mesh));
        let identities = index.list_in_mesh(&kinds::identity::KIND, mesh);
        let identities: Vec<_> = identities.filter_map(|one| Some((one, one.spec().ok()?))).collect();
        let known = || identities.iter().map(|(resource, spec)| (&***resource, spec));
        let mut neighbour = Self {
            resource: Arc::clone(resource),
            domains: belief::believed(mesh, zone, mtls.as_ref(), &trusts, known),
            several: mtls.is_none() || !trusts.is_empty(),
            mtls,
            doors: Vec::new(),
            proxies: BTreeSet::new(),
        };
        for gateway in index.list_in_mesh(&kinds::mesh_gateway::KIND, mesh) {
            neighbour.add(gateway, zone, index, hosts);
        }
        Some(neighbour)
    }

    fn add(&mut self, gateway: &Arc<Resource>, zone: &str, index: &Index, hosts: &Hosts) {
        let Ok(spec) = MeshGateway::decode(&*gateway.spec) else { return };
        if !spec.is_cross_mesh() {
            return;
        }
        // One that lets in others selects by one set of tags.
        let Some(selector) = spec.selectors.first().map(|selector| selector.r#match.clone()) else { return };
        let Some(service) = selector.get(labels::TAG_SERVICE) else { return };
        let proxies = running(gateway.mesh(), &selector, index, hosts);
        self.proxies.extend(proxies.iter().map(|(proxy, ..)| Arc::clone(&proxy.key.name)));
        let given = proxies.iter().filter_map(|(proxy, ..)| {
            mesh_identity::spiffe_id(index.list_in_mesh(&kinds::identity::KIND, gateway.mesh()), proxy, zone)
        });
        let given: BTreeSet<String> = given.map(|(_, id)| id).collect();
        let listeners = spec.conf.iter().flat_map(|conf| &conf.listeners);
        for listener in listeners.filter(|listener| listener.cross_mesh) {
            let more = spec.tags.iter().chain(&listener.tags);
            let more: GatewayTags = more.map(|(key, value)| (key.clone(), value.clone())).collect();
            let with_more = |mut tags: GatewayTags| {
                tags.extend(more.clone());
                tags
            };
            self.doors.push(CrossMeshDoor {
                service: service.as_str().into(),
                port: listener.port,
                hostname: hostname(&listener.hostname, gateway.display_name(), gateway.mesh()),
                tags: with_more(selector.clone()),
                endpoints: proxies.iter().map(|(_, ip, tags)| (*ip, with_more(tags.clone()))).collect(),
                given: given.clone(),
            });
        }
    }

    /// Whether proxies of other meshes would notice a change from `other` to this.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same_mtls = match (&self.mtls, &other.mtls) {
            (Some(a), Some(b)) => a.is_like(b),
            (None, None) => true,
            _ => false,
        };
        same_mtls
            && (&self.doors, &self.proxies, &self.domains, self.several)
                == (&other.doors, &other.proxies, &other.domains, other.several)
    }

    /// Whether the proxy of this name, or what it is now, lets in others.
    pub(super) fn concerns(&self, name: &str, now: Option<&Arc<Resource>>) -> bool {
        let is_gateway = |resource: &Arc<Resource>| {
            let gateway = networking(&resource.spec).ok().and_then(|networking| networking.gateway);
            gateway.is_some_and(|gateway| gateway.r#type() == GatewayType::Builtin)
        };
        self.proxies.contains(name) || (!self.doors.is_empty() && now.is_some_and(is_gateway))
    }

    /// Whether its members are in more trust domains than that of its authority, so that each is known by his own.
    pub fn has_domains(&self) -> bool {
        self.several && !self.domains.is_empty()
    }

    /// Who may answer as the gateway `service` of the mesh `name`, which is its own.
    pub fn identities(&self, name: &str, service: &str) -> BTreeSet<String> {
        let doors = self.doors.iter().filter(|door| &*door.service == service);
        let mut known: BTreeSet<String> = doors.flat_map(|door| door.given.iter().cloned()).collect();
        if self.mtls.is_some() || known.is_empty() {
            known.insert(format!("{}{service}", spiffe::prefix(name)));
        }
        known
    }

    /// The roots by which its members are known.
    pub fn roots(&self) -> Option<&str> {
        let mtls = self.mtls.as_ref().filter(|mtls| mtls.authority.is_some())?;
        Some(&mtls.roots)
    }
}

/// The builtin gateways with these tags, with address and tags of each.
fn running(
    mesh: &str,
    selector: &GatewayTags,
    index: &Index,
    hosts: &Hosts,
) -> Vec<(Arc<Resource>, IpAddr, GatewayTags)> {
    let proxies = index.list_in_mesh(&kinds::dataplane::KIND, mesh);
    let running = proxies.filter_map(|resource| {
        let networking = networking(&resource.spec).ok()?;
        let gateway = networking.gateway.filter(|gateway| gateway.r#type() == GatewayType::Builtin)?;
        let tags: GatewayTags = gateway.tags.into_iter().collect::<BTreeMap<_, _>>();
        let selected = selector
            .iter()
            .all(|(key, value)| value == "*" && tags.contains_key(key) || tags.get(key) == Some(value));
        let advertised = match networking.advertised_address.as_str() {
            "" => &networking.address,
            advertised => advertised,
        };
        let address = hosts.resolve(advertised).ok()?;
        selected.then(|| (Arc::clone(resource), address, tags))
    });
    running.collect()
}
