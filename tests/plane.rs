//! Control planes small enough to start dozens of: the store, its index and KDS, nothing else.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "shared by two test binaries"
)]

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    envoy_admin::{Ask, AskError, EnvoyAdmin},
    events::EventBus,
    model::{Kind, Origin, Resource, ResourceKey},
    runtime::{Clock, Entropy, Env},
    store::{
        Batch, Store, Write,
        feed::Feed,
        index::{Index, IndexReader},
        memory::MemoryStore,
    },
};
use global::kds::{AnyZone, Kds, ZoneAuthenticator};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zone::kds::{Connector, Dial, Link};

/// A wall clock that follows the runtime's, so that a paused or simulated one decides.
pub struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> DateTime<Utc> {
        let elapsed = chrono::Duration::from_std(self.0.elapsed()).unwrap();
        DateTime::from_timestamp(1_700_000_000, 0).unwrap() + elapsed
    }
}

/// A zone without proxies.
pub struct NoEnvoys;

#[async_trait::async_trait]
impl EnvoyAdmin for NoEnvoys {
    async fn ask(&self, proxy: &ResourceKey, _: Ask) -> Result<bytes::Bytes, AskError> {
        Err(AskError::NotConnected(proxy.clone()))
    }
}

/// A store, followed by an index.
pub struct Plane {
    pub store: Arc<MemoryStore>,
    pub index: IndexReader,
    pub bus: EventBus,
    pub env: Env,
    pub tasks: JoinSet<()>,
    pub stop: CancellationToken,
}

impl Plane {
    pub async fn start(store: Arc<MemoryStore>, name: &str, seed: u64) -> Self {
        let env = Env {
            clock: Arc::new(RuntimeClock(tokio::time::Instant::now())),
            entropy: Entropy::seeded(seed),
            instance_id: format!("{name}-{seed:x}").into(),
        };
        let bus = EventBus::new(64);
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap().telling(bus.clone());
        let index = feed.reader();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        // The feed outlives the rest: what is written at the end must still be shown.
        tasks.spawn(async move { feed.run(CancellationToken::new()).await.unwrap() });
        Self { store, index, bus, env, tasks, stop }
    }

    pub async fn put(&self, resource: Resource) -> u64 {
        let commit = self.store.transact(Batch::of([Write::put(resource)])).await.unwrap();
        commit.revision
    }

    pub async fn delete(&self, key: ResourceKey) {
        let write = Write::delete_when(key, common::store::Precondition::None);
        self.store.transact(Batch::of([write])).await.unwrap();
    }

    pub fn resource(&self, kind: &'static Kind, mesh: &str, name: &str, origin: Origin) -> Resource {
        Resource { origin, ..Resource::new(ResourceKey::new(kind, mesh, name), self.env.now()) }
    }

    /// Waits until the index satisfies `holds`.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Index) -> bool) {
        let mut index = self.index.clone();
        let seen = async {
            while !holds(&index.latest()) {
                assert!(index.changed().await, "the feed ended");
            }
        };
        if tokio::time::timeout(Duration::from_secs(30), seen).await.is_err() {
            let held: Vec<String> = self.index.current().iter().map(|r| r.key.to_string()).collect();
            panic!("{} never saw {what}; it holds {held:#?}", self.env.instance_id);
        }
    }

    pub fn settings() -> global::kds::GlobalKdsSettings {
        global::kds::GlobalKdsSettings::default()
    }

    /// KDS of a global that lets anyone in.
    pub fn kds(&self) -> Kds {
        self.kds_with(Self::settings(), Arc::new(AnyZone))
    }

    pub fn kds_with(
        &self,
        settings: global::kds::GlobalKdsSettings,
        authenticator: Arc<dyn ZoneAuthenticator>,
    ) -> Kds {
        let (store, bus) = (Arc::clone(&self.store) as Arc<dyn Store>, self.bus.clone());
        Kds::new(settings, store, self.index.clone(), bus, self.env.clone(), authenticator)
    }

    pub fn connector(
        &self,
        settings: zone::kds::ZoneKdsSettings,
        dial: Arc<dyn Dial>,
        envoys: Arc<dyn EnvoyAdmin>,
    ) -> Connector {
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        Connector::new(settings, store, self.index.clone(), self.env.clone(), dial, envoys)
    }

    /// Starts following a global.
    pub fn follow(&mut self, settings: zone::kds::ZoneKdsSettings, dial: Arc<dyn Dial>) -> Link {
        self.follow_with(settings, dial, Arc::new(NoEnvoys))
    }

    /// Starts following a global that may ask `envoys`.
    pub fn follow_with(
        &mut self,
        settings: zone::kds::ZoneKdsSettings,
        dial: Arc<dyn Dial>,
        envoys: Arc<dyn EnvoyAdmin>,
    ) -> Link {
        let connector = self.connector(settings, dial, envoys);
        let link = connector.link();
        let stop = self.stop.clone();
        self.tasks.spawn(async move { connector.run(None, stop).await });
        link
    }
}

pub fn store(number: u128) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(Uuid::from_u128(number)))
}
