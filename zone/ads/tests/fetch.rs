//! What is asked for now and then, over HTTP or by a call.

use std::time::Duration;

use bytes::Bytes;
use common::{
    model::{ResourceKey, kinds::dataplane as dataplane_kind},
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        },
        google::rpc,
    },
    store::Store,
    token::DataplaneClaims,
};
use http::{Request, StatusCode};
use http_body_util::Full;
use prost::Message;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Status, client::Grpc};
use tonic_prost::ProstCodec;

use super::{
    client::{CDS, EDS, channel},
    front_door::exchange,
    harness::{Zone, dataplane},
};

async fn ask(zone: &Zone, rest: &str, token: &str, wait: &str, body: &str) -> (StatusCode, Value) {
    let request = Request::post(format!("https://localhost/v3/discovery:{rest}"))
        .header("authorization", token)
        .header("prefer", wait)
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let (status, text) = exchange(zone, "h2", request).await;
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn request(version: &str, names: &[&str]) -> String {
    // As an Envoy writes it, with a member that this control plane does not know.
    json!({
        "versionInfo": version, "resourceNames": names, "errorOfTomorrow": {},
        "node": {"id": "default.web-1", "cluster": "web", "metadata": {"version": {"kumaDp": {}}}},
    })
    .to_string()
}

async fn zone() -> (Zone, String) {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &["backend"])).await;
    zone.put(&dataplane("backend-1", "127.0.0.3", "backend", &[])).await;
    let token = zone.token_for("web-1");
    (zone, token)
}

#[tokio::test]
async fn what_there_is_comes_once_for_each_version() {
    let (zone, token) = zone().await;
    let (status, clusters) = ask(&zone, "clusters", &token, "", &request("", &[])).await;
    assert_eq!(status, StatusCode::OK, "{clusters}");
    assert_eq!(clusters["typeUrl"], CDS);
    assert_eq!(clusters["resources"][0]["@type"], CDS);
    assert_eq!(clusters["resources"][0]["name"], "backend");
    assert!(clusters["controlPlane"]["identifier"].as_str().is_some_and(|who| who.contains("test")));
    let version = clusters["versionInfo"].as_str().unwrap();
    let (status, nothing) = ask(&zone, "clusters", &token, "", &request(version, &[])).await;
    assert_eq!((status, nothing), (StatusCode::NOT_MODIFIED, json!("")));
    // Of what a zone has nothing, that is the answer.
    for rest in ["scoped-routes", "extension_configs", "runtime", "routes", "secrets"] {
        let (status, none) = ask(&zone, rest, &token, "", &request("", &["missing"])).await;
        assert_eq!((status, none.get("resources")), (StatusCode::OK, None), "{rest}: {none}");
    }
    zone.stop().await;
}

#[tokio::test]
async fn an_answer_waits_for_a_change_where_that_is_preferred() {
    let (zone, token) = zone().await;
    let (_, endpoints) = ask(&zone, "endpoints", &token, "", &request("", &["backend"])).await;
    assert_eq!(endpoints["typeUrl"], EDS);
    let version = endpoints["versionInfo"].as_str().unwrap().to_owned();
    let body = request(&version, &["backend"]);
    let (changed, ()) = tokio::join!(ask(&zone, "endpoints", &token, "wait=60", &body), async {
        zone.put(&dataplane("backend-2", "127.0.0.4", "backend", &[])).await;
    });
    let (status, endpoints) = changed;
    assert_eq!(status, StatusCode::OK, "{endpoints}");
    assert_ne!(endpoints["versionInfo"], version);
    assert_eq!(endpoints["resources"][0]["endpoints"][0]["lbEndpoints"].as_array().map(Vec::len), Some(2));
    let version = endpoints["versionInfo"].as_str().unwrap();
    let (status, _) = ask(&zone, "endpoints", &token, "wait=1", &request(version, &["backend"])).await;
    assert_eq!(status, StatusCode::NOT_MODIFIED, "nothing changed for so long");
    zone.stop().await;
}

