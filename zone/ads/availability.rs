//! What the ingresses of this zone offer to the others: computed from its proxies whenever they change,
//! stored on the `ZoneIngress` resources, and only when it differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use common::{
    model::{
        Origin, Resource, ResourceKey, Spec,
        kinds::{dataplane, mesh, zone_ingress},
    },
    proto::kuma::mesh::v1alpha1::{self as proto, mesh::mesh_services::Mode, zone_ingress::AvailableService},
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::mesh::{Dataplane, Hosts, available_services};

/// Pause after the store refused.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the catalogue of the zone up to date.
pub(super) struct Availability {
    zone: Arc<str>,
    store: Arc<dyn Store>,
    env: Env,
    reader: IndexReader,
    hosts: watch::Receiver<Hosts>,
    index: Arc<Index>,
    /// Decoded proxies of the zone by mesh and name, kept from change to change.
    proxies: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Dataplane>>,
    /// Meshes that publish services as resources only.
    exclusive: BTreeSet<Arc<str>>,
    /// Whether the last write did not go through.
    behind: bool,
}

impl Availability {
    /// Nothing computed yet.
    pub(super) fn new(
        zone: Arc<str>,
        store: Arc<dyn Store>,
        env: Env,
        reader: IndexReader,
        hosts: watch::Receiver<Hosts>,
    ) -> Self {
        let index = Arc::new(Index::empty(store.identity()));
        let (proxies, exclusive) = (BTreeMap::new(), BTreeSet::new());
        Self { zone, store, env, reader, hosts, index, proxies, exclusive, behind: false }
    }

    /// Works until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let done = self.round().await;
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = self.reader.changed() => if !open { return },
                changed = self.hosts.changed() => match changed {
                    // Proxies whose address was a name may be readable now.
                    Ok(()) => self.forget(),
                    Err(_) => return,
                },
                () = tokio::time::sleep(RETRY), if !done => {}
            }
        }
    }

    fn forget(&mut self) {
        self.index = Arc::new(Index::empty(self.store.identity()));
        self.proxies.clear();
        self.exclusive.clear();
    }

    /// Follows the index and writes what differs; says whether the store holds it now.
    async fn round(&mut self) -> bool {
        let index = self.reader.latest();
        let changed = index.changed_since(&self.index);
        let relevant = changed.iter().filter(|key| self.follow(key, &index)).count();
        self.index = index;
        if relevant == 0 && !self.behind {
            return true;
        }
        let writes = self.writes();
        let outcome = match writes.is_empty() {
            true => Ok(()),
            false => self.store.transact(Batch::of(writes)).await.map(|_| ()),
        };
        self.behind = outcome.is_err();
        match outcome {
            Ok(()) => {}
            // Somebody wrote the ingress meanwhile, and that change brings the next round.
            Err(error @ (StoreError::Conflict { .. } | StoreError::NotFound { .. })) => {
                tracing::debug!(%error, "what the ingresses of this zone offer is computed again");
            }
            Err(error) => tracing::warn!(%error, "cannot store what the ingresses of this zone offer"),
        }
        !self.behind
    }

    /// Takes one change in; says whether it can matter.
    fn follow(&mut self, key: &ResourceKey, index: &Index) -> bool {
        let resource = index.get(key);
        if key.kind == &dataplane::KIND {
            let ours = resource.filter(|r| is_of(r, &self.zone));
            let read = ours.and_then(|r| Dataplane::read(r, &self.hosts.borrow()).ok());
            let of_mesh = self.proxies.entry(Arc::clone(&key.mesh)).or_default();
            match read {
                Some(dataplane) => of_mesh.insert(Arc::clone(&key.name), dataplane),
                None => of_mesh.remove(&key.name),
            };
        } else if key.kind == &mesh::KIND {
            let spec = resource.and_then(|r| r.spec::<proto::Mesh>().ok());
            let mode = spec.and_then(|s| s.mesh_services).map(|m| m.mode());
            if mode == Some(Mode::Exclusive) {
                self.exclusive.insert(Arc::clone(&key.name));
            } else {
                self.exclusive.remove(&key.name);
            }
        }
        [&dataplane::KIND, &mesh::KIND, &zone_ingress::KIND].contains(&key.kind)
    }

    fn offered(&self) -> Vec<AvailableService> {
        let published = self.proxies.iter().filter(|(mesh, _)| !self.exclusive.contains(*mesh));
        available_services(published.map(|(mesh, proxies)| (&**mesh, proxies.values())))
    }

    fn writes(&self) -> Vec<Write> {
        let ours = self.index.list(&zone_ingress::KIND).filter(|r| is_of(r, &self.zone));
        let ours: Vec<&Arc<Resource>> = ours.collect();
        if ours.is_empty() {
            return Vec::new();
        }
        let offered = self.offered();
        let differs = ours.into_iter().filter_map(|ingress| {
            let mut spec = ingress.spec::<proto::ZoneIngress>().ok()?;
            if spec.available_services == offered {
                return None;
            }
            spec.available_services.clone_from(&offered);
            let mut resource = Resource::clone(ingress).with_spec(Spec::encode(&spec));
            resource.modified = self.env.now();
            // Its author may change it at the same time; what they write is not ours to undo.
            Some(Write::put_when(resource, Precondition::At(ingress.revision)))
        });
        differs.collect()
    }
}

