//! A zone ingress as the generator sees it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use common::{
    model::{Origin, Resource},
    proto::kuma::mesh::v1alpha1 as proto,
};

use super::{
    Hosts,
    problem::{Problem, Subject, decode},
};

/// The proxy through which other zones reach the services of one zone.
#[derive(Clone, Debug)]
pub struct ZoneIngress {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec.
    pub spec: proto::ZoneIngress,
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
        let spec = decode::<proto::ZoneIngress>(resource)?;
        let networking = spec.networking.clone().unwrap_or_default();
        let listen = hosts.resolve(&networking.address).ok();
        let mut problems = Vec::new();
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
        Ok(Self { resource: Arc::clone(resource), spec, listen, public, problems })
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

    /// What it says it can reach in `mesh`.
    pub fn services_of<'a>(
        &'a self,
        mesh: &'a str,
    ) -> impl Iterator<Item = &'a proto::zone_ingress::AvailableService> {
        self.spec.available_services.iter().filter(move |service| service.mesh == mesh)
    }
}

/// The service catalogue a zone publishes through its ingresses: healthy inbounds of its proxies, grouped
/// by mesh and whole tag set, sorted by mesh, then tags. `meshes` are `(mesh, its proxies)`; leave out
/// meshes that publish services as resources only.
pub fn available_services<'a, D>(
    meshes: impl IntoIterator<Item = (&'a str, D)>,
) -> Vec<proto::zone_ingress::AvailableService>
where
    D: IntoIterator<Item = &'a super::Dataplane>,
{
    let mut groups: BTreeMap<(&str, &BTreeMap<String, String>), u32> = BTreeMap::new();
    for (mesh, dataplanes) in meshes {
        for inbound in dataplanes.into_iter().flat_map(|d| &d.inbounds) {
            if inbound.healthy && inbound.service().is_some() {
                *groups.entry((mesh, &inbound.tags)).or_default() += 1;
            }
        }
    }
    let service = |((mesh, tags), instances): ((&str, &BTreeMap<String, String>), u32)| {
        proto::zone_ingress::AvailableService {
            tags: tags.clone(),
            instances,
            mesh: mesh.to_owned(),
            external_service: false,
        }
    };
    groups.into_iter().map(service).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::model::document::Document;

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
        let hosts = Hosts([("edge".to_owned(), address)].into());
        let resolved = ZoneIngress::read(&resource, &hosts).unwrap();
        assert_eq!((resolved.listen, resolved.public), (Some(address), Some((address, 2))));
    }
}
