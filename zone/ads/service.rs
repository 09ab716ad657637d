//! The gRPC face of the streams.
//!
//! The calls are served without the codec of a gRPC library, which copies each response for each stream and keeps a
//! buffer as large as the largest of them. Beside ADS each type has a service of its own: streams of one type each, in
//! no order with each other.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, Response, header},
    routing::post,
};
use common::{
    frames::{FrameRoom, Frames},
    runtime::http::{Client, Connection, Knock, network},
    token,
    xds::{Delta, Sotw, envoy},
};
use tokio_util::task::TaskTracker;
use tonic::Status;

use super::{
    health::{self, Health},
    stream::{EnvoyPeer, Responses, Streams, Wire},
};

/// Streams on a connection of which no proxy was let in yet.
const UNKNOWN: usize = 10;
/// Bytes of requests that are not whole yet, of all streams together.
const INCOMING: usize = 128 << 20;
/// How long one may take.
const ARRIVAL: Duration = Duration::from_secs(30);
/// Where ADS is served.
const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// The service of one type.
struct TypeService {
    /// Package and name.
    name: &'static str,
    /// How its calls end.
    suffix: &'static str,
    type_url: &'static str,
    /// Whether it exists in the state-of-the-world form.
    is_sotw: bool,
}

const fn service(name: &'static str, suffix: &'static str, type_url: &'static str) -> TypeService {
    TypeService { name, suffix, type_url, is_sotw: true }
}

const fn delta_only(name: &'static str, suffix: &'static str, type_url: &'static str) -> TypeService {
    TypeService { name, suffix, type_url, is_sotw: false }
}

const SERVICES: [TypeService; 10] = [
    service("listener.v3.ListenerDiscoveryService", "Listeners", envoy::LISTENER),
    service("route.v3.RouteDiscoveryService", "Routes", envoy::ROUTE),
    service("route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", envoy::SCOPED_ROUTE),
    delta_only("route.v3.VirtualHostDiscoveryService", "VirtualHosts", envoy::VIRTUAL_HOST),
    service("cluster.v3.ClusterDiscoveryService", "Clusters", envoy::CLUSTER),
    service("endpoint.v3.EndpointDiscoveryService", "Endpoints", envoy::ENDPOINTS),
    delta_only("endpoint.v3.LocalityEndpointDiscoveryService", "LocalityEndpoints", envoy::LB_ENDPOINT),
    service("secret.v3.SecretDiscoveryService", "Secrets", envoy::SECRET),
    service("runtime.v3.RuntimeDiscoveryService", "Runtime", envoy::RUNTIME),
    service("extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", envoy::EXTENSION_CONFIG),
];

/// Where requests of at most `limit` bytes lie until they are whole.
pub(super) fn incoming(limit: usize) -> FrameRoom {
    FrameRoom::new(INCOMING.max(limit.saturating_mul(4))).within(ARRIVAL)
}

/// Serves ADS and the services of single types in both protocols, and health discovery.
#[derive(Clone)]
pub(super) struct AdsService {
    pub(super) streams: Arc<Streams>,
    pub(super) tasks: TaskTracker,
    /// Largest request, in bytes.
    pub(super) message_bytes: usize,
    /// Where requests lie until they are whole.
    pub(super) incoming: FrameRoom,
    /// Present where proxies are asked how their workloads are.
    pub(super) health: Option<Arc<Health>>,
}

impl AdsService {
    /// Its calls.
    pub(super) fn router(self) -> Router {
        let (sotw, delta, health) = (self.clone(), self.clone(), self.clone());
        let router = match &self.health {
            Some(_) => Router::new()
                .route(health::PATH, post(async move |request: Request| health.answer_health(request))),
            None => Router::new(),
        };
        let router = router
            .route(SOTW, post(async move |request: Request| sotw.answer::<Sotw>(None, request)))
            .route(DELTA, post(async move |request: Request| delta.answer::<Delta>(None, request)));
        SERVICES.iter().fold(router, |router, service| self.of_type(router, service))
    }

