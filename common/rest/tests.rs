#![allow(clippy::unwrap_used)]

mod absent;
mod audited;
mod authorities;
mod compatibility;
mod conditions;
mod envoy;
mod hung_up;
mod insights;
mod inspect;
mod kept;
mod kinds;
mod labels;
mod lists;
mod looks;
mod open_id;
mod pages;
mod past;
mod preview;
mod rights;
mod rollouts;
mod settled;
mod turns;

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    defaults::{MeshDefaults, ensure_defaults},
    model::Resource,
    store::{Revision, feed::Feed, index::Index, memory::MemoryStore},
    testing::api::TestApi,
};

struct Zones(ZoneHealth);

impl ZoneStatusSource for Zones {
    fn zone_status(&self, _: &str, _: &Index) -> Option<ZoneStatus> {
        Some(ZoneStatus { status: self.0, ..ZoneStatus::default() })
    }

    fn zone_progress(&self, _: &str) -> ZoneStatus {
        ZoneStatus { status: self.0, ..ZoneStatus::default() }
    }

    fn has_missed(&self, _: &str, _: Revision, _: Revision, _: &Index) -> bool {
        true
    }

    fn sending(&self, _: &str, _: &Resource, _: &Index) -> Sending {
        Sending::Sent
    }

    fn progressed(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }
}

fn config(mode: Mode) -> ApiConfig {
    let zones: Arc<dyn ZoneStatusSource> = Arc::new(Zones(ZoneHealth::Online));
    let mut admissions = standard_admissions(false, Some(Arc::clone(&zones)));
    admissions.push(Arc::new(MeshDefaults));
    ApiConfig { admissions, zone_status: Some(zones), ..ApiConfig::new(mode) }
}

async fn global(documents: &[Value]) -> TestApi {
    TestApi::start(config(Mode::Global), documents).await.unwrap()
}

async fn zone(documents: &[Value]) -> TestApi {
    TestApi::start(config(Mode::standalone_zone("east")), documents).await.unwrap()
}

/// An API that nobody asks.
async fn silent(is_zone: bool) -> Arc<Api> {
    let mode = if is_zone { Mode::standalone_zone("east") } else { Mode::Global };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
    let index = Feed::load(Arc::clone(&store)).await.unwrap().reader();
    Api::new(store, index, Env::system("test"), config(mode))
}

/// What both control planes serve, without what only one of them does.
pub(super) async fn mounted(is_zone: bool) -> Vec<(&'static routes::Route, String)> {
    let mounted = silent(is_zone).await.mounted();
    let own = openapi::OWN;
    let all = mounted.routes.into_iter().map(|one| (one.route, one.path));
    all.chain([(own, own.path().to_owned())]).collect()
}

/// What `GET /openapi.json` says of that.
pub(super) async fn described(is_zone: bool) -> Value {
    let api = silent(is_zone).await;
    openapi::ServedRoutes::of(&api, &api.mounted()).document()
}

