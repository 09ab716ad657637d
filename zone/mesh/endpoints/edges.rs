//! What is reached through ingresses and egresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::model::{Labels, labels};
use imbl::OrdMap;

use crate::mesh::{
    MeshContext, ZoneIngress,
    topology::{Endpoint, Locality},
};

/// Egresses as endpoints with these tags.
pub(super) fn at<'a>(
    doors: impl Iterator<Item = &'a (IpAddr, u32)>,
    tags: &BTreeMap<String, String>,
    mesh: &MeshContext,
) -> Vec<Endpoint> {
    let endpoint = |&(address, port): &(IpAddr, u32)| Endpoint {
        address,
        port,
        weight: 1,
        tags: tags.clone(),
        labels: Labels::new(),
        locality: Locality { zone: Some(mesh.zone.to_string()), priority: 0 },
        remote: false,
        by_identifier: false,
    };
    doors.map(endpoint).collect()
}

/// What `ingress` announces of a service. Where it is is known from who sent it; what it says may be
/// somebody else's zone.
pub(super) fn remote(
    ingress: &ZoneIngress,
    service: &str,
    mesh: &MeshContext,
    endpoints: &mut Vec<Endpoint>,
) {
    remote_in(ingress, service, &mesh.mesh, mesh, endpoints);
}

/// The same of a service of the mesh `of`, seen from `mesh`.
pub(super) fn remote_in(
    ingress: &ZoneIngress,
    service: &str,
    of: &str,
    mesh: &MeshContext,
    endpoints: &mut Vec<Endpoint>,
) {
    let Some((address, port)) = ingress.public else { return };
    let zone = ingress.zone().map(str::to_owned);
    for available in ingress.service(of, service) {
        let mut tags = available.tags.clone();
        tags.extend(zone.clone().map(|zone| (labels::ZONE.to_owned(), zone)));
        endpoints.push(Endpoint {
            address,
            port,
            weight: available.instances,
            tags,
            labels: Labels::new(),
            locality: Locality { zone: zone.clone(), priority: u32::from(mesh.locality_aware()) },
            remote: true,
            by_identifier: false,
        });
    }
}

/// The ingresses of other zones than `zone` that count. Several resources may stand behind one load
/// balancer, of which one counts; one that announces nothing yet must not hide the others.
pub(super) fn counted(
    ingresses: &OrdMap<Arc<str>, Arc<ZoneIngress>>,
    zone: &str,
) -> BTreeMap<Arc<str>, Arc<ZoneIngress>> {
    let mut seen = BTreeSet::new();
    let counts = |(_, ingress): &(&Arc<str>, &Arc<ZoneIngress>)| {
        ingress.is_remote(zone)
            && ingress.offers_anything()
            && ingress.public.is_some_and(|at| seen.insert(at))
    };
    ingresses.iter().filter(counts).map(|(name, ingress)| (Arc::clone(name), Arc::clone(ingress))).collect()
}

/// Where each zone is reached.
pub(super) fn doors(
    ingresses: &OrdMap<Arc<str>, Arc<ZoneIngress>>,
) -> BTreeMap<String, BTreeSet<(IpAddr, u32)>> {
    let mut doors: BTreeMap<String, BTreeSet<(IpAddr, u32)>> = BTreeMap::new();
    for ingress in ingresses.values() {
        if let (Some(zone), Some(at)) = (ingress.zone(), ingress.public) {
            doors.entry(zone.to_owned()).or_default().insert(at);
        }
    }
    doors
}
