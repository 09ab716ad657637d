//! What strangers and clumsy clients send, to each service and in each form that it has: with which code it is refused,
//! and that another stream, which is open all the time, goes on as if nothing had been.

use std::time::Duration;

use bytes::Bytes;
use common::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::{
                discovery::v3::{DiscoveryRequest, DiscoveryResponse},
                status::v3::{ClientStatusRequest, ClientStatusResponse},
            },
            r#type::matcher::v3::{NodeMatcher, RegexMatcher, StringMatcher, string_matcher::MatchPattern},
        },
        google::rpc,
    },
    token::{self, DataplaneClaims, Purpose, UserClaims},
    xds::envoy,
};
use http::StatusCode;
use http_body_util::Full;
use prost::Message;
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Request, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::{
    super::{
        client::{BOTH, Protocol, channel},
        front_door::exchange,
        harness::{PATIENCE, Zone},
    },
    plane::{CDS, Door, EDS, LDS, Peer, Plane, RDS, RTDS, SDS, Saying},
};

/// A service: where it is, how its methods end, its type, and whether it speaks of states of the world.
struct TypedDoor(&'static str, &'static str, &'static str, bool);

const AGGREGATED: TypedDoor =
    TypedDoor("discovery.v3.AggregatedDiscoveryService", "AggregatedResources", CDS, true);

const DOORS: [TypedDoor; 11] = [
    AGGREGATED,
    TypedDoor("listener.v3.ListenerDiscoveryService", "Listeners", LDS, true),
    TypedDoor("route.v3.RouteDiscoveryService", "Routes", RDS, true),
    TypedDoor("route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", envoy::SCOPED_ROUTE, true),
    TypedDoor("route.v3.VirtualHostDiscoveryService", "VirtualHosts", envoy::VIRTUAL_HOST, false),
    TypedDoor("cluster.v3.ClusterDiscoveryService", "Clusters", CDS, true),
    TypedDoor("endpoint.v3.EndpointDiscoveryService", "Endpoints", EDS, true),
    TypedDoor("endpoint.v3.LocalityEndpointDiscoveryService", "LocalityEndpoints", envoy::LB_ENDPOINT, false),
    TypedDoor("secret.v3.SecretDiscoveryService", "Secrets", SDS, true),
    TypedDoor("runtime.v3.RuntimeDiscoveryService", "Runtime", RTDS, true),
    TypedDoor(
        "extension.v3.ExtensionConfigDiscoveryService",
        "ExtensionConfigs",
        envoy::EXTENSION_CONFIG,
        true,
    ),
];

impl TypedDoor {
    fn is_aggregated(&self) -> bool {
        self.0 == AGGREGATED.0
    }

    /// The stream of a variant, if there is one.
    fn stream(&self, protocol: Protocol) -> Option<String> {
        let variant = match protocol {
            Protocol::Sotw if self.3 => "Stream",
            Protocol::Sotw => return None,
            Protocol::Delta => "Delta",
        };
        Some(format!("/envoy.service.{}/{variant}{}", self.0, self.1))
    }

    /// The call, if there is one.
    fn call(&self) -> Option<String> {
        let exists = self.3 && !self.is_aggregated();
        exists.then(|| format!("/envoy.service.{}/Fetch{}", self.0, self.1))
    }
}

/// Somebody who is served all the time, whoever sends what.
struct Witness<'a> {
    plane: Plane<'a>,
    peers: Vec<Peer>,
    generation: usize,
}

impl<'a> Witness<'a> {
    async fn of(zone: &'a Zone) -> Self {
        let plane = Plane::having(zone, "witness", &[(EDS, "A", "0")]);
        let mut peers = Vec::new();
        for protocol in BOTH {
            let mut peer = plane.peer(protocol, Door::Aggregated).await;
            peer.begin(EDS, &["A"]).await;
            peers.push(peer);
        }
        Self { plane, peers, generation: 0 }
    }

    /// What changes is told on the streams that were open before.
    async fn hears(&mut self, after: &str) {
        self.generation += 1;
        let content = self.generation.to_string();
        self.plane.set(&[(EDS, "A", &content)], &[]);
        for peer in &mut self.peers {
            assert_eq!(peer.take(EDS).await.all(), format!("A@{content}"), "after {after}");
        }
    }
}

