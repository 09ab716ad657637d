//! The task, on a store in memory.

use std::{sync::Arc, time::Duration};

use common::{
    document::Document,
    mode::Mode,
    model::kinds::{mesh_service, service_status::ServiceStatus},
    runtime::Env,
    store::{
        Batch, Fence, Store, StoreError, Write,
        feed::Feed,
        index::{Index, IndexReader},
        memory::MemoryStore,
    },
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::world::{proxy, settings};
use crate::{leader::Work, services::Services};

struct Bench {
    store: Arc<MemoryStore>,
    index: IndexReader,
    stop: CancellationToken,
    _feed: JoinHandle<Result<(), StoreError>>,
}

impl Bench {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let (index, stop) = (feed.reader(), CancellationToken::new());
        let running = tokio::spawn(feed.run(stop.clone()));
        Self { store, index, stop, _feed: running }
    }

    async fn put(&self, yaml: &str) {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
        let mode = Mode::federated_zone("east");
        mode.label(&mut resource);
        resource.origin = mode.origin_of(resource.kind());
        self.store.transact(Batch::of([Write::put(resource)])).await.unwrap();
    }

    /// Another replica takes the lead.
    async fn lead(&self, holder: &str) -> JoinHandle<()> {
        let lease = self.store.acquire("zone/leader", holder, Duration::from_secs(60), true).await.unwrap();
        let fence = Fence { name: "zone/leader".to_owned(), epoch: lease.unwrap().epoch };
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        let services = Services::new(settings(), store, self.index.clone(), Env::system("test"));
        let stop = self.stop.clone();
        tokio::spawn(async move { services.lead(fence, stop).await })
    }

    async fn until(&self, holds: impl Fn(&Index) -> bool) -> Arc<Index> {
        let mut reader = self.index.clone();
        loop {
            let index = reader.latest();
            if holds(&index) {
                return index;
            }
            assert!(reader.changed().await);
        }
    }
}

fn address(index: &Index, name: &str) -> Option<std::net::IpAddr> {
    ServiceStatus::of(index.find(&mesh_service::KIND, "default", name)?).ips().next()
}

#[tokio::test]
async fn services_follow_what_is_stored_and_outlive_their_leader() {
    let bench = Bench::new().await;
    bench.put("{type: Mesh, name: default, meshServices: {mode: Everywhere}}").await;
    let first = bench.lead("first").await;
    bench.put(&proxy("web-1", "web", 80, "Ready", "")).await;
    let index = bench.until(|index| address(index, "web").is_some()).await;
    let web = address(&index, "web");

    // The first goes on without knowing that it does not lead any more; what it writes is refused.
    let second = bench.lead("second").await;
    bench.put(&proxy("api-1", "api", 80, "Ready", "")).await;
    let index = bench.until(|index| address(index, "api").is_some()).await;
    assert_eq!(address(&index, "web"), web);
    assert_ne!(address(&index, "api"), web);
    bench.stop.cancel();
    first.await.unwrap();
    second.await.unwrap();
}
