#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    mode::Mode,
    model::Resource,
    rest::{ApiConfig, Sending, SyncProgress},
    testing::api::{HOST, TestApi},
};

/// Zones by name: whether they are there, how far they are, and whether anything is meant for them.
struct Federation {
    zones: Mutex<BTreeMap<String, (ZoneHealth, Revision, bool)>>,
    /// What zones tell about their proxies.
    proxies: Mutex<BTreeMap<String, ProxyProgress>>,
    progress: watch::Sender<()>,
}

impl Federation {
    fn of(zones: &[(&str, ZoneHealth, Revision, bool)]) -> Arc<Self> {
        let zones =
            zones.iter().map(|&(name, health, acked, missed)| (name.to_owned(), (health, acked, missed)));
        let (zones, proxies) = (Mutex::new(zones.collect()), Mutex::default());
        Arc::new(Self { zones, proxies, progress: watch::Sender::new(()) })
    }

    /// The proxies of a zone are so far, and one is not.
    fn tells(&self, zone: &str, acked: Revision) {
        let waiting = vec!["default.web".to_owned()];
        let told = ProxyProgress { acked, connected: 2, behind: 1, waiting, ..ProxyProgress::default() };
        self.proxies.lock().unwrap().insert(zone.to_owned(), told);
        self.progress.send_replace(());
    }

    fn acknowledges(&self, zone: &str, revision: Revision) {
        self.zones.lock().unwrap().get_mut(zone).unwrap().1 = revision;
        self.progress.send_replace(());
    }
}

impl ZoneStatusSource for Federation {
    fn zone_status(&self, zone: &str, _: &Index) -> Option<ZoneStatus> {
        Some(self.zone_progress(zone))
    }

    fn zone_progress(&self, zone: &str) -> ZoneStatus {
        let (status, acked, _) = self.zones.lock().unwrap()[zone];
        let notes = if acked == 1 { vec!["the zone refused one".to_owned()] } else { Vec::new() };
        ZoneStatus {
            status,
            down: SyncProgress { acked, ..SyncProgress::default() },
            notes,
            proxies: self.proxies.lock().unwrap().get(zone).cloned(),
            ..ZoneStatus::default()
        }
    }

    fn has_missed(&self, zone: &str, _: Revision, _: Revision, _: &Index) -> bool {
        self.zones.lock().unwrap()[zone].2
    }

    fn sending(&self, zone: &str, resource: &Resource, _: &Index) -> Sending {
        match (zone, resource.name()) {
            ("far", _) => Sending::NotMeant("it is not for it".to_owned()),
            (_, "refused") => Sending::Refused("it is odd".to_owned()),
            (_, "long") => Sending::Withheld("it is too long".to_owned()),
            _ => Sending::Sent,
        }
    }

    fn progressed(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }
}

async fn global(federation: &Arc<Federation>) -> TestApi {
    let zones: Vec<Value> =
        federation.zones.lock().unwrap().keys().map(|name| json!({"type": "Zone", "name": name})).collect();
    let source = Arc::clone(federation) as Arc<dyn ZoneStatusSource>;
    let config = ApiConfig { zone_status: Some(source), ..ApiConfig::new(Mode::Global) };
    let documents: Vec<Value> =
        zones.into_iter().chain([json!({"type": "Mesh", "name": "default"})]).collect();
    TestApi::start(config, &documents).await.unwrap()
}

/// The revision that the answer to a write names.
async fn write(api: &TestApi, method: &str, body: Option<Value>) -> Revision {
    let request =
        Request::builder().method(method).uri("/meshes/default/meshtimeouts/quick").header("host", HOST);
    let request = request.header("content-type", "application/json");
    let request = request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap();
    let (parts, _) = api.answer_from([127, 0, 0, 1], request).await.unwrap();
    assert!(parts.status.is_success());
    parts.headers[REVISION].to_str().unwrap().parse().unwrap()
}

fn timeout(seconds: u32) -> Value {
    json!({
        "type": "MeshTimeout", "mesh": "default", "name": "quick",
        "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": format!("{seconds}s") } }] },
    })
}

async fn put(api: &TestApi, seconds: u32) -> Revision {
    write(api, "PUT", Some(timeout(seconds))).await
}