/// Sends, and returns the status and the JSON body.
async fn ask(api: &TestApi, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let (status, text) = api.send(method, path, body.map(|b| b.to_string())).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn mesh(name: &str) -> Value {
    json!({ "type": "Mesh", "name": name })
}

fn dataplane(name: &str) -> Value {
    json!({ "type": "Dataplane", "mesh": "default", "name": name, "networking": {
        "address": "10.0.0.1",
        "inbound": [{ "port": 80, "servicePort": 8080, "tags": { "kuma.io/service": "web" } }],
    } })
}

#[tokio::test]
async fn requests_that_fit_no_route_or_form_are_told_so() {
    let api = global(&[mesh("default")]).await;
    let check = async |method: &str, path: &str, body: Option<String>, status: u16, part: &str| {
        let (is, text) = api.send(method, path, body).await.unwrap();
        assert_eq!(is, status, "{method} {path}: {text}");
        assert!(text.contains(part), "{method} {path}: {text}");
    };
    check("GET", "/nowhere", None, 404, "404: Page Not Found").await;
    check("POST", "/meshes/default", None, 405, "405").await;
    check("PUT", "/meshes/default", Some("{".to_owned()), 400, "not JSON").await;
    check("PUT", "/meshes/default", Some("[]".to_owned()), 400, "not an object").await;
    check("PUT", "/meshes/default", Some("x".repeat(5 << 20)), 413, "longer than").await;
    check("GET", "/meshes/none/dataplanes", None, 404, "Failed to retrieve Mesh").await;
    check("PUT", "/meshes/default/dataplanes/a", Some("{}".to_owned()), 405, "apply it on the zone").await;
    check("DELETE", "/meshes/default/service-insights/a", None, 405, "Method not allowed").await;
    check("GET", "/meshes?size=0", None, 400, "size").await;
    check("GET", "/_kri/nonsense", None, 400, "invalid identifier").await;

    let request = Request::put("/meshes/default")
        .header("host", "localhost")
        .header("content-type", "application/yaml");
    let (status, _) =
        api.send_from([127, 0, 0, 1], request.body(Body::from("type: Mesh")).unwrap()).await.unwrap();
    assert_eq!(status, 415);
    let request = Request::get("/meshes").header("accept", "text/html");
    let (status, _) = api.send_from([127, 0, 0, 1], request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(status, 406);
}

#[tokio::test]
async fn a_mesh_comes_with_its_defaults_and_goes_with_what_it_owns() {
    let api = global(&[]).await;
    assert_eq!(ask(&api, "PUT", "/meshes/m1", Some(mesh("m1"))).await.0, 201);
    let (_, list) = ask(&api, "GET", "/meshes/m1/meshtimeouts", None).await;
    assert_eq!(list["total"], 2, "{list}");
    let (_, list) = ask(&api, "GET", "/meshes/m1/secrets", None).await;
    assert_eq!(list["items"][0]["name"], "dataplane-token-signing-key-m1-1");
    let bare = json!({ "type": "Mesh", "name": "m2", "skipCreatingInitialPolicies": ["*"] });
    assert_eq!(ask(&api, "PUT", "/meshes/m2", Some(bare)).await.0, 201);
    assert_eq!(ask(&api, "GET", "/meshes/m2/meshtimeouts", None).await.1["total"], 0);

    assert_eq!(ask(&api, "DELETE", "/meshes/m1", None).await.0, 200);
    assert_eq!(ask(&api, "GET", "/meshtimeouts", None).await.1["total"], 0);
    assert_eq!(ask(&api, "GET", "/secrets", None).await.1["total"], 1, "the key of m2 is left");
}

#[tokio::test]
async fn deletes_that_would_break_something_are_refused() {
    let api = zone(&[mesh("default"), dataplane("web-1")]).await;
    let (status, body) = ask(&api, "DELETE", "/meshes/default", None).await;
    assert_eq!((status, &body["invalid_parameters"][0]["field"]), (400, &json!("mesh")));

    let api = global(&[json!({ "type": "Zone", "name": "east" })]).await;
    let (status, body) = ask(&api, "DELETE", "/zones/east", None).await;
    assert_eq!(status, 400, "{body}");
    let (_, overview) = ask(&api, "GET", "/zones/_overview", None).await;
    assert_eq!(overview["items"][0]["strait"]["status"], "online", "{overview}");

    let mtls = json!({ "type": "Mesh", "name": "default", "mtls": {
        "enabledBackend": "ca", "backends": [{ "name": "ca", "type": "provided", "conf": {
            "cert": { "secret": "root" }, "key": { "secret": "root-key" } } }] } });
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "root", "data": "" });
    let api = global(&[mtls, secret]).await;
    let (status, body) = ask(&api, "DELETE", "/meshes/default/secrets/root", None).await;
    assert_eq!(status, 400, "{body}");
}