struct BadAsk {
    what: &'static str,
    token: Option<String>,
    saying: Saying,
    expected: Code,
}

/// What may be wrong with a request to a door, and the code of each.
fn table(zone: &Zone, door: &TypedDoor, peer: &Peer) -> Vec<BadAsk> {
    // It may be any proxy of that name, so that only the name decides.
    let claims =
        DataplaneClaims { mesh: "default".to_owned(), name: "node".to_owned(), ..Default::default() };
    let token = zone.dataplane_token(claims);
    let ask = || Saying { type_url: door.2.to_owned(), node: Some(peer.node.clone()), ..Saying::default() };
    let named = |names: Vec<String>| Saying { all: names.clone(), subscribe: names, ..ask() };
    let from = |id: &str| Saying { node: Some(Node { id: id.to_owned(), ..Node::default() }), ..ask() };
    let typed = |type_url: &str| Saying { type_url: type_url.to_owned(), ..ask() };
    let (untyped, other) = match door.is_aggregated() {
        true => (Code::InvalidArgument, Code::Ok),
        false => (Code::Ok, Code::InvalidArgument),
    };
    let neighbour = if door.2 == CDS { EDS } else { CDS };
    let numbers = |count: usize| (0..count).map(|n| n.to_string()).collect();
    let cases = [
        ("all is well", ask(), Code::Ok),
        ("no id", Saying { node: Some(Node::default()), ..ask() }, Code::InvalidArgument),
        ("an id without a mesh", from("no-dot"), Code::InvalidArgument),
        ("the id of another proxy", from("default.other"), Code::PermissionDenied),
        ("the id of another mesh", from("other.node"), Code::Unauthenticated),
        ("no type", typed(""), untyped),
        ("a type there is not", typed("type.googleapis.com/no.such.Type"), other),
        ("the type of another service", typed(neighbour), other),
        ("an unknown nonce", Saying { nonce: "4711".to_owned(), ..ask() }, Code::Ok),
        ("a refusal of nothing", Saying { error: Some("no".to_owned()), ..ask() }, Code::Ok),
        ("100,001 names", named(numbers(100_001)), Code::ResourceExhausted),
        ("a million names", named(numbers(1_000_000)), Code::OutOfRange),
        ("a name that is too long", named(vec!["x".repeat(1025)]), Code::ResourceExhausted),
        ("10 MiB in one name", named(vec!["x".repeat(10 << 20)]), Code::OutOfRange),
    ];
    let good = cases.map(|(what, saying, expected)| (what, Some(token.clone()), saying, expected));
    let strangers = [
        ("no token", None, ask(), Code::Unauthenticated),
        ("a token that is none", Some("nonsense".to_owned()), ask(), Code::Unauthenticated),
    ];
    let all = good.into_iter().chain(strangers);
    all.map(|(what, token, saying, expected)| BadAsk { what, token, saying, expected }).collect()
}

