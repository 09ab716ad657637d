#![allow(clippy::unwrap_used)]
use chrono::TimeDelta;
use common::{
    model::{
        ResourceKey,
        kinds::{dataplane, dataplane_insight},
        transcode,
    },
    runtime::{Clock, Entropy},
    store::{feed::Feed, memory::MemoryStore},
};
use prost::Message;
use serde_json::json;

use super::*;
use crate::ads::node::ProxyKind;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// A clock that moves a second with every look.
#[derive(Default)]
struct Steps(Mutex<i64>);

impl Clock for Steps {
    fn now(&self) -> DateTime<Utc> {
        let mut seconds = self.0.lock().unwrap();
        *seconds += 1;
        DateTime::UNIX_EPOCH + TimeDelta::seconds(*seconds)
    }
}

fn proxy(name: &str) -> Arc<Proxy> {
    let id = ProxyId::new(ProxyKind::Dataplane, "default", name);
    Arc::new(Proxy { id, cluster: Arc::default(), metadata: Arc::default(), user_agent: "1.40.0".to_owned() })
}

struct Bench {
    store: Arc<MemoryStore>,
    insights: ProxyInsights,
}

impl Bench {
    async fn new(dataplanes: &[&str]) -> Self {
        let env = Env {
            clock: Arc::new(Steps::default()),
            entropy: Entropy::seeded(1),
            instance_id: "cp-1".into(),
        };
        let store = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        for name in dataplanes {
            let key = ResourceKey::new(&dataplane::KIND, "default", name);
            let resource = Resource::new(key, env.now());
            store.transact(Batch::of([Write::put(resource)])).await.unwrap();
        }
        let insights = ProxyInsights::new(&"east".into(), &env);
        Self { store, insights }
    }

    async fn index(&self) -> IndexReader {
        Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap().reader()
    }

    async fn flush(&self, urgent_only: bool) {
        self.insights.flush(self.store.as_ref(), &self.index().await, urgent_only).await;
    }

    async fn insight(&self, name: &str) -> Option<mesh::DataplaneInsight> {
        let key = ResourceKey::new(&dataplane_insight::KIND, "default", name);
        let index = self.index().await.current();
        index.get(&key).map(|r| mesh::DataplaneInsight::decode(&*r.spec).unwrap())
    }

    /// What the insight says is refused, in the form people see.
    async fn rejections(&self, name: &str) -> Option<serde_json::Value> {
        self.told(name, "rejections").await
    }

    async fn told(&self, name: &str, what: &str) -> Option<serde_json::Value> {
        let key = ResourceKey::new(&dataplane_insight::KIND, "default", name);
        let index = self.index().await.current();
        let insight = transcode::to_json(key.kind, &index.get(&key)?.spec).unwrap();
        insight.pointer(&format!("/metadata/strait/{what}")).cloned()
    }
}

#[tokio::test]
async fn what_was_left_out_is_told_until_nothing_is() {
    let bench = Bench::new(&["web-1"]).await;
    let id = proxy("web-1").id.clone();
    // Compiled before its stream was noted.
    bench.insights.problems(&id, ["MeshTrace: nothing is traced".to_owned()].into());
    bench.flush(false).await;
    bench.insights.open(1, &proxy("web-1"));
    bench.flush(true).await;
    assert_eq!(bench.told("web-1", "problems").await, Some(json!(["MeshTrace: nothing is traced"])));
    let many: Vec<String> = (0..40).map(|n| format!("{n}{}", "x".repeat(5000))).collect();
    bench.insights.problems(&id, many.into());
    bench.flush(true).await;
    bench.flush(false).await;
    let told = bench.told("web-1", "problems").await.unwrap();
    let told: Vec<&str> = told.as_array().unwrap().iter().filter_map(|t| t.as_str()).collect();
    assert_eq!(told.len(), 33);
    assert!(told[0].len() == 512 && told[32].starts_with("and 8 more"), "{told:?}");
    bench.insights.problems(&id, Arc::default());
    bench.flush(false).await;
    assert_eq!(bench.told("web-1", "problems").await, None);
    bench.insights.close(1);
    bench.flush(true).await;
    bench.flush(true).await;
    assert!(bench.insights.lock().problems.is_empty());
}

