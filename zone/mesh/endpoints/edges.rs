//! What is reached through ingresses and egresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    model::{Labels, labels},
    proto::kuma::mesh::v1alpha1::zone_ingress::AvailableService,
};
use imbl::OrdMap;

use crate::{
    mesh::{
        MeshContext, ZoneIngress,
        topology::{Endpoint, Locality},
    },
    share::DOORS_OF_ZONE,
};

/// Addresses and ports by zone.
pub(super) type Doors = BTreeMap<String, BTreeSet<(IpAddr, u32)>>;

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

/// What `ingress` says it can reach, as an endpoint seen from `mesh`. Where it is is known from who sent it; what it says may
/// be somebody else's zone.
pub(super) fn remote(
    ingress: &ZoneIngress,
    available: &AvailableService,
    mesh: &MeshContext,
) -> Option<Endpoint> {
    let (address, port) = ingress.public?;
    let zone = ingress.zone().map(str::to_owned);
    let mut tags = available.tags.clone();
    tags.extend(zone.clone().map(|zone| (labels::ZONE.to_owned(), zone)));
    Some(Endpoint {
        address,
        port,
        weight: available.instances,
        tags,
        labels: Labels::new(),
        locality: Locality { zone, priority: u32::from(mesh.locality_aware()) },
        remote: true,
        by_identifier: false,
    })
}

/// The ingresses of other zones than `zone` that count, so many of each. Several resources of a zone may stand behind one
/// load balancer, of which one counts; one that announces nothing yet must not hide the others. What another zone says of
/// the same address hides nothing.
pub(super) fn counted(
    ingresses: &OrdMap<Arc<str>, Arc<ZoneIngress>>,
    zone: &str,
) -> BTreeMap<Arc<str>, Arc<ZoneIngress>> {
    let mut seen = Doors::new();
    let counts = |(_, ingress): &(&Arc<str>, &Arc<ZoneIngress>)| {
        ingress.is_remote(zone)
            && ingress.offers_anything()
            && ingress.zone().zip(ingress.public).is_some_and(|(of, at)| open(&mut seen, of, at))
    };
    ingresses.iter().filter(counts).map(|(name, ingress)| (Arc::clone(name), Arc::clone(ingress))).collect()
}

/// Where each zone is reached.
pub(super) fn doors(ingresses: &OrdMap<Arc<str>, Arc<ZoneIngress>>) -> Doors {
    let mut doors = Doors::new();
    for ingress in ingresses.values() {
        if let (Some(zone), Some(at)) = (ingress.zone(), ingress.public) {
            open(&mut doors, zone, at);
        }
    }
    doors
}

/// Adds where a zone is reached, unless it is reached at as many addresses as count; says whether that is new.
pub(super) fn open(doors: &mut Doors, zone: &str, at: (IpAddr, u32)) -> bool {
    let of_zone = match doors.get_mut(zone) {
        Some(of_zone) => of_zone,
        None => doors.entry(zone.to_owned()).or_default(),
    };
    of_zone.len() < DOORS_OF_ZONE && of_zone.insert(at)
}
