//! The endpoints of a mesh, in shards of the zones they are in.

use std::collections::{BTreeMap, BTreeSet};

use common::model::labels;
use serde_json::{Value, json};

use super::registry::{account, hostname};
use crate::mesh::{
    Destination, ExternalService, MeshContext, Outpost,
    topology::{Endpoint, Exit, Service},
};

/// Who brought endpoints in.
const PROVIDER: &str = "Universal";
/// Pilot's word for an endpoint that may be called.
const HEALTHY: u8 = 1;

/// The shards of one service.
#[derive(Default)]
struct ServiceShards {
    shards: BTreeMap<String, Vec<Value>>,
    accounts: BTreeSet<String>,
}

/// The shards of every service, by what it is called; those of all ports of one together.
pub(super) fn shards(mesh: &MeshContext) -> impl Iterator<Item = (String, Value)> {
    let mut all: BTreeMap<String, ServiceShards> = BTreeMap::new();
    for (destination, service) in mesh.topology.all() {
        let Some(hostname) = hostname(destination, mesh) else { continue };
        let of_service = all.entry(hostname).or_default();
        for endpoint in service.endpoints.iter().chain(&service.beyond) {
            let zone = endpoint.locality.zone.as_deref().unwrap_or(&mesh.zone);
            let shown = shown(endpoint, (destination, service), mesh);
            of_service.accounts.extend(shown["ServiceAccount"].as_str().map(str::to_owned));
            of_service.shards.entry(format!("{PROVIDER}/{zone}")).or_default().push(shown);
        }
        if let Some(Exit::Direct(outside)) = &service.exit {
            let shown = outside.iter().flat_map(|one| outposts(one, mesh));
            of_service.shards.entry(format!("{PROVIDER}/{}", mesh.zone)).or_default().extend(shown);
        }
    }
    all.into_iter().map(|(hostname, of_service)| {
        let accounts: Vec<String> =
            of_service.accounts.into_iter().filter(|account| !account.is_empty()).collect();
        (hostname, json!({ "Shards": of_service.shards, "ServiceAccounts": accounts }))
    })
}

/// Which port of its service an endpoint is behind.
fn port_name(destination: &Destination) -> String {
    match destination {
        Destination::Port(_, number) | Destination::MultiZone(_, number) => number.to_string(),
        _ => String::new(),
    }
}

fn shown(endpoint: &Endpoint, (destination, service): (&Destination, &Service), mesh: &MeshContext) -> Value {
    let zone = endpoint.locality.zone.as_deref().unwrap_or(&mesh.zone);
    let account = endpoint.tags.get(labels::TAG_SERVICE).and_then(|service| account(service, mesh));
    let of_workload = |label: &str| endpoint.labels.get(label).unwrap_or_default();
    let is_encrypted = mesh.is_encrypted() && service.tls_ready;
    json!({
        "Labels": endpoint.tags,
        "Addresses": [endpoint.address.to_string()],
        "ServicePortName": port_name(destination),
        "ServiceAccount": account.unwrap_or_default(),
        "Network": zone,
        "Locality": { "Label": zone, "ClusterID": zone },
        "EndpointPort": endpoint.port,
        "LbWeight": endpoint.weight,
        "TLSMode": if is_encrypted { "istio" } else { "disabled" },
        "Namespace": &*mesh.mesh,
        "WorkloadName": of_workload(labels::WORKLOAD),
        "HostName": "",
        "SubDomain": "",
        "HealthStatus": HEALTHY,
        "NodeName": "",
    })
}

fn outposts(service: &ExternalService, mesh: &MeshContext) -> Vec<Value> {
    let shown = |at: &Outpost| {
        json!({
            "Labels": service.tags,
            "Addresses": [at.at.text()],
            "ServicePortName": service.port.to_string(),
            "ServiceAccount": "",
            "Network": "",
            "Locality": { "Label": service.zone.as_deref().unwrap_or_default(), "ClusterID": &*mesh.zone },
            "EndpointPort": at.at.port(),
            "LbWeight": 1,
            "TLSMode": "disabled",
            "Namespace": &*mesh.mesh,
            "WorkloadName": "",
            "HostName": at.at.host_name().unwrap_or_default(),
            "SubDomain": "",
            "HealthStatus": HEALTHY,
            "NodeName": "",
        })
    };
    service.endpoints.iter().map(shown).collect()
}
