#![allow(clippy::unwrap_used)]

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::{
    model::labels,
    rest::cluster_id,
    store::{feed::Feed, memory::MemoryStore},
};

struct Plane {
    store: Arc<dyn Store>,
    index: IndexReader,
    env: Env,
    _stop: tokio_util::sync::DropGuard,
}

impl Plane {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let feed = Feed::load(Arc::clone(&store)).await.unwrap();
        let index = feed.reader();
        let stop = CancellationToken::new();
        tokio::spawn(feed.run(stop.clone()));
        Self { store, index, env: Env::system("test"), _stop: stop.drop_guard() }
    }

    async fn start(&self, mode: &Mode) -> Vec<String> {
        let options = DataplaneDefaults::default();
        ensure_defaults(&self.store, &self.index, &self.env, mode, &options).await.unwrap();
        self.index.current().iter().map(|r| r.key.to_string()).collect()
    }
}

#[tokio::test]
async fn global_makes_its_defaults_once() {
    let plane = Plane::new().await;
    let made = plane.start(&Mode::Global).await;
    for key in [
        "GlobalSecret admin-user-token",
        "GlobalSecret user-token-signing-key-1",
        "GlobalSecret zone-token-signing-key-1",
        "Mesh default",
        "MeshCircuitBreaker default/mesh-circuit-breaker-all-default",
        "MeshRetry default/mesh-retry-all-default",
        "MeshTimeout default/mesh-gateways-timeout-all-default",
        "MeshTimeout default/mesh-timeout-all-default",
        "Secret default/dataplane-token-signing-key-default-1",
        "HostnameGenerator synced-universal-mesh-service",
    ] {
        assert!(made.iter().any(|k| k == key), "{key} is missing in {made:?}");
    }
    let index = plane.index.current();
    assert!(!cluster_id(&index).is_empty());
    let key = token::Purpose::Dataplane { mesh: "default" }.key(1);
    assert_eq!(index.get(&key).unwrap().label(labels::ISSUING), Some(labels::ISSUING_ZONE));
    assert_eq!(plane.start(&Mode::Global).await, made);
    assert_eq!(plane.index.current().revision, index.revision, "a second start writes nothing");

    let place = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, token::ADMIN_USER_TOKEN);
    let admin = token::data_of(index.get(&place).unwrap()).unwrap();
    let admin = token::validate_user(&index, &String::from_utf8(admin).unwrap(), plane.env.now()).unwrap();
    assert_eq!(admin.name, User::admin().name);
}

#[tokio::test]
async fn a_federated_zone_leaves_meshes_to_global() {
    let plane = Plane::new().await;
    let made = plane.start(&Mode::federated_zone("east")).await;
    assert!(made.contains(&"Zone east".to_owned()));
    assert!(made.contains(&"HostnameGenerator local-universal-mesh-service".to_owned()));
    assert!(!made.iter().any(|key| key.starts_with("Mesh ") || key.starts_with("Config")), "{made:?}");
}
