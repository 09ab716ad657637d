//! The floors: what the same work costs with nothing of ours in the way.

use std::{convert::Infallible, net::Ipv4Addr, path::Path, pin::Pin, time::Duration};

use bytes::Bytes;
use common::proto::{
    envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource},
    google::protobuf::Any,
    kuma::mesh::v1alpha1::{
        ClustersRequest, ClustersResponse, StatsRequest, StatsResponse, XdsConfigRequest, XdsConfigResponse,
        ZoneHealthCheckRequest, ZoneHealthCheckResponse,
        global_kds_service_server::{GlobalKdsService, GlobalKdsServiceServer},
        kds_sync_service_server::{KdsSyncService, KdsSyncServiceServer},
    },
};
use futures::{Stream, StreamExt, future::join_all};
use load::process::processor;
use prost::Message;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{net::TcpSocket, sync::broadcast, sync::mpsc, time::Instant};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{
        Service,
        http::{Request as HttpRequest, Response as HttpResponse},
    },
    server::NamedService,
};

use crate::{
    sample::Sample,
    zone::{Opening, RequestParts, Seen, caller, channel, open, ping},
};

/// F1: a bare bidirectional stream sends the same message to `clients` and waits for the last answer.
pub async fn stream(message: DeltaDiscoveryResponse, clients: usize, rounds: usize) -> Sample {
    let (send, _) = broadcast::channel(16);
    let (acked, mut acks) = mpsc::channel(clients);
    let server = FloorServer::start(FloorService { send: send.clone(), acked }).await;
    let connected = join_all((0..clients).map(|_| client(server.url.clone(), any_request()))).await;
    let mut sample = Sample::default();
    for _ in 0..rounds {
        let start = Instant::now();
        send.send(message.clone()).expect("every client listens");
        for _ in 0..clients {
            acks.recv().await.expect("the server lives");
        }
        sample.push(start.elapsed());
    }
    connected.iter().for_each(tokio::task::JoinHandle::abort);
    sample
}

/// Connections that may wait to be taken.
const BACKLOG: u32 = 8192;

/// A server of the floor; ends when dropped.
struct FloorServer {
    url: String,
    task: tokio::task::JoinHandle<Result<(), tonic::transport::Error>>,
}

impl FloorServer {
    async fn start(service: impl KdsSyncService) -> Self {
        Self::with(KdsSyncServiceServer::new(service)).await
    }

    async fn with<S>(service: S) -> Self
    where
        S: Service<HttpRequest<Body>, Response = HttpResponse<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        let socket = TcpSocket::new_v4().expect("there is a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback has free ports");
        // Thousands come at once, as to the listeners that it is compared with.
        let listener = socket.listen(BACKLOG).expect("a bound socket can listen");
        let address = listener.local_addr().expect("a bound listener has an address");
        let server = tonic::transport::Server::builder().add_service(service);
        let task = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { url: format!("http://{address}"), task }
    }
}

impl Drop for FloorServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A client that asks with `first` and answers everything with an acknowledgement: as a [`BareZone`] does.
///
/// [`BareZone`]: crate::zone::BareZone
async fn client(url: String, first: Vec<RequestParts>) -> tokio::task::JoinHandle<()> {
    let caller = caller("floor");
    let (requests, mut responses) =
        open(channel(&url).await, &caller, first).await.expect("the stream opens");
    tokio::spawn(async move {
        while let Some(Ok(response)) = responses.next().await {
            let ack = Seen::of(&response).acknowledgement(&caller.zone);
            if requests.send((Bytes::new(), ack)).await.is_err() {
                return;
            }
        }
    })
}

/// A question about nothing.
fn any_request() -> Vec<RequestParts> {
    vec![(Bytes::new(), Bytes::from(DeltaDiscoveryRequest::default().encode_to_vec()))]
}

struct FloorService {
    send: broadcast::Sender<DeltaDiscoveryResponse>,
    acked: mpsc::Sender<()>,
}

