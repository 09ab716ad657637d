#![allow(clippy::unwrap_used)]

mod forms;
mod login;
mod rollouts;
mod tables;

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::Body,
    http::{Request, header, response::Parts},
};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

use super::*;
use crate::{
    access::AccessRule,
    defaults::ensure_defaults,
    mode::Mode,
    model::Resource,
    rest::{
        ApiConfig, RefusedType, RefusingSide, Sending, SyncProgress, ZoneHealth, ZoneStatus,
        ZoneStatusSource, routes::RoutePlace, routes::TABLE, standard_admissions,
    },
    runtime::http::Connection,
    store::{Revision, index::Index},
    testing::api::TestApi,
};

/// Zones that are online until they are lost.
struct TwoZones {
    lost: AtomicBool,
    progress: watch::Sender<()>,
    sent: Mutex<Vec<String>>,
}

impl TwoZones {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lost: AtomicBool::new(false),
            progress: watch::Sender::new(()),
            sent: Mutex::default(),
        })
    }
}

impl ZoneStatusSource for TwoZones {
    fn zone_status(&self, zone: &str, _: &Index) -> Option<ZoneStatus> {
        Some(self.zone_progress(zone))
    }

    fn zone_progress(&self, zone: &str) -> ZoneStatus {
        let is_lost = self.lost.load(Ordering::Relaxed) && zone == "west";
        ZoneStatus {
            status: if is_lost { ZoneHealth::Offline } else { ZoneHealth::Online },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            down: SyncProgress { head: 9, acked: 0, lag: 2, behind_since: None },
            refused: vec![RefusedType {
                by: RefusingSide::Zone,
                r#type: "MeshTimeout".to_owned(),
                reason: "quick: no <i>room</i>".to_owned(),
            }],
            notes: vec!["a note with <b>markup</b>".to_owned()],
            ..ZoneStatus::default()
        }
    }

    fn has_missed(&self, _: &str, _: Revision, _: Revision, _: &Index) -> bool {
        true
    }

    fn sending(&self, zone: &str, resource: &Resource, _: &Index) -> Sending {
        self.sent.lock().unwrap().push(format!("{} to {zone}", resource.name()));
        Sending::Sent
    }

    fn progressed(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }
}

const EVIL: &str = "<script>alert(1)</script>";

