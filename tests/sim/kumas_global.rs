//! A global that does what a test says, in the words of Kuma's global.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    kds::{features::HASH_SUFFIX, headers::Upstream, metadata::Peer},
    model::Resource,
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        google::{protobuf, rpc},
        kuma::mesh::v1alpha1::{
            ClustersRequest, ClustersResponse, Message, StatsRequest, StatsResponse, XdsConfigRequest,
            XdsConfigResponse, ZoneHealthCheckRequest, ZoneHealthCheckResponse,
            global_kds_service_server::{GlobalKdsService, GlobalKdsServiceServer},
            kds_sync_service_server::{KdsSyncService, KdsSyncServiceServer},
            multiplex_service_server::{MultiplexService, MultiplexServiceServer},
        },
    },
    tls::Trust,
};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle, time::timeout};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{
    Request, Response, Status, Streaming, codec::CompressionEncoding, metadata::MetadataMap,
    transport::Server,
};
use zone::kds::{Dial, Trusted};

const PATIENCE: Duration = Duration::from_secs(10);

/// A stream a zone has opened: global receives `I` and sends `O`.
pub struct Call<I, O> {
    pub headers: MetadataMap,
    pub inbound: Streaming<I>,
    pub outbound: mpsc::Sender<Result<O, Status>>,
}

pub type Down = Call<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;
pub type Up = Call<DeltaDiscoveryResponse, DeltaDiscoveryRequest>;
pub type Dumps = Call<XdsConfigResponse, XdsConfigRequest>;
pub type Stats = Call<StatsResponse, StatsRequest>;
/// Both directions over one stream, as before `KDSSyncService`.
pub type Both = Call<Message, Message>;
pub type Clusters = Call<ClustersResponse, ClustersRequest>;

/// What a global says to a ping.
#[derive(Clone, Copy, Default)]
pub struct PingAnswer {
    /// When the next one is due. Health checks are off by default, which is told by no time at all.
    pub interval: protobuf::Duration,
    /// The history it shows, which a global of Kuma does not.
    pub shows: Option<Upstream>,
}

/// The global: what zones open comes out of its queues.
pub struct KumasGlobal {
    pub address: String,
    pub dial: Arc<dyn Dial>,
    pub down: mpsc::Receiver<Down>,
    pub up: mpsc::Receiver<Up>,
    pub both: mpsc::Receiver<Both>,
    pub dumps: mpsc::Receiver<Dumps>,
    pub stats: mpsc::Receiver<Stats>,
    pub clusters: mpsc::Receiver<Clusters>,
    pub pings: Arc<Mutex<Vec<MetadataMap>>>,
    server: JoinHandle<()>,
}

impl Drop for KumasGlobal {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl KumasGlobal {
    /// `answers_pings` is false for one that knows nothing but the sync streams.
    pub async fn start(answers_pings: bool) -> Self {
        Self::answering(answers_pings.then(PingAnswer::default)).await
    }

    /// The same, which answers pings so.
    pub async fn answering(pings_with: Option<PingAnswer>) -> Self {
        let (down_calls, down) = mpsc::channel(8);
        let (up_calls, up) = mpsc::channel(8);
        let (both_calls, both) = mpsc::channel(8);
        let (dump_calls, dumps) = mpsc::channel(8);
        let (stats_calls, stats) = mpsc::channel(8);
        let (cluster_calls, clusters) = mpsc::channel(8);
        let pings = Arc::new(Mutex::default());
        let service = Service {
            down_calls,
            up_calls,
            both_calls,
            dump_calls,
            stats_calls,
            cluster_calls,
            pings: Arc::clone(&pings),
            pings_with,
        };
        let gzip = CompressionEncoding::Gzip;
        let sync = KdsSyncServiceServer::new(service.clone()).accept_compressed(gzip).send_compressed(gzip);
        let both_at_once =
            MultiplexServiceServer::new(service.clone()).accept_compressed(gzip).send_compressed(gzip);
        let global = GlobalKdsServiceServer::new(service).accept_compressed(gzip).send_compressed(gzip);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("grpc://{}", listener.local_addr().unwrap());
        let server = Server::builder().add_service(sync).add_service(global).add_service(both_at_once);
        let incoming = TcpListenerStream::new(listener);
        let server = tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
        let dial = Arc::new(Trusted::new(&address, &Trust::System).unwrap());
        Self { address, dial, down, up, both, dumps, stats, clusters, pings, server }
    }