#[tokio::test]
async fn a_stream_is_written_when_it_opens_and_ends_and_its_counters_in_between() {
    let bench = Bench::new(&["web-1"]).await;
    bench.insights.open(1, &proxy("web-1"));
    bench.flush(true).await;
    let opened = bench.insight("web-1").await.unwrap().subscriptions;
    assert_eq!(opened.len(), 1);
    assert_eq!(opened[0].control_plane_instance_id, "cp-1");
    assert!(opened[0].connect_time.is_some() && opened[0].disconnect_time.is_none());
    assert_eq!(opened[0].version.as_ref().unwrap().envoy.as_ref().unwrap().version, "1.40.0");

    for (type_url, delivery) in [
        (CDS, Delivery::Sent),
        (CDS, Delivery::Acknowledged),
        (SDS, Delivery::Sent),
        (SDS, Delivery::Rejected),
    ] {
        bench.insights.count(1, type_url, delivery);
    }
    bench.insights.refuses(1, SDS, Some("no such key"));
    bench.flush(true).await;
    let unwritten = bench.insight("web-1").await.unwrap().subscriptions;
    assert_eq!(unwritten, opened, "counters are not urgent");
    bench.flush(false).await;
    let status = bench.insight("web-1").await.unwrap().subscriptions[0].status.unwrap();
    let numbers = |s: Option<mesh::DiscoveryServiceStats>| {
        s.map(|s| (s.responses_sent, s.responses_acknowledged, s.responses_rejected)).unwrap()
    };
    assert_eq!(numbers(status.total), (2, 1, 1));
    assert_eq!(numbers(status.cds), (1, 1, 0));
    assert_eq!(numbers(status.eds), (0, 0, 0));
    assert_eq!(bench.rejections("web-1").await, Some(json!({"Secret": "no such key"})));
    bench.insights.refuses(1, SDS, Some(&"x".repeat(5000)));
    bench.flush(false).await;
    let long = bench.rejections("web-1").await.unwrap();
    assert_eq!(long["Secret"].as_str().unwrap().len(), LONGEST_REASON);
    bench.insights.refuses(1, SDS, None);
    bench.flush(false).await;
    assert_eq!(bench.rejections("web-1").await, None, "what is taken is refused no more");

    bench.insights.close(1);
    bench.flush(true).await;
    assert!(bench.insight("web-1").await.unwrap().subscriptions[0].disconnect_time.is_some());
    assert!(bench.insights.lock().records.is_empty());
}

#[tokio::test]
async fn nothing_is_written_when_nothing_moved_or_the_proxy_is_unknown() {
    let bench = Bench::new(&["web-1"]).await;
    bench.insights.open(1, &proxy("web-1"));
    bench.insights.open(2, &proxy("web-2"));
    bench.flush(true).await;
    assert!(bench.insight("web-2").await.is_none());
    let before = *bench.store.watch_head().borrow();
    bench.flush(false).await;
    assert_eq!(*bench.store.watch_head().borrow(), before);
    bench.insights.close(2);
    bench.flush(true).await;
    assert_eq!(bench.insights.lock().records.len(), 1, "a proxy nobody knew is forgotten when it goes");
}

#[tokio::test]
async fn a_new_stream_ends_what_was_left_open_and_the_oldest_are_forgotten() {
    let bench = Bench::new(&["web-1"]).await;
    for stream in 1..=3 {
        bench.insights.open(stream, &proxy("web-1"));
        bench.flush(true).await;
        // As after a crash: nobody closed it.
        bench.insights.lock().records.clear();
    }
    let subscriptions = bench.insight("web-1").await.unwrap().subscriptions;
    let ended: Vec<bool> = subscriptions.iter().map(|s| s.disconnect_time.is_some()).collect();
    assert_eq!(ended, [true, false]);

    let index = bench.index().await.current();
    bench.insights.close_left_over(bench.store.as_ref(), &index).await;
    let subscriptions = bench.insight("web-1").await.unwrap().subscriptions;
    assert!(subscriptions.iter().all(|s| s.disconnect_time.is_some()));
}

