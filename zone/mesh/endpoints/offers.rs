//! How much of what the ingresses of other zones offer counts.

use std::{collections::BTreeMap, sync::Arc};

use common::proto::kuma::mesh::v1alpha1::zone_ingress::AvailableService;

use crate::{
    mesh::{Protocol, ZoneIngress, catalogue::OfferedSize},
    share::{ENDPOINT_BYTES_OF_SERVICE, ENDPOINTS_OF_SERVICE, OFFERED_BYTES_OF_ZONE, OFFERS_OF_ZONE},
};

/// What all ingresses of one other zone may offer in a mesh.
pub(super) const OF_ZONE: OfferedSize = OfferedSize { sets: OFFERS_OF_ZONE, bytes: OFFERED_BYTES_OF_ZONE };
/// And of one service.
const OF_SERVICE: OfferedSize = OfferedSize { sets: ENDPOINTS_OF_SERVICE, bytes: ENDPOINT_BYTES_OF_SERVICE };

/// An ingress of another zone that counts.
#[derive(Debug)]
pub(super) struct CountedIngress {
    /// Which one.
    pub(super) ingress: Arc<ZoneIngress>,
    /// The first service, by name, that is beyond what its zone may offer; those after it are, too.
    beyond: Option<Box<str>>,
}

impl CountedIngress {
    /// What counts of what it says it can reach of a service of the mesh.
    pub(super) fn service(&self, mesh: &str, service: &str) -> &[AvailableService] {
        match &self.beyond {
            Some(beyond) if service >= &**beyond => &[],
            _ => self.ingress.service(mesh, service),
        }
    }

    /// Whether as much counts of the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ingress, &other.ingress) && self.beyond == other.beyond
    }
}

/// What counts of what one of these says it can reach of a service, if there is one.
pub(super) fn offers<'a>(
    ingress: Option<&'a CountedIngress>,
    mesh: &str,
    service: &str,
) -> &'a [AvailableService] {
    ingress.map_or(&[], |ingress| ingress.service(mesh, service))
}

/// `ingresses` with what counts of what they offer of `mesh`: of each zone `most`, in the order of their names. What a zone
/// offers through more ingresses than that, it can offer through those as well.
pub(super) fn shared(
    ingresses: BTreeMap<Arc<str>, Arc<ZoneIngress>>,
    mesh: &str,
    most: OfferedSize,
) -> BTreeMap<Arc<str>, CountedIngress> {
    let mut left: BTreeMap<String, OfferedSize> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (name, ingress) in ingresses {
        let zone = ingress.zone().unwrap_or_default().to_owned();
        let beyond = take(left.entry(zone).or_insert(most), &ingress, mesh);
        all.insert(name, CountedIngress { ingress, beyond });
    }
    all
}

/// Takes what `ingress` offers out of what its zone has `left`; gives the first service for which that is not enough. Only
/// who offers too much is looked through.
fn take(left: &mut OfferedSize, ingress: &ZoneIngress, mesh: &str) -> Option<Box<str>> {
    let whole = ingress.size(mesh);
    if whole.fits(*left) {
        *left = left.without(whole);
        return None;
    }
    for (service, offered) in ingress.services(mesh) {
        let mut size = OfferedSize::default();
        for available in offered {
            size += OfferedSize::of(available);
        }
        if !size.fits(*left) {
            *left = OfferedSize::default();
            return Some(service.into());
        }
        *left = left.without(size);
    }
    None
}

/// What one ingress says of a service.
pub(super) type ServiceOffer<'a> = (&'a ZoneIngress, &'a AvailableService);
/// And all that it says of it.
type OffersOfIngress<'a> = (&'a ZoneIngress, &'a [AvailableService]);