type FloorResponses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl KdsSyncService for FloorService {
    type GlobalToZoneSyncStream = FloorResponses<DeltaDiscoveryResponse>;
    type ZoneToGlobalSyncStream = FloorResponses<DeltaDiscoveryRequest>;

    async fn global_to_zone_sync(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::GlobalToZoneSyncStream>, Status> {
        let mut messages = self.send.subscribe();
        let acked = self.acked.clone();
        let mut requests = request.into_inner();
        requests.next().await;
        tokio::spawn(async move {
            while let Some(Ok(_)) = requests.next().await {
                if acked.send(()).await.is_err() {
                    return;
                }
            }
        });
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Ok(message) = messages.recv().await {
                if sender.send(Ok(message)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn zone_to_global_sync(
        &self,
        _request: Request<Streaming<DeltaDiscoveryResponse>>,
    ) -> Result<Response<Self::ZoneToGlobalSyncStream>, Status> {
        Err(Status::unimplemented("not part of the floor"))
    }
}

/// F1 for a reconnect: `clients` connect at once to a bare server, each sends the same requests, gets an
/// empty response to each of them and answers it. The time until the last answer arrived.
pub async fn reconnect(opening: &Opening, clients: usize) -> Duration {
    let (acked, mut acks) = mpsc::channel(clients * opening.len());
    let server = FloorServer::start(Answering { acked }).await;
    let start = Instant::now();
    let connected =
        join_all((0..clients).map(|_| client(server.url.clone(), opening.requests("floor")))).await;
    for _ in 0..clients * opening.len() {
        acks.recv().await.expect("the server lives");
    }
    let settled = start.elapsed();
    connected.iter().for_each(tokio::task::JoinHandle::abort);
    settled
}

/// F1 for a transfer: `bytes` in messages of `chunk`, the next when the one before is acknowledged.
pub async fn transfer(bytes: u64, chunk: usize) -> Duration {
    let message = DeltaDiscoveryResponse {
        nonce: "1".into(),
        resources: (0..chunk / KIB)
            .map(|_| Resource { resource: Some(kib()), ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let rounds = usize::try_from(bytes).unwrap_or(usize::MAX) / message.encoded_len();
    let sample = stream(message, 1, rounds.max(1)).await;
    sample.total()
}

const KIB: usize = 1024;

fn kib() -> Any {
    Any { type_url: "type.googleapis.com/kuma.mesh.v1alpha1.KumaResource".into(), value: vec![7; KIB] }
}

/// F1 at rest: the processor time a bare server and `clients` clients use together in `idle`.
pub async fn at_rest(clients: usize, idle: Duration) -> Duration {
    let (acked, mut acks) = mpsc::channel(clients);
    let server = FloorServer::start(Answering { acked }).await;
    let connected = join_all((0..clients).map(|_| client(server.url.clone(), any_request()))).await;
    for _ in 0..clients {
        acks.recv().await.expect("the server lives");
    }
    let used = || processor(std::process::id()).unwrap_or_default();
    let before = used();
    tokio::time::sleep(idle).await;
    let used = used().saturating_sub(before);
    connected.iter().for_each(tokio::task::JoinHandle::abort);
    used
}

/// F1 for pings: the processor time a bare server and `clients` clients that ping it use together in `idle`.
pub async fn pinged(clients: usize, idle: Duration) -> Duration {
    let server = FloorServer::with(GlobalKdsServiceServer::new(Answered)).await;
    let channels = join_all((0..clients).map(|_| channel(&server.url))).await;
    let pinging = |(n, channel)| tokio::spawn(ping(channel, caller(&format!("zone-{n}"))));
    let connected: Vec<_> = channels.into_iter().enumerate().map(pinging).collect();
    let used = || processor(std::process::id()).unwrap_or_default();
    tokio::time::sleep(SETTLING).await;
    let before = used();
    tokio::time::sleep(idle).await;
    let used = used().saturating_sub(before);
    connected.iter().for_each(tokio::task::JoinHandle::abort);
    used
}

/// Until every client has pinged for the first time.
const SETTLING: Duration = Duration::from_secs(10);

/// Answers pings.
struct Answered;

#[tonic::async_trait]
impl GlobalKdsService for Answered {
    type StreamXDSConfigsStream = FloorResponses<XdsConfigRequest>;
    type StreamStatsStream = FloorResponses<StatsRequest>;
    type StreamClustersStream = FloorResponses<ClustersRequest>;

    async fn health_check(
        &self,
        _request: Request<ZoneHealthCheckRequest>,
    ) -> Result<Response<ZoneHealthCheckResponse>, Status> {
        Ok(Response::new(ZoneHealthCheckResponse::default()))
    }

    async fn stream_xds_configs(
        &self,
        _request: Request<Streaming<XdsConfigResponse>>,
    ) -> Result<Response<Self::StreamXDSConfigsStream>, Status> {
        Err(Status::unimplemented("not part of the floor"))
    }

    async fn stream_stats(
        &self,
        _request: Request<Streaming<StatsResponse>>,
    ) -> Result<Response<Self::StreamStatsStream>, Status> {
        Err(Status::unimplemented("not part of the floor"))
    }

    async fn stream_clusters(
        &self,
        _request: Request<Streaming<ClustersResponse>>,
    ) -> Result<Response<Self::StreamClustersStream>, Status> {
        Err(Status::unimplemented("not part of the floor"))
    }
}

/// Answers every question with an empty response.
struct Answering {
    acked: mpsc::Sender<()>,
}

#[tonic::async_trait]
impl KdsSyncService for Answering {
    type GlobalToZoneSyncStream = FloorResponses<DeltaDiscoveryResponse>;
    type ZoneToGlobalSyncStream = FloorResponses<DeltaDiscoveryRequest>;

    async fn global_to_zone_sync(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::GlobalToZoneSyncStream>, Status> {
        let acked = self.acked.clone();
        let mut requests = request.into_inner();
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            let mut nonce = 0_u64;
            while let Some(Ok(request)) = requests.next().await {
                if !request.response_nonce.is_empty() {
                    if acked.send(()).await.is_err() {
                        return;
                    }
                    continue;
                }
                nonce += 1;
                let empty = DeltaDiscoveryResponse {
                    type_url: request.type_url,
                    nonce: nonce.to_string(),
                    ..Default::default()
                };
                if sender.send(Ok(empty)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn zone_to_global_sync(
        &self,
        _request: Request<Streaming<DeltaDiscoveryResponse>>,
    ) -> Result<Response<Self::ZoneToGlobalSyncStream>, Status> {
        Err(Status::unimplemented("not part of the floor"))
    }
}

/// F2: one durable commit of one row of this size, by SQLite itself with the settings of our store.
pub async fn commit(folder: &Path, bytes: usize, rounds: usize) -> Sample {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("floor.db"))
        .create_if_missing(true)
        .pragma("journal_mode", "WAL")
        .pragma("synchronous", "FULL");
    let mut database = SqliteConnection::connect_with(&options).await.expect("a fresh database opens");
    let create = "CREATE TABLE row (id INTEGER PRIMARY KEY, spec BLOB NOT NULL)";
    sqlx::query(create).execute(&mut database).await.expect("a fresh database takes a table");
    let row = vec![7_u8; bytes];
    let mut sample = Sample::default();
    for _ in 0..rounds {
        let start = Instant::now();
        let put = sqlx::query("INSERT OR REPLACE INTO row (id, spec) VALUES (1, ?)").bind(row.as_slice());
        put.execute(&mut database).await.expect("the disk takes a row");
        sample.push(start.elapsed());
    }
    sample
}

/// F2 for many rows: as many durable commits as it takes when `at_once` rows wait together.
pub async fn batches(folder: &Path, bytes: usize, rows: usize, at_once: usize) -> Duration {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("batches.db"))
        .create_if_missing(true)
        .pragma("journal_mode", "WAL")
        .pragma("synchronous", "FULL");
    let mut database = SqliteConnection::connect_with(&options).await.expect("a fresh database opens");
    let create = "CREATE TABLE row (id INTEGER PRIMARY KEY, spec BLOB NOT NULL)";
    sqlx::query(create).execute(&mut database).await.expect("a fresh database takes a table");
    let row = vec![7_u8; bytes];
    let start = Instant::now();
    for first in (0..rows).step_by(at_once) {
        let mut transaction = database.begin().await.expect("a transaction begins");
        for id in first..rows.min(first + at_once) {
            let id = i64::try_from(id).unwrap_or(i64::MAX);
            let put = sqlx::query("INSERT INTO row (id, spec) VALUES (?, ?)").bind(id).bind(row.as_slice());
            put.execute(&mut *transaction).await.expect("the disk takes a row");
        }
        transaction.commit().await.expect("the disk takes a transaction");
    }
    start.elapsed()
}

/// Two floors one after the other, quantile by quantile.
pub fn sum(a: &Sample, b: &Sample, share: f64) -> Duration {
    a.quantile(share) + b.quantile(share)
}
