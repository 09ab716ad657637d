//! Services of other zones, each of which gets addresses here for so many of its services and their ports, and no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::model::{
    Resource, ResourceKey,
    kinds::{mesh_service::MeshService, service_status::ServiceStatus},
    labels,
};

use crate::share::{self, PORTS_OF_SERVICE, PORTS_OF_ZONE, SERVICES_OF_ZONE};

/// Which services of other zones have addresses.
#[derive(Debug, Default)]
pub(super) struct ForeignServices {
    zones: BTreeMap<Arc<str>, OfZone>,
    zone_of: BTreeMap<ResourceKey, Arc<str>>,
}

/// The services of one zone, with their ports: each is something that proxies listen for.
#[derive(Debug, Default)]
struct OfZone {
    addressed: BTreeMap<ResourceKey, usize>,
    without: BTreeMap<ResourceKey, usize>,
    /// Of those that have addresses.
    ports: usize,
}

impl ForeignServices {
    /// Takes in what a service is now, which is `None` when it is gone or of this zone; gives another one of the zone it
    /// was of, for which there is room now.
    pub(super) fn follow(&mut self, key: &ResourceKey, service: Option<&Resource>) -> BTreeSet<ResourceKey> {
        let zone = service.and_then(|service| service.label(labels::ZONE)).map(Arc::<str>::from);
        let before = self.zone_of.remove(key);
        let mut next = BTreeSet::new();
        if let Some(before) = before.filter(|before| zone.as_ref() != Some(before))
            && let Some(of_zone) = self.zones.get_mut(&before)
        {
            of_zone.forget(key);
            next.extend(of_zone.next());
            of_zone.tell(&before);
            if of_zone.addressed.is_empty() && of_zone.without.is_empty() {
                self.zones.remove(&before);
            }
        }
        if let (Some(zone), Some(service)) = (zone, service) {
            let of_zone = self.zones.entry(Arc::clone(&zone)).or_default();
            let had = of_zone.forget(key) || ServiceStatus::of(service).ips().next().is_some();
            // One that has grown beyond what there is room for loses its address.
            of_zone.settle(key, ports(service), had);
            next.extend(of_zone.next());
            self.zone_of.insert(key.clone(), zone);
        }
        next
    }

    /// Whether a service may have an address; it has one then.
    pub(super) fn admit(&mut self, key: &ResourceKey) -> bool {
        let Some(zone) = self.zone_of.get(key) else { return true };
        let of_zone = self.zones.entry(Arc::clone(zone)).or_default();
        if of_zone.addressed.contains_key(key) {
            return true;
        }
        let ports = of_zone.without.remove(key).unwrap_or(1);
        let is_room = of_zone.settle(key, ports, true);
        of_zone.tell(zone);
        is_room
    }
}

/// How many ports of a service are called. One that does not decode has no address to be called at, and counts.
fn ports(service: &Resource) -> usize {
    let spec = service.spec::<MeshService>();
    spec.map_or(1, |spec| spec.ports.len().clamp(1, PORTS_OF_SERVICE))
}

impl OfZone {
    /// Whether there is room for one more service with so many ports.
    fn has_room(&self, ports: usize) -> bool {
        self.addressed.len() < SERVICES_OF_ZONE && self.ports + ports <= PORTS_OF_ZONE
    }

    /// Puts a service that is in neither place to those with addresses, if it may be there and there is room; says whether
    /// that is so.
    fn settle(&mut self, key: &ResourceKey, ports: usize, may: bool) -> bool {
        let is_addressed = may && self.has_room(ports);
        if is_addressed {
            self.ports += ports;
            self.addressed.insert(key.clone(), ports);
        } else {
            self.without.insert(key.clone(), ports);
        }
        is_addressed
    }

    /// Says whether it had an address.
    fn forget(&mut self, key: &ResourceKey) -> bool {
        self.without.remove(key);
        let ports = self.addressed.remove(key);
        self.ports -= ports.unwrap_or_default();
        ports.is_some()
    }