/// Who offers a service: of each zone so much, evenly through all of its ingresses that offer it.
pub(super) fn of_service<'a>(all: impl Iterator<Item = OffersOfIngress<'a>>) -> Vec<ServiceOffer<'a>> {
    let mut of_zones: BTreeMap<Option<&str>, Vec<OffersOfIngress<'a>>> = BTreeMap::new();
    for (ingress, offered) in all.filter(|(_, offered)| !offered.is_empty()) {
        of_zones.entry(ingress.zone()).or_default().push((ingress, offered));
    }
    let mut counting = Vec::new();
    for ingresses in of_zones.into_values() {
        let share = OF_SERVICE.shared_by(ingresses.len());
        for (ingress, offered) in ingresses {
            let mut left = share;
            for available in offered.iter().take(share.sets) {
                let size = OfferedSize::of(available);
                if size.fits(left) {
                    left = left.without(size);
                    counting.push((ingress, available));
                }
            }
        }
    }
    counting
}

/// What is spoken to who is in other zones only: what most zones say that say anything, so that none decides for the others.
/// Of what equally many say it is what most can be done with.
pub(super) fn spoken(offers: &[ServiceOffer<'_>]) -> Protocol {
    let mut of_zones: BTreeMap<Option<&str>, Vec<Protocol>> = BTreeMap::new();
    for (ingress, available) in offers {
        of_zones.entry(ingress.zone()).or_default().push(Protocol::of_tags(&available.tags));
    }
    let mut said: BTreeMap<Protocol, usize> = BTreeMap::new();
    for protocol in of_zones.into_values().map(Protocol::common) {
        *said.entry(protocol).or_default() += 1;
    }
    said.remove(&Protocol::Unknown);
    said.into_iter()
        .map(|(protocol, zones)| (zones, protocol))
        .max()
        .map(|(_, protocol)| protocol)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{document::Document, model::Origin};
    use serde_json::json;

    use super::*;
    use crate::mesh::Hosts;

    fn ingress(name: &str, zone: &str, services: &[&str]) -> (Arc<str>, Arc<ZoneIngress>) {
        let offered = services
            .iter()
            .map(|service| json!({"mesh": "demo", "instances": 1, "tags": {"kuma.io/service": service}}));
        let networking = json!({"address": "1.1.1.1", "port": 1});
        let document = json!({"type": "ZoneIngress", "name": name, "networking": networking,
            "availableServices": offered.collect::<Vec<_>>()});
        let document = Document::parse(&document).unwrap();
        let mut resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
        resource.origin = Origin::Zone(zone.into());
        (name.into(), Arc::new(ZoneIngress::read(&Arc::new(resource), &Hosts::default()).unwrap()))
    }

    /// What counts of each ingress.
    fn counting(
        ingresses: impl IntoIterator<Item = (Arc<str>, Arc<ZoneIngress>)>,
        most: OfferedSize,
    ) -> Vec<String> {
        let all = shared(ingresses.into_iter().collect(), "demo", most);
        let told = all.iter().map(|(name, counted)| {
            let services = counted.ingress.services("demo").map(|(service, _)| service);
            let counting: Vec<&str> =
                services.filter(|service| !counted.service("demo", service).is_empty()).collect();
            format!("{name}: {}", counting.join(" "))
        });
        told.collect()
    }

    #[test]
    fn the_ingresses_of_a_zone_share_what_it_may_offer() {
        let most = |sets: usize| OfferedSize { sets, bytes: usize::MAX };
        let stolen = || ["a-1", "a-2", "a-3"].map(|name| ingress(name, "stolen", &["bank", "shop", "web"]));
        let honest = || [ingress("b-1", "west", &["bank", "web"])];
        let all = || stolen().into_iter().chain(honest());
        assert_eq!(
            counting(all(), most(9)),
            ["a-1: bank shop web", "a-2: bank shop web", "a-3: bank shop web", "b-1: bank web"]
        );
        assert_eq!(
            counting(all(), most(5)),
            ["a-1: bank shop web", "a-2: bank shop", "a-3: ", "b-1: bank web"]
        );
        // In whatever order they come.
        assert_eq!(counting(honest().into_iter().chain(stolen()), most(5)), counting(all(), most(5)));
        let bytes = stolen()[0].1.size("demo").bytes;
        let most = OfferedSize { sets: 100, bytes };
        assert_eq!(counting(all(), most), ["a-1: bank shop web", "a-2: ", "a-3: ", "b-1: bank web"]);
    }
}
