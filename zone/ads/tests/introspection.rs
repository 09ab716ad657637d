//! What operators see who know Pilot: a small zone with known proxies, and what is said of it.

use std::{sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use common::{
    access::User,
    model::{ResourceKey, kinds},
    token::{self, NODE_GROUP, Purpose, UserClaims},
};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tonic::Code;
use tower::ServiceExt;

use super::{
    client::{BOTH, CDS, Client, EDS, LDS, Protocol, SDS, Who},
    harness::{ZONE, Zone, dataplane},
};
use crate::ads::introspection::{self, ENDPOINTS, Introspection};

async fn call(zone: &Zone, user: User, method: Method, path: &str) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(user);
    let seen = Introspection {
        proxies: Arc::clone(&zone.proxies),
        nodes: Arc::clone(&zone.nodes),
        previews: zone.previews.clone(),
        status: Arc::clone(&zone.status),
        index: zone.index.clone(),
        zone: ZONE.into(),
        instance: Arc::clone(&zone.env.instance_id),
    };
    let response = introspection::routes(seen).guarded(&zone.rights()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(zone: &Zone, path: &str) -> Value {
    let (status, text) = call(zone, User::admin(), Method::GET, &format!("/debug/{path}")).await;
    assert_eq!(status, StatusCode::OK, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Mutual TLS, two services, and one node of no mesh.
async fn zone() -> Zone {
    let zone = Zone::start().await;
    zone.mtls("").await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &["backend"])).await;
    zone.put(&dataplane("backend-1", "127.0.0.3", "backend", &[])).await;
    zone.put("{type: EnvoyConfig, name: edge, spec: {nodes: [{id: edge-1}], clusters: [{name: a}]}}").await;
    let key = token::new_signing_key().unwrap();
    zone.secret(Purpose::User.key(1), key.pem().as_bytes()).await;
    zone
}

async fn web(zone: &Zone, protocol: Protocol) -> Client {
    let token = zone.token_for("web-1");
    Client::connect(zone, protocol, Who::known("default.web-1", &token)).await
}

async fn node(zone: &Zone) -> Client {
    let claims = UserClaims { name: "edge-1".to_owned(), groups: vec![NODE_GROUP.to_owned()] };
    let hour = Duration::from_secs(3600);
    let token = token::issue(&zone.index.current(), Purpose::User, &claims, hour, &zone.env).unwrap();
    let who = Who { id: "edge-1", kind: "", resource: None, token: Some(&token) };
    Client::begin(zone, Protocol::Delta, who).await
}

#[tokio::test]
async fn each_connection_is_shown_with_what_was_sent_to_it_and_what_it_said() {
    let zone = zone().await;
    let mut node = node(&zone).await;
    node.take(CDS).await;
    for protocol in BOTH {
        let mut client = web(&zone, protocol).await;
        client.subscribe(CDS, &[]).await;
        client.take(CDS).await;
        client.subscribe(EDS, &["backend"]).await;
        client.take(EDS).await;
        client.subscribe(LDS, &[]).await;
        let listeners = client.expect(LDS).await;
        client.refuse(&listeners, "no room").await;
        client.subscribe(SDS, &["missing"]).await;
        let secrets = client.expect(SDS).await;

        let all = get(&zone, "syncz").await;
        let names: Vec<&Value> = all.as_array().unwrap().iter().map(|item| &item["proxy"]).collect();
        assert_eq!(names, ["default.web-1", "edge-1"], "{protocol:?}");
        let web = &all[0];
        assert_eq!((&web["cluster_id"], &web["proxy_type"]), (&json!(ZONE), &json!("sidecar")));
        assert_eq!(all[1]["proxy_type"], "node");
        assert_eq!(web["cluster_sent"], web["cluster_acked"], "{protocol:?}");
        assert_ne!(web["cluster_sent"], "");
        assert_eq!(web["listener_sent"], listeners.nonce.as_str());
        assert_eq!((&web["listener_acked"], &web["route_sent"]), (&json!(""), &json!("")));
        let of = |type_url: &str| &web["resources"][type_url];
        assert_eq!(of(LDS)["lastError"], "no room");
        assert_eq!((&of(CDS)["lastError"], &of(SDS)["sent"]), (&json!(""), &json!(secrets.nonce)));
        assert!(of(EDS)["sentTime"].as_str().unwrap().ends_with('Z'));

        let one = get(&zone, "adsz?proxyID=web-1").await;
        assert_eq!(one["totalClients"], 1);
        let client_of = &one["clients"][0];
        assert!(client_of["connectionId"].as_str().unwrap().starts_with("default.web-1-"));
        let watches = &client_of["watches"];
        assert_eq!((&watches[CDS], &watches[EDS]), (&json!(["*"]), &json!(["backend"])), "{protocol:?}");
        assert_eq!(watches[SDS], json!(["missing"]), "the name of a secret is none");
        assert_eq!(client_of["locality"]["zone"], ZONE);
        let bare = get(&zone, "connections").await;
        assert_eq!(bare["totalClients"], 2);
        assert_eq!(bare["clients"][0]["connectionId"], client_of["connectionId"]);
        assert_eq!(bare["clients"][0]["address"], client_of["address"]);
        assert!(bare["clients"][0]["watches"].is_null());
        drop(client);
        wait_for_connections(&zone, 1).await;
    }
    zone.stop().await;
}

async fn wait_for_connections(zone: &Zone, expected: u64) {
    let waiting = async {
        while get(zone, "connections").await["totalClients"] != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::harness::PATIENCE, waiting).await.expect("connections come and go");
}

#[tokio::test]
async fn a_client_is_dumped_as_its_envoy_would_and_without_its_keys() {
    let zone = zone().await;
    let mut client = web(&zone, Protocol::Sotw).await;
    client.subscribe(CDS, &[]).await;
    let clusters = client.take(CDS).await;
    client.subscribe(LDS, &[]).await;
    let listeners = client.expect(LDS).await;
    client.refuse(&listeners, "no room").await;
    client.subscribe(SDS, &["missing"]).await;
    client.take(SDS).await;
    let mut node = node(&zone).await;
    node.take(CDS).await;

    let dump = get(&zone, "config_dump?proxyID=default.web-1").await;
    let section = |dump: &Value, name: &str| {
        let mut all = dump["configs"].as_array().unwrap().iter();
        all.find(|config| config["@type"] == format!("type.googleapis.com/envoy.admin.v3.{name}")).cloned()
    };
    let of_clusters = section(&dump, "ClustersConfigDump").unwrap();
    let names = |list: &Value, member: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[member]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&of_clusters["dynamicActiveClusters"], "cluster"), clusters.names);
    assert_eq!(of_clusters["versionInfo"], clusters.version.as_str());
    assert_eq!(of_clusters["dynamicActiveClusters"][0]["cluster"]["@type"], CDS);
    let of_listeners = section(&dump, "ListenersConfigDump").unwrap();
    let refused = &of_listeners["dynamicListeners"][0];
    assert_eq!(refused["errorState"]["details"], "no room");
    assert_eq!(refused["name"], refused["activeState"]["listener"]["name"]);
    assert_eq!(section(&dump, "BootstrapConfigDump").unwrap()["bootstrap"]["node"]["id"], "default.web-1");
    assert!(section(&dump, "EndpointsConfigDump").is_none(), "they are not asked for");
    let secrets = section(&dump, "SecretsConfigDump").unwrap();
    let secrets = secrets["dynamicActiveSecrets"].as_array().unwrap().clone();
    let identity = secrets.iter().find(|one| one["name"] == "identity_cert:secret:default").unwrap();
    assert!(identity["secret"]["tlsCertificate"]["certificateChain"].is_object(), "{identity}");
    assert!(identity["secret"]["tlsCertificate"]["privateKey"].is_null(), "{identity}");

    let some = get(&zone, "config_dump?proxyID=web-1&types=cds,eds").await;
    assert_eq!(some["configs"].as_array().unwrap().len(), 2);
    let eds = get(&zone, "edsz?proxyID=web-1").await;
    let backend = &eds["configs"].as_array().unwrap().iter().find(|one| one["clusterName"] == "backend");
    assert!(backend.unwrap().to_string().contains("127.0.0.3"), "{eds}");
    assert_eq!(get(&zone, "cdsz?proxyID=edge-1").await["configs"][0]["name"], "a");
    assert_eq!(get(&zone, "ecdsz?proxyID=web-1").await, json!({ "configs": [] }));

    let cached = get(&zone, "cachez").await;
    assert!(cached[CDS].as_array().unwrap().contains(&json!("a")), "{cached}");
    assert!(cached[SDS].as_array().unwrap().contains(&json!("identity_cert:secret:default")));
    let sizes = get(&zone, "cachez?sizes").await;
    let sum: u64 = sizes["sizes"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(sum > 0 && sizes["total"] == sum, "{sizes}");
    zone.stop().await;
}

/// The entry of a service, once it was given a virtual address.
async fn with_an_address(zone: &Zone, service: &str) -> Value {
    let waiting = async {
        loop {
            let services = get(zone, "registryz").await;
            let mut all = services.as_array().unwrap().iter();
            let found = all.find(|one| one["hostname"] == service).cloned().unwrap_or_default();
            if found["clusterVIPs"]["Addresses"][ZONE][0].is_string() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::harness::PATIENCE, waiting).await.expect("services are given addresses")
}

#[tokio::test]
async fn services_and_what_an_operator_wrote_are_shown() {
    let zone = zone().await;
    zone.put(
        "{type: ZoneIngress, name: in-west, labels: {kuma.io/zone: west}, networking: {address: 10.1.0.1, port: 10001, \
         advertisedAddress: 10.1.0.2, advertisedPort: 10002}}",
    )
    .await;
    zone.put(
        "{type: MeshTimeout, name: quick, mesh: default, spec: {rules: [{default: {idleTimeout: 9s}}]}}",
    )
    .await;
    let mut client = web(&zone, Protocol::Delta).await;
    client.subscribe(CDS, &[]).await;
    client.take(CDS).await;

    let web = with_an_address(&zone, "web").await;
    let vip = web["clusterVIPs"]["Addresses"][ZONE][0].clone();
    assert_eq!(web["ports"], json!([{ "name": "80", "port": 80, "protocol": "HTTP" }]));
    assert_eq!((&web["defaultAddress"], &web["autoAllocatedIPv4Address"]), (&vip, &vip));
    assert_eq!(web["Attributes"]["Aliases"], json!([{ "Hostname": "web.mesh", "Namespace": "default" }]));
    assert_eq!(web["serviceAccounts"], json!(["spiffe://default/web"]));
    assert_eq!((&web["Attributes"]["Namespace"], &web["MeshExternal"]), (&json!("default"), &json!(false)));
    assert_eq!(get(&zone, "registryz?mesh=other").await, json!([]));
    zone.secret(ResourceKey::new(&kinds::mesh::KIND, "", "odd"), b"\xff").await;
    let all = get(&zone, "registryz").await;
    let odd = all.as_array().unwrap().iter().find(|one| one["Attributes"]["Namespace"] == "odd").unwrap();
    assert!(odd["problem"].as_str().unwrap().contains("decode"), "{odd}");
    let (status, text) = call(&zone, User::admin(), Method::GET, "/debug/registryz?mesh=odd").await;
    assert!(status == StatusCode::CONFLICT && text.contains("decode"), "{text}");
    zone.delete(ResourceKey::new(&kinds::mesh::KIND, "", "odd")).await;

    let shards = get(&zone, "endpointShardz").await;
    assert_eq!(shards, get(&zone, "endpointz").await);
    let endpoint = &shards["backend"]["default"]["Shards"][format!("Universal/{ZONE}")][0];
    assert_eq!((&endpoint["Addresses"], &endpoint["EndpointPort"]), (&json!(["127.0.0.3"]), &json!(10080)));
    assert_eq!(endpoint["ServiceAccount"], "spiffe://default/backend");
    assert_eq!(shards["backend"]["default"]["ServiceAccounts"], json!(["spiffe://default/backend"]));

    let instances = get(&zone, "instancesz").await;
    let of_web = &instances["default.web-1"][0];
    assert_eq!((&of_web["Service"]["hostname"], &of_web["Port"]["port"]), (&json!("web"), &json!(10080)));
    assert!(instances["default.backend-1"].is_null(), "it is not connected");

    let networks = get(&zone, "networkz").await;
    let place = |member: &str| networks[0][member].clone();
    assert_eq!((place("Addr"), place("Port")), (json!("10.1.0.2"), json!(10002)), "{networks}");

    let objects = get(&zone, "configz?kind=MeshTimeout").await;
    let names: Vec<&Value> = objects.as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["quick"]);
    assert_eq!(objects[0]["spec"]["rules"][0]["default"]["idleTimeout"], "9s");
    let all = get(&zone, "configz").await.to_string();
    assert!(
        all.contains("\"Dataplane\"") && !all.contains("\"Secret\"") && !all.contains("\"EnvoyConfig\""),
        "{all}"
    );
    assert!(!all.contains("PRIVATE"), "{all}");
    assert_eq!(get(&zone, "mesh").await["mtls"]["enabledBackend"], "ca-1");
    let (status, _) = call(&zone, User::admin(), Method::GET, "/debug/mesh?mesh=other").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    zone.stop().await;
}

#[tokio::test]
async fn whoever_is_disconnected_comes_back() {
    let zone = zone().await;
    let mut client = web(&zone, Protocol::Sotw).await;
    client.subscribe(CDS, &[]).await;
    client.take(CDS).await;
    let mut node = node(&zone).await;
    node.take(CDS).await;
    let end = |user: User, query: &str| {
        let path = format!("/debug/force_disconnect{query}");
        let zone = &zone;
        async move { call(zone, user, Method::POST, &path).await }
    };
    assert_eq!(end(User::anonymous(), "?proxyID=web-1").await.0, StatusCode::FORBIDDEN);
    assert_eq!(end(User::admin(), "").await.0, StatusCode::BAD_REQUEST);
    for nobody in ["nobody", "web-1", "default.web", "default.web-1-", "-", "default.web-1&mesh=other"] {
        let (status, _) = end(User::admin(), &format!("?proxyID={nobody}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{nobody}: a part of a name is nobody's");
    }
    let (status, body) = end(User::admin(), "?proxyID=default.web-1").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "{\"disconnected\":1}"));
    let ended = client.end().await;
    assert_eq!((ended.code(), ended.message().contains("operator")), (Code::Unavailable, true), "{ended}");
    let mut again = web(&zone, Protocol::Sotw).await;
    again.subscribe(CDS, &[]).await;
    again.take(CDS).await;
    assert_eq!(end(User::admin(), "?proxyID=edge-1").await.0, StatusCode::OK);
    assert_eq!(node.end().await.code(), Code::Unavailable);
    zone.stop().await;
}