fn documents() -> Vec<Value> {
    vec![
        json!({ "type": "Mesh", "name": "default" }),
        json!({ "type": "Zone", "name": "east", "enabled": true }),
        json!({ "type": "Zone", "name": "west", "enabled": true }),
        json!({ "type": "Dataplane", "mesh": "default", "name": "web-1", "networking": { "address": "10.0.0.1",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web", "team": EVIL } }],
            "outbound": [{ "port": 81, "tags": { "kuma.io/service": "api" } }] } }),
        json!({ "type": "Dataplane", "mesh": "default", "name": "api-1", "networking": { "address": "10.0.0.2",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": "api" } }] } }),
        json!({ "type": "MeshTimeout", "mesh": "default", "name": "quick", "spec": {
            "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "7s" } }] } }),
    ]
}

async fn with(mode: Mode, config: impl FnOnce(&mut ApiConfig)) -> (TestApi, Arc<TwoZones>) {
    let zones = TwoZones::new();
    let mut settings = ApiConfig {
        admissions: standard_admissions(false, None),
        gui: PAGE.to_owned(),
        ..ApiConfig::new(mode.clone())
    };
    if mode == Mode::Global {
        settings.zone_status = Some(Arc::clone(&zones) as _);
    }
    config(&mut settings);
    let source = Arc::new(ZonesSeen(Arc::clone(&zones) as _));
    let api = TestApi::start_with_page(settings, &documents(), source).await.unwrap();
    ensure_defaults(&api.store, &api.index, &api.env, &mode, &crate::config::DataplaneDefaults::default())
        .await
        .unwrap();
    let head = *api.store.watch_head().borrow();
    api.index.wait_for(head).await.unwrap();
    (api, zones)
}

async fn global() -> TestApi {
    with(Mode::Global, |_| {}).await.0
}

/// A look of a stranger, or of the bearer of a cookie.
async fn look(api: &TestApi, path: &str, cookie: &str) -> (Parts, String) {
    let request = Request::get(path).header("host", "cp.example").header("accept", "text/html,*/*;q=0.8");
    let request = if cookie.is_empty() { request } else { request.header("cookie", cookie) };
    api.answer_from([10, 0, 0, 1], request.body(Body::empty()).unwrap()).await.unwrap()
}

/// A form that the page itself sends, unless `headers` say otherwise.
async fn send(
    api: &TestApi,
    path: &str,
    cookie: &str,
    form: &str,
    headers: &[(&str, &str)],
) -> (Parts, String) {
    let mut request = Request::post(path)
        .header("host", "cp.example")
        .header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = if cookie.is_empty() { request } else { request.header("cookie", cookie) };
    api.answer_from([10, 0, 0, 1], request.body(Body::from(form.to_owned())).unwrap()).await.unwrap()
}

const OWN: &[(&str, &str)] = &[("origin", "http://cp.example"), ("sec-fetch-site", "same-origin")];

async fn token(api: &TestApi, groups: &[&str]) -> String {
    let asked = json!({ "name": "ann", "groups": groups, "validFor": "1h" }).to_string();
    let (status, token) = api.send("POST", "/tokens/user", Some(asked)).await.unwrap();
    assert_eq!(status, 200, "{token}");
    token
}

async fn signed_in(api: &TestApi, groups: &[&str]) -> String {
    format!("strait-global={}", token(api, groups).await)
}

/// Every page that is declared, of something there is.
fn pages() -> Vec<String> {
    let of_page =
        TABLE.iter().filter(|route| route.place() == RoutePlace::Page && route.method().as_str() == "GET");
    let paths = of_page.map(|route| {
        let parts = [
            ("{zone}", "east"),
            ("{mesh}", "default"),
            ("dataplanes/default/{name}", "dataplanes/default/web-1"),
            ("{kind}/{name}", "meshtimeouts/quick?mesh=default"),
            ("rollouts/{name}", "rollouts/canary"),
            ("{revision}", "1"),
        ];
        parts.iter().fold(route.path().to_owned(), |path, (part, value)| path.replace(part, value))
    });
    // What never ends, and what leads on to somebody else.
    paths.filter(|path| path != "/gui/live" && !path.starts_with("/gui/login")).collect()
}

#[tokio::test]
async fn every_page_is_closed_against_everything_from_elsewhere() {
    let api = global().await;
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    let pages = pages();
    assert!(pages.len() > 15, "{pages:?}");
    for path in pages {
        let (parts, body) = look(&api, &path, &admin).await;
        assert_eq!(parts.status.as_u16(), 200, "{path}: {body}");
        let header = |name: &str| parts.headers[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(directive), "{path}: {policy}");
        }
        assert_eq!(header("x-content-type-options"), "nosniff");
        if body.starts_with("<!DOCTYPE html>") {
            assert_eq!(header("cache-control"), "no-store");
            for forbidden in [" style=", " onclick=", " onload=", "<style", "javascript:"] {
                assert!(!body.contains(forbidden), "{path} has {forbidden}, which its policy forbids");
            }
            let scripts: Vec<&str> =
                body.match_indices("<script").map(|(at, _)| &body[at..at + 30]).collect();
            assert!(
                scripts.len() == 1 && scripts[0].starts_with("<script src=\"/gui/page.js"),
                "{path}: {scripts:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_others_wrote_is_text() {
    let api = global().await;
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    for path in [
        "/gui/dataplanes/default/web-1",
        "/gui/dataplanes/default/web-1?show=resource",
        "/gui/meshes/default",
    ] {
        let (_, body) = look(&api, path, &admin).await;
        assert!(!body.contains(EVIL), "{path}");
    }
    let (_, body) = look(&api, "/gui/dataplanes/default/web-1", &admin).await;
    assert!(body.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{body}");
    let evil = "%22%3E%3Cscript%3Ealert(2)%3C/script%3E";
    for path in [
        "/gui/dataplanes?search=",
        "/gui/policies?type=",
        "/gui/resources/meshtimeouts/",
        "/gui/zones/",
        "/gui/changes/",
    ] {
        let (_, body) = look(&api, &format!("{path}{evil}"), &admin).await;
        assert!(!body.contains("<script>alert(2)"), "{path}: {body}");
    }
    let (_, body) = look(&api, "/gui/zones", &admin).await;
    assert!(body.contains("a note with &lt;b&gt;markup&lt;/b&gt;"), "{body}");
}

#[tokio::test]
async fn who_is_known_finds_a_button_that_offers_again_what_was_refused() {
    let api = global().await;
    let button = "action=\"/gui/zones/east/offer\"";
    let (_, body) = look(&api, "/gui/zones/east", "").await;
    assert!(
        body.contains("no &lt;i&gt;room&lt;/i&gt;") && body.contains("Sign in to offer it again"),
        "{body}"
    );
    assert!(!body.contains(button), "{body}");
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    let (_, body) = look(&api, "/gui/zones/east", &admin).await;
    assert!(body.contains(button) && body.contains("value=\"MeshTimeout\""), "{body}");
}

#[tokio::test]
async fn the_overview_shows_the_federation_and_what_is_wrong() {
    let (api, zones) = with(Mode::Global, |_| {}).await;
    let (_, body) = look(&api, "/gui", "").await;
    assert!(body.contains("2 of 2 zones online") && body.contains("Zone east, ✓ online"), "{body}");
    zones.lost.store(true, Ordering::Relaxed);
    let (_, body) = look(&api, "/gui", "").await;
    assert!(body.contains("1 of 2 zones online") && body.contains("west is offline"), "{body}");
    let (failure, warning) = (body.find("west is offline").unwrap(), body.find("a note with").unwrap());
    assert!(failure < warning, "the worst comes first");
    assert!(body.contains("see whether it runs and reaches global"), "and what to do");
    let (_, body) = look(&api, "/gui/meshes/default", "").await;
    assert!(body.contains("<title>web calls api</title>"), "{body}");

    let (api, _) = with(Mode::standalone_zone("east"), |_| {}).await;
    let (_, body) = look(&api, "/gui", "").await;
    assert!(body.contains("this zone stands alone") && body.contains("zone east"), "{body}");
}

#[tokio::test]
async fn filters_and_pages_stand_in_the_address() {
    let api = global().await;
    let check = async |path: &str, there: &[&str], not_there: &[&str]| {
        let (parts, body) = look(&api, path, "").await;
        assert_eq!(parts.status.as_u16(), 200, "{path}: {body}");
        let body = body.split("<main").nth(1).unwrap();
        for text in there {
            assert!(body.contains(text), "{path} lacks {text}: {body}");
        }
        for text in not_there {
            assert!(!body.contains(text), "{path} has {text}: {body}");
        }
    };
    check("/gui/dataplanes", &["web-1", "api-1", "1–2 of 2"], &["later →"]).await;
    check("/gui/dataplanes?search=web", &["web-1", "value=\"web\"", "1–1 of 1"], &["api-1"]).await;
    check("/gui/dataplanes?status=online", &["No dataplane fits", "selected>online"], &["web-1"]).await;
    check("/gui/dataplanes?status=offline&search=api", &["api-1"], &["web-1"]).await;
    check("/gui/dataplanes?mesh=default&zone=nowhere", &["No dataplane fits"], &["web-1"]).await;
    check(
        "/gui/policies?type=MeshTimeout",
        &["quick", "/gui/resources/meshtimeouts/quick?mesh=default"],
        &[],
    )
    .await;
    check("/gui/policies?type=MeshRetry", &["No policy fits"], &["/gui/resources/meshtimeouts"]).await;
    check("/gui/services?search=ap", &["by tag", ">api<"], &[">web<"]).await;
    check("/gui/policies?page=9", &["← earlier"], &[]).await;
    check("/gui/meshes?search=def", &["/gui/meshes/default"], &[]).await;
    check("/gui/resources/meshtimeouts/quick?mesh=default", &["idleTimeout: 7s", "web-1", "api-1"], &[])
        .await;
}

#[tokio::test]
async fn who_may_not_read_is_led_to_where_he_can_say_who_he_is() {
    let (api, _) = with(Mode::Global, |config| config.access.read_resources = AccessRule::admins()).await;
    let (parts, _) = look(&api, "/gui", "").await;
    assert_eq!(
        (parts.status.as_u16(), &parts.headers[header::LOCATION]),
        (303, &"/gui/session".parse().unwrap())
    );
    assert!(parts.headers.contains_key("content-security-policy"));
    assert_eq!(look(&api, "/gui/session", "").await.0.status.as_u16(), 200);
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    assert_eq!(look(&api, "/gui", &admin).await.0.status.as_u16(), 200);
}

#[tokio::test]
async fn the_page_shows_what_its_reader_may_see() {
    let api = global().await;
    let secret = "/gui/resources/globalsecrets/user-token-signing-key-1";
    let (parts, body) = look(&api, secret, "").await;
    assert_eq!(parts.status.as_u16(), 403, "{body}");
    assert!(body.contains("<!DOCTYPE html>") && body.contains("Sign in"));
    let (ann, admin) = (signed_in(&api, &[]).await, signed_in(&api, &["mesh-system:admin"]).await);
    assert_eq!(look(&api, secret, &ann).await.0.status.as_u16(), 403);
    let (parts, body) = look(&api, "/gui/history", "").await;
    assert!(
        parts.status.as_u16() == 403 && body.contains("Sign in"),
        "the history is for those who are known"
    );
    assert_eq!(look(&api, "/gui/history", &ann).await.0.status.as_u16(), 200);
    let (parts, body) = look(&api, secret, &admin).await;
    assert_eq!(parts.status.as_u16(), 200, "{body}");
    let (_, log) = api.send("GET", "/audit?kind=GlobalSecret", None).await.unwrap();
    assert!(log.contains("\"ann\"") && log.contains("\"done\"") && log.contains("\"refused\""), "{log}");
}

#[tokio::test]
async fn a_token_is_kept_in_a_cookie_that_counts_for_the_page_only() {
    let api = global().await;
    let token = token(&api, &["mesh-system:admin"]).await;
    let (parts, body) = send(&api, "/gui/session", "", "token=nonsense", OWN).await;
    assert_eq!(parts.status.as_u16(), 401);
    assert!(body.contains("not good here") && !parts.headers.contains_key(header::SET_COOKIE));
    let (parts, _) = send(&api, "/gui/session", "", &format!("token={token}"), OWN).await;
    assert_eq!(parts.status.as_u16(), 303);
    let cookie = parts.headers[header::SET_COOKIE].to_str().unwrap();
    for part in ["strait-global=", "Path=/gui", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let kept = cookie.split(';').next().unwrap();
    let (_, body) = look(&api, "/gui", kept).await;
    assert!(body.contains(">ann</a>"), "{body}");
    let (parts, _) = look(&api, "/globalsecrets", kept).await;
    assert_eq!(parts.status.as_u16(), 403, "a browser adds it to what a page from elsewhere asks for, too");
    let (parts, body) = look(&api, "/gui", "strait-global=stale").await;
    assert!(parts.status.is_success() && body.contains("Sign in"), "a token that ran out is none");
    let (parts, _) = send(&api, "/gui/session/end", kept, "", OWN).await;
    assert!(parts.headers[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
}

#[tokio::test]
async fn a_form_from_elsewhere_changes_nothing() {
    let (api, _) = with(Mode::Global, |config| config.anonymous_may_write = true).await;
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    let form = "do=apply&documents=type%3A+Mesh%0Aname%3A+evil";
    let elsewhere: [&[(&str, &str)]; 6] = [
        &[],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://cp.example"), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
    ];
    for headers in elsewhere {
        for cookie in ["", &admin] {
            for path in [
                "/gui/change",
                "/gui/session",
                "/gui/session/end",
                "/gui/zones/east/approve",
                "/gui/zones/east/offer",
            ] {
                let (parts, body) = send(&api, path, cookie, form, headers).await;
                assert_eq!(parts.status.as_u16(), 403, "{path} {headers:?}: {body}");
            }
        }
    }
    assert_eq!(api.send("GET", "/meshes/evil", None).await.unwrap().0, 404);
    let (parts, body) = send(&api, "/gui/change", "", form, &[("origin", "http://cp.example")]).await;
    assert_eq!(parts.status.as_u16(), 303, "an older browser names the origin only: {body}");
}

#[tokio::test]
async fn a_change_is_shown_before_it_is_made() {
    let (api, zones) = with(Mode::Global, |_| {}).await;
    let ann = signed_in(&api, &[]).await;
    let yaml = "type: MeshTimeout\nmesh: default\nname: quick\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: {idleTimeout: 9s}\n";
    let form = |what: &str| format!("do={what}&documents={}", visit::encode(yaml));
    let (parts, body) = send(&api, "/gui/change", &ann, &form("preview"), OWN).await;
    assert_eq!(parts.status.as_u16(), 200, "{body}");
    assert!(body.contains("idleTimeout: 7s</span>") && body.contains("idleTimeout: 9s</span>"), "{body}");
    assert!(body.contains("web-1") && body.contains("gets it") && body.contains("Apply it"), "{body}");
    assert!(zones.sent.lock().unwrap().contains(&"quick to west".to_owned()));
    let stored = api.send("GET", "/meshes/default/meshtimeouts/quick", None).await.unwrap().1;
    assert!(stored.contains("7s"), "nothing was written: {stored}");

    let (parts, _) = send(&api, "/gui/change", "", &form("apply"), OWN).await;
    assert_eq!(parts.status.as_u16(), 403, "a stranger changes nothing");
    let (parts, body) = send(&api, "/gui/change", &ann, &form("apply"), OWN).await;
    assert_eq!(parts.status.as_u16(), 303, "{body}");
    let to = parts.headers[header::LOCATION].to_str().unwrap().to_owned();
    assert!(to.starts_with("/gui/changes/"), "{to}");
    let (_, body) = look(&api, &to, &ann).await;
    assert!(body.contains("0 of 2 zones are done with it") && body.contains("by user ann"), "{body}");
    let from = api.send("GET", "/meshes/default/meshtimeouts/quick/_history", None).await.unwrap().1;
    let from: Value = serde_json::from_str(&from).unwrap();
    let revisions: Vec<String> =
        from["items"].as_array().unwrap().iter().map(|one| one["revision"].to_string()).collect();
    let path =
        format!("/gui/resources/meshtimeouts/quick?mesh=default&from={}&to={}", revisions[1], revisions[0]);
    let (_, body) = look(&api, &path, &ann).await;
    assert!(body.contains("idleTimeout: 9s</span>"), "{body}");

    for (yaml, why) in [
        ("", "nothing in it"),
        ("type: Nothing\nname: a", "has no type"),
        ("type: Mesh", "has no name"),
        ("a: [", "no YAML"),
        ("type: MeshTimeout\nmesh: none\nname: a\nspec: {}", "Mesh"),
        ("type: MeshTimeout\nmesh: default\nname: a\nspec: {to: 5}", "to"),
        ("type: Dataplane\nmesh: default\nname: a\nnetworking: {}", "owned by zones"),
    ] {
        let form = format!("do=preview&documents={}", visit::encode(yaml));
        let (parts, body) = send(&api, "/gui/change", &ann, &form, OWN).await;
        assert_eq!(parts.status.as_u16(), 400, "{yaml}: {body}");
        assert!(body.contains(why) && !body.contains("Apply it"), "{yaml}: {body}");
    }
}

#[tokio::test]
async fn a_stream_tells_what_its_reader_may_know_to_have_changed() {
    let (api, zones) = with(Mode::Global, |_| {}).await;
    let mut request = Request::get("/gui/live").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Connection { peer: ([10, 0, 0, 1], 1).into(), tls: false });
    let response = api.router().oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let mut next = async || String::from_utf8(stream.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(next().await.contains("event: hello"));
    let mesh = json!({ "type": "Mesh", "name": "new", "skipCreatingInitialPolicies": ["*"] }).to_string();
    assert_eq!(api.send("PUT", "/meshes/new", Some(mesh)).await.unwrap().0, 201);
    assert_eq!(next().await, "data: Mesh\n\n");
    zones.progress.send_replace(());
    assert_eq!(next().await, "data: zones\n\n");
    // What a stranger may not see does not exist for him.
    let secret = json!({ "type": "GlobalSecret", "name": "hidden", "data": "YQ==" }).to_string();
    assert_eq!(api.send("PUT", "/globalsecrets/hidden", Some(secret)).await.unwrap().0, 201);
    zones.progress.send_replace(());
    assert_eq!(next().await, "data: zones\n\n");
}

#[tokio::test]
async fn without_the_page_there_is_the_api() {
    let (api, _) = with(Mode::Global, |config| config.gui = String::new()).await;
    assert_eq!(look(&api, "/gui", "").await.0.status.as_u16(), 404);
    assert_eq!(look(&api, "/meshes", "").await.0.status.as_u16(), 200);
}