#[tokio::test]
async fn the_backend_of_a_mesh_is_replaced_by_one_that_is_believed() {
    let backend = |name: &str| {
        json!({ "type": "Mesh", "name": "default", "mtls": {
            "enabledBackend": name, "backends": [{ "name": name, "type": "builtin" }] } })
    };
    let api = global(&[backend("ca-1")]).await;
    let both = |enabled: &str| {
        json!({ "type": "Mesh", "name": "default", "mtls": { "enabledBackend": enabled, "backends": [
            { "name": "ca-1", "type": "builtin" }, { "name": "ca-2", "type": "builtin" }] } })
    };
    assert_eq!(
        ask(&api, "PUT", "/meshes/default", Some(both("ca-2"))).await.0,
        400,
        "it is not believed yet"
    );
    assert_eq!(ask(&api, "PUT", "/meshes/default", Some(both("ca-1"))).await.0, 200);
    assert_eq!(
        ask(&api, "PUT", "/meshes/default", Some(backend("ca-2"))).await.0,
        400,
        "the old one is in use"
    );
    for step in [both("ca-2"), backend("ca-2"), both("ca-2"), both("ca-1"), backend("ca-1")] {
        assert_eq!(ask(&api, "PUT", "/meshes/default", Some(step.clone())).await.0, 200, "{step}");
    }
}

#[tokio::test]
async fn the_backend_of_a_mesh_is_not_swapped_under_traffic() {
    let backend = |name: &str| {
        json!({ "type": "Mesh", "name": "default", "mtls": {
            "enabledBackend": name, "backends": [{ "name": name, "type": "builtin" }] } })
    };
    let api = global(&[backend("ca-1")]).await;
    let (status, body) = ask(&api, "PUT", "/meshes/default", Some(backend("ca-2"))).await;
    assert_eq!((status, &body["invalid_parameters"][0]["field"]), (400, &json!("mtls.enabledBackend")));
    assert_eq!(ask(&api, "PUT", "/meshes/default", Some(mesh("default"))).await.0, 200);
    assert_eq!(ask(&api, "PUT", "/meshes/default", Some(backend("ca-2"))).await.0, 200);

    let secrets = async || {
        let (_, list) = ask(&api, "GET", "/meshes/default/secrets?name=ca-builtin", None).await;
        let items = list["items"].as_array().unwrap().clone();
        items.into_iter().map(|s| (s["name"].clone(), s["data"].clone())).collect::<Vec<_>>()
    };
    let made = secrets().await;
    let names: Vec<&Value> = made.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["default.ca-builtin-cert-ca-2", "default.ca-builtin-key-ca-2"]);
    assert_eq!(ask(&api, "PUT", "/meshes/default", Some(backend("ca-2"))).await.0, 200);
    assert_eq!(secrets().await, made, "an authority in use is kept");
}

#[tokio::test]
async fn the_global_insight_counts_zones_and_policies() {
    let zone = |name: &str| json!({ "type": "Zone", "name": name });
    let ingress = |name: &str| {
        json!({ "type": "ZoneIngress", "name": name, "zone": "east",
        "networking": { "address": "10.0.0.1", "port": 10001 } })
    };
    let connected = json!({ "type": "ZoneIngressInsight", "name": "in-1",
        "subscriptions": [{ "id": "1", "connectTime": "2026-01-01T00:00:00Z" }] });
    let timeout = json!({ "type": "MeshTimeout", "mesh": "default", "name": "t", "spec": {} });
    let all =
        [mesh("default"), zone("east"), zone("west"), ingress("in-1"), ingress("in-2"), connected, timeout];
    let api = global(&all).await;
    let (status, insight) = ask(&api, "GET", "/global-insight", None).await;
    assert_eq!(status, 200);
    let zones = json!({
        "controlPlanes": { "online": 2, "total": 2 },
        "zoneIngresses": { "online": 1, "total": 1 },
        "zoneEgresses": { "online": 0, "total": 0 },
    });
    assert_eq!(insight["zones"], zones);
    assert_eq!(insight["policies"], json!({ "total": 1 }));
    assert_eq!(
        insight["resources"],
        json!({ "MeshTimeout": { "total": 1 } }),
        "of meshes, and what there is"
    );
    let created = insight["createdAt"].as_str().unwrap();
    assert!(chrono::DateTime::parse_from_rfc3339(created).is_ok(), "{created}");
    let (_, older) = ask(&api, "GET", "/global-insights", None).await;
    assert_eq!(
        (&older["type"], &older["resources"]["ZoneIngress"]["total"]),
        (&json!("GlobalInsights"), &json!(2))
    );
}