    /// The next connection of a zone.
    pub async fn accept(&mut self) -> (Down, Up) {
        let down = timeout(PATIENCE, self.down.recv()).await.expect("the way down").unwrap();
        let up = timeout(PATIENCE, self.up.recv()).await.expect("the way up").unwrap();
        (down, up)
    }
}

impl Down {
    /// What the zone says next.
    pub async fn next(&mut self) -> DeltaDiscoveryRequest {
        timeout(PATIENCE, self.inbound.message()).await.expect("a request").unwrap().unwrap()
    }

    /// The first requests, one per type.
    pub async fn opening(&mut self, types: usize) -> Vec<DeltaDiscoveryRequest> {
        let mut opening = Vec::new();
        while opening.len() < types {
            opening.push(self.next().await);
        }
        opening
    }

    /// Sends a response and returns what the zone answers.
    pub async fn send(
        &mut self,
        type_url: &str,
        nonce: u64,
        resources: &[Resource],
        removed: &[&str],
    ) -> DeltaDiscoveryRequest {
        self.tell(type_url, nonce, resources, removed).await;
        let answer = self.next().await;
        assert_eq!(
            (answer.type_url.as_str(), answer.response_nonce.as_str()),
            (type_url, &*nonce.to_string())
        );
        answer
    }

    /// Sends a response.
    pub async fn tell(&mut self, type_url: &str, nonce: u64, resources: &[Resource], removed: &[&str]) {
        let response = DeltaDiscoveryResponse {
            type_url: type_url.to_owned(),
            nonce: nonce.to_string(),
            control_plane: Some(common::proto::envoy::config::core::v3::ControlPlane {
                identifier: "global".to_owned(),
            }),
            resources: resources.iter().map(crate::scripted::item).collect(),
            removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
            ..DeltaDiscoveryResponse::default()
        };
        self.outbound.send(Ok(response)).await.unwrap();
    }
}

impl Up {
    /// Asks for a type as Kuma does: the zone's own name as the node id, everything, nothing held.
    pub async fn ask(&self, zone: &str, type_url: &str) {
        let features = [HASH_SUFFIX].into_iter().collect();
        let peer = Peer { features, instance: "kuma-global-1".to_owned(), ..Peer::default() };
        let request = DeltaDiscoveryRequest {
            node: Some(peer.node(zone)),
            type_url: type_url.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        self.outbound.send(Ok(request)).await.unwrap();
    }

    /// What the zone sends next.
    pub async fn next(&mut self) -> DeltaDiscoveryResponse {
        timeout(PATIENCE, self.inbound.message()).await.expect("a response").unwrap().unwrap()
    }

    /// The first answers to these types, in the order they were asked for.
    pub async fn all(&mut self, types: &[&str]) -> Vec<DeltaDiscoveryResponse> {
        let mut answers = Vec::new();
        for _ in types {
            answers.push(self.next().await);
        }
        let asked: BTreeSet<&str> = types.iter().copied().collect();
        let answered: BTreeSet<&str> = answers.iter().map(|answer| answer.type_url.as_str()).collect();
        assert_eq!(answered, asked);
        answers
    }

    /// Answers a response, with an error or without. A refusal asks for everything again, as Kuma's does.
    pub async fn reply(&self, zone: &str, response: &DeltaDiscoveryResponse, error: Option<&str>) {
        let all = error.map(|_| "*".to_owned());
        let request = DeltaDiscoveryRequest {
            node: Some(common::kds::metadata::bare_node(zone)),
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            resource_names_subscribe: all.into_iter().collect(),
            error_detail: error
                .map(|message| rpc::Status { message: message.to_owned(), ..rpc::Status::default() }),
            ..DeltaDiscoveryRequest::default()
        };
        self.outbound.send(Ok(request)).await.unwrap();
    }
}

#[derive(Clone)]
struct Service {
    down_calls: mpsc::Sender<Down>,
    up_calls: mpsc::Sender<Up>,
    both_calls: mpsc::Sender<Both>,
    dump_calls: mpsc::Sender<Dumps>,
    stats_calls: mpsc::Sender<Stats>,
    cluster_calls: mpsc::Sender<Clusters>,
    pings: Arc<Mutex<Vec<MetadataMap>>>,
    pings_with: Option<PingAnswer>,
}

impl Service {
    fn known(&self, method: &str) -> Result<(), Status> {
        self.pinged(method).map(drop)
    }

