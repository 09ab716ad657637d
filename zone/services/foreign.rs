//! Services of other zones, each of which gets addresses here for so many of its services and no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::model::{Resource, ResourceKey, kinds::service_status::ServiceStatus, labels};

use crate::share::{self, SERVICES_OF_ZONE};

/// Which services of other zones have addresses.
#[derive(Debug, Default)]
pub(super) struct ForeignServices {
    zones: BTreeMap<Arc<str>, OfZone>,
    zone_of: BTreeMap<ResourceKey, Arc<str>>,
}

#[derive(Debug, Default)]
struct OfZone {
    addressed: BTreeSet<ResourceKey>,
    without: BTreeSet<ResourceKey>,
}

impl ForeignServices {
    /// Takes in what a service is now, which is `None` when it is gone or of this zone; gives another one of the zone it
    /// was of, for which there is room now.
    pub(super) fn follow(&mut self, key: &ResourceKey, service: Option<&Resource>) -> Option<ResourceKey> {
        let zone = service.and_then(|service| service.label(labels::ZONE)).map(Arc::<str>::from);
        let before = self.zone_of.remove(key);
        let mut next = None;
        if let Some(before) = before.filter(|before| zone.as_ref() != Some(before))
            && let Some(of_zone) = self.zones.get_mut(&before)
        {
            of_zone.without.remove(key);
            if of_zone.addressed.remove(key) {
                next = of_zone.without.first().cloned();
            }
            of_zone.tell(&before);
            if of_zone.addressed.is_empty() && of_zone.without.is_empty() {
                self.zones.remove(&before);
            }
        }
        if let (Some(zone), Some(service)) = (zone, service) {
            let of_zone = self.zones.entry(Arc::clone(&zone)).or_default();
            if ServiceStatus::of(service).ips().next().is_some() {
                of_zone.without.remove(key);
                of_zone.addressed.insert(key.clone());
            } else if !of_zone.addressed.contains(key) {
                of_zone.without.insert(key.clone());
            }
            self.zone_of.insert(key.clone(), zone);
        }
        next
    }

    /// Whether a service that has no address may get one; it has one then.
    pub(super) fn admit(&mut self, key: &ResourceKey) -> bool {
        let Some(zone) = self.zone_of.get(key) else { return true };
        let of_zone = self.zones.entry(Arc::clone(zone)).or_default();
        if of_zone.addressed.contains(key) {
            return true;
        }
        let is_room = of_zone.addressed.len() < SERVICES_OF_ZONE;
        if is_room {
            of_zone.without.remove(key);
            of_zone.addressed.insert(key.clone());
        }
        of_zone.tell(zone);
        is_room
    }
}

impl OfZone {
    fn tell(&self, zone: &str) {
        let beyond = if self.addressed.len() < SERVICES_OF_ZONE { 0 } else { self.without.len() };
        share::note_left_out(zone, "resources", beyond);
        if beyond > 0 {
            tracing::warn!(
                zone,
                beyond,
                most = SERVICES_OF_ZONE,
                "a zone has more services than get virtual addresses here: the rest has none"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::model::kinds::mesh_service;

    use super::*;

    #[test]
    fn a_zone_has_so_many_addresses_and_another_its_own() {
        let mut foreign = ForeignServices::default();
        let service = |zone: &str, i: usize| {
            let key = ResourceKey::new(&mesh_service::KIND, "default", &format!("{zone}-{i:05}"));
            Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::ZONE, zone)
        };
        let follow = |foreign: &mut ForeignServices, service: &Resource| {
            assert_eq!(foreign.follow(&service.key, Some(service)), None);
            foreign.admit(&service.key)
        };
        for i in 0..SERVICES_OF_ZONE {
            assert!(follow(&mut foreign, &service("stolen", i)));
        }
        let (next, last) = (service("stolen", 20_000), service("stolen", 20_001));
        assert!(!follow(&mut foreign, &next) && !follow(&mut foreign, &last));
        assert!(follow(&mut foreign, &service("west", 0)));
        // What has an address keeps it, and is asked for again and again.
        assert!(follow(&mut foreign, &service("stolen", 7)));
        let gone = service("stolen", 7).key;
        assert_eq!(foreign.follow(&gone, None), Some(next.key.clone()));
        assert!(foreign.admit(&next.key) && !foreign.admit(&last.key));
    }
}