#[tokio::test]
async fn everything_listed_is_there_and_only_for_those_who_may_look() {
    let zone = zone().await;
    let mut client = web(&zone, Protocol::Delta).await;
    client.subscribe(CDS, &[]).await;
    client.take(CDS).await;
    let listed = get(&zone, "list").await;
    let (status, page) = call(&zone, User::admin(), Method::GET, "/debug").await;
    assert_eq!(status, StatusCode::OK);
    for ((name, _), path) in ENDPOINTS.iter().zip(listed.as_array().unwrap()) {
        assert_eq!(path, &format!("/debug/{name}"));
        assert!(page.contains(&format!("href=\"/debug/{name}\"")), "{page}");
        let path = format!("/debug/{name}?proxyID=web-1&pretty");
        let (status, text) = call(&zone, User::admin(), Method::GET, &path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{path}: {text}");
        let ann = User::authenticated("ann".to_owned(), vec!["team".to_owned()]);
        for user in [User::anonymous(), ann] {
            let (status, text) = call(&zone, user, Method::GET, &path).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path}: {text}");
        }
    }
    for (path, expected) in [
        ("config_dump", StatusCode::BAD_REQUEST),
        ("edsz", StatusCode::BAD_REQUEST),
        ("config_dump?proxyID=nobody", StatusCode::NOT_FOUND),
        ("config_dump?proxyID=web-1&types=cds,xds", StatusCode::BAD_REQUEST),
        ("syncz?pretty=perhaps", StatusCode::BAD_REQUEST),
        ("adsz?push=true", StatusCode::BAD_REQUEST),
        ("cachez?clear", StatusCode::BAD_REQUEST),
        ("force_disconnect?proxyID=web-1", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let (status, text) = call(&zone, User::admin(), Method::GET, &format!("/debug/{path}")).await;
        assert_eq!(status, expected, "{path}: {text}");
    }
    zone.stop().await;
}

/// The examples of the page, each with what is asked for.
fn examples(page: &str) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let mut asked = None;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("`GET /debug/") {
            asked = rest.split('`').next().map(str::to_owned);
        }
        if line == "```json" {
            let text: String = lines.by_ref().take_while(|line| *line != "```").collect();
            let example =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{asked:?}: {error} in {text}"));
            found.push((asked.take().expect("an example stands below what is asked"), example));
        }
    }
    found
}