#[tokio::test]
async fn what_a_peer_let_slip_into_an_insight_is_shown_to_nobody() {
    let token = "eyJhbGciOiJub25lIn0.eyJOYW1lIjoid2ViLTEifQ.c2lnbmF0dXJlLW5ldmVyLXdhcw";
    let subscription = json!({ "id": "1", "controlPlaneInstanceId": format!("cannot take {token}") });
    let insight = json!({ "type": "DataplaneInsight", "mesh": "default", "name": "web-1",
        "subscriptions": [subscription] });
    let api = zone(&[mesh("default"), dataplane("web-1"), insight]).await;
    for path in [
        "/meshes/default/dataplane-insights/web-1",
        "/meshes/default/dataplane-insights",
        "/meshes/default/dataplanes/web-1/_overview",
        "/meshes/default/dataplanes/_overview",
        "/meshes/default/dataplanes+insights",
    ] {
        let (status, shown) = api.send("GET", path, None).await.unwrap();
        if status == 404 && path.contains("dataplane-insights") {
            continue;
        }
        assert_eq!(status, 200, "{path}: {shown}");
        assert!(shown.contains("cannot take") && !shown.contains(token), "{path}: {shown}");
    }
}

#[tokio::test]
async fn a_dataplane_is_completed_and_joined_with_its_insight() {
    let insight = json!({ "type": "DataplaneInsight", "mesh": "default", "name": "web-1",
        "subscriptions": [{ "id": "1", "connectTime": "2026-01-01T00:00:00Z" }] });
    let api = zone(&[mesh("default"), insight]).await;
    let put = ask(&api, "PUT", "/meshes/default/dataplanes/web-1", Some(dataplane("web-1"))).await;
    assert_eq!(put, (201, json!({})));
    let (_, overview) = ask(&api, "GET", "/meshes/default/dataplanes/web-1/_overview", None).await;
    assert_eq!(overview["type"], "DataplaneOverview");
    assert_eq!(overview["dataplane"]["networking"]["inbound"][0]["tags"]["kuma.io/zone"], "east");
    assert_eq!(overview["dataplaneInsight"]["subscriptions"][0]["id"], "1");
    let (_, list) = ask(&api, "GET", "/meshes/default/dataplanes+insights", None).await;
    assert_eq!(list["total"], 1);
    let (_, insight) = ask(&api, "GET", "/global-insight", None).await;
    assert_eq!(
        insight["dataplanes"]["standard"],
        json!({
        "online": 1, "offline": 0, "partiallyDegraded": 0, "total": 1 })
    );

    assert_eq!(insight["meshes"], json!({ "total": 1 }));
    assert_eq!(insight["resources"]["Dataplane"], json!({ "total": 1 }));
    let leaf = json!({ "online": 1, "offline": 0, "partiallyDegraded": 0, "total": 1 });
    assert_eq!(insight["services"]["internal"], leaf, "{insight}");
    assert_eq!(insight["services"]["external"], json!({ "total": 0 }));

    let (_, meshes) = ask(&api, "GET", "/mesh-insights", None).await;
    assert_eq!(meshes["items"][0]["dataplanes"]["online"], 1, "{meshes}");
    assert_eq!(meshes["items"][0]["services"], json!({ "total": 1, "internal": 1, "external": 0 }));
    let (_, web) = ask(&api, "GET", "/meshes/default/service-insights/web", None).await;
    assert_eq!((&web["status"], &web["zones"]), (&json!("online"), &json!(["east"])), "{web}");
    let (_, none) = ask(&api, "GET", "/meshes/default/service-insights?type=external", None).await;
    assert_eq!(none["total"], 0);

    let mut misspelt = dataplane("web-3");
    misspelt["networking"]["adress"] = json!("10.0.0.1");
    let (_, body) = ask(&api, "PUT", "/meshes/default/dataplanes/web-3", Some(misspelt)).await;
    assert_eq!(body, json!({ "warnings": ["ignored networking.adress: there is no such field"] }));

    let mut wrong = dataplane("web-2");
    wrong["networking"]["address"] = json!("0.0.0.0");
    let (status, body) = ask(&api, "PUT", "/meshes/default/dataplanes/web-2", Some(wrong)).await;
    assert_eq!((status, &body["invalid_parameters"][0]["field"]), (400, &json!("networking.address")));
}