    /// Adds the calls of the service of one type.
    fn of_type(&self, router: Router, service: &'static TypeService) -> Router {
        let TypeService { name, suffix, type_url, is_sotw } = *service;
        let (sotw, delta, once, only) = (self.clone(), self.clone(), self.clone(), Some(type_url));
        let router = router.route(
            &format!("/envoy.service.{name}/Delta{suffix}"),
            post(async move |request: Request| delta.answer::<Delta>(only, request)),
        );
        if !is_sotw {
            return router;
        }
        let router = router.route(
            &format!("/envoy.service.{name}/Fetch{suffix}"),
            post(async move |request: Request| once.answer_once(type_url, request)),
        );
        router.route(
            &format!("/envoy.service.{name}/Stream{suffix}"),
            post(async move |request: Request| sotw.answer::<Sotw>(only, request)),
        )
    }

    fn answer<D: Wire + 'static>(&self, only: Option<&'static str>, request: Request) -> Response<Body> {
        self.open::<D>(only, request).unwrap_or_else(Status::into_http)
    }

    /// Answers one call, which takes what the beginning of a stream takes.
    fn answer_once(&self, only: &'static str, request: Request) -> Response<Body> {
        let (peer, knock) = match admit(&request) {
            Ok(admitted) => admitted,
            Err(refused) => return refused.into_http(),
        };
        let (responses, response) = Responses::new();
        let requests = Frames::new(request.into_body(), self.message_bytes, &self.incoming);
        let streams = Arc::clone(&self.streams);
        self.tasks.spawn(async move {
            streams.call(only, peer, requests, responses).await;
            drop(knock);
        });
        response
    }

    fn answer_health(&self, request: Request) -> Response<Body> {
        let Some(health) = &self.health else { return Status::unimplemented("").into_http() };
        let (peer, knock) = match admit(&request) {
            Ok(admitted) => admitted,
            Err(refused) => return refused.into_http(),
        };
        let (answers, response) = health::answers();
        let requests = Frames::new(request.into_body(), self.message_bytes, &self.incoming);
        let health = Arc::clone(health);
        self.tasks.spawn(async move {
            health.serve(peer, requests, answers).await;
            drop(knock);
        });
        response
    }

    fn open<D: Wire + 'static>(
        &self,
        only: Option<&'static str>,
        request: Request,
    ) -> Result<Response<Body>, Status> {
        let (peer, knock) = admit(&request)?;
        let (responses, response) = Responses::new();
        let requests = Frames::new(request.into_body(), self.message_bytes, &self.incoming);
        let streams = Arc::clone(&self.streams);
        self.tasks.spawn(async move {
            streams.serve::<D>(only, peer, requests, responses).await;
            drop(knock);
        });
        Ok(response)
    }
}

/// Who begins a stream, unless there are too many on its connection.
pub(super) fn admit(request: &Request) -> Result<(EnvoyPeer, Knock), Status> {
    if request.headers().get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
        let mut refused = Status::unimplemented("requests in another encoding than identity are not read");
        let accepted = tonic::metadata::MetadataValue::from_static("identity");
        refused.metadata_mut().insert("grpc-accept-encoding", accepted);
        return Err(refused);
    }
    let peer = peer(request);
    let knock = peer.client.knock(UNKNOWN).ok_or_else(|| {
        Status::unavailable("too many streams on a connection that has not shown yet who it is")
    })?;
    Ok((peer, knock))
}

fn peer(request: &Request) -> EnvoyPeer {
    let from = request.extensions().get::<Connection>().map(|connection| connection.peer);
    let address = from.map(|peer| peer.to_string()).unwrap_or_default();
    let header = request.headers().get(header::AUTHORIZATION).map(HeaderValue::to_str);
    // The bootstrap writes the bare token; other clients like to say what it is.
    let token = header.and_then(Result::ok).and_then(token::bare).map(str::to_owned);
    let client = request.extensions().get::<Client>().cloned().unwrap_or_default();
    EnvoyPeer { address, network: from.map(|peer| network(peer.ip())), token, client }
}
