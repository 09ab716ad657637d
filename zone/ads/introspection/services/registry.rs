//! The services of a mesh, in the form of Pilot's registry.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    document,
    model::{
        Resource,
        kinds::{mesh_service::Port, service_status::ServiceStatus},
    },
};
use serde_json::{Value, json};

use super::protocol;
use crate::mesh::{
    Destination, ExternalService, MeshContext, MultiZoneService, Protocol, Whereabouts, ZoneService,
    topology::{Exit, Service},
};

/// Who brought a service in.
const REGISTRY: &str = "Universal";
/// Endpoints are chosen by the client.
const CLIENT_SIDE: u8 = 0;
/// A name is looked up.
const BY_NAME: u8 = 1;
/// The address of what has none of its own.
const NO_ADDRESS: &str = "0.0.0.0";

/// What services are called, and at which virtual addresses.
pub(super) struct ServiceNames<'a> {
    places: BTreeMap<&'a Destination, BTreeSet<(IpAddr, u32)>>,
    names: BTreeMap<IpAddr, Vec<&'a str>>,
}

impl<'a> ServiceNames<'a> {
    /// Those of a mesh.
    pub(super) fn of(mesh: &'a MeshContext) -> Self {
        let mut places: BTreeMap<&Destination, BTreeSet<(IpAddr, u32)>> = BTreeMap::new();
        for (at, destination) in mesh.virtual_outbounds.all() {
            places.entry(destination).or_default().insert(at);
        }
        let mut names: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
        for (name, address) in mesh.virtual_outbounds.names() {
            names.entry(address).or_default().push(name);
        }
        Self { places, names }
    }

    fn places(&self, destination: &Destination) -> impl Iterator<Item = (IpAddr, u32)> {
        self.places.get(destination).into_iter().flatten().copied()
    }

    fn aliases(&self, addresses: &BTreeSet<IpAddr>) -> Vec<&str> {
        addresses.iter().filter_map(|address| self.names.get(address)).flatten().copied().collect()
    }

    /// A service as one that a proxy is an instance of.
    pub(super) fn instance(&self, destination: &Destination, mesh: &MeshContext) -> Value {
        let hostname = hostname(destination, mesh).unwrap_or_default();
        let addresses = self.places(destination).map(|(address, _)| address).collect();
        json!({ "hostname": hostname, "Attributes": attributes(&hostname, mesh, None, &self.aliases(&addresses)) })
    }
}

/// What a service is called everywhere here: its tag, or its identifier.
pub(super) fn hostname(destination: &Destination, mesh: &MeshContext) -> Option<String> {
    match destination {
        Destination::Service(name) => Some(name.to_string()),
        Destination::Port(name, _) => Some(mesh.mesh_services.get(name)?.kri.to_string()),
        Destination::MultiZone(name, _) => Some(mesh.multi_zone_services.get(name)?.kri.to_string()),
        Destination::External(name) => {
            let service = mesh.external.resource(name)?;
            service.kri.as_ref().map(|kri| kri.clone().with_section("").to_string())
        }
        Destination::Subset(_) | Destination::Through(_) | Destination::Here(_) | Destination::Abroad(_) => {
            None
        }
    }
}

/// All services of a mesh.
pub(super) fn services(mesh: &MeshContext) -> Vec<Value> {
    let names = ServiceNames::of(mesh);
    let mut all: Vec<Value> =
        mesh.topology.services().map(|(name, service)| tagged(name, service, mesh, &names)).collect();
    all.extend(mesh.mesh_services.iter().map(|service| of_resource(service, mesh)));
    all.extend(mesh.multi_zone_services.iter().map(|service| of_zones(service, mesh)));
    all.extend(mesh.external.resources().map(|service| outside(service, mesh)));
    all
}

/// In place of the services of a mesh that cannot be read.
pub(super) fn unreadable(mesh: &str, reason: &str) -> Value {
    json!({ "Attributes": { "Namespace": mesh }, "hostname": "", "problem": reason })
}

/// What an entry says.
struct RegistryEntry<'a> {
    hostname: String,
    resource: Option<&'a Arc<Resource>>,
    ports: Vec<Value>,
    accounts: Vec<String>,
    addresses: BTreeSet<IpAddr>,
    aliases: Vec<&'a str>,
    resolution: u8,
    is_external: bool,
}

impl RegistryEntry<'_> {
    fn shown(&self, mesh: &MeshContext) -> Value {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let first = addresses.first().map_or(NO_ADDRESS, String::as_str);
        let allocated = self.addresses.iter().find(|address| address.is_ipv4()).map(ToString::to_string);
        let zone: &str = &mesh.zone;
        json!({
            "Attributes": attributes(&self.hostname, mesh, self.resource, &self.aliases),
            "ports": self.ports,
            "serviceAccounts": self.accounts,
            "creationTime": self.resource.map(|resource| document::time(resource.created)),
            "hostname": self.hostname,
            "clusterVIPs": { "Addresses": { zone: addresses } },
            "defaultAddress": first,
            "autoAllocatedIPv4Address": allocated.unwrap_or_default(),
            "Resolution": self.resolution,
            "MeshExternal": self.is_external,
            "ResourceVersion": self.resource.map_or_else(String::new, |resource| resource.revision.to_string()),
        })
    }
}