#[tokio::test]
async fn certificates_are_counted() {
    let bench = Bench::new(&["web-1"]).await;
    let proxy = proxy("web-1");
    bench.insights.open(1, &proxy);
    let certificate = |day| Certificate {
        life: Some((
            DateTime::UNIX_EPOCH + TimeDelta::days(day),
            DateTime::UNIX_EPOCH + TimeDelta::days(day + 1),
        )),
        backend: "ca-1".to_owned(),
        supported: vec!["ca-1".to_owned()],
    };
    for day in [1, 1, 2] {
        bench.insights.certificate(&proxy.id, Some(certificate(day)));
        bench.flush(false).await;
    }
    let m_tls = bench.insight("web-1").await.unwrap().m_tls.unwrap();
    assert_eq!(m_tls.certificate_regenerations, 2);
    assert_eq!(m_tls.issued_backend, "ca-1");
    let of_agent = Certificate { life: None, backend: "kri_mid_a".to_owned(), supported: Vec::new() };
    bench.insights.certificate(&proxy.id, Some(of_agent));
    bench.flush(false).await;
    let m_tls = bench.insight("web-1").await.unwrap().m_tls.unwrap();
    assert_eq!((&*m_tls.issued_backend, m_tls.certificate_regenerations), ("kri_mid_a", 2));
    assert_eq!(m_tls.certificate_expiration_time, None, "who gave it knows");
    bench.insights.certificate(&proxy.id, None);
    bench.flush(false).await;
    assert_eq!(bench.insight("web-1").await.unwrap().m_tls, None);
}

#[test]
fn what_a_proxy_says_about_itself_is_kept_as_far_as_it_is_of_use() {
    use common::proto::google::protobuf::{Struct, Value, value::Kind as Json};

    let text = |length: usize| Value { kind: Some(Json::StringValue("ż".repeat(length))) };
    let object = |fields: Vec<(&str, Value)>| Struct {
        fields: fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    };
    let nested = |fields| Value { kind: Some(Json::StructValue(object(fields))) };
    let kuma_dp = nested(vec![("version", text(1 << 20)), ("gitTag", text(1 << 20))]);
    let many = (0..100_000).map(|n| (format!("member-{n}"), text(1)));
    let mut metadata =
        object(vec![("version", nested(vec![("kumaDp", kuma_dp)])), ("dataplane.admin.port", text(4))]);
    metadata.fields.extend(many);
    let proxy = Proxy {
        metadata: Arc::new(metadata),
        user_agent: "9".repeat(1 << 20),
        ..Proxy::clone(&proxy("web"))
    };
    let kept = spec::metadata(&proxy, &BTreeMap::from([("Cluster".to_owned(), "why".to_owned())]), &[]);
    assert!(kept.encoded_len() < 128 * 1024, "{} bytes", kept.encoded_len());
    assert!(kept.fields.contains_key("strait"), "what this zone adds is always there");
    let version = spec::version(&proxy);
    assert!(version.encoded_len() < 2048, "{} bytes", version.encoded_len());
    assert!(version.kuma_dp.unwrap().version.starts_with('ż'));
    assert_eq!(version.envoy.unwrap().version.len(), 256);
}

/// Written anew it would go to global, and from there to whoever watches, with nothing new in it.
#[test]
fn what_says_the_same_is_written_the_same() {
    use common::proto::google::protobuf::{Struct, Value, value::Kind as Json};

    let number = |n: u32| Value { kind: Some(Json::NumberValue(f64::from(n))) };
    for kind in [ProxyKind::Dataplane, ProxyKind::Ingress, ProxyKind::Egress] {
        let write = |existing: Option<&Resource>| {
            // Two maps made apart have their members in another order.
            let fields = (0..40).map(|n| (format!("member-{n}"), number(n))).collect();
            let update = spec::InsightUpdate {
                subscriptions: Vec::new(),
                metadata: Some(Struct { fields }),
                certificate: None,
                now: timestamp(DateTime::UNIX_EPOCH),
                kept: 10,
            };
            spec::merge(existing, kind, update)
        };
        let first = write(None);
        let key = ResourceKey::new(&dataplane_insight::KIND, "default", "web");
        let stored = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(first.clone());
        assert_eq!(write(Some(&stored)), first, "{kind:?}");
    }
}

/// A proxy may have a stream for each type: what ended must not hide that another is open.
#[tokio::test]
async fn r72_of_the_streams_of_a_proxy_those_that_are_open_are_kept() {
    let bench = Bench::new(&["web"]).await;
    let proxy = proxy("web");
    for stream in 1..=4 {
        bench.insights.open(stream, &proxy);
    }
    bench.insights.refuses(1, CDS, Some("no"));
    bench.flush(false).await;
    assert_eq!(bench.insight("web").await.unwrap().subscriptions.len(), 4);
    assert!(bench.rejections("web").await.is_some(), "whichever stream it was refused on");
    for stream in 2..=4 {
        bench.insights.close(stream);
        bench.flush(true).await;
    }
    let subscriptions = bench.insight("web").await.unwrap().subscriptions;
    let open = subscriptions.iter().filter(|one| one.disconnect_time.is_none()).count();
    assert_eq!((subscriptions.len(), open), (2, 1));
}
