//! Which resources have host names in places where an address belongs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    model::{
        Kind, Resource, ResourceKey,
        kinds::{dataplane, dataplane_networking, mesh_zone_address, zone_egress, zone_ingress},
    },
    proto::kuma::mesh::v1alpha1 as proto,
    store::index::Index,
};

/// Kinds of resources with addresses.
static ADDRESSED: [&Kind; 4] =
    [&dataplane::KIND, &mesh_zone_address::KIND, &zone_ingress::KIND, &zone_egress::KIND];

/// Resources by the host names in them, kept up to date: what has to be read again when a name stands for another
/// address.
#[derive(Debug, Default)]
pub(in crate::ads) struct HostUsers {
    names: BTreeMap<ResourceKey, BTreeSet<String>>,
    users: BTreeMap<String, BTreeSet<ResourceKey>>,
}

impl HostUsers {
    /// Those of `index`.
    pub(in crate::ads) fn of_all(index: &Index) -> Self {
        let mut users = Self::default();
        for resource in ADDRESSED.iter().flat_map(|kind| index.list(kind)) {
            users.follow(&resource.key, Some(resource));
        }
        users
    }

    /// Takes in what stands under a key now; tells the names when they are others than before.
    pub(in crate::ads) fn follow(
        &mut self,
        key: &ResourceKey,
        resource: Option<&Arc<Resource>>,
    ) -> Option<&BTreeSet<String>> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        if !ADDRESSED.contains(&key.kind) {
            return None;
        }
        let after = resource.map(names).unwrap_or_default();
        let before = self.names.remove(key).unwrap_or_default();
        let differs = before != after;
        for name in before.difference(&after) {
            if let Some(users) = self.users.get_mut(name) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(name);
                }
            }
        }
        for name in after.difference(&before) {
            self.users.entry(name.clone()).or_default().insert(key.clone());
        }
        if !after.is_empty() {
            self.names.insert(key.clone(), after);
        }
        differs.then(|| self.names.get(key).unwrap_or(&NONE))
    }

    /// The resources that have one of these names.
    pub(in crate::ads) fn with(&self, names: &[String]) -> BTreeSet<ResourceKey> {
        names.iter().filter_map(|name| self.users.get(name)).flatten().cloned().collect()
    }
}

/// The host names a resource has in places where an address belongs.
fn names(resource: &Arc<Resource>) -> BTreeSet<String> {
    let mut addresses = Vec::new();
    if resource.kind() == &dataplane::KIND
        && let Ok(networking) = dataplane_networking::networking(&resource.spec)
    {
        addresses.extend([networking.address, networking.advertised_address]);
        for inbound in networking.inbound {
            addresses.extend([inbound.address, inbound.service_address]);
        }
        addresses.extend(networking.listeners.into_iter().map(|listener| listener.address));
    } else if resource.kind() == &mesh_zone_address::KIND
        && let Ok(spec) = resource.spec::<mesh_zone_address::MeshZoneAddress>()
    {
        addresses.push(spec.address.clone());
    } else if resource.kind() == &zone_ingress::KIND
        && let Ok(spec) = resource.spec::<proto::ZoneIngress>()
        && let Some(networking) = spec.networking
    {
        addresses.extend([networking.address, networking.advertised_address]);
    } else if resource.kind() == &zone_egress::KIND
        && let Ok(spec) = resource.spec::<proto::ZoneEgress>()
        && let Some(networking) = spec.networking
    {
        addresses.push(networking.address);
    }
    addresses.into_iter().filter(|a| !a.is_empty() && a.parse::<IpAddr>().is_err()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::document::Document;

    use super::*;

    fn resource(yaml: &str) -> Arc<Resource> {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        Arc::new(document.into_resource(chrono::DateTime::UNIX_EPOCH))
    }

    #[test]
    fn only_what_is_no_address_is_a_name() {
        let check = |yaml: &str, expected: &[&str]| {
            assert_eq!(names(&resource(yaml)).into_iter().collect::<Vec<_>>(), expected);
        };
        check(
            "{type: Dataplane, name: a, networking: {address: web.local, advertisedAddress: '::1', \
             inbound: [{port: 1, address: 127.0.0.1, serviceAddress: app.local}]}}",
            &["app.local", "web.local"],
        );
        check(
            "{type: ZoneIngress, name: a, networking: {address: 10.0.0.1, advertisedAddress: edge}}",
            &["edge"],
        );
        check("{type: ZoneEgress, name: a, networking: {address: out.local, port: 1}}", &["out.local"]);
        check("{type: Mesh, name: a}", &[]);
    }

    #[test]
    fn users_of_a_name_are_those_that_have_it_now() {
        let egress = |name, address| {
            resource(&format!(
                "{{type: ZoneEgress, name: {name}, networking: {{address: {address}, port: 1}}}}"
            ))
        };
        let mut users = HostUsers::default();
        let mut follow = |r: &Arc<Resource>, gone: bool| {
            users.follow(&r.key, Some(r).filter(|_| !gone));
            ["a", "b"].map(|name| users.with(&[name.to_owned()]).len())
        };
        assert_eq!(follow(&egress("x", "a"), false), [1, 0]);
        assert_eq!(follow(&egress("y", "a"), false), [2, 0]);
        assert_eq!(follow(&egress("x", "b"), false), [1, 1]);
        assert_eq!(follow(&egress("x", "10.0.0.1"), false), [1, 0]);
        assert_eq!(follow(&egress("y", "a"), true), [0, 0]);
    }
}