#[tokio::test]
async fn who_may_not_ask_is_told_why() {
    let (zone, token) = zone().await;
    let other = request("", &[]).replace("default.web-1", "default.backend-1");
    let typed = |type_url: &str| format!("{{\"typeUrl\": \"{type_url}\", {}", &request("", &[])[1..]);
    let many = request("", &vec!["x"; 100_001]);
    let long = request("", &[&"x".repeat(5 << 20)]);
    let cases = [
        ("clusters", &*token, typed(CDS), StatusCode::OK),
        ("clusters", "", request("", &[]), StatusCode::UNAUTHORIZED),
        ("clusters", "nonsense", request("", &[]), StatusCode::UNAUTHORIZED),
        ("clusters", &token, other, StatusCode::FORBIDDEN),
        ("clusters", &token, "{}".to_owned(), StatusCode::BAD_REQUEST),
        ("clusters", &token, "no JSON".to_owned(), StatusCode::BAD_REQUEST),
        ("clusters", &token, "[1, 2]".to_owned(), StatusCode::BAD_REQUEST),
        ("clusters", &token, "{\"node\": 7}".to_owned(), StatusCode::BAD_REQUEST),
        ("clusters", &token, typed(EDS), StatusCode::BAD_REQUEST),
        ("clusters", &token, many, StatusCode::TOO_MANY_REQUESTS),
        ("clusters", &token, long, StatusCode::PAYLOAD_TOO_LARGE),
        // These exist as differences only.
        ("virtual_hosts", &token, request("", &[]), StatusCode::NOT_FOUND),
    ];
    for (rest, token, body, expected) in cases {
        let (status, answer) = ask(&zone, rest, token, "", &body).await;
        assert_eq!(status, expected, "{rest} {:.60}: {answer}", body);
    }
    assert!(zone.proxies.view().is_empty(), "nobody stays");
    zone.stop().await;
}

/// Calls `Fetch<what>` of a service.
async fn call<R: Message + 'static>(
    zone: &Zone,
    method: &str,
    token: &str,
    asked: R,
) -> Result<DiscoveryResponse, Status> {
    let mut grpc = Grpc::new(channel(zone).await);
    grpc.ready().await.unwrap();
    let mut request = tonic::Request::new(asked);
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let path = format!("/envoy.service.{method}").parse().unwrap();
    let codec = ProstCodec::<R, DiscoveryResponse>::default();
    grpc.unary(request, path, codec).await.map(tonic::Response::into_inner)
}

const CLUSTERS: &str = "cluster.v3.ClusterDiscoveryService/FetchClusters";

fn asked(version: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: version.to_owned(),
        node: Some(Node { id: "default.web-1".to_owned(), ..Node::default() }),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DiscoveryRequest::default()
    }
}

#[tokio::test]
async fn r65_a_call_is_answered_with_all_there_is_whatever_the_client_has() {
    let (zone, token) = zone().await;
    let (_, over_http) = ask(&zone, "clusters", &token, "", &request("", &[])).await;
    for version in ["", over_http["versionInfo"].as_str().unwrap()] {
        let told = call(&zone, CLUSTERS, &token, asked(version, &[])).await.unwrap();
        let count = over_http["resources"].as_array().map(Vec::len);
        assert_eq!((told.type_url.as_str(), Some(told.resources.len())), (CDS, count));
        assert_eq!(told.version_info, over_http["versionInfo"], "versions are those of every other way");
        assert!(told.control_plane.is_some_and(|plane| plane.identifier.contains("test")));
    }
    for (method, count) in [
        ("listener.v3.ListenerDiscoveryService/FetchListeners", None),
        ("endpoint.v3.EndpointDiscoveryService/FetchEndpoints", Some(1)),
        ("route.v3.RouteDiscoveryService/FetchRoutes", Some(0)),
        ("route.v3.ScopedRoutesDiscoveryService/FetchScopedRoutes", Some(0)),
        ("secret.v3.SecretDiscoveryService/FetchSecrets", Some(0)),
        ("runtime.v3.RuntimeDiscoveryService/FetchRuntime", Some(0)),
        ("extension.v3.ExtensionConfigDiscoveryService/FetchExtensionConfigs", Some(0)),
    ] {
        let names: &[&str] = if count.is_some() { &["backend"] } else { &[] };
        let told = call(&zone, method, &token, asked("", names)).await.unwrap();
        assert!(count.map_or(!told.resources.is_empty(), |count| told.resources.len() == count), "{told:?}");
    }
    zone.stop().await;
}