/// Where an answer lacks what an example has; of lists, one element has to be like the one of the example.
fn lacks(example: &Value, answer: &Value, at: &str) -> Option<String> {
    match (example, answer) {
        (Value::Object(example), Value::Object(_)) => {
            example.iter().find_map(|(name, value)| match answer.get(name) {
                Some(has) => lacks(value, has, &format!("{at}.{name}")),
                None => Some(format!("{at}.{name} is not there")),
            })
        }
        (Value::Array(example), Value::Array(all)) => {
            let one = example.first()?;
            if all.iter().any(|has| lacks(one, has, at).is_none()) {
                return None;
            }
            Some(all.first().map_or(format!("{at} is empty"), |has| lacks(one, has, at).unwrap_or_default()))
        }
        (Value::Null, _) => None,
        _ if std::mem::discriminant(example) == std::mem::discriminant(answer) => None,
        _ => Some(format!("{at} is {answer}")),
    }
}

#[tokio::test]
async fn the_page_shows_what_is_answered() {
    let zone = zone().await;
    zone.put(
        "{type: ZoneIngress, name: in-west, labels: {kuma.io/zone: west}, networking: {address: 10.1.0.1, port: 10001, \
         advertisedAddress: 10.1.0.2, advertisedPort: 10002}}",
    )
    .await;
    let mut client = web(&zone, Protocol::Sotw).await;
    client.subscribe(CDS, &[]).await;
    client.take(CDS).await;
    client.subscribe(LDS, &[]).await;
    let listeners = client.expect(LDS).await;
    client.refuse(&listeners, "cannot bind").await;
    client.subscribe(SDS, &["missing"]).await;
    client.take(SDS).await;
    zone.put(
        "{type: MeshProxyPatch, name: odd, mesh: default, spec: {default: {appendModifications: [{listener: {operation: \
         Patch, match: {origin: inbound}, jsonPatches: [{op: remove, path: /address}]}}]}}}",
    )
    .await;
    let broken = async {
        while get(&zone, "push_status").await == json!({}) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::harness::PATIENCE, broken).await.expect("what is broken is told");
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/debug.md");
    let page = std::fs::read_to_string(file).unwrap();
    let examples = examples(&page);
    for (path, example) in &examples {
        let answer = get(&zone, path).await;
        assert_eq!(lacks(example, &answer, path), None, "{answer:#}");
    }
    // Two are answered like another, one is what this page is made of.
    let like_another = ["edsz", "ecdsz", "endpointz", "list"];
    for (name, _) in ENDPOINTS {
        let is_shown = examples.iter().any(|(path, _)| path.split('?').next() == Some(name));
        assert!(is_shown || like_another.contains(&name), "{name} has no example");
        assert!(page.contains(name), "{name}");
    }
    zone.stop().await;
}