fn attributes(
    hostname: &str,
    mesh: &MeshContext,
    resource: Option<&Arc<Resource>>,
    aliases: &[&str],
) -> Value {
    let aliases: Vec<Value> =
        aliases.iter().map(|alias| json!({ "Hostname": alias, "Namespace": &*mesh.mesh })).collect();
    json!({
        "ServiceRegistry": REGISTRY,
        "Name": resource.map_or(hostname, |resource| resource.display_name()),
        "Namespace": &*mesh.mesh,
        "Labels": resource.map(|resource| json!(resource.labels)),
        "Aliases": aliases,
    })
}

fn port(name: &str, port: u32, spoken: Protocol) -> Value {
    json!({ "name": name, "port": port, "protocol": protocol(spoken) })
}

fn tagged(name: &str, service: &Service, mesh: &MeshContext, names: &ServiceNames<'_>) -> Value {
    let destination = Destination::Service(name.into());
    let places: Vec<(IpAddr, u32)> = names.places(&destination).collect();
    let mut numbers: BTreeSet<u32> = places.iter().map(|(_, port)| *port).collect();
    if numbers.is_empty() {
        // Nobody calls it at an address of its own.
        numbers = service.endpoints.iter().map(|endpoint| endpoint.port).collect();
    }
    let addresses: BTreeSet<IpAddr> = places.iter().map(|(address, _)| *address).collect();
    let entry = RegistryEntry {
        hostname: name.to_owned(),
        resource: None,
        ports: numbers
            .into_iter()
            .map(|number| port(&number.to_string(), number, service.protocol))
            .collect(),
        accounts: account(name, mesh).into_iter().collect(),
        aliases: names.aliases(&addresses),
        addresses,
        resolution: if is_named(service) { BY_NAME } else { CLIENT_SIDE },
        is_external: service.exit.is_some(),
    };
    entry.shown(mesh)
}

/// Who those are who have a service tag.
pub(super) fn account(service: &str, mesh: &MeshContext) -> Option<String> {
    mesh.mtls.is_some().then(|| format!("spiffe://{}/{service}", mesh.mesh))
}

fn is_named(service: &Service) -> bool {
    match &service.exit {
        Some(Exit::Direct(all)) => all.iter().any(|one| has_host_name(one)),
        Some(Exit::Egress | Exit::OwnEgress(_)) | None => false,
    }
}

fn has_host_name(service: &ExternalService) -> bool {
    service.endpoints.iter().any(|at| Whereabouts::host_name(&at.at).is_some())
}

fn ports(all: &[Port]) -> Vec<Value> {
    all.iter().map(|one| port(&ZoneService::section(one), one.port, ZoneService::protocol(one))).collect()
}

fn of_resource(service: &ZoneService, mesh: &MeshContext) -> Value {
    let accounts = service.spec.identities.iter().filter_map(|identity| match identity.r#type.as_str() {
        "ServiceTag" => account(&identity.value, mesh),
        _ => Some(identity.value.clone()),
    });
    let status = ServiceStatus::of(&service.resource);
    let entry = RegistryEntry {
        hostname: service.kri.to_string(),
        resource: Some(&service.resource),
        ports: ports(&service.spec.ports),
        accounts: accounts.collect(),
        addresses: status.ips().collect(),
        aliases: status.hostnames().collect(),
        resolution: CLIENT_SIDE,
        is_external: false,
    };
    entry.shown(mesh)
}

fn of_zones(service: &MultiZoneService, mesh: &MeshContext) -> Value {
    let status = ServiceStatus::of(&service.resource);
    let entry = RegistryEntry {
        hostname: service.kri.to_string(),
        resource: Some(&service.resource),
        ports: ports(&service.spec.ports),
        accounts: Vec::new(),
        addresses: status.ips().collect(),
        aliases: status.hostnames().collect(),
        resolution: CLIENT_SIDE,
        is_external: false,
    };
    entry.shown(mesh)
}

fn outside(service: &ExternalService, mesh: &MeshContext) -> Value {
    let status = ServiceStatus::of(&service.resource);
    let entry = RegistryEntry {
        hostname: hostname(&service.destination, mesh).unwrap_or_else(|| service.service.to_string()),
        resource: Some(&service.resource),
        ports: vec![port(&service.port.to_string(), service.port, service.protocol)],
        accounts: Vec::new(),
        addresses: status.ips().collect(),
        aliases: status.hostnames().collect(),
        resolution: if has_host_name(service) { BY_NAME } else { CLIENT_SIDE },
        is_external: true,
    };
    entry.shown(mesh)
}
