//! What the ingresses of this zone offer to the others: computed from its proxies whenever they change,
//! stored on the `ZoneIngress` resources, and only when it differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{
        Origin, Resource, ResourceKey, Spec,
        kinds::{dataplane, legacy, mesh, zone_ingress},
        labels,
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

use super::{hosts::HostUsers, moment::WriteMoment};
use crate::{
    account::Account,
    mesh::{
        Catalogue, Hosts, Surroundings,
        catalogue::{CatalogueEntry, Offers, fair_part, offered},
        read_inbounds,
    },
};

/// Keeps the catalogue of the zone up to date.
pub(super) struct Availability {
    zone: Arc<str>,
    store: Arc<dyn Store>,
    env: Env,
    reader: IndexReader,
    hosts: watch::Receiver<Hosts>,
    index: Arc<Index>,
    /// What each proxy of the zone offers, as tag sets.
    proxies: BTreeMap<ResourceKey, Offers>,
    /// What they offer together.
    catalogue: Catalogue,
    /// What gateways show to other meshes.
    around: Surroundings,
    /// Services outside the mesh that only this zone reaches.
    outside: BTreeMap<ResourceKey, BTreeMap<String, String>>,
    /// Meshes that publish services as resources only.
    exclusive: BTreeSet<Arc<str>>,
    /// Meshes whose traffic leaves through egresses.
    leaving: BTreeSet<Arc<str>>,
    /// Where host names stand.
    users: HostUsers,
    /// Whether what is stored may not be right.
    open: bool,
    /// When that may be written next.
    moment: WriteMoment,
    /// How much of what is offered no other zone is told.
    left_out: usize,
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
        Self {
            around: Surroundings { zone: Arc::clone(&zone), ..Surroundings::default() },
            zone,
            store,
            env,
            reader,
            hosts,
            index,
            proxies: BTreeMap::new(),
            catalogue: Catalogue::default(),
            outside: BTreeMap::new(),
            exclusive: BTreeSet::new(),
            leaving: BTreeSet::new(),
            users: HostUsers::default(),
            open: false,
            moment: WriteMoment::now(),
            left_out: 0,
        }
    }

    /// Works until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            self.follow_newest();
            if self.open && self.moment.is_there() {
                self.settle().await;
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = self.reader.changed() => if !open { return },
                changed = self.hosts.changed() => if changed.is_err() { return },
                () = self.moment.come(), if self.open => {}
            }
        }
    }

    /// Takes in what changed in the index, and where host names stand.
    fn follow_newest(&mut self) {
        let index = self.reader.latest();
        let mut changed = index.changed_since(&self.index);
        for key in &changed {
            _ = self.users.follow(key, index.get(key));
        }
        let hosts = self.hosts.borrow_and_update().clone();
        // Proxies whose address was a name may be readable now.
        let mut readers = self.users.with(&self.around.hosts.differences(&hosts));
        self.around.hosts = hosts;
        for key in &changed {
            readers.remove(key);
        }
        changed.extend(readers);
        let mut relevant = changed.iter().filter(|key| self.follow(key, &index)).count();
        let meshes = self.around.neighbours.clone();
        // What is wrong with an ingress or egress is told by who uses it.
        drop(self.around.update(&changed, &index));
        relevant += usize::from(!meshes.ptr_eq(&self.around.neighbours));
        self.index = index;
        self.open |= relevant > 0;
    }

    /// Writes what differs from what is stored.
    async fn settle(&mut self) {
        let writes = self.writes();
        if writes.is_empty() {
            self.open = false;
            return;
        }
        self.moment.use_up(&self.env.entropy);
        match self.store.transact(Batch::of(writes)).await {
            Ok(_) => self.open = false,
            // Somebody wrote the ingress meanwhile, and that change brings the next round.
            Err(error @ (StoreError::Conflict { .. } | StoreError::NotFound { .. })) => {
                tracing::debug!(%error, "what the ingresses of this zone offer is computed again");
            }
            Err(error) => tracing::warn!(%error, "cannot store what the ingresses of this zone offer"),
        }
    }

    /// Takes one change in; says whether it can matter.
    fn follow(&mut self, key: &ResourceKey, index: &Index) -> bool {
        let resource = index.get(key);
        if key.kind == &dataplane::KIND {
            let ours = resource.filter(|r| is_of(r, &self.zone));
            let read = ours.and_then(|r| read_inbounds(r, &self.around.hosts).ok());
            let offers = ours
                .zip(read)
                .map(|(resource, inbounds)| Offers { by: Account::of(resource), tags: offered(&inbounds) });
            let offers = offers.unwrap_or_default();
            let before = self.proxies.remove(key).unwrap_or_default();
            let differs = self.catalogue.moved(&key.mesh, &before, &offers);
            if !offers.tags.is_empty() {
                self.proxies.insert(key.clone(), offers);
            }
            return differs;
        } else if key.kind == &legacy::EXTERNAL_SERVICE {
            let tags = resource.and_then(|r| r.spec::<proto::ExternalService>().ok()).map(|spec| spec.tags);
            let ours = tags.filter(|tags| tags.get(labels::ZONE).is_some_and(|zone| **zone == *self.zone));
            let before = match ours.clone() {
                Some(tags) => self.outside.insert(key.clone(), tags),
                None => self.outside.remove(key),
            };
            return before != ours;
        } else if key.kind == &mesh::KIND {
            let spec = resource.and_then(|r| r.spec::<proto::Mesh>().ok());
            let leaves = spec.as_ref().and_then(|s| s.routing.as_ref()).is_some_and(|r| r.zone_egress);
            if leaves {
                self.leaving.insert(Arc::clone(&key.name));
            } else {
                self.leaving.remove(&key.name);
            }
            let mode = spec.and_then(|s| s.mesh_services).map(|m| m.mode());
            if mode == Some(Mode::Exclusive) {
                self.exclusive.insert(Arc::clone(&key.name));
            } else {
                self.exclusive.remove(&key.name);
            }
        }
        [&mesh::KIND, &zone_ingress::KIND].contains(&key.kind)
    }

    fn writes(&mut self) -> Vec<Write> {
        let index = Arc::clone(&self.index);
        let ours = index.list(&zone_ingress::KIND).filter(|r| is_of(r, &self.zone));
        let ours: Vec<&Arc<Resource>> = ours.collect();
        if ours.is_empty() {
            return Vec::new();
        }
        let offered = self.told();
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

impl Availability {
    /// What other zones are told, by mesh, then tags.
    fn told(&mut self) -> Vec<AvailableService> {
        let mut offered = self.catalogue.services(&self.exclusive);
        let published = |mesh: &Arc<str>| self.leaving.contains(mesh) && !self.exclusive.contains(mesh);
        let outside = self.outside.iter().filter(|(key, _)| published(&key.mesh));
        offered.extend(outside.map(|(key, tags)| CatalogueEntry {
            service: AvailableService {
                tags: tags.clone(),
                instances: 1,
                mesh: key.mesh.to_string(),
                external_service: true,
            },
            by: [Account::Operators].into(),
        }));
        offered.extend(self.for_other_meshes());
        offered.sort_by(|a, b| (&a.service.mesh, &a.service.tags).cmp(&(&b.service.mesh, &b.service.tags)));
        let (told, left_out) = fair_part(offered);
        if left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                left_out,
                told = told.len(),
                "the proxies of this zone have more tag sets than other zones are told: of each service some are left out"
            );
        }
        self.left_out = left_out;
        told
    }

    /// The listeners of gateways that proxies of other meshes may call, with how many proxies have each. All of them are
    /// on one account: they are told by their tags alone.
    fn for_other_meshes(&self) -> Vec<CatalogueEntry> {
        let published = self.around.neighbours.iter().filter(|(mesh, _)| !self.exclusive.contains(*mesh));
        let mut counted: BTreeMap<(String, BTreeMap<String, String>), u32> = BTreeMap::new();
        for (mesh, neighbour) in published {
            for (_, tags) in neighbour.doors.iter().flat_map(|door| &door.endpoints) {
                *counted.entry((mesh.to_string(), tags.clone())).or_default() += 1;
            }
        }
        let by = Account::Proxy { token: None, mesh: "".into(), name: "".into() };
        let service = |((mesh, tags), instances): ((String, BTreeMap<String, String>), u32)| CatalogueEntry {
            service: AvailableService { tags, instances, mesh, external_service: false },
            by: [by.clone()].into(),
        };
        counted.into_iter().map(service).collect()
    }
}

