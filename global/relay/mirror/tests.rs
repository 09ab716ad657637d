#![allow(clippy::unwrap_used)]
use chrono::DateTime;
use common::{
    kds::codec::ENVELOPE_URL,
    model::{Kind, kinds, labels},
    policy::mesh_timeout,
    proto::google::protobuf::Any,
    store::{feed::Feed, memory::MemoryStore},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

const GLOBAL: u128 = 7;

struct Fixture {
    store: Arc<dyn Store>,
    mirror: Mirror,
    feed: JoinHandle<()>,
}

impl Fixture {
    async fn on(store: Arc<dyn Store>) -> Self {
        let feed = Feed::load(Arc::clone(&store)).await.unwrap();
        let (local, bus, env) = (feed.reader(), EventBus::new(8), Env::system("test"));
        let feed = tokio::spawn(async move { feed.run(CancellationToken::new()).await.unwrap() });
        let mirror = Mirror::open(Arc::clone(&store), local, bus, env).await.unwrap();
        Self { store, mirror, feed }
    }

    async fn new() -> Self {
        Self::on(Arc::new(MemoryStore::new(Uuid::from_u128(1)))).await
    }

    async fn take(&self, epoch: u64, revision: u64, message: RelayFollowResponse) -> Result<(), MirrorError> {
        let position = Upstream { store_id: Uuid::from_u128(GLOBAL), epoch, revision }.to_text();
        let message = RelayFollowResponse { position, complete: true, ..message };
        self.mirror.take(&mut PartialState::default(), message).await.map(drop)
    }

    fn names(&self, kind: &'static Kind) -> Vec<String> {
        self.mirror.reader().current().list(kind).map(|resource| resource.name().to_owned()).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

fn item(kind: &'static Kind, name: &str, zone: &str) -> RelayResource {
    let key = ResourceKey::new(kind, if kind.is_mesh_scoped() { "default" } else { "" }, name);
    let mut resource = Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::ORIGIN, "global");
    if kind == &mesh_timeout::KIND {
        resource = resource
            .with_spec(&br#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}"#[..]);
    }
    let value = codec::encode(&resource).value.to_vec();
    let any = Any { type_url: ENVELOPE_URL.to_owned(), value };
    RelayResource { r#type: kind.name.to_owned(), zone: zone.to_owned(), resource: Some(any) }
}

fn with(resources: Vec<RelayResource>) -> RelayFollowResponse {
    RelayFollowResponse { resources, ..RelayFollowResponse::default() }
}

#[tokio::test]
async fn it_shows_what_global_has_under_the_numbers_of_global() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.mirror.reader().current().revision, 0, "nothing is shown before there is something");
    let first = with(vec![item(&mesh_timeout::KIND, "t", ""), item(&kinds::zone::KIND, "zone-1", "")]);
    fixture.take(3, 40, first).await.unwrap();
    let index = fixture.mirror.reader().current();
    assert_eq!((index.store.store_id, index.store.epoch, index.revision), (Uuid::from_u128(GLOBAL), 3, 40));
    assert_eq!(fixture.names(&mesh_timeout::KIND), ["t"]);
    let gone =
        RelayHeld { r#type: "MeshTimeout".to_owned(), name: "t.default".to_owned(), version: Vec::new() };
    fixture.take(3, 41, RelayFollowResponse { removed: vec![gone], ..with(Vec::new()) }).await.unwrap();
    assert_eq!(fixture.names(&mesh_timeout::KIND), [""; 0]);
    assert_eq!(fixture.mirror.reader().current().revision, 41);
}

#[tokio::test]
async fn whose_a_resource_is_stands_beside_it_and_not_in_its_labels() {
    let fixture = Fixture::new().await;
    fixture.take(1, 1, with(vec![item(&mesh_timeout::KIND, "t", "zone-2")])).await.unwrap();
    let index = fixture.mirror.reader().current();
    let shown = index.find(&mesh_timeout::KIND, "default", "t").unwrap();
    assert_eq!(shown.origin, Origin::Zone("zone-2".into()));
}

#[tokio::test]
async fn nothing_is_shown_before_a_state_is_complete() {
    let fixture = Fixture::new().await;
    let position = Upstream { store_id: Uuid::from_u128(GLOBAL), epoch: 1, revision: 5 }.to_text();
    let part = |name, complete| {
        let resources = vec![item(&mesh_timeout::KIND, name, "")];
        RelayFollowResponse { position: position.clone(), complete, ..with(resources) }
    };
    let mut partial = PartialState::default();
    assert_eq!(fixture.mirror.take(&mut partial, part("a", false)).await.unwrap(), None);
    assert_eq!(fixture.names(&mesh_timeout::KIND), [""; 0]);
    assert!(fixture.mirror.take(&mut partial, part("b", true)).await.unwrap().is_some());
    assert_eq!(fixture.names(&mesh_timeout::KIND), ["a", "b"]);
}

#[tokio::test]
async fn a_restart_loses_nothing_and_asks_for_nothing_again() {
    let fixture = Fixture::new().await;
    fixture.take(2, 9, with(vec![item(&mesh_timeout::KIND, "t", "")])).await.unwrap();
    let (held, store) = (fixture.mirror.held(), Arc::clone(&fixture.store));
    drop(fixture);
    let again = Fixture::on(store).await;
    let index = again.mirror.reader().current();
    assert_eq!((index.store.epoch, index.revision), (2, 9));
    assert_eq!(again.mirror.held(), held);
    let sent = codec::encode(index.find(&mesh_timeout::KIND, "default", "t").unwrap());
    assert_eq!(held[0].version, sent.version.as_bytes());
}

#[tokio::test]
async fn a_global_that_went_back_is_not_followed_before_its_epoch_is_raised() {
    let fixture = Fixture::new().await;
    fixture.take(1, 9, with(vec![item(&mesh_timeout::KIND, "t", "")])).await.unwrap();
    let error = fixture.take(1, 8, with(Vec::new())).await.unwrap_err().to_string();
    assert!(error.contains("from epoch 1 revision 9 to epoch 1 revision 8"), "{error}");
    assert_eq!(fixture.mirror.reader().current().revision, 9);
    fixture.take(2, 8, with(Vec::new())).await.unwrap();
    assert_eq!(fixture.mirror.reader().current().store.epoch, 2);
}

#[tokio::test]
async fn a_zone_that_changes_stays_the_zone_it_was() {
    let fixture = Fixture::new().await;
    fixture.take(1, 1, with(vec![item(&kinds::zone::KIND, "zone-1", "")])).await.unwrap();
    let created = |fixture: &Fixture| {
        let index = fixture.mirror.reader().current();
        index.find(&kinds::zone::KIND, "", "zone-1").unwrap().created
    };
    let before = created(&fixture);
    let mut changed = item(&kinds::zone::KIND, "zone-1", "");
    let resource = Resource::new(ResourceKey::global(&kinds::zone::KIND, "zone-1"), DateTime::UNIX_EPOCH);
    let value = codec::encode(&resource.with_label("a", "b")).value.to_vec();
    changed.resource = Some(Any { type_url: ENVELOPE_URL.to_owned(), value });
    fixture.take(1, 2, with(vec![changed])).await.unwrap();
    assert_eq!(created(&fixture), before);
}