async fn ask(api: &TestApi, path: &str) -> (u16, Value) {
    let (status, body) = api.send("GET", path, None).await.unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

fn states(answer: &Value) -> String {
    let zones = answer["zones"].as_array().unwrap().iter();
    let zones =
        zones.map(|zone| format!("{} {}", zone["zone"].as_str().unwrap(), zone["state"].as_str().unwrap()));
    zones.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn every_write_names_its_revision_and_an_equal_one_names_what_it_found() {
    let api = global(&Federation::of(&[])).await;
    let first = put(&api, 1).await;
    assert_eq!(api.index.current().revision, first);
    let equal = put(&api, 1).await;
    assert!(equal >= first && equal <= api.index.current().revision, "{equal}");
    let changed = put(&api, 2).await;
    assert!(changed > first);
    assert!(write(&api, "DELETE", None).await > changed);
}

#[tokio::test]
async fn each_zone_is_told_apart() {
    use ZoneHealth::{Offline, Online, Unknown};
    let far = Revision::MAX;
    let federation = Federation::of(&[
        ("done", Online, far, true),
        ("gone", Offline, 0, true),
        ("lost", Unknown, 0, true),
        ("slow", Online, 1, true),
        ("stranger", Offline, 0, false),
    ]);
    let api = global(&federation).await;
    let revision = put(&api, 1).await;
    let (status, answer) = ask(&api, &format!("/sync/revisions/{revision}")).await;
    assert_eq!((status, &answer["acknowledged"]), (200, &json!(false)));
    assert_eq!(
        states(&answer),
        "done acknowledged, gone offline, lost unknown, slow waiting, stranger unconcerned"
    );
    assert_eq!(answer["zones"][3]["notes"], json!(["the zone refused one"]), "a refusal is no secret");
    // Nobody can tell any more whom a delete concerned.
    let deleted = write(&api, "DELETE", None).await;
    let (_, answer) = ask(&api, &format!("/sync/revisions/{deleted}")).await;
    assert!(states(&answer).ends_with("stranger offline"), "{}", states(&answer));
    let off = json!({"type": "Zone", "name": "gone", "enabled": false});
    api.send("PUT", "/zones/gone", Some(off.to_string())).await.unwrap();
    let (_, answer) = ask(&api, &format!("/sync/revisions/{deleted}")).await;
    assert!(states(&answer).contains("gone disabled"), "{}", states(&answer));
    let (_, overview) = ask(&api, "/sync").await;
    assert_eq!(overview["revision"], json!(api.index.current().revision));
    assert_eq!(overview["zones"][3]["down"]["acked"], 1);
}

#[tokio::test]
async fn an_answer_waits_for_the_last_zone() {
    let federation =
        Federation::of(&[("a", ZoneHealth::Online, 0, true), ("b", ZoneHealth::Online, 0, true)]);
    let api = Arc::new(global(&federation).await);
    let revision = put(&api, 1).await;
    let path = format!("/sync/revisions/{revision}?timeout=60s");
    let asking = Arc::clone(&api);
    let waiting = tokio::spawn(async move { ask(&asking, &path).await });
    while federation.progress.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    federation.acknowledges("a", revision);
    federation.acknowledges("b", revision);
    let (_, answer) = waiting.await.unwrap();
    assert_eq!(
        (&answer["acknowledged"], states(&answer)),
        (&json!(true), "a acknowledged, b acknowledged".to_owned())
    );
}

#[tokio::test]
async fn proxies_are_told_apart_where_they_are_asked_about() {
    use ZoneHealth::{Offline, Online};
    let far = Revision::MAX;
    let federation = Federation::of(&[
        ("away", Offline, far, true),
        ("behind", Online, far, true),
        ("done", Online, far, true),
        ("silent", Online, far, true),
        ("slow", Online, 1, true),
    ]);
    federation.tells("behind", 1);
    federation.tells("done", far);
    federation.tells("slow", far);
    let api = Arc::new(global(&federation).await);
    let path = format!("/sync/revisions/{}", put(&api, 1).await);
    let (_, answer) = ask(&api, &path).await;
    assert!(states(&answer).starts_with("away acknowledged, behind acknowledged"), "{}", states(&answer));
    assert!(answer["zones"][1].get("proxies").is_none(), "{answer}");
    let (_, answer) = ask(&api, &format!("{path}?of=proxies")).await;
    assert_eq!(
        states(&answer),
        "away offline, behind proxies, done acknowledged, silent untold, slow waiting",
    );
    assert_eq!(answer["acknowledged"], false);
    assert_eq!(answer["zones"][1]["proxies"]["waiting"], json!(["default.web"]));

    // It waits for the proxies, too.
    let federation = Federation::of(&[("a", Online, far, true)]);
    federation.tells("a", 1);
    let api = Arc::new(global(&federation).await);
    let path = format!("/sync/revisions/{}?timeout=60s&of=proxies", put(&api, 1).await);
    let asking = Arc::clone(&api);
    let waiting = tokio::spawn(async move { ask(&asking, &path).await });
    while federation.progress.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    federation.tells("a", far);
    let (_, answer) = waiting.await.unwrap();
    assert_eq!((&answer["acknowledged"], states(&answer)), (&json!(true), "a acknowledged".to_owned()));
}

/// Proxies of the zone that is asked.
struct OwnProxies(watch::Sender<()>, Revision);

impl ProxyProgressSource for OwnProxies {
    fn proxy_progress(&self) -> ProxyProgress {
        ProxyProgress { acked: self.1, connected: 1, ..ProxyProgress::default() }
    }

    fn progressed(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}

#[tokio::test]
async fn a_zone_answers_for_its_own_proxies() {
    for (acked, state) in [(Revision::MAX, "acknowledged"), (0, "proxies")] {
        let proxies: Arc<dyn ProxyProgressSource> = Arc::new(OwnProxies(watch::Sender::new(()), acked));
        let config = ApiConfig { proxies: Some(proxies), ..ApiConfig::new(Mode::standalone_zone("east")) };
        let api = TestApi::start(config, &[json!({"type": "Mesh", "name": "default"})]).await.unwrap();
        let path = format!("/sync/revisions/{}", put(&api, 1).await);
        let (status, answer) = ask(&api, &format!("{path}?of=proxies")).await;
        assert_eq!((status, states(&answer)), (200, format!("east {state}")));
        let (_, answer) = ask(&api, &path).await;
        assert_eq!(states(&answer), "east acknowledged");
    }
}

#[tokio::test]
async fn questions_that_make_no_sense_are_told_so() {
    let api = global(&Federation::of(&[])).await;
    let far = api.index.current().revision + 100;
    for (path, status, part) in [
        ("/sync/revisions/latest".to_owned(), 400, "not a number"),
        ("/sync/revisions/1?timeout=soon".to_owned(), 400, "timeout"),
        ("/sync/revisions/1?of=envoys".to_owned(), 400, "of"),
        (format!("/sync/revisions/{far}"), 404, "the newest is"),
    ] {
        let (is, answer) = ask(&api, &path).await;
        assert!(is == status && answer.to_string().contains(part), "{path}: {is} {answer}");
    }
    let zone = TestApi::start(ApiConfig::new(Mode::standalone_zone("east")), &[]).await.unwrap();
    let (status, answer) = ask(&zone, "/sync").await;
    assert!(status == 404 && answer.to_string().contains("ask global"), "{status} {answer}");
}

#[tokio::test]
async fn a_zone_is_explained_resource_by_resource() {
    use ZoneHealth::{Offline, Online};
    let federation = Federation::of(&[
        ("away", Offline, 0, true),
        ("behind", Online, 1, true),
        ("far", Online, Revision::MAX, false),
        ("there", Online, Revision::MAX, true),
    ]);
    let api = global(&federation).await;
    for name in ["quick", "refused", "long"] {
        let mut document = timeout(1);
        document["name"] = json!(name);
        let path = format!("/meshes/default/meshtimeouts/{name}");
        api.send("PUT", &path, Some(document.to_string())).await.unwrap();
    }
    for (zone, name, state, part) in [
        ("there", "quick", "acknowledged", "it has answered for revision"),
        ("there", "refused", "refused", "keeps what it had: it is odd"),
        ("there", "long", "withheld", "it is too long"),
        ("there", "none", "absent", "global has none"),
        ("far", "quick", "filtered", "it is not for it"),
        ("behind", "quick", "waiting", "online and has not answered"),
        ("away", "quick", "waiting", "offline and gets it when it is back"),
    ] {
        let path = format!("/sync/zones/{zone}/meshtimeouts/{name}?mesh=default");
        let (status, answer) = ask(&api, &path).await;
        let reason = answer["reason"].as_str().unwrap_or_default();
        assert!(status == 200 && answer["state"] == state && reason.contains(part), "{path}: {answer}");
    }
    for (path, status, part) in [
        ("/sync/zones/none/meshtimeouts/quick?mesh=default", 404, "no zone"),
        ("/sync/zones/there/oddities/quick?mesh=default", 404, "no type"),
        ("/sync/zones/there/meshtimeouts/quick", 400, "?mesh="),
    ] {
        let (is, answer) = ask(&api, path).await;
        assert!(is == status && answer.to_string().contains(part), "{path}: {is} {answer}");
    }
}
