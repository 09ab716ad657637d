//! A data plane proxy as the generator sees it: decoded once, defaults and addresses resolved.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use common::{
    model::{Resource, kinds::dataplane_networking::networking, labels},
    policy::rules,
    proto::kuma::mesh::v1alpha1 as proto,
};
use proto::dataplane::{
    Networking,
    networking::{inbound::State, listener},
};

use super::{
    Destination, Gateway, Hosts, Naming, Protocol, Reachable, Redirection,
    address_book::Named,
    problem::{Problem, Subject},
};

/// Port of an inbound that stands for no service at all.
const SERVICELESS_PORT: u32 = 49151;

/// One proxy of the mesh. Of its spec only what is looked at is kept, since there are many.
#[derive(Clone, Debug)]
pub struct Dataplane {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Address of the proxy, when it is resolved.
    pub address: Option<IpAddr>,
    /// How policies see it; `None` for one that has no identifier.
    pub subject: Option<Arc<rules::SelectableProxy>>,
    /// Tags of the gateway, when it is one.
    pub gateway_tags: Option<BTreeMap<String, String>>,
    /// The builtin gateway it runs.
    pub gateway: Option<Arc<Gateway>>,
    /// Inbounds with resolved addresses, in the order they were written. Those whose address is a host
    /// name nobody resolved are left out.
    pub inbounds: Vec<Inbound>,
    /// The ports of all inbounds, and whether each is one of a service.
    pub inbound_ports: BTreeMap<u32, bool>,
    /// Where it listens as the ingress or egress of its mesh, with resolved addresses.
    pub listeners: Vec<ZoneListener>,
    /// What the workload calls, in the order it was written.
    pub outbounds: Arc<[Outbound]>,
    /// What probes from outside the mesh may ask.
    pub probes: Option<Arc<Probes>>,
    /// How it answers who asks for metrics, where that differs from what its mesh says.
    pub metrics: Option<Arc<proto::MetricsBackend>>,
    /// How the traffic of its machine is redirected, as its resource has it.
    pub redirection: Redirection,
    /// What the workload may call by way of that; `None` for everything.
    pub reachable: Option<Arc<Reachable>>,
    /// What was left out.
    pub problems: Vec<Problem>,
}

/// What probes from outside the mesh may ask, in place of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// On which port.
    pub port: u32,
    /// Which paths.
    pub endpoints: Vec<Probe>,
}

/// One path, and what of the workload answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// As it is asked for.
    pub path: String,
    /// As the workload knows it.
    pub workload_path: String,
    /// Where the workload listens.
    pub port: u32,
}

impl Probes {
    fn of(probes: &proto::dataplane::Probes) -> Self {
        // A question is no part of a path.
        let path = |path: &str| path.split(['?', '#']).next().unwrap_or_default().to_owned();
        let endpoint = |endpoint: &proto::dataplane::probes::Endpoint| Probe {
            path: path(&endpoint.path),
            workload_path: path(&endpoint.inbound_path),
            port: endpoint.inbound_port,
        };
        Self { port: probes.port, endpoints: probes.endpoints.iter().map(endpoint).collect() }
    }
}

/// One port of the workload, published to the mesh by its proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Where the proxy listens, as it was written.
    pub address: String,
    /// The same, resolved.
    pub listen: IpAddr,
    /// On which port.
    pub port: u32,
    /// Where other proxies reach it.
    pub advertised: IpAddr,
    /// Where the workload listens.
    pub workload: IpAddr,
    /// On which port.
    pub workload_port: u32,
    /// Its name, or its port as text: what a `sectionName` selects.
    pub section: String,
    /// All its tags.
    pub tags: BTreeMap<String, String>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Whether the workload is known to be able to serve.
    pub healthy: bool,
}

/// An address on which the workload calls something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outbound {
    /// Where the proxy listens.
    pub address: IpAddr,
    /// On which port.
    pub port: u32,
    /// What is called when no route says otherwise.
    pub target: Target,
}

/// What an outbound names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Endpoints by their tags.
    Tagged(Destination),
    /// A resource, to be looked up among those there are.
    Resource(Arc<Reference>),
}

/// A reference to a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Which kind.
    pub kind: String,
    /// Its name; `None` when it is meant by labels.
    pub name: Option<String>,
    /// All of these; empty when it is meant by name.
    pub labels: BTreeMap<String, String>,
    /// Name or number of the port; empty for the only one.
    pub port: String,
}

/// By what a [`Reference`] finds what it means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookup {
    /// By this name.
    Name(String),
    /// By labels.
    Labels,
    /// The secret of this name.
    Secret(Arc<str>),
}

impl Reference {
    /// By what it finds what it means.
    pub fn lookup(&self) -> Lookup {
        match &self.name {
            Some(name) if self.labels.is_empty() => Lookup::Name(name.clone()),
            _ => Lookup::Labels,
        }
    }
}

/// In which direction the edge of a zone is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// By what comes from other zones.
    Ingress,
    /// By what leaves the mesh.
    Egress,
}