#[tokio::test]
async fn secrets_and_tokens_are_for_administrators() {
    let api = global(&[]).await;
    let options = crate::config::DataplaneDefaults::default();
    ensure_defaults(&api.store, &api.index, &api.env, &Mode::Global, &options).await.unwrap();
    let asked = json!({ "zone": "east", "scope": ["cp"] }).to_string();
    let (status, token) = api.send("POST", "/tokens/zone", Some(asked.clone())).await.unwrap();
    assert_eq!(status, 200, "{token}");
    let user = json!({ "name": "ann", "validFor": "1h", "groups": ["mesh-system:admin"] });
    let (_, admin) = api.send("POST", "/tokens/user", Some(user.to_string())).await.unwrap();

    let from_afar = async |method: &str, path: &str, token: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path).header("host", "cp.example");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        api.send_from([10, 0, 0, 9], request.body(Body::from(asked.clone())).unwrap()).await.unwrap().0
    };
    assert_eq!(from_afar("GET", "/meshes", None).await, 200);
    assert_eq!(from_afar("GET", "/global-secrets", None).await, 403);
    assert_eq!(from_afar("GET", "/global-secrets", Some(&admin)).await, 200);
    assert_eq!(from_afar("GET", "/meshes", Some("nonsense")).await, 401);
    assert_eq!(from_afar("POST", "/tokens/zone", None).await, 403);
    assert_eq!(from_afar("POST", "/tokens/zone", Some(&admin)).await, 200);
}