#[tokio::test]
async fn r65_a_call_is_refused_with_the_codes_of_a_stream() {
    let (zone, token) = zone().await;
    let node = |id: &str| DiscoveryRequest {
        node: Some(Node { id: id.to_owned(), ..Node::default() }),
        ..DiscoveryRequest::default()
    };
    let typed = |type_url: &str| DiscoveryRequest { type_url: type_url.to_owned(), ..asked("", &[]) };
    let nonce = DiscoveryRequest { response_nonce: "4711".to_owned(), ..asked("", &[]) };
    let million: Vec<String> = (0..1_000_000).map(|n| format!("{n:0>3}")).collect();
    let million = DiscoveryRequest { resource_names: million, ..asked("", &[]) };
    let many = asked("", &vec!["x"; 100_001]);
    let cases = [
        ("all is well", &*token, typed(CDS), Code::Ok),
        ("an unknown nonce", &token, nonce, Code::Ok),
        ("no token", "", asked("", &[]), Code::Unauthenticated),
        ("a token that is none", "nonsense", asked("", &[]), Code::Unauthenticated),
        ("no node", &token, DiscoveryRequest::default(), Code::InvalidArgument),
        ("an id of another form", &token, node("web-1"), Code::InvalidArgument),
        ("the id of another proxy", &token, node("default.backend-1"), Code::PermissionDenied),
        ("another type", &token, typed(EDS), Code::InvalidArgument),
        ("100,001 names", &token, many, Code::ResourceExhausted),
        ("a million names", &token, million, Code::OutOfRange),
        ("10 MiB in one name", &token, asked("", &[&"x".repeat(10 << 20)]), Code::OutOfRange),
        ("a name that is too long", &token, asked("", &[&"x".repeat(1025)]), Code::ResourceExhausted),
    ];
    for (what, token, asked, expected) in cases {
        let code =
            call(&zone, CLUSTERS, token, asked).await.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code, expected, "{what}");
    }
    let garbage = rpc::Status { code: 13, message: "no request".to_owned(), ..rpc::Status::default() };
    assert_eq!(call(&zone, CLUSTERS, &token, garbage).await.unwrap_err().code(), Code::Internal);
    // These exist as differences only.
    for method in [
        "route.v3.VirtualHostDiscoveryService/FetchVirtualHosts",
        "endpoint.v3.LocalityEndpointDiscoveryService/FetchLocalityEndpoints",
        "discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
    ] {
        let refused = call(&zone, method, &token, asked("", &[])).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{method}");
    }
    assert!(zone.proxies.view().is_empty(), "nobody stays");
    zone.stop().await;
}

#[tokio::test]
async fn who_leaves_in_the_middle_is_seen_to_leave() {
    let zone = Zone::start_with(|config| config.deregister_after = Duration::from_millis(50)).await;
    let token = zone.dataplane_token(DataplaneClaims { mesh: "default".to_owned(), ..Default::default() });
    let of = |name: &str| {
        let resource = dataplane(name, "127.0.0.2", "web", &[]);
        let metadata = json!({"dataplane.proxyType": "dataplane", "dataplane.resource": resource});
        json!({"node": {"id": format!("default.{name}"), "metadata": metadata}}).to_string()
    };
    let (status, answer) = ask(&zone, "runtime", &token, "", &of("stays")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    // Each is given up a little later than the one before, from the beginning to after the end.
    for n in 0..100 {
        let (name, mut head) = (format!("web-{n}"), zone.store.watch_head());
        let body = of(&name);
        let asked = ask(&zone, "runtime", &token, "wait=60", &body);
        let given_up = async {
            head.mark_unchanged();
            _ = timeout(Duration::from_millis(20), head.changed()).await;
            tokio::time::sleep(Duration::from_micros(40 * n)).await;
        };
        tokio::select! {
            _ = asked => {}
            () = given_up => {}
        }
    }
    let key = |name: &str| ResourceKey::new(&dataplane_kind::KIND, "default", name);
    let names: Vec<String> = (0..100).map(|n| format!("web-{n}")).collect();
    zone.until(|index| names.iter().all(|name| index.get(&key(name)).is_none()).then_some(())).await;
    zone.stop().await;
}