fn is_of(resource: &Resource, zone: &str) -> bool {
    matches!(&resource.origin, Origin::Zone(owner) if **owner == *zone)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        mode::Mode,
        model::{document::Document, labels},
        store::{feed::Feed, memory::MemoryStore},
    };

    use super::*;

    struct Bench {
        store: Arc<MemoryStore>,
        availability: Availability,
        feed: Arc<Feed>,
        _hosts: watch::Sender<Hosts>,
    }

    impl Bench {
        async fn new() -> Self {
            let store = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
            let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
            let hosts = watch::Sender::new(Hosts::default());
            let availability = Availability::new(
                "east".into(),
                Arc::clone(&store) as Arc<dyn Store>,
                Env::system("test"),
                feed.reader(),
                hosts.subscribe(),
            );
            Self { store, availability, feed: Arc::new(feed), _hosts: hosts }
        }

        async fn put(&self, yaml: &str) {
            let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
            let mut resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
            let mode = Mode::federated_zone("east");
            labels::compute(&mut resource, &mode);
            resource.origin = mode.origin_of(resource.kind());
            self.store.transact(Batch::of([Write::put(resource)])).await.unwrap();
        }

        /// One round on the newest index, and what the ingress offers after it.
        async fn round(&mut self) -> Vec<String> {
            self.availability.reader = {
                let feed = Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap();
                let reader = feed.reader();
                self.feed = Arc::new(feed);
                reader
            };
            assert!(self.availability.round().await);
            let index =
                Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap().reader().current();
            let spec =
                index.find(&zone_ingress::KIND, "", "in").unwrap().spec::<proto::ZoneIngress>().unwrap();
            let shown =
                |s: &AvailableService| format!("{} {} x{}", s.mesh, s.tags["kuma.io/service"], s.instances);
            spec.available_services.iter().map(shown).collect()
        }
    }

    fn dataplane(name: &str, service: &str, state: &str) -> String {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.2, inbound: \
             [{{port: 80, servicePort: 8080, state: {state}, tags: {{kuma.io/service: {service}}}}}]}}}}"
        )
    }

    #[tokio::test]
    async fn the_catalogue_follows_the_healthy_proxies_of_the_zone() {
        let mut bench = Bench::new().await;
        bench.put("{type: Mesh, name: default}").await;
        bench.put("{type: ZoneIngress, name: in, networking: {address: 127.0.0.9, port: 10001}}").await;
        assert_eq!(bench.round().await, Vec::<String>::new());

        bench.put(&dataplane("web-1", "web", "Ready")).await;
        bench.put(&dataplane("web-2", "web", "Ready")).await;
        bench.put(&dataplane("db-1", "db", "NotReady")).await;
        assert_eq!(bench.round().await, ["default web x2"]);

        let before = *bench.store.watch_head().borrow();
        bench.round().await;
        assert_eq!(*bench.store.watch_head().borrow(), before, "equal content is not written");

        bench.put(&dataplane("db-1", "db", "Ready")).await;
        bench.put(&dataplane("web-2", "api", "Ready")).await;
        assert_eq!(bench.round().await, ["default api x1", "default db x1", "default web x1"]);

        bench.put("{type: Mesh, name: default, meshServices: {mode: Exclusive}}").await;
        assert_eq!(bench.round().await, Vec::<String>::new());
    }
}
