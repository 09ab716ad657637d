//! On a store in memory, with a clock that runs as fast as nobody has anything to do.
#![allow(clippy::unwrap_used)]

use common::{
    model::{labels, transcode},
    proto::{google::protobuf::Timestamp, kuma::mesh::v1alpha1 as mesh},
    runtime::{Clock, Entropy},
    store::{feed::Feed, memory::MemoryStore},
};
use prost::Message;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);
const OWN: &str = "cp-1";

/// Goes with the clock of the runtime, which stands still while anybody works.
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::from_std(self.0.elapsed()).unwrap()
    }
}

struct Bench {
    store: Arc<MemoryStore>,
    index: IndexReader,
    env: Env,
    stop: CancellationToken,
    _feed: JoinHandle<Result<(), StoreError>>,
}

impl Bench {
    async fn new() -> Self {
        let clock = Arc::new(Paused(Instant::now()));
        let env = Env { clock, entropy: Entropy::seeded(1), instance_id: OWN.into() };
        let store = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let (index, stop) = (feed.reader(), CancellationToken::new());
        let running = tokio::spawn(feed.run(stop.clone()));
        Self { store, index, env, stop, _feed: running }
    }

    /// This replica takes the lead.
    async fn lead(&self, patience: AbsenceTimeouts) -> JoinHandle<()> {
        let lease = self.store.acquire("zone/leader", OWN, 1000 * HOUR, true).await.unwrap();
        let fence = Fence { name: "zone/leader".to_owned(), epoch: lease.unwrap().epoch };
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        let (index, env, stop) = (self.index.clone(), self.env.clone(), self.stop.clone());
        let absence = Absence::new("east".into(), patience, store, index, Arc::default(), env);
        tokio::spawn(async move { absence.lead(fence, stop).await })
    }

    async fn put(&self, resource: Resource) {
        let commit = self.store.transact(Batch::of([Write::put(resource)])).await.unwrap();
        self.index.wait_for(commit.revision).await.unwrap();
    }

    /// A proxy of `origin` that somebody applied.
    async fn proxy(&self, kind: ProxyKind, name: &str, origin: Origin) {
        self.put(self.resource(kind, name, origin)).await;
    }

    /// One that brought its resource along.
    async fn registered(&self, kind: ProxyKind, name: &str, origin: Origin) {
        let resource = self.resource(kind, name, origin);
        self.put(resource.with_label(labels::REGISTERED, labels::REGISTERED_BY_PROXY)).await;
    }

    fn resource(&self, kind: ProxyKind, name: &str, origin: Origin) -> Resource {
        let mesh = if kind == ProxyKind::Dataplane { "default" } else { "" };
        let id = ProxyId::new(kind, mesh, name);
        let spec = serde_json::json!({"networking": {"address": "10.0.0.1"}});
        let spec = transcode::from_json(kind.resource(), &spec).unwrap();
        let mut resource = Resource::new(id.key(), self.env.now()).with_spec(spec);
        resource.origin = origin;
        resource
    }

    /// What is said of it: the process that has it, whether it left now, and how often it was spoken of.
    async fn insight(&self, kind: ProxyKind, name: &str, at: &str, left: bool, generation: u32) {
        let mesh = if kind == ProxyKind::Dataplane { "default" } else { "" };
        let id = ProxyId::new(kind, mesh, name);
        let now = self.env.now();
        let now = Timestamp { seconds: now.timestamp(), nanos: 0 };
        let subscriptions = vec![DiscoverySubscription {
            id: "1".to_owned(),
            control_plane_instance_id: at.to_owned(),
            connect_time: Some(now),
            disconnect_time: left.then_some(now),
            generation,
            ..DiscoverySubscription::default()
        }];
        let spec = match kind {
            ProxyKind::Dataplane => {
                mesh::DataplaneInsight { subscriptions, ..Default::default() }.encode_to_vec()
            }
            ProxyKind::Ingress => {
                mesh::ZoneIngressInsight { subscriptions, ..Default::default() }.encode_to_vec()
            }
            ProxyKind::Egress => {
                mesh::ZoneEgressInsight { subscriptions, ..Default::default() }.encode_to_vec()
            }
        };
        let mut insight = Resource::new(id.insight_key(), self.env.now()).with_spec(spec);
        insight.origin = self.index.current().get(&id.key()).unwrap().origin.clone();
        insight.owner = Some(id.key());
        self.put(insight).await;
    }

    async fn offline(&self, kind: ProxyKind, name: &str) {
        self.proxy(kind, name, Origin::Zone("east".into())).await;
        self.insight(kind, name, OWN, true, 0).await;
    }