/// Where a proxy listens as the ingress or egress of its mesh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneListener {
    /// As which of them.
    pub edge: Edge,
    /// Its address as it was written.
    pub address: String,
    /// The same, resolved.
    pub listen: IpAddr,
    /// On which port.
    pub port: u32,
    /// Its name, or its port as text: what a `sectionName` selects.
    pub section: String,
    /// Whether others may be sent to it.
    pub ready: bool,
}

impl Inbound {
    /// The value of its service tag.
    pub fn service(&self) -> Option<&str> {
        self.tags.get(labels::TAG_SERVICE).map(String::as_str)
    }
}

impl Dataplane {
    /// Reads `resource`; inbounds and outbounds that cannot be used are left out.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>, hosts: &Hosts) -> Result<Self, Problem> {
        let spec = super::problem::decode::<proto::Dataplane>(resource)?;
        let subject = rules::SelectableProxy::new(resource, &spec);
        let probes = spec.probes.as_ref().map(Probes::of).map(Arc::new);
        let networking = spec.networking.unwrap_or_default();
        let mut problems = Vec::new();
        let mut problem = |reason| problems.push(Problem { subject: Subject::of(resource), reason });
        let listeners = listeners(&networking, hosts, &mut problem);
        let inbounds = inbounds(&networking, hosts, &mut problem);
        let outbounds = outbounds(&networking, &mut problem);
        let proxying = networking.transparent_proxying.as_ref();
        let (redirection, reachable) =
            (Redirection::of_resource(proxying), proxying.map(Reachable::of_resource));
        Ok(Self {
            resource: Arc::clone(resource),
            address: hosts.resolve(&networking.address).ok(),
            subject: subject.map(Arc::new),
            gateway_tags: networking.gateway.map(|gateway| gateway.tags),
            gateway: None,
            inbounds,
            listeners,
            inbound_ports: networking.inbound.iter().map(|i| (i.port, i.port != SERVICELESS_PORT)).collect(),
            outbounds,
            probes,
            metrics: spec.metrics.map(Arc::new),
            redirection,
            reachable: reachable.filter(|limits| *limits != Reachable::default()).map(Arc::new),
            problems,
        })
    }

    /// Its services that have no virtual address, since nobody could ask for one by their names.
    pub(super) fn nameless(&self, naming: &Naming) -> impl Iterator<Item = Problem> {
        let is_nameless = |inbound: &&Inbound| {
            inbound.service().is_some_and(|name| !Named::Service(name.to_owned()).is_callable(naming))
        };
        self.inbounds.iter().filter(is_nameless).map(|inbound| Problem {
            subject: Subject::of(&self.resource),
            reason: format!(
                "inbound {}: its service has a name that no host can have, so it gets no virtual address",
                inbound.port
            ),
        })
    }

    /// Whether it runs a builtin gateway, or would if there was one for it.
    pub fn is_builtin_gateway(&self) -> bool {
        self.gateway_tags.is_some() && self.subject.as_ref().is_some_and(|subject| !subject.delegated_gateway)
    }

    /// The service it is known as as a builtin gateway.
    pub(super) fn gateway_service(&self) -> Option<&str> {
        let tags = self.gateway_tags.as_ref().filter(|_| self.is_builtin_gateway())?;
        Some(tags.get(labels::TAG_SERVICE).map_or("", String::as_str))
    }

    /// The same with the builtin gateway it runs, found among these.
    pub(super) fn running(mut self, gateways: &[Arc<Resource>]) -> Self {
        if let Some(subject) = self.subject.take() {
            let subject =
                rules::SelectableProxy { gateway: None, ..(*subject).clone() }.with_gateway(gateways);
            self.gateway = Gateway::of(&subject).map(Arc::new);
            self.subject = Some(Arc::new(subject));
        }
        self
    }

    /// Whether it listens there as a builtin gateway or as an edge of its zone.
    pub fn has_entrance(&self, address: IpAddr, port: u32) -> bool {
        let ports = self.gateway.iter().flat_map(|gateway| gateway.ports.keys());
        (self.address == Some(address) && ports.copied().any(|known| known == port))
            || self.listeners.iter().any(|listener| (listener.listen, listener.port) == (address, port))
    }

    /// Where it listens as such an edge of its mesh.
    pub fn edges(&self, edge: Edge) -> impl Iterator<Item = &ZoneListener> {
        self.listeners.iter().filter(move |listener| listener.edge == edge)
    }

    /// Who it proves to be by a certificate of `mesh`: its services, which are all in that.
    pub fn identities(&self, mesh: &str) -> BTreeSet<String> {
        let services = self.tag_sets().filter_map(|tags| tags.get(labels::TAG_SERVICE));
        services.map(|service| format!("spiffe://{mesh}/{service}")).collect()
    }

    /// Core name.
    pub fn name(&self) -> &str {
        self.resource.name()
    }

    /// Every tag set of this proxy: one per inbound, and that of the gateway.
    pub fn tag_sets(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        self.inbounds.iter().map(|i| &i.tags).chain(&self.gateway_tags)
    }

    /// All values of every tag, over all inbounds and the gateway.
    pub fn all_tags(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (key, value) in self.tag_sets().flatten() {
            all.entry(key.clone()).or_default().insert(value.clone());
        }
        all
    }
}