    fn pinged(&self, method: &str) -> Result<PingAnswer, Status> {
        self.pings_with.ok_or_else(|| Status::unimplemented(format!("unknown method {method}")))
    }
}

async fn open<I, O>(calls: &mpsc::Sender<Call<I, O>>, request: Request<Streaming<I>>) -> Replies<O> {
    let (outbound, replies) = mpsc::channel(128);
    let headers = request.metadata().clone();
    let call = Call { headers, inbound: request.into_inner(), outbound };
    calls.send(call).await.map_err(|_| Status::unavailable("the test is over"))?;
    Ok(Response::new(ReceiverStream::new(replies)))
}

type Replies<O> = Result<Response<ReceiverStream<Result<O, Status>>>, Status>;

#[tonic::async_trait]
impl KdsSyncService for Service {
    type GlobalToZoneSyncStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;
    type ZoneToGlobalSyncStream = ReceiverStream<Result<DeltaDiscoveryRequest, Status>>;

    async fn global_to_zone_sync(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Replies<DeltaDiscoveryResponse> {
        open(&self.down_calls, request).await
    }

    async fn zone_to_global_sync(
        &self,
        request: Request<Streaming<DeltaDiscoveryResponse>>,
    ) -> Replies<DeltaDiscoveryRequest> {
        open(&self.up_calls, request).await
    }
}

#[tonic::async_trait]
impl MultiplexService for Service {
    type StreamMessageStream = ReceiverStream<Result<Message, Status>>;

    async fn stream_message(&self, request: Request<Streaming<Message>>) -> Replies<Message> {
        open(&self.both_calls, request).await
    }
}

#[tonic::async_trait]
impl GlobalKdsService for Service {
    type StreamXDSConfigsStream = ReceiverStream<Result<XdsConfigRequest, Status>>;
    type StreamStatsStream = ReceiverStream<Result<StatsRequest, Status>>;
    type StreamClustersStream = ReceiverStream<Result<ClustersRequest, Status>>;

    async fn stream_xds_configs(
        &self,
        request: Request<Streaming<XdsConfigResponse>>,
    ) -> Replies<XdsConfigRequest> {
        self.known("StreamXDSConfigs")?;
        open(&self.dump_calls, request).await
    }

    async fn stream_stats(&self, request: Request<Streaming<StatsResponse>>) -> Replies<StatsRequest> {
        self.known("StreamStats")?;
        open(&self.stats_calls, request).await
    }

    async fn stream_clusters(
        &self,
        request: Request<Streaming<ClustersResponse>>,
    ) -> Replies<ClustersRequest> {
        self.known("StreamClusters")?;
        open(&self.cluster_calls, request).await
    }

    async fn health_check(
        &self,
        request: Request<ZoneHealthCheckRequest>,
    ) -> Result<Response<ZoneHealthCheckResponse>, Status> {
        self.pings.lock().unwrap().push(request.metadata().clone());
        let PingAnswer { interval, shows } = self.pinged("HealthCheck")?;
        let mut answer = Response::new(ZoneHealthCheckResponse { interval: Some(interval) });
        if let Some(upstream) = shows {
            upstream.write(answer.metadata_mut());
        }
        Ok(answer)
    }
}