    fn left(&self) -> Vec<String> {
        let index = self.index.current();
        KINDS.iter().flat_map(|kind| index.list(kind.resource())).map(|r| r.name().to_owned()).collect()
    }

    fn is_online(&self, name: &str) -> bool {
        let id = ProxyId::new(ProxyKind::Dataplane, "default", name);
        let index = self.index.current();
        subscriptions(index.get(&id.insight_key()).unwrap()).iter().any(|s| s.disconnect_time.is_none())
    }
}

#[tokio::test(start_paused = true)]
async fn who_stays_away_for_longer_than_its_age_goes() {
    let bench = Bench::new().await;
    let patience =
        AbsenceTimeouts { dataplane: 10 * HOUR, zone_proxy: 20 * HOUR, ..AbsenceTimeouts::default() };
    let _leading = bench.lead(patience).await;
    bench.offline(ProxyKind::Dataplane, "away").await;
    bench.offline(ProxyKind::Dataplane, "back").await;
    bench.offline(ProxyKind::Ingress, "in").await;
    bench.offline(ProxyKind::Egress, "out").await;
    bench.proxy(ProxyKind::Dataplane, "here", Origin::Zone("east".into())).await;
    bench.insight(ProxyKind::Dataplane, "here", OWN, false, 0).await;
    bench.proxy(ProxyKind::Dataplane, "never", Origin::Zone("east".into())).await;
    bench.proxy(ProxyKind::Ingress, "of-west", Origin::Global).await;
    bench.insight(ProxyKind::Ingress, "of-west", "cp-west", true, 0).await;
    sleep(9 * HOUR).await;
    assert_eq!(bench.left().len(), 7);
    bench.insight(ProxyKind::Dataplane, "back", OWN, false, 1).await;
    sleep(2 * HOUR).await;
    assert_eq!(bench.left(), ["back", "here", "never", "in", "of-west", "out"]);
    sleep(10 * HOUR).await;
    assert_eq!(bench.left(), ["back", "here", "never", "of-west"]);
    let index = bench.index.current();
    let insights: Vec<&str> =
        KINDS.iter().flat_map(|kind| index.list(kind.insight())).map(|r| r.name()).collect();
    assert_eq!(insights, ["back", "here", "of-west"], "what is said of a proxy goes with it");
}

/// Its control plane went down with it, so nobody wrote that it left.
#[tokio::test(start_paused = true)]
async fn who_was_left_open_by_a_process_that_fell_silent_goes() {
    let bench = Bench::new().await;
    let patience = AbsenceTimeouts { dataplane: 10 * HOUR, idle: HOUR, ..AbsenceTimeouts::default() };
    for name in ["silent", "spoken-of"] {
        bench.proxy(ProxyKind::Dataplane, name, Origin::Zone("east".into())).await;
        bench.insight(ProxyKind::Dataplane, name, "cp-2", false, 0).await;
    }
    let _leading = bench.lead(patience).await;
    for generation in 1..25 {
        sleep(HOUR / 2).await;
        bench.insight(ProxyKind::Dataplane, "spoken-of", "cp-2", false, generation).await;
        if generation == 3 {
            assert!(!bench.is_online("silent"));
            assert_eq!(bench.left(), ["silent", "spoken-of"]);
        }
    }
    assert!(bench.is_online("spoken-of"));
    assert_eq!(bench.left(), ["spoken-of"]);
}

/// Whoever leads next has nothing but the store.
#[tokio::test(start_paused = true)]
async fn the_age_counts_across_leaders() {
    let bench = Bench::new().await;
    let patience = AbsenceTimeouts { dataplane: 10 * HOUR, ..AbsenceTimeouts::default() };
    bench.offline(ProxyKind::Dataplane, "away").await;
    let first = bench.lead(patience).await;
    sleep(6 * HOUR).await;
    first.abort();
    sleep(3 * HOUR).await;
    let _second = bench.lead(patience).await;
    assert_eq!(bench.left(), ["away"]);
    sleep(2 * HOUR).await;
    assert_eq!(bench.left(), [""; 0]);
}