/// How a stream that says this ends; `Ok` when it is answered.
async fn outcome(plane: &Plane<'_>, protocol: Protocol, door: Door, method: &str, bad: BadAsk) -> Code {
    let mut peer = plane.peer_with(protocol, door, bad.token.as_deref()).await;
    peer.say_to(method, bad.saying).await;
    peer.next_of(method).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn s14_s15_bad_requests_end_their_stream_and_no_other() {
    let zone = Zone::start().await;
    let mut witness = Witness::of(&zone).await;
    let plane = Plane::having(&zone, "node", &[(CDS, "A", "1")]);
    for door in &DOORS {
        for protocol in BOTH {
            let Some(method) = door.stream(protocol) else { continue };
            let through = if door.is_aggregated() { Door::Aggregated } else { Door::Alone };
            for bad in table(&zone, door, &plane.peer(protocol, through).await) {
                let (what, expected) = (bad.what, bad.expected);
                let code = outcome(&plane, protocol, through, &method, bad).await;
                assert_eq!(code, expected, "{method}: {what}");
                witness.hears(&format!("{method}: {what}")).await;
            }
            let code = garbled(&zone, &method, &garbage()).await.unwrap_err().code();
            assert_eq!(code, Code::Internal, "{method}: what is no request");
            witness.hears(&method).await;
        }
    }
    zone.stop().await;
}

#[tokio::test]
async fn s15_bad_calls_are_refused_and_disturb_no_stream() {
    let zone = Zone::start().await;
    let mut witness = Witness::of(&zone).await;
    let plane = Plane::having(&zone, "node", &[(CDS, "A", "1")]);
    let peer = plane.peer(Protocol::Sotw, Door::Alone).await;
    let channel = channel(&zone).await;
    for door in &DOORS {
        let Some(method) = door.call() else { continue };
        for BadAsk { what, token, saying, expected } in table(&zone, door, &peer) {
            let request = DiscoveryRequest {
                node: saying.node,
                type_url: saying.type_url,
                resource_names: saying.all,
                response_nonce: saying.nonce,
                ..DiscoveryRequest::default()
            };
            let answer = call(&channel, &method, token.as_deref(), request).await;
            let code = answer.map_or_else(|status| status.code(), |_| Code::Ok);
            assert_eq!(code, expected, "{method}: {what}");
            witness.hears(&format!("{method}: {what}")).await;
        }
        let token = zone.token_for("node");
        let code = call(&channel, &method, Some(&token), garbage()).await.unwrap_err().code();
        assert_eq!(code, Code::Internal, "{method}: what is no request");
        witness.hears(&method).await;
    }
    zone.stop().await;
}

/// Where a type is asked for over HTTP.
fn rest(door: &TypedDoor) -> &'static str {
    match door.1 {
        "Listeners" => "listeners",
        "Routes" => "routes",
        "ScopedRoutes" => "scoped-routes",
        "Clusters" => "clusters",
        "Endpoints" => "endpoints",
        "Secrets" => "secrets",
        "Runtime" => "runtime",
        "ExtensionConfigs" => "extension_configs",
        other => panic!("{other} is not asked for over HTTP"),
    }
}

fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::OutOfRange => StatusCode::PAYLOAD_TOO_LARGE,
        other => panic!("{other:?} has no status of HTTP"),
    }
}

#[tokio::test]
async fn s15_bad_requests_over_http_are_refused_and_disturb_no_stream() {
    let zone = Zone::start().await;
    let mut witness = Witness::of(&zone).await;
    let plane = Plane::having(&zone, "node", &[(CDS, "A", "1")]);
    let peer = plane.peer(Protocol::Sotw, Door::Alone).await;
    for door in DOORS.iter().filter(|door| door.call().is_some()) {
        let path = format!("https://localhost/v3/discovery:{}", rest(door));
        let ask = async |token: Option<&str>, body: String| {
            let mut request = http::Request::post(&path);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            exchange(&zone, "h2", request).await.0
        };
        for BadAsk { what, token, saying, expected } in table(&zone, door, &peer) {
            let body = json!({
                "node": {"id": saying.node.unwrap_or_default().id},
                "typeUrl": saying.type_url,
                "resourceNames": saying.all,
                "responseNonce": saying.nonce,
            });
            let status = ask(token.as_deref(), body.to_string()).await;
            assert_eq!(status, http_status(expected), "{path}: {what}");
            witness.hears(&format!("{path}: {what}")).await;
        }
        let token = zone.token_for("node");
        for body in ["", "no JSON", "[1, 2]", "{\"node\": 7}", "{}"] {
            let status = ask(Some(&token), body.to_owned()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body:?}");
            witness.hears(&format!("{path}: {body:?}")).await;
        }
    }
    zone.stop().await;
}

const STATUS: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService";

