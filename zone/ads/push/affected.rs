//! Whom a change concerns.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{
        Origin, Resource, ResourceKey,
        kinds::{dataplane, dataplane_insight, mesh, summaries, zone_ingress},
    },
    proto::kuma::mesh::v1alpha1 as proto,
    store::index::Index,
};
use prost::Message;

/// How different a mesh looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// Nothing but who serves what.
    Topology,
    /// Anything.
    Whole,
}

/// The consequences of a set of changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Affected {
    /// Every mesh looks different.
    pub(super) all_meshes: Option<Extent>,
    /// These meshes look different.
    pub(super) meshes: BTreeMap<Arc<str>, Extent>,
    /// These resources of proxies changed, so their own configuration does.
    pub(super) proxies: BTreeSet<ResourceKey>,
}

impl Affected {
    /// Every mesh looks different in every way.
    pub(super) fn everybody() -> Self {
        Self { all_meshes: Some(Extent::Whole), ..Self::default() }
    }

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

    /// How different this mesh looks.
    pub(super) fn extent(&self, mesh: &str) -> Option<Extent> {
        self.all_meshes.max(self.meshes.get(mesh).copied())
    }

    fn touch(&mut self, mesh: &Arc<str>, extent: Extent) {
        let known = self.meshes.entry(Arc::clone(mesh)).or_insert(extent);
        *known = extent.max(*known);
    }

    fn add_change(
        &mut self,
        key: &ResourceKey,
        old: Option<&Arc<Resource>>,
        new: Option<&Arc<Resource>>,
        zone: &str,
    ) {
        if key.kind == &mesh::KIND {
            self.touch(&key.name, Extent::Whole);
        } else if key.kind == &dataplane::KIND {
            self.proxies.insert(key.clone());
            self.touch(&key.mesh, Extent::Topology);
        } else if key.kind == &zone_ingress::KIND {
            let of_zone = |r: &Arc<Resource>| matches!(&r.origin, Origin::Zone(owner) if **owner == *zone);
            if new.or(old).is_some_and(of_zone) {
                // Traffic of this zone does not go through its own ingress.
                self.proxies.insert(key.clone());
            } else {
                self.all_meshes = self.all_meshes.max(Some(Extent::Topology));
            }
        } else if key.kind == &dataplane_insight::KIND {
            // Counters move all the time; only whether the proxy can speak TLS concerns others.
            if has_certificate(old) != has_certificate(new) {
                self.touch(&key.mesh, Extent::Topology);
            }
        } else if key.kind.is_mesh_scoped() && !is_summary(key) {
            self.touch(&key.mesh, Extent::Whole);
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
        let all = affected.all_meshes.iter().map(|extent| format!("all:{extent:?}"));
        let meshes = affected.meshes.iter().map(|(mesh, extent)| format!("{mesh}:{extent:?}"));
        let proxies = affected.proxies.iter().map(ToString::to_string);
        all.chain(meshes).chain(proxies).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_change_concerns_its_mesh_and_nobody_else() {
        let empty = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
        for (kind, mesh, name, zone, expected) in [
            ("Dataplane", "a", "web", "east", "a:Topology, Dataplane a/web"),
            ("MeshTimeout", "b", "all", "", "b:Whole"),
            ("Secret", "b", "ca", "", "b:Whole"),
            ("Mesh", "", "c", "", "c:Whole"),
            ("ZoneIngress", "", "ours", "east", "ZoneIngress ours"),
            ("ZoneIngress", "", "theirs", "west", "all:Topology"),
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
        assert_eq!(affected(&plain, &certified), "a:Topology");
        assert_eq!(affected(&certified, &busier), "");
    }
}