/// The process that let it in ended before it wrote that, or somebody else did.
#[tokio::test(start_paused = true)]
async fn who_registered_and_was_never_seen_goes_after_its_age() {
    let bench = Bench::new().await;
    let patience = AbsenceTimeouts {
        dataplane: 10 * HOUR,
        zone_proxy: 20 * HOUR,
        unseen: None,
        ..AbsenceTimeouts::default()
    };
    bench.registered(ProxyKind::Dataplane, "before", Origin::Zone("east".into())).await;
    let _leading = bench.lead(patience).await;
    bench.registered(ProxyKind::Dataplane, "unseen", Origin::Zone("east".into())).await;
    bench.registered(ProxyKind::Dataplane, "of-west", Origin::Global).await;
    bench.registered(ProxyKind::Dataplane, "seen", Origin::Zone("east".into())).await;
    bench.registered(ProxyKind::Ingress, "in", Origin::Zone("east".into())).await;
    bench.proxy(ProxyKind::Dataplane, "applied", Origin::Zone("east".into())).await;
    sleep(9 * HOUR).await;
    bench.insight(ProxyKind::Dataplane, "seen", OWN, false, 0).await;
    assert_eq!(bench.left().len(), 6);
    sleep(2 * HOUR).await;
    assert_eq!(bench.left(), ["applied", "of-west", "seen", "in"]);
    sleep(10 * HOUR).await;
    assert_eq!(bench.left(), ["applied", "of-west", "seen"]);
}

/// Nobody saw them leave, or whoever did ended before it deleted what they had brought along.
#[tokio::test(start_paused = true)]
async fn what_was_brought_along_goes_soon_after_the_start_unless_its_proxy_comes_back() {
    let bench = Bench::new().await;
    let east = || Origin::Zone("east".into());
    for name in ["gone", "back", "there", "lost", "unseen", "taken"] {
        bench.registered(ProxyKind::Dataplane, name, east()).await;
    }
    bench.registered(ProxyKind::Ingress, "in", east()).await;
    bench.proxy(ProxyKind::Dataplane, "applied", east()).await;
    for name in ["gone", "back", "applied", "taken"] {
        bench.insight(ProxyKind::Dataplane, name, "former", true, 0).await;
    }
    bench.insight(ProxyKind::Ingress, "in", "former", true, 0).await;
    // One of another replica that shares the store, and one of a replica that is no more.
    for name in ["there", "lost"] {
        bench.insight(ProxyKind::Dataplane, name, "cp-2", false, 0).await;
    }
    sleep(24 * HOUR).await;
    let patience = AbsenceTimeouts {
        brought: 4 * HOUR,
        unseen: Some(4 * HOUR),
        idle: 3 * HOUR,
        ..AbsenceTimeouts::default()
    };
    let _leading = bench.lead(patience).await;
    sleep(2 * HOUR).await;
    assert_eq!(bench.left().len(), 8, "they have time to come back");
    bench.insight(ProxyKind::Dataplane, "back", OWN, false, 1).await;
    bench.insight(ProxyKind::Dataplane, "there", "cp-2", false, 1).await;
    // Somebody applies the same, so it is the operator's.
    bench.proxy(ProxyKind::Dataplane, "taken", east()).await;
    sleep(HOUR * 5 / 2).await;
    bench.insight(ProxyKind::Dataplane, "there", "cp-2", false, 2).await;
    assert_eq!(bench.left(), ["applied", "back", "lost", "taken", "there"]);
    sleep(HOUR * 5 / 2).await;
    bench.insight(ProxyKind::Dataplane, "there", "cp-2", false, 3).await;
    sleep(HOUR * 5 / 2).await;
    assert_eq!(bench.left(), ["applied", "back", "taken", "there"], "it fell silent, and stayed away");
}

/// It comes and goes without a stream, as who asks once in a while does.
#[tokio::test(start_paused = true)]
async fn who_is_expected_back_is_left_to_whoever_saw_it_leave() {
    let bench = Bench::new().await;
    let (store, index) = (Arc::clone(&bench.store) as Arc<dyn Store>, bench.index.clone());
    let proxies: Arc<Proxies> = Arc::default();
    bench.registered(ProxyKind::Dataplane, "asks", Origin::Zone("east".into())).await;
    let id = ProxyId::new(ProxyKind::Dataplane, "default", "asks");
    proxies.due_again(&id, 3 * HOUR);
    let lease = bench.store.acquire("zone/leader", OWN, 1000 * HOUR, true).await.unwrap();
    let fence = Fence { name: "zone/leader".to_owned(), epoch: lease.unwrap().epoch };
    let patience = AbsenceTimeouts { brought: HOUR, unseen: Some(HOUR), ..AbsenceTimeouts::default() };
    let (env, stop) = (bench.env.clone(), bench.stop.clone());
    let absence = Absence::new("east".into(), patience, store, index, Arc::clone(&proxies), env);
    let _leading = tokio::spawn(async move { absence.lead(fence, stop).await });
    sleep(2 * HOUR).await;
    assert_eq!(bench.left(), ["asks"]);
    assert_eq!(proxies.overdue().await, [id]);
    sleep(HOUR).await;
    assert_eq!(bench.left(), [""; 0]);
}
