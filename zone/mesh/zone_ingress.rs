//! A zone ingress as the generator sees it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use common::{
    model::{Origin, Resource, labels},
    proto::kuma::mesh::v1alpha1::{self as proto, zone_ingress::AvailableService},
};

use super::{
    Hosts,
    catalogue::{OfferedSize, fair_part_of_zone, is_too_long},
    problem::{Problem, Subject, decode},
};
use crate::share::SERVICES_OF_ZONE;

/// The proxy through which other zones reach the services of one zone.
#[derive(Clone, Debug)]
pub struct ZoneIngress {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec, without the catalogue.
    pub spec: proto::ZoneIngress,
    /// What it says it can reach: by mesh, then by service.
    catalogue: BTreeMap<String, BTreeMap<String, Vec<AvailableService>>>,
    /// How much that is, by mesh.
    sizes: BTreeMap<String, OfferedSize>,
    /// Where it listens, when its address is resolved.
    pub listen: Option<IpAddr>,
    /// Where other zones connect to, when both parts are set and resolved.
    pub public: Option<(IpAddr, u32)>,
    /// What was left out.
    pub problems: Vec<Problem>,
}

impl ZoneIngress {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>, hosts: &Hosts) -> Result<Self, Problem> {
        let mut spec = decode::<proto::ZoneIngress>(resource)?;
        let mut problems = Vec::new();
        let offered = spec.available_services.len();
        let is_ours = matches!(resource.origin, Origin::Zone(_));
        let is_too_much = || offered > SERVICES_OF_ZONE || spec.available_services.iter().any(is_too_long);
        if !is_ours && is_too_much() {
            let (taken, _) = fair_part_of_zone(std::mem::take(&mut spec.available_services));
            let number = taken.len();
            spec.available_services = taken;
            problems.push(Problem {
                subject: Subject::of(resource),
                reason: format!(
                    "it offers {offered} tag sets: {number} are used, of each service some, and none that is too long"
                ),
            });
        }
        let mut catalogue: BTreeMap<String, BTreeMap<String, Vec<_>>> = BTreeMap::new();
        let mut sizes: BTreeMap<String, OfferedSize> = BTreeMap::new();
        for available in std::mem::take(&mut spec.available_services) {
            *sizes.entry(available.mesh.clone()).or_default() += OfferedSize::of(&available);
            let of_mesh = catalogue.entry(available.mesh.clone()).or_default();
            let service = available.tags.get(labels::TAG_SERVICE).cloned();
            of_mesh.entry(service.unwrap_or_default()).or_default().push(available);
        }
        let networking = spec.networking.clone().unwrap_or_default();
        let listen = hosts.resolve(&networking.address).ok();
        let mut public = None;
        if !networking.advertised_address.is_empty() && networking.advertised_port != 0 {
            match hosts.resolve(&networking.advertised_address) {
                Ok(address) => public = Some((address, networking.advertised_port)),
                Err(host) => problems.push(Problem {
                    subject: Subject::of(resource),
                    reason: format!("the advertised host name {host:?} is not resolved"),
                }),
            }
        }
        Ok(Self { resource: Arc::clone(resource), spec, catalogue, sizes, listen, public, problems })
    }

    /// Core name.
    pub fn name(&self) -> &str {
        self.resource.name()
    }

    /// The zone it serves: its owner, or for one that was synced the one its spec names.
    pub fn zone(&self) -> Option<&str> {
        match (&self.resource.origin, self.spec.zone.as_str()) {
            (Origin::Zone(owner), _) => Some(owner),
            (Origin::Global, "") => None,
            (Origin::Global, named) => Some(named),
        }
    }

    /// Whether it serves another zone than `zone`.
    pub fn is_remote(&self, zone: &str) -> bool {
        self.zone().is_some_and(|own| own != zone)
    }

    /// Whether it says it can reach anything, in any mesh.
    pub fn offers_anything(&self) -> bool {
        !self.catalogue.is_empty()
    }

    /// What it says it can reach of `mesh`, by service.
    pub fn services(&self, mesh: &str) -> impl Iterator<Item = (&str, &[AvailableService])> {
        let of_mesh = self.catalogue.get(mesh).into_iter().flatten();
        of_mesh.filter(|(name, _)| !name.is_empty()).map(|(name, all)| (name.as_str(), all.as_slice()))
    }

    /// How much it says it can reach of `mesh`.
    pub(super) fn size(&self, mesh: &str) -> OfferedSize {
        self.sizes.get(mesh).copied().unwrap_or_default()
    }

    /// What it says it can reach of one service.
    pub fn service(&self, mesh: &str, service: &str) -> &[AvailableService] {
        self.catalogue.get(mesh).and_then(|of_mesh| of_mesh.get(service)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        document::Document,
        model::{ResourceKey, Spec, kinds::zone_ingress},
    };

    use super::*;

    #[test]
    fn an_ingress_may_name_its_host() {
        let yaml = "{type: ZoneIngress, name: a, networking: {address: edge, port: 1, \
                    advertisedAddress: edge, advertisedPort: 2}}";
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
        resource.spec = resource.kind().normalize(&resource.spec).unwrap().into();
        let resource = Arc::new(resource);

        let unresolved = ZoneIngress::read(&resource, &Hosts::default()).unwrap();
        assert_eq!((unresolved.listen, unresolved.public), (None, None));
        assert!(unresolved.problems[0].reason.contains("edge"), "{:?}", unresolved.problems);

        let address = IpAddr::from([10, 0, 0, 7]);
        let hosts = Hosts([("edge".to_owned(), address)].into_iter().collect());
        let resolved = ZoneIngress::read(&resource, &hosts).unwrap();
        assert_eq!((resolved.listen, resolved.public), (Some(address), Some((address, 2))));
    }

    #[test]
    fn what_another_zone_offers_is_taken_without_what_is_long() {
        let offered = |service: &str, tags: usize| {
            let tags = (0..tags).map(|n| (format!("t{n:05}"), "x".to_owned()));
            let tags = tags.chain([(labels::TAG_SERVICE.to_owned(), service.to_owned())]).collect();
            AvailableService { tags, instances: 1, mesh: "default".to_owned(), external_service: false }
        };
        let available_services = vec![offered("long", 12_000), offered("web", 8)];
        let spec = proto::ZoneIngress { available_services, ..proto::ZoneIngress::default() };
        let key = ResourceKey::global(&zone_ingress::KIND, "west");
        let resource = Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_spec(Spec::encode(&spec));
        let ingress = ZoneIngress::read(&Arc::new(resource), &Hosts::default()).unwrap();
        let services: Vec<&str> = ingress.services("default").map(|(name, _)| name).collect();
        assert_eq!(services, ["web"]);
        assert!(ingress.problems[0].reason.contains("2 tag sets: 1 are used"), "{:?}", ingress.problems);
    }
}
