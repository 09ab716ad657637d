#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, task::Poll};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use chrono::DateTime;
use common::{
    access::Access,
    document::Document,
    roles::Rights,
    store::{
        Change, StoreIdentity,
        index::{Index, IndexReader},
    },
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::monitoring::waiting::WAITING;

struct World {
    index: watch::Sender<Arc<Index>>,
    router: Router,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    fn new() -> Self {
        let store = StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 };
        let index = watch::Sender::new(Arc::new(Index::empty(store)));
        let reader = IndexReader::new(index.subscribe());
        let monitoring = Monitoring::new(reader.clone());
        let rights = Arc::new(Rights::new(Access::default(), Some("zone-1"), reader));
        let router = routes(&monitoring, Duration::from_secs(30)).guarded(&rights);
        let router = router.layer(axum::Extension(common::access::User::anonymous()));
        let stop = CancellationToken::new();
        tokio::spawn(monitoring.run(stop.clone()));
        let mut world = Self { index, router, stop };
        world.put(&json!({ "type": "Mesh", "name": "default" }));
        world
    }

    fn put(&mut self, document: &Value) {
        let resource = Document::parse(document).unwrap().into_resource(DateTime::UNIX_EPOCH);
        self.index.send_modify(|index| {
            let mut newer = Index::clone(index);
            let (revision, key) = (newer.revision + 1, resource.key.clone());
            newer.apply(&Change { revision, key, resource: Some(Arc::new(resource)) });
            *index = Arc::new(newer);
        });
    }

    fn collect_everything(&mut self) {
        let prometheus = json!({ "port": 5670, "path": "/metrics" });
        let conf = json!({ "backends": [{ "type": "Prometheus", "prometheus": prometheus }] });
        self.put(
            &json!({ "type": "MeshMetric", "mesh": "default", "name": "all", "spec": { "default": conf } }),
        );
    }

    fn join(&mut self, name: &str) {
        let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": "web" } }]);
        let networking = json!({ "address": "10.0.0.1", "inbound": inbound });
        self.put(&json!({ "type": "Dataplane", "mesh": "default", "name": name, "networking": networking }));
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn fetch(&self, timeout: &str, body: &str) -> (StatusCode, Value) {
        let path = format!("/v3/discovery:monitoringassignments{timeout}");
        self.send(Request::post(path).body(body.to_owned().into()).unwrap()).await
    }
}

fn request(version: &str) -> String {
    json!({ "version_info": version, "node": { "id": "prometheus" }, "type_url": ASSIGNMENT }).to_string()
}

#[tokio::test(start_paused = true)]
async fn who_has_the_newest_waits_for_a_change_and_no_longer_than_it_says() {
    let mut world = World::new();
    world.collect_everything();
    world.join("web-1");
    let (status, first) = world.fetch("", &request("")).await;
    assert_eq!((status, first["resources"].as_array().map(Vec::len)), (StatusCode::OK, Some(1)));
    let version = first["version_info"].as_str().unwrap();
    for timeout in ["", "?fetch-timeout=0s", "?fetch-timeout=-1s", "?fetch-timeout=1m30s"] {
        assert_eq!(world.fetch(timeout, &request(version)).await.0, StatusCode::NOT_MODIFIED, "{timeout}");
    }
    let known = request(version);
    let waits = world.fetch("?fetch-timeout=1h", &known);
    let mut waits = Box::pin(waits);
    assert!(timeout(Duration::from_secs(60), &mut waits).await.is_err(), "nothing has changed");
    drop(waits);
    world.join("web-2");
    let (status, second) = world.fetch("?fetch-timeout=1h", &known).await;
    assert_eq!((status, second["resources"].as_array().map(Vec::len)), (StatusCode::OK, Some(2)));
    assert_ne!(first["version_info"], second["version_info"]);
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_its_reason() {
    let world = World::new();
    for (timeout, body, title) in [
        ("", "{", "Could not parse request body"),
        ("", r#"{"node": []}"#, "Could not parse request body"),
        ("?fetch-timeout=soon", "{}", "Could not parse fetch-timeout"),
    ] {
        let (status, said) = world.fetch(timeout, body).await;
        assert_eq!((status, &said["title"]), (StatusCode::BAD_REQUEST, &json!(title)), "{said}");
    }
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(LARGEST));
    assert_eq!(world.fetch("", &long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    // Members nobody knows come from newer clients.
    assert_eq!(world.fetch("", r#"{"newer": 1}"#).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_simpler_form_has_the_labels_of_the_other() {
    let mut world = World::new();
    world.collect_everything();
    world.join("web-1");
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    let (status, groups) = world.send(get("/monitoring/targets")).await;
    let labels = json!({ "instance": "web-1", "__scheme__": "http", "__metrics_path__": "/metrics",
        "__meta_kuma_mesh": "default", "__meta_kuma_service": "web", "__meta_kuma_dataplane": "web-1" });
    assert_eq!(status, StatusCode::OK);
    assert_eq!(groups, json!([{ "targets": ["10.0.0.1:5670"], "labels": labels }]));
    assert_eq!(world.send(get("/monitoring/targets?mesh=other")).await.1, json!([]));
}

#[tokio::test(start_paused = true)]
async fn nobody_who_waits_keeps_others_from_waiting() {
    let mut world = World::new();
    world.collect_everything();
    world.join("web-1");
    let (_, first) = world.fetch("", &request("")).await;
    let known = request(first["version_info"].as_str().unwrap());
    let wait = || Box::pin(world.fetch("?fetch-timeout=300s", &known));
    let mut waiting: Vec<_> = (0..=WAITING).map(|_| wait()).collect();
    // None of them is anywhere, so the first makes way for the last.
    let mut answered = BTreeMap::new();
    for _ in 0..10 {
        for (number, one) in waiting.iter_mut().enumerate() {
            if !answered.contains_key(&number)
                && let Poll::Ready((status, _)) = futures::poll!(one)
            {
                answered.insert(number, status);
            }
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(answered, BTreeMap::from([(0, StatusCode::NOT_MODIFIED)]));
}

#[tokio::test]
async fn a_long_answer_is_made_off_the_threads_that_serve() {
    let store = StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 };
    let index = watch::Sender::new(Arc::new(Index::empty(store)));
    let monitoring = Monitoring::new(IndexReader::new(index.subscribe()));
    let (intake, making, wait) = (Intake::default(), Offload::default(), Duration::ZERO);
    let api = MonitoringApi { monitoring, intake, making, wait };
    let mut busy = Vec::new();
    for _ in 0..std::thread::available_parallelism().unwrap().get() {
        let (done, until) = std::sync::mpsc::channel::<()>();
        let making = api.making.clone();
        tokio::spawn(async move { making.long(move || until.recv().is_ok()).await });
        busy.push(done);
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let client = Client::default();
    let short = api.make(&client, 1, || Ok(Bytes::from_static(b"[]"))).await.unwrap();
    assert_eq!(short.status(), StatusCode::OK);
    let mut long = Box::pin(api.make(&client, 1000, || Ok(Bytes::from_static(b"[]"))));
    assert!(futures::poll!(&mut long).is_pending());
    drop(busy);
    assert_eq!(long.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn who_asks_for_one_mesh_is_told_of_that() {
    let mut world = World::new();
    world.collect_everything();
    for name in ["web-1", "web-2"] {
        world.join(name);
    }
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    let all = world.send(get("/monitoring/targets")).await.1;
    assert_eq!(all.as_array().map(Vec::len), Some(2));
    assert_eq!(world.send(get("/monitoring/targets?mesh=default")).await.1, all);
    assert_eq!(world.send(get("/monitoring/targets?mesh=defaul")).await.1, json!([]));
}