    /// The first that has no address, if there is room for it.
    fn next(&self) -> Option<ResourceKey> {
        let (key, ports) = self.without.first_key_value()?;
        self.has_room(*ports).then(|| key.clone())
    }

    fn tell(&self, zone: &str) {
        let waits = self.without.first_key_value().is_some_and(|(_, ports)| !self.has_room(*ports));
        let beyond = if waits { self.without.len() } else { 0 };
        share::note_left_out(zone, "resources", beyond);
        if beyond > 0 {
            tracing::warn!(
                zone,
                beyond,
                most = SERVICES_OF_ZONE,
                ports = PORTS_OF_ZONE,
                "a zone has more services, or ports of them, than get virtual addresses here: the rest has none"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use chrono::DateTime;
    use common::model::kinds::mesh_service;
    use serde_json::{Value, json};

    use super::*;

    fn service(zone: &str, i: usize, ports: usize) -> Resource {
        let key = ResourceKey::new(&mesh_service::KIND, "default", &format!("{zone}-{i:05}"));
        let ports: Vec<Value> = (1..=ports).map(|port| json!({"port": port, "targetPort": port})).collect();
        let mut service = Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::ZONE, zone);
        service.spec = serde_json::to_vec(&json!({"ports": ports})).unwrap().into();
        service
    }

    fn follow(foreign: &mut ForeignServices, service: &Resource) -> bool {
        foreign.follow(&service.key, Some(service));
        foreign.admit(&service.key)
    }

    #[test]
    fn a_zone_has_so_many_addresses_and_another_its_own() {
        let mut foreign = ForeignServices::default();
        for i in 0..SERVICES_OF_ZONE {
            assert!(follow(&mut foreign, &service("stolen", i, 1)));
        }
        let (next, last) = (service("stolen", 20_000, 1), service("stolen", 20_001, 1));
        assert!(!follow(&mut foreign, &next) && !follow(&mut foreign, &last));
        assert!(follow(&mut foreign, &service("west", 0, 1)));
        // What has an address keeps it, and is asked for again and again.
        assert!(follow(&mut foreign, &service("stolen", 7, 1)));
        let gone = service("stolen", 7, 1).key;
        assert_eq!(foreign.follow(&gone, None), BTreeSet::from([next.key.clone()]));
        assert!(foreign.admit(&next.key) && !foreign.admit(&last.key));
    }

    #[test]
    fn its_services_have_so_many_ports_together_also_when_they_grow() {
        let mut foreign = ForeignServices::default();
        let most = PORTS_OF_ZONE / PORTS_OF_SERVICE;
        let has = |foreign: &mut ForeignServices, ports: usize, range: std::ops::Range<usize>| {
            range.filter(|i| follow(foreign, &service("stolen", *i, ports))).count()
        };
        let many = has(&mut foreign, 1000, 1000..1100 + most);
        assert_eq!(many, most, "of each no more count than are called");
        assert_eq!(has(&mut foreign, 1, 0..500), PORTS_OF_ZONE % PORTS_OF_SERVICE);
        // When something large goes, what takes little comes, one after the other.
        let mut next = foreign.follow(&service("stolen", 1000, 1).key, None);
        let mut came = 0;
        while let Some(key) = next.pop_first().filter(|key| foreign.admit(key)) {
            came += 1;
            let place = key.name.trim_start_matches("stolen-").parse().unwrap();
            let small = service("stolen", place, 1);
            next.extend(foreign.follow(&small.key, Some(&small)));
        }
        assert_eq!(came, PORTS_OF_SERVICE);

        let mut foreign = ForeignServices::default();
        assert_eq!(has(&mut foreign, 1, 0..1000), 1000);
        assert_eq!(has(&mut foreign, PORTS_OF_SERVICE, 0..1000), most, "who grows may lose it");
        assert!(foreign.zones["stolen"].ports <= PORTS_OF_ZONE);
        assert_eq!(has(&mut foreign, 1, 0..1000), 1000);
    }
}
