//! Whom a change concerns.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    model::{
        Origin, Resource, ResourceKey,
        kinds::{dataplane_insight, mesh, summaries, zone_ingress},
    },
    proto::kuma::mesh::v1alpha1 as proto,
    store::index::Index,
};
use prost::Message;

/// The consequences of a set of changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Affected {
    /// Every mesh looks different.
    pub(super) all_meshes: bool,
    /// These meshes look different.
    pub(super) meshes: BTreeSet<Arc<str>>,
    /// These resources of local zone proxies changed.
    pub(super) zone_proxies: BTreeSet<Arc<str>>,
}

impl Affected {
    /// Adds what differs between `old` and `new`, seen from `zone`.
    pub(super) fn add(&mut self, old: &Index, new: &Index, zone: &str) {
        for key in new.changed_since(old) {
            self.add_change(&key, old.get(&key), new.get(&key), zone);
        }
    }

    /// Whether nobody has to do anything.
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this mesh looks different.
    pub(super) fn touches(&self, mesh: &str) -> bool {
        self.all_meshes || self.meshes.contains(mesh)
    }

    fn add_change(
        &mut self,
        key: &ResourceKey,
        old: Option<&Arc<Resource>>,
        new: Option<&Arc<Resource>>,
        zone: &str,
    ) {
        if key.kind == &mesh::KIND {
            self.meshes.insert(Arc::clone(&key.name));
        } else if key.kind == &zone_ingress::KIND {
            let of_zone = |r: &Arc<Resource>| matches!(&r.origin, Origin::Zone(owner) if **owner == *zone);
            if new.or(old).is_some_and(of_zone) {
                // Traffic of this zone does not go through its own ingress.
                self.zone_proxies.insert(Arc::clone(&key.name));
            } else {
                self.all_meshes = true;
            }
        } else if key.kind == &dataplane_insight::KIND {
            // Counters move all the time; only whether the proxy can speak TLS concerns others.
            if has_certificate(old) != has_certificate(new) {
                self.meshes.insert(Arc::clone(&key.mesh));
            }
        } else if key.kind.is_mesh_scoped() && !is_summary(key) {
            self.meshes.insert(Arc::clone(&key.mesh));
        }
    }
}

fn is_summary(key: &ResourceKey) -> bool {
    [&summaries::MESH_INSIGHT, &summaries::SERVICE_INSIGHT].contains(&key.kind)
}

fn has_certificate(insight: Option<&Arc<Resource>>) -> bool {
    let spec = insight.and_then(|r| proto::DataplaneInsight::decode(&r.spec[..]).ok());
    spec.and_then(|s| s.m_tls).is_some_and(|m| !m.issued_backend.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::registry,
        store::{Change, StoreIdentity},
    };

    use super::*;

    fn resource(kind: &str, mesh: &str, name: &str, zone: &str, spec: Vec<u8>) -> Resource {
        let key = ResourceKey::new(registry::by_name(kind).unwrap(), mesh, name);
        let mut resource = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec);
        resource.origin = Origin::from_column(zone);
        resource
    }

    fn put(index: &Index, resource: Resource) -> Index {
        let mut next = index.clone();
        let (key, resource) = (resource.key.clone(), Some(Arc::new(resource)));
        next.apply(&Change { revision: index.revision + 1, key, resource });
        next
    }

    fn affected(old: &Index, new: &Index) -> String {
        let mut affected = Affected::default();
        affected.add(old, new, "east");
        if affected.all_meshes {
            return "all".to_owned();
        }
        affected.meshes.iter().chain(&affected.zone_proxies).map(|n| &**n).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_concerns_its_mesh_and_nobody_else() {
        let empty = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
        for (kind, mesh, name, zone, expected) in [
            ("Dataplane", "a", "web", "east", "a"),
            ("MeshTimeout", "b", "all", "", "b"),
            ("Secret", "b", "ca", "", "b"),
            ("Mesh", "", "c", "", "c"),
            ("ZoneIngress", "", "ours", "east", "ours"),
            ("ZoneIngress", "", "theirs", "west", "all"),
            ("Zone", "", "west", "", ""),
            ("MeshInsight", "a", "all", "", ""),
            ("ServiceInsight", "a", "all", "", ""),
            ("DataplaneInsight", "a", "web", "east", ""),
            ("GlobalSecret", "", "x", "", ""),
        ] {
            let new = put(&empty, resource(kind, mesh, name, zone, Vec::new()));
            assert_eq!(affected(&empty, &new), expected, "{kind} {name}");
            assert_eq!(affected(&new, &empty), expected, "deleted {kind} {name}");
        }
    }

    #[test]
    fn an_insight_concerns_others_only_when_a_certificate_comes_or_goes() {
        let insight = |backend: &str, sent| {
            let total = Some(proto::DiscoveryServiceStats { responses_sent: sent, ..Default::default() });
            let status = Some(proto::DiscoverySubscriptionStatus { total, ..Default::default() });
            let subscription = proto::DiscoverySubscription { status, ..Default::default() };
            let m_tls =
                proto::dataplane_insight::Mtls { issued_backend: backend.to_owned(), ..Default::default() };
            let spec = proto::DataplaneInsight {
                subscriptions: vec![subscription],
                m_tls: Some(m_tls),
                ..Default::default()
            };
            resource("DataplaneInsight", "a", "web", "east", spec.encode_to_vec())
        };
        let empty = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
        let plain = put(&empty, insight("", 1));
        let certified = put(&plain, insight("ca-1", 2));
        let busier = put(&certified, insight("ca-1", 3));
        assert_eq!(affected(&empty, &plain), "");
        assert_eq!(affected(&plain, &certified), "a");
        assert_eq!(affected(&certified, &busier), "");
    }
}