fn is_of(resource: &Resource, zone: &str) -> bool {
    matches!(&resource.origin, Origin::Zone(owner) if **owner == *zone)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        document::Document,
        mode::Mode,
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
            put(&self.store, yaml).await;
        }

        /// One round on the newest index, and what the ingress offers after it.
        async fn round(&mut self) -> Vec<String> {
            self.availability.reader = {
                let feed = Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap();
                let reader = feed.reader();
                self.feed = Arc::new(feed);
                reader
            };
            self.availability.follow_newest();
            if self.availability.open {
                self.availability.settle().await;
            }
            assert!(!self.availability.open);
            let index =
                Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap().reader().current();
            let spec =
                index.find(&zone_ingress::KIND, "", "in").unwrap().spec::<proto::ZoneIngress>().unwrap();
            let shown = |s: &proto::zone_ingress::AvailableService| {
                format!("{} {} x{}", s.mesh, s.tags["kuma.io/service"], s.instances)
            };
            spec.available_services.iter().map(shown).collect()
        }
    }

    /// Says which revision that is.
    async fn put(store: &MemoryStore, yaml: &str) -> u64 {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
        let mode = Mode::federated_zone("east");
        mode.label(&mut resource);
        resource.origin = mode.origin_of(resource.kind());
        store.transact(Batch::of([Write::put(resource)])).await.unwrap().revision
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

        // What is outside the mesh and reached from here only is offered through the egresses of this zone.
        bench.put("{type: ExternalService, mesh: default, name: a, networking: {address: 'a:1'}, tags: {kuma.io/service: a-out, kuma.io/zone: east}}").await;
        bench.put("{type: ExternalService, mesh: default, name: b, networking: {address: 'b:1'}, tags: {kuma.io/service: b-out, kuma.io/zone: west}}").await;
        assert_eq!(bench.round().await.len(), 3, "nothing leaves through an egress");
        bench.put("{type: Mesh, name: default, routing: {zoneEgress: true}}").await;
        let offered = bench.round().await;
        assert_eq!(offered[0], "default a-out x1", "{offered:?}");
        assert_eq!(offered.len(), 4, "{offered:?}");

        bench.put("{type: Mesh, name: default, meshServices: {mode: Exclusive}}").await;
        assert_eq!(bench.round().await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_that_come_one_after_the_other_the_offer_is_written_once_in_a_moment() {
        const MANY: usize = 100;
        let bench = Bench::new().await;
        bench.put("{type: Mesh, name: default}").await;
        bench.put("{type: ZoneIngress, name: in, networking: {address: 127.0.0.9, port: 10001}}").await;
        // The hosts stay there for as long as somebody waits for them.
        let Bench { store, availability, feed, _hosts: hosts } = bench;
        let feed = Arc::into_inner(feed).unwrap();
        let (mut reader, shutdown) = (feed.reader(), CancellationToken::new());
        let coming = async {
            for n in 0..MANY {
                let revision = put(&store, &dataplane(&format!("d-{n}"), &format!("s-{n}"), "Ready")).await;
                reader.wait_for(revision).await.unwrap();
            }
            let offered = |index: &Index| {
                let ingress = index.find(&zone_ingress::KIND, "", "in").unwrap();
                ingress.spec::<proto::ZoneIngress>().unwrap().available_services.len()
            };
            while offered(&reader.latest()) != MANY {
                assert!(reader.changed().await);
            }
            let writes = usize::try_from(reader.current().revision).unwrap() - 2 - MANY;
            assert!((1..=3).contains(&writes), "{writes}");
            shutdown.cancel();
        };
        let (followed, (), ()) =
            tokio::join!(feed.run(shutdown.clone()), availability.run(shutdown.clone()), coming);
        followed.unwrap();
        drop(hosts);
    }
}