/// The inbounds of `resource`, for those who need nothing else of it.
///
/// # Errors
/// The problem, when the spec does not decode.
pub fn read_inbounds(resource: &Arc<Resource>, hosts: &Hosts) -> Result<Vec<Inbound>, Problem> {
    let networking =
        networking(&resource.spec).map_err(|error| super::problem::unreadable(resource, &error))?;
    Ok(inbounds(&networking, hosts, &mut |_| {}))
}

fn inbounds(networking: &Networking, hosts: &Hosts, problem: &mut dyn FnMut(String)) -> Vec<Inbound> {
    let of_service = networking.inbound.iter().filter(|inbound| inbound.port != SERVICELESS_PORT);
    let resolved = of_service.filter_map(|inbound| match resolve(networking, inbound, hosts) {
        Ok(inbound) => Some(inbound),
        Err(host) => {
            problem(format!("inbound {}: the host name {host:?} is not resolved", inbound.port));
            None
        }
    });
    resolved.collect()
}

fn listeners(networking: &Networking, hosts: &Hosts, problem: &mut dyn FnMut(String)) -> Vec<ZoneListener> {
    let mut taken = BTreeSet::new();
    let usable = networking.listeners.iter().filter_map(|listener| {
        let edge = match listener.r#type() {
            listener::Type::Unspecified => return None,
            listener::Type::ZoneIngress => Edge::Ingress,
            listener::Type::ZoneEgress => Edge::Egress,
        };
        let (port, address) = (listener.port, first(&listener.address, &networking.address));
        let Ok(listen) = hosts.resolve(address) else {
            problem(format!("listener {port}: the host name {address:?} is not resolved"));
            return None;
        };
        // An Envoy refuses the second one.
        if !taken.insert((listen, port)) {
            problem(format!("listener {}: {listen} {port} is taken by an earlier one", listener.name));
            return None;
        }
        let section = if listener.name.is_empty() { port.to_string() } else { listener.name.clone() };
        let ready = listener.state() == listener::State::Ready;
        Some(ZoneListener { edge, address: address.to_owned(), listen, port, section, ready })
    });
    usable.collect()
}

fn outbounds(networking: &Networking, problem: &mut dyn FnMut(String)) -> Arc<[Outbound]> {
    let usable = networking.outbound.iter().filter_map(|outbound| {
        let address = first(&outbound.address, "127.0.0.1");
        let mut problem = |reason: &str| problem(format!("outbound {address}:{}: {reason}", outbound.port));
        let ip = if outbound.address.is_empty() { Ok(Ipv4Addr::LOCALHOST.into()) } else { address.parse() };
        let Ok(ip) = ip else {
            problem("the address is not an IP address");
            return None;
        };
        let target = match &outbound.backend_ref {
            None => Destination::tagged(&outbound.tags).map(Target::Tagged),
            Some(reference) => Some(Target::Resource(Arc::new(Reference {
                kind: reference.kind.clone(),
                name: Some(reference.name.clone()).filter(|name| !name.is_empty()),
                labels: reference.labels.clone(),
                port: reference.port.to_string(),
            }))),
        };
        if target.is_none() {
            problem(&format!("the tag {} is missing", labels::TAG_SERVICE));
        }
        Some(Outbound { address: ip, port: outbound.port, target: target? })
    });
    usable.collect()
}

fn resolve(
    networking: &Networking,
    inbound: &proto::dataplane::networking::Inbound,
    hosts: &Hosts,
) -> Result<Inbound, String> {
    let address = first(&inbound.address, &networking.address);
    let listen = hosts.resolve(address)?;
    let advertised = match networking.advertised_address.as_str() {
        "" => listen,
        address => hosts.resolve(address)?,
    };
    let workload = match inbound.service_address.as_str() {
        "" => listen,
        address => hosts.resolve(address)?,
    };
    let workload_port = if inbound.service_port == 0 { inbound.port } else { inbound.service_port };
    let section = if inbound.name.is_empty() { inbound.port.to_string() } else { inbound.name.clone() };
    let protocol = match inbound.protocol.as_str() {
        "" => Protocol::of_tags(&inbound.tags),
        name => Protocol::parse(name),
    };
    let ready = inbound.state() == State::Ready && inbound.health.as_ref().is_none_or(|h| h.ready);
    Ok(Inbound {
        address: address.to_owned(),
        listen,
        port: inbound.port,
        advertised,
        workload,
        workload_port,
        section,
        tags: inbound.tags.clone(),
        protocol,
        healthy: ready,
    })
}

fn first<'a>(preferred: &'a str, otherwise: &'a str) -> &'a str {
    if preferred.is_empty() { otherwise } else { preferred }
}
