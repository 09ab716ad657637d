//! A data plane proxy as the generator sees it: decoded once, defaults and addresses resolved.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use common::{
    model::{Resource, labels},
    proto::kuma::mesh::v1alpha1 as proto,
};
use proto::dataplane::networking::inbound::State;

use super::{
    Hosts, Protocol,
    problem::{Problem, Subject},
};

/// Port of an inbound that stands for no service at all.
const SERVICELESS_PORT: u32 = 49151;

/// One proxy of the mesh.
#[derive(Clone, Debug)]
pub struct Dataplane {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec.
    pub spec: proto::Dataplane,
    /// Inbounds with resolved addresses, in the order they were written. Those whose address is a host
    /// name nobody resolved are left out.
    pub inbounds: Vec<Inbound>,
    /// What was left out.
    pub problems: Vec<Problem>,
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

impl Inbound {
    /// The value of its service tag.
    pub fn service(&self) -> Option<&str> {
        self.tags.get(labels::TAG_SERVICE).map(String::as_str)
    }
}

impl Dataplane {
    /// Reads `resource`; inbounds that cannot be used are left out.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>, hosts: &Hosts) -> Result<Self, Problem> {
        let spec = super::problem::decode::<proto::Dataplane>(resource)?;
        let mut problems = Vec::new();
        let networking = spec.networking.clone().unwrap_or_default();
        let mut inbounds = Vec::with_capacity(networking.inbound.len());
        for inbound in &networking.inbound {
            if inbound.port == SERVICELESS_PORT {
                continue;
            }
            match resolve(&networking, inbound, hosts) {
                Ok(inbound) => inbounds.push(inbound),
                Err(host) => problems.push(Problem {
                    subject: Subject::of(resource),
                    reason: format!("inbound {}: the host name {host:?} is not resolved", inbound.port),
                }),
            }
        }
        Ok(Self { resource: Arc::clone(resource), spec, inbounds, problems })
    }

    /// Core name.
    pub fn name(&self) -> &str {
        self.resource.name()
    }

    /// Its `networking`, or an empty one.
    pub fn networking(&self) -> &proto::dataplane::Networking {
        static EMPTY: std::sync::LazyLock<proto::dataplane::Networking> =
            std::sync::LazyLock::new(Default::default);
        self.spec.networking.as_ref().unwrap_or(&EMPTY)
    }

    /// Every tag set of this proxy: one per inbound, and that of the gateway.
    pub fn tag_sets(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        let gateway = self.networking().gateway.iter().map(|g| &g.tags);
        self.inbounds.iter().map(|i| &i.tags).chain(gateway)
    }

    /// All values of every tag, over all inbounds and the gateway.
    pub fn all_tags(&self) -> BTreeMap<String, std::collections::BTreeSet<String>> {
        let mut all: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
        for (key, value) in self.tag_sets().flatten() {
            all.entry(key.clone()).or_default().insert(value.clone());
        }
        all
    }
}

fn resolve(
    networking: &proto::dataplane::Networking,
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