/// Sends from another machine.
async fn from_afar(api: &TestApi, method: &str, path: &str, body: Value) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("host", "cp.example");
    api.send_from([10, 0, 0, 9], request.body(Body::from(body.to_string())).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_stranger_reads_and_does_not_write() {
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let provided = json!({ "type": "Mesh", "name": "kept", "mtls": { "enabledBackend": "ca", "backends": [{
        "name": "ca", "type": "provided",
        "conf": { "cert": { "inlineString": "x" }, "key": { "inlineString": pem } } }] } });
    let documents = [mesh("default"), provided];
    let api = global(&documents).await;
    for (method, path) in [
        ("PUT", "/meshes/new"),
        ("DELETE", "/meshes/default"),
        ("PUT", "/meshes/default/meshtimeouts/a"),
        ("PUT", "/zones/east"),
        ("DELETE", "/zones/east"),
        ("PUT", "/global-secrets/a"),
        ("POST", "/tokens/user"),
        ("POST", "/tokens/zone"),
        ("POST", "/tokens/dataplane"),
        ("POST", "/nowhere"),
        ("PATCH", "/meshes/default"),
        ("INVENTED", "/meshes/default"),
    ] {
        let (status, text) = from_afar(&api, method, path, mesh("new")).await;
        assert_eq!(status, 403, "{method} {path}: {text}");
        assert!(text.contains("straitctl generate user-token"), "it says how to get in: {text}");
    }
    for path in ["/meshes/kept", "/meshes", "/_kri/kri_m___kept_", "/meshes?size=1&offset=1"] {
        let (status, text) = from_afar(&api, "GET", path, Value::Null).await;
        assert!(status != 403 && !text.contains("PRIVATE KEY"), "{path}: {text}");
    }
    let (_, own) = api.send("GET", "/meshes/kept", None).await.unwrap();
    assert!(own.contains("PRIVATE KEY"), "who may write it back sees it as it is: {own}");
    for path in ["/config", "/meshes/default/dataplanes/a/xds", "/meshes/default/dataplanes/a/stats"] {
        assert_eq!(from_afar(&api, "GET", path, Value::Null).await.0, 403, "{path}");
    }
    // Callers on this machine are administrators in these tests, which is warned of; nothing else is.
    let warnings = &ask(&api, "GET", "/", None).await.1["strait"]["warnings"];
    assert_eq!(warnings.as_array().unwrap().len(), 1, "{warnings}");
    assert!(warnings[0].as_str().unwrap().contains("apiServer.authn.localhostIsAdmin"), "{warnings}");

    let open = ApiConfig { anonymous_may_write: true, ..config(Mode::Global) };
    let api = TestApi::start(open, &documents).await.unwrap();
    assert_eq!(from_afar(&api, "PUT", "/meshes/new", mesh("new")).await.0, 201);
    assert_eq!(
        from_afar(&api, "PUT", "/global-secrets/a", json!({})).await.0,
        403,
        "secrets are not for anybody"
    );
    let warnings = &ask(&api, "GET", "/", None).await.1["strait"]["warnings"];
    assert!(warnings[0].as_str().unwrap().contains("apiServer.authn.anonymousMayWrite"), "{warnings}");
}

#[tokio::test]
async fn concurrent_writers_of_one_resource_all_succeed() {
    let api = global(&[mesh("default")]).await;
    let put = async |i: usize| {
        let body = json!({ "type": "Mesh", "name": "default", "labels": { "writer": i.to_string() } });
        ask(&api, "PUT", "/meshes/default", Some(body)).await.0
    };
    let statuses = futures::future::join_all((0..6).map(put)).await;
    assert!(statuses.iter().all(|s| *s == 200), "{statuses:?}");
}

#[tokio::test]
async fn pages_link_to_the_next() {
    let meshes: Vec<Value> = (0..5).map(|i| mesh(&format!("m{i}"))).collect();
    let api = global(&meshes).await;
    let mut seen = Vec::new();
    let mut path = "/meshes?size=2&name=m".to_owned();
    loop {
        let (_, page) = ask(&api, "GET", &path, None).await;
        seen.extend(page["items"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = next.strip_prefix("http://localhost:5681").unwrap().to_owned();
    }
    assert_eq!(seen, ["m0", "m1", "m2", "m3", "m4"]);
}

#[tokio::test]
async fn the_control_plane_describes_itself() {
    let api = global(&[]).await;
    let (_, index) = ask(&api, "GET", "/", None).await;
    assert_eq!((&index["product"], &index["version"]), (&json!("Kuma"), &json!("2.14.3")));
    let (_, resources) = ask(&api, "GET", "/_resources", None).await;
    assert_eq!(resources["resources"].as_array().unwrap().len(), 58);
    let (_, policies) = ask(&api, "GET", "/policies", None).await;
    assert_eq!(policies["policies"].as_array().unwrap().len(), 29);
    let (_, who) = ask(&api, "GET", "/who-am-i", None).await;
    assert_eq!(who["name"], "mesh-system:admin");
}
