//! One proxy: a connection, a stream, and nothing else.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use envoy_types::pb::{
    envoy::config::core::v3::{Node, node::UserAgentVersionType},
    google::protobuf::{Struct, Value, value::Kind},
};
use h2::{RecvStream, SendStream, client::SendRequest};
use http::{HeaderMap, Request, StatusCode};
use prost::Message;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpSocket,
    task::{AbortHandle, JoinSet},
    time::sleep,
};
use tokio_rustls::TlsConnector;

use crate::{
    AdsProtocol, BrokenStream, ResourceType,
    fleet::FleetContext,
    observer::ChangeCursor,
    response::{Incoming, ResponseReader},
    subscriptions::Subscriptions,
    wire,
};

/// What an Envoy lets a server send before it has read it.
const WINDOW: u32 = 16 << 20;
/// The same of one that reads slowly: the smallest, so that the server feels it.
const SLOW_WINDOW: u32 = 64 << 10;
/// The version of Envoy that is played.
const ENVOY: &str = "1.34.0";
/// The version of Kuma's proxy that is played.
const KUMA_DP: &str = "2.14.0";

/// Why a stream ended.
#[derive(Debug, Error)]
pub enum PlayError {
    /// No connection.
    #[error("connect: {0}")]
    Connect(#[from] io::Error),
    /// The connection broke.
    #[error("HTTP/2: {0}")]
    Http(#[from] h2::Error),
    /// Not a gRPC answer.
    #[error("the server answers with status {0}")]
    Status(StatusCode),
    /// The server ended the stream, with what it said.
    #[error("the stream ended with gRPC status {code}: {message}")]
    Ended {
        /// Status of gRPC.
        code: String,
        /// Its words.
        message: String,
    },
    /// It sent something nobody can read.
    #[error("the stream holds {0}")]
    Unreadable(#[from] BrokenStream),
    /// The request cannot be made of what was given.
    #[error("the token or the address cannot stand in a request: {0}")]
    Request(#[from] http::Error),
}

/// One proxy of a fleet.
pub(crate) struct PlayedProxy {
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) token: Option<String>,
    pub(crate) protocol: AdsProtocol,
    /// Bytes it reads in a second, if it is a slow one.
    pub(crate) pace: Option<u32>,
    pub(crate) counted: ChangeCursor,
    pub(crate) ready: bool,
}

impl PlayedProxy {
    /// Connects and plays until the stream ends.
    pub(crate) async fn play(&mut self, shared: &FleetContext) -> Result<(), PlayError> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = source(shared.address, self.number) {
            socket.bind(from)?;
        }
        let place = shared.connecting.acquire().await;
        let tcp = socket.connect(shared.address).await?;
        tcp.set_nodelay(true)?;
        match &shared.tls {
            Some(tls) => {
                let name = ServerName::try_from(shared.host.clone()).map_err(io::Error::other)?;
                let stream = TlsConnector::from(tls.clone()).connect(name, tcp).await?;
                drop(place);
                self.speak(shared, stream).await
            }
            None => {
                drop(place);
                self.speak(shared, tcp).await
            }
        }
    }

    async fn speak(
        &mut self,
        shared: &FleetContext,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), PlayError> {
        let window = if self.pace.is_some() { SLOW_WINDOW } else { WINDOW };
        let (requests, connection) = h2::client::Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(window.max(1 << 16))
            .max_concurrent_streams(1)
            .enable_push(false)
            .handshake::<_, Bytes>(io)
            .await?;
        let mut tasks = JoinSet::new();
        let driver = Aborted(tasks.spawn(connection));
        let (answer, asks) = self.ask(shared, requests).await?;
        let played = self.listen(shared, answer, asks).await;
        drop(driver);
        played
    }

    async fn ask(
        &self,
        shared: &FleetContext,
        requests: SendRequest<Bytes>,
    ) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), PlayError> {
        let method = match self.protocol {
            AdsProtocol::Sotw => "StreamAggregatedResources",
            AdsProtocol::Delta => "DeltaAggregatedResources",
        };
        let service = "envoy.service.discovery.v3.AggregatedDiscoveryService";
        let scheme = if shared.tls.is_some() { "https" } else { "http" };
        let mut request = Request::post(format!("{scheme}://{}/{service}/{method}", shared.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", concat!("strait-load/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let mut requests = requests.ready().await?;
        Ok(requests.send_request(request.body(())?, false)?)
    }

    async fn listen(
        &mut self,
        shared: &FleetContext,
        answer: h2::client::ResponseFuture,
        mut asks: SendStream<Bytes>,
    ) -> Result<(), PlayError> {
        let node = self.node(shared).encode_to_vec();
        let mut asked = Subscriptions::new(self.protocol, node);
        for request in asked.open() {
            asks.send_data(request.into(), false)?;
        }
        let response = answer.await?;
        if response.status() != StatusCode::OK {
            return Err(PlayError::Status(response.status()));
        }
        ended(response.headers())?;
        let mut body = response.into_body();
        let keep = self.number == 0 && shared.recording.is_some();
        let mut reader = ResponseReader::new(self.protocol == AdsProtocol::Delta, keep);
        let mut watched = false;
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            reader.push(&chunk);
            body.flow_control().release_capacity(chunk.len())?;
            if let Some(pace) = self.pace {
                sleep(Duration::from_secs_f64(chunk.len() as f64 / f64::from(pace))).await;
            }
            drop(chunk);
            while let Some(incoming) = reader.next()? {
                let end = match incoming {
                    Incoming::Resource(kind, resource) => {
                        let name = wire::bytes_of(&resource, 1).unwrap_or_default();
                        watched |= shared.observer.watches(kind, name);
                        let refers = matches!(kind, ResourceType::Cluster | ResourceType::Listener);
                        let references = refers.then(|| shared.references.of(kind, &resource));
                        asked.resource(kind, name, references.as_deref());
                        continue;
                    }
                    Incoming::Gone(name) => {
                        asked.gone(name);
                        continue;
                    }
                    Incoming::End(end) => end,
                };
                let Some(kind) = ResourceType::of(&end.type_url) else { continue };
                if let (Some(recording), Some(raw)) = (&shared.recording, reader.take_raw()) {
                    recording.push(kind, raw);
                }
                for request in asked.end(kind, &end) {
                    asks.send_data(request.into(), false)?;
                }
                let watched = std::mem::take(&mut watched);
                shared.observer.acknowledged(&mut self.counted, kind, &end, watched);
                if !self.ready && asked.complete() {
                    self.ready = true;
                    shared.observer.became_ready();
                }
            }
        }
        goodbye(body).await
    }

    /// What the bootstrap of an Envoy says about it.
    fn node(&self, shared: &FleetContext) -> Node {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let object = |members: Vec<(&str, Value)>| {
            let fields = members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Value { kind: Some(Kind::StructValue(Struct { fields })) }
        };
        let versions = object(vec![
            ("kumaDp", object(vec![("version", text(KUMA_DP))])),
            ("envoy", object(vec![("version", text(ENVOY))])),
        ]);
        let features = Value { kind: Some(Kind::ListValue(Default::default())) };
        let metadata = [
            ("dataplane.proxyType", text("dataplane")),
            ("dataplane.admin.port", text("9901")),
            ("features", features),
            ("version", versions),
        ];
        Node {
            id: format!("{}.{}", shared.mesh, self.name),
            cluster: self.name.clone(),
            metadata: Some(Struct {
                fields: metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            }),
            user_agent_name: "envoy".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(ENVOY.to_owned())),
            ..Node::default()
        }
    }
}

/// A task that ends with this value.
struct Aborted(AbortHandle);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where proxy `number` connects from: on one machine each has an address of its own, as it would elsewhere,
/// and ports do not run out.
fn source(server: SocketAddr, number: usize) -> Option<SocketAddr> {
    let number = u32::try_from(number).unwrap_or(u32::MAX) % (1 << 22);
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 64, 0, 1)) + number);
    server.ip().is_loopback().then(|| SocketAddr::from((address, 0)))
}

async fn goodbye(mut body: RecvStream) -> Result<(), PlayError> {
    match body.trailers().await? {
        Some(trailers) => ended(&trailers),
        None => Ok(()),
    }
}

/// The status of gRPC in these headers, if they hold one.
fn ended(headers: &HeaderMap) -> Result<(), PlayError> {
    let text = |name: &str| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    match text("grpc-status") {
        Some(code) => Err(PlayError::Ended { code, message: text("grpc-message").unwrap_or_default() }),
        None => Ok(()),
    }
}
