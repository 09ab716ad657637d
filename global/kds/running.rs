//! Which meshes have proxies in which zone. A zone without any of a mesh needs no secrets of it.
//!
//! Kept for all zones together, at the cost of what changed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use common::{
    model::{
        Origin, Resource,
        kinds::{dataplane, secret::SECRET, zone_egress},
    },
    store::index::Index,
    token,
};

/// What runs in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneMeshes {
    /// Proxies of each mesh.
    dataplanes: BTreeMap<Arc<str>, usize>,
    /// Proxies that serve every mesh.
    egresses: usize,
}

impl ZoneMeshes {
    /// Whether anything of `mesh` runs there.
    pub(crate) fn run(&self, mesh: &str) -> bool {
        self.egresses > 0 || self.dataplanes.contains_key(mesh)
    }

    /// Whether the same meshes run, however many proxies of each.
    pub(crate) fn run_as(&self, other: &Self) -> bool {
        (self.egresses > 0) == (other.egresses > 0) && self.dataplanes.keys().eq(other.dataplanes.keys())
    }

    /// Whether the zone has a use for `resource`: for secrets of a mesh only where that runs. What checks the tokens of
    /// its proxies is needed before the first of them is there.
    pub(crate) fn need(&self, resource: &Resource) -> bool {
        resource.kind() != &SECRET
            || token::is_dataplane_key(resource.name())
            || token::is_dataplane_revocation(resource.name())
            || self.run(resource.mesh())
    }

    fn count(&mut self, proxy: &Resource, by: ProxyStep) {
        let is_egress = proxy.kind() == &zone_egress::KIND;
        let count = match is_egress {
            true => &mut self.egresses,
            false => self.dataplanes.entry(proxy.key.mesh.clone()).or_default(),
        };
        *count = match by {
            ProxyStep::Comes => *count + 1,
            ProxyStep::Goes => count.saturating_sub(1),
        };
        if *count == 0 && !is_egress {
            self.dataplanes.remove(&proxy.key.mesh);
        }
    }
}

#[derive(Clone, Copy)]
enum ProxyStep {
    Comes,
    Goes,
}

type ByZone = BTreeMap<Arc<str>, Arc<ZoneMeshes>>;

/// What runs in every zone.
#[derive(Default)]
pub(crate) struct RunningMeshes(Mutex<Option<KnownMeshes>>);

struct KnownMeshes {
    index: Arc<Index>,
    zones: ByZone,
}

impl RunningMeshes {
    /// What runs in `zone` at `index`, or at a newer one that somebody has asked about.
    pub(crate) fn of(&self, zone: &str, index: &Arc<Index>) -> Arc<ZoneMeshes> {
        // Replaced whole, so a panic while holding the lock leaves nothing half done.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match last.take() {
            Some(known) if known.index.store == index.store => known.moved_to(index),
            _ => KnownMeshes::at(index),
        };
        let found = known.zones.get(zone).cloned().unwrap_or_default();
        *last = Some(known);
        found
    }
}

impl KnownMeshes {
    fn at(index: &Arc<Index>) -> Self {
        let mut known = Self { index: Arc::clone(index), zones: ByZone::new() };
        for kind in [&dataplane::KIND, &zone_egress::KIND] {
            index.list(kind).for_each(|proxy| known.count(proxy, ProxyStep::Comes));
        }
        known
    }

    fn moved_to(mut self, index: &Arc<Index>) -> Self {
        if index.revision <= self.index.revision {
            return self;
        }
        let former = std::mem::replace(&mut self.index, Arc::clone(index));
        let is_proxy = |kind| [&dataplane::KIND, &zone_egress::KIND].contains(&kind);
        for key in index.changed_since(&former).iter().filter(|key| is_proxy(key.kind)) {
            if let Some(proxy) = former.get(key) {
                self.count(proxy, ProxyStep::Goes);
            }
            if let Some(proxy) = index.get(key) {
                self.count(proxy, ProxyStep::Comes);
            }
        }
        self
    }

    fn count(&mut self, proxy: &Resource, by: ProxyStep) {
        let Origin::Zone(zone) = &proxy.origin else { return };
        let meshes = self.zones.entry(Arc::clone(zone)).or_default();
        let mut now = ZoneMeshes::clone(meshes);
        now.count(proxy, by);
        *meshes = Arc::new(now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{Kind, ResourceKey},
        store::{Change, Snapshot, StoreIdentity},
    };
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn proxy(kind: &'static Kind, mesh: &str, name: &str, zone: &str) -> Resource {
        let mesh = if kind.is_mesh_scoped() { mesh } else { "" };
        let resource = Resource::new(ResourceKey::new(kind, mesh, name), DateTime::UNIX_EPOCH);
        Resource { origin: Origin::Zone(zone.into()), ..resource }
    }

    fn empty() -> Index {
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        Index::of(store, Snapshot { revision: 0, commit: None, resources: Vec::new() })
    }

    fn secret(mesh: &str, name: &str) -> Resource {
        Resource::new(ResourceKey::new(&SECRET, mesh, name), DateTime::UNIX_EPOCH)
    }

    #[test]
    fn secrets_of_a_mesh_are_needed_where_it_runs() {
        let mut meshes = ZoneMeshes::default();
        let ca = secret("default", "default.ca-builtin-cert-ca-1");
        assert!(!meshes.need(&ca));
        for needed in [
            secret("default", "dataplane-token-signing-key-default-1"),
            secret("default", "dataplane-token-revocations-default"),
        ] {
            assert!(meshes.need(&needed), "{}: the first proxy could not get in", needed.key);
        }
        let web = proxy(&dataplane::KIND, "default", "web", "zone-1");
        meshes.count(&web, ProxyStep::Comes);
        assert!(meshes.need(&ca) && !meshes.need(&secret("other", "ca")));
        meshes.count(&web, ProxyStep::Goes);
        assert_eq!(meshes, ZoneMeshes::default());
        meshes.count(&proxy(&zone_egress::KIND, "", "out", "zone-1"), ProxyStep::Comes);
        assert!(meshes.need(&ca) && meshes.need(&secret("other", "ca")), "it serves every mesh");
    }

    proptest! {
        #[test]
        fn following_is_the_same_as_counting_anew(
            steps in prop::collection::vec((0_usize..3, 0_usize..2, 0_usize..2, 0_usize..2, any::<bool>()), 1..60),
        ) {
            let (kinds, zones) = ([&dataplane::KIND, &zone_egress::KIND, &SECRET], ["zone-1", "zone-2"]);
            let running = RunningMeshes::default();
            let mut index = empty();
            for (revision, (kind, mesh, name, zone, is_there)) in (1..).zip(steps) {
                let meshes = ["a", "b"];
                let resource = proxy(kinds[kind], meshes[mesh], ["x", "y"][name], zones[zone]);
                let key = resource.key.clone();
                let resource = is_there.then(|| Arc::new(Resource { revision, ..resource }));
                index.apply(&Change { revision, key, resource });
                index.revision = revision;
                let at = Arc::new(index.clone());
                for zone in zones {
                    let anew = RunningMeshes::default().of(zone, &at);
                    for mesh in meshes {
                        prop_assert_eq!(running.of(zone, &at).run(mesh), anew.run(mesh));
                    }
                }
            }
        }
    }
}