#[tokio::test]
async fn s15_bad_requests_for_the_status_of_clients_are_refused_and_disturb_no_stream() {
    let zone = Zone::start().await;
    let mut witness = Witness::of(&zone).await;
    let key = token::new_signing_key().unwrap();
    zone.secret(Purpose::User.key(1), key.pem().as_bytes()).await;
    let user = |groups: &[&str]| {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let claims = UserClaims { name: "somebody".to_owned(), groups };
        let valid = Duration::from_secs(3600);
        token::issue(&zone.index.current(), Purpose::User, &claims, valid, &zone.env).unwrap()
    };
    let (admin, anybody, proxy) = (user(&["mesh-system:admin"]), user(&["team"]), zone.token_for("witness"));
    let matching = |pattern: MatchPattern| {
        let node_id = Some(StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() });
        NodeMatcher { node_id, ..NodeMatcher::default() }
    };
    let asking =
        |matchers: Vec<NodeMatcher>| ClientStatusRequest { node_matchers: matchers, ..Default::default() };
    let exact = |text: &str| matching(MatchPattern::Exact(text.to_owned()));
    let open_end = RegexMatcher { regex: "(".to_owned(), ..RegexMatcher::default() };
    let (all, admin) = (asking(Vec::new()), Some(&*admin));
    let cases = [
        ("all is well", admin, all.clone(), Code::Ok),
        ("no token", None, all.clone(), Code::Unauthenticated),
        ("a token that is none", Some("nonsense"), all.clone(), Code::Unauthenticated),
        ("the token of a proxy", Some(&*proxy), all.clone(), Code::Unauthenticated),
        ("the token of anybody", Some(&*anybody), all, Code::PermissionDenied),
        ("a matcher that says nothing", admin, asking(vec![NodeMatcher::default()]), Code::InvalidArgument),
        (
            "no expression",
            admin,
            asking(vec![matching(MatchPattern::SafeRegex(open_end))]),
            Code::InvalidArgument,
        ),
        ("101 matchers", admin, asking(vec![exact("x"); 101]), Code::InvalidArgument),
        ("a million matchers", admin, asking(vec![exact("x"); 1_000_000]), Code::OutOfRange),
        ("10 MiB in one name", admin, asking(vec![exact(&"x".repeat(10 << 20))]), Code::OutOfRange),
    ];
    let channel = channel(&zone).await;
    for (what, token, asked, expected) in cases {
        for is_stream in [false, true] {
            let code = status_code(&channel, is_stream, token, asked.clone()).await;
            assert_eq!(code, expected, "{what}, stream: {is_stream}");
            witness.hears(what).await;
        }
    }
    for is_stream in [false, true] {
        assert_eq!(status_code(&channel, is_stream, admin, garbage()).await, Code::Internal);
        witness.hears("what is no request").await;
    }
    zone.stop().await;
}

/// What becomes of one request for the status of clients.
async fn status_code<R: Message + 'static>(
    channel: &Channel,
    is_stream: bool,
    token: Option<&str>,
    asked: R,
) -> Code {
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(64 << 20);
    grpc.ready().await.unwrap();
    let mut request = Request::new(tokio_stream::once(asked));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    let codec = ProstCodec::<R, ClientStatusResponse>::default();
    let method = if is_stream { "StreamClientStatus" } else { "FetchClientStatus" };
    // A call is a stream of one request, on the wire.
    let answers = grpc.streaming(request, format!("{STATUS}/{method}").parse().unwrap(), codec).await;
    let answer = match answers {
        Ok(answers) => timeout(PATIENCE, answers.into_inner().message()).await.expect("an end"),
        Err(refused) => Err(refused),
    };
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

async fn call<R: Message + 'static>(
    channel: &Channel,
    method: &str,
    token: Option<&str>,
    asked: R,
) -> Result<DiscoveryResponse, Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(asked);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    let codec = ProstCodec::<R, DiscoveryResponse>::default();
    grpc.unary(request, method.parse().unwrap(), codec).await.map(tonic::Response::into_inner)
}

/// A message of another type, whose first field is a number where every request has something else.
fn garbage() -> rpc::Status {
    rpc::Status { code: 13, message: "no request".to_owned(), ..rpc::Status::default() }
}

/// What comes on a stream that begins with this, from a proxy that may be here.
async fn garbled(
    zone: &Zone,
    method: &str,
    garbage: &rpc::Status,
) -> Result<Option<DiscoveryResponse>, Status> {
    let mut grpc = Grpc::new(channel(zone).await);
    grpc.ready().await.unwrap();
    let open = tokio_stream::StreamExt::chain(tokio_stream::once(garbage.clone()), tokio_stream::pending());
    let mut request = Request::new(open);
    request.metadata_mut().insert("authorization", zone.token_for("node").parse().unwrap());
    let codec = ProstCodec::<rpc::Status, DiscoveryResponse>::default();
    let mut responses = grpc.streaming(request, method.parse().unwrap(), codec).await?.into_inner();
    timeout(PATIENCE, responses.message()).await.expect("an end")
}
