//! What strangers and clumsy clients send, to each service and in each form that it has: with which code it is refused,
//! and that another stream, which is open all the time, goes on as if nothing had been.

use common::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        },
        google::rpc,
    },
    token::DataplaneClaims,
    xds::envoy,
};
use prost::Message;
use tokio::time::timeout;
use tonic::{Code, Request, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::{
    super::{
        client::{BOTH, Protocol, channel},
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
