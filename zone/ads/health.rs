//! Health discovery: the Envoy of a proxy looks whether its workload serves and says what it found, and the zone
//! takes in and out of rotation what has a probe.
//!
//! What is to be looked at follows from the resource of the proxy; what was found is written into it, as its inbounds'
//! state. Nothing is written while that says the same already.

mod checks;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use common::{
    clip::clip,
    frames::Frames,
    model::{Resource, Spec},
    parts::{self, PartLimits},
    proto::{
        envoy::service::health::v3::{
            HealthCheckRequestOrEndpointHealthResponse,
            health_check_request_or_endpoint_health_response::RequestType,
        },
        kuma::mesh::v1alpha1 as proto,
    },
    runtime::Env,
    store::{Batch, Precondition, Store, StoreError, Write},
};
use prost::Message;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub use self::checks::CheckSettings;
use self::checks::{ObservedHealth, specifier};
use super::{
    grant::{Grant, GrantWatch, Lookout},
    metrics,
    node::{Proxy, ProxyId, ProxyKind},
    pace::{WritePace, WriteRate},
    signals::StreamSignals,
    stream::{EnvoyPeer, Streams, first_request},
};
use crate::{generator::AdminEndpoint, mesh::Hosts};

/// Where it is served.
pub(super) const PATH: &str = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";
/// Pause after the store refused.
const RETRY: Duration = Duration::from_secs(1);
/// The time of a token is at least so far away when it is waited for: clocks differ.
const SHORTEST: Duration = Duration::from_millis(1);
/// Bytes of the reason a stream ends with.
const REASON: usize = 1024;
/// Answers that wait for room in the connection.
const WAITING: usize = 4;

/// What all streams share.
pub(super) struct Health {
    pub(super) streams: Arc<Streams>,
    pub(super) store: Arc<dyn Store>,
    pub(super) env: Env,
    pub(super) hosts: tokio::sync::watch::Receiver<Hosts>,
    pub(super) settings: CheckSettings,
    /// Whose resource or token changed.
    pub(super) watch: Arc<GrantWatch>,
    /// How often what a proxy found is written.
    pace: WritePace,
    next: AtomicU64,
}

/// What one proxy says, and is to look at.
struct HealthSession<'a> {
    health: &'a Health,
    peer: &'a EnvoyPeer,
    proxy: ProxyId,
    admin: Option<AdminEndpoint>,
    grant: Grant,
    lookout: Lookout,
    signals: Arc<StreamSignals>,
    /// What it was told to look at.
    asked: Bytes,
    /// The clusters in that.
    clusters: BTreeSet<String>,
    /// What it found.
    found: ObservedHealth,
    /// When what it found is to be written, if that is not done yet.
    behind: Option<Instant>,
}

impl Health {
    /// For the proxies of `streams`, which are so many at most.
    pub(super) fn new(
        streams: Arc<Streams>,
        store: Arc<dyn Store>,
        env: Env,
        hosts: tokio::sync::watch::Receiver<Hosts>,
        settings: CheckSettings,
        proxies: usize,
    ) -> Self {
        // A change and the next are written at once; a workload that is well and sick in turn as often as it is told.
        let rate = WriteRate { at_once: 2, every: settings.report_interval };
        let (watch, pace, next) = (Arc::default(), WritePace::new(rate, proxies), AtomicU64::new(0));
        Self { streams, store, env, hosts, settings, watch, pace, next }
    }

    /// Tells streams of changes until `shutdown`.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        Arc::clone(&self.watch).run(self.streams.index.clone(), shutdown).await;
    }

    /// Serves one stream to its end, of which the proxy hears through `answers`.
    pub(super) async fn serve(
        &self,
        peer: EnvoyPeer,
        mut requests: Frames,
        answers: tokio::sync::mpsc::Sender<Result<Bytes, Status>>,
    ) {
        let ended = tokio::select! {
            () = self.streams.shutdown.cancelled() => Err(Status::unavailable("this control plane is stopping")),
            () = answers.closed() => Ok(()),
            ended = self.admit_and_listen(&peer, &mut requests, &answers) => ended,
        };
        if let Err(status) = ended {
            // It may repeat what the proxy said.
            let status = Status::new(status.code(), clip(status.message(), REASON));
            tracing::info!(peer = %peer.address, code = ?status.code(), reason = status.message(), "ended a health stream");
            let _gone = answers.try_send(Err(status));
        }
    }

    async fn admit_and_listen(
        &self,
        peer: &EnvoyPeer,
        requests: &mut Frames,
        answers: &tokio::sync::mpsc::Sender<Result<Bytes, Status>>,
    ) -> Result<(), Status> {
        self.streams.screen(peer).await?;
        let mut place = self.streams.place(peer)?;
        let Some(first) = first_request(&mut place, requests).await? else { return Ok(()) };
        let node = match read(&first)? {
            Some(RequestType::HealthCheckRequest(request)) => request.node,
            Some(RequestType::EndpointHealthResponse(_)) | None => None,
        };
        let (proxy, _) = Proxy::of(node).map_err(|error| Status::invalid_argument(error.to_string()))?;
        if proxy.id.kind != ProxyKind::Dataplane {
            return Err(Status::invalid_argument("only dataplanes have a workload whose health matters"));
        }
        let grant = self.streams.grant(&proxy.id, peer).await?;
        place.of(&proxy.id)?;
        let signals = Arc::default();
        let lookout = self.lookout(&proxy.id, &grant, &signals);
        let _counted = metrics::HealthStreamActive::new();
        metrics::health_heard();
        let mut session = HealthSession {
            health: self,
            peer,
            admin: AdminEndpoint::of_node(&proxy.metadata),
            proxy: proxy.id,
            grant,
            lookout,
            signals,
            asked: Bytes::new(),
            clusters: BTreeSet::new(),
            found: ObservedHealth::default(),
            behind: None,
        };
        session.vouch();
        session.ask(answers)?;
        loop {
            let behind = session.behind;
            let expiry = self.streams.authenticator.good_for(&session.grant);
            tokio::select! {
                request = requests.next() => match request.transpose()? {
                    Some(request) => session.hear(&request).await?,
                    None => return Ok(()),
                },
                _ = session.signals.raised() => session.look_again(answers).await?,
                () = sleep_until(behind.unwrap_or_else(Instant::now)), if behind.is_some() => {
                    session.note().await?;
                }
                () = tokio::time::sleep(expiry.unwrap_or_default().max(SHORTEST)), if expiry.is_some() => {
                    session.uphold().await?;
                }
            }
        }
    }

    fn lookout(&self, proxy: &ProxyId, grant: &Grant, signals: &Arc<StreamSignals>) -> Lookout {
        let also = Grant::new(vec![proxy.key()], None, &self.streams.index.current());
        let stream = self.next.fetch_add(1, Ordering::Relaxed);
        self.watch.watch(stream, &grant.clone().and(also), signals)
    }
}

impl HealthSession<'_> {
    /// Says who is at the other end, once that is known.
    fn vouch(&self) {
        let client = &self.peer.client;
        if !client.is_known() && self.stored().is_some() {
            let authenticator = &self.health.streams.authenticator;
            let credential = authenticator.credential(&self.proxy, self.peer.token.as_deref());
            client.vouch(&self.proxy.to_string(), credential.as_deref());
        }
    }

    /// Tells the proxy what to look at, when that is something else than before.
    fn ask(&mut self, answers: &tokio::sync::mpsc::Sender<Result<Bytes, Status>>) -> Result<(), Status> {
        let dataplane = self.stored();
        let networking = dataplane.as_deref().and_then(networking).unwrap_or_default();
        let hosts = self.health.hosts.borrow().clone();
        let wanted = specifier(&networking, &hosts, self.admin.as_ref(), &self.health.settings);
        // Who has nothing to look at is told so only after there was something.
        let Some(wanted) = wanted.or_else(|| (!self.asked.is_empty()).then(Default::default)) else {
            return Ok(());
        };
        let message = framed(&wanted);
        if message == self.asked {
            return Ok(());
        }
        self.asked = message.clone();
        self.clusters = wanted.cluster_health_checks.into_iter().map(|check| check.cluster_name).collect();
        metrics::health_asked();
        answers.try_send(Ok(message)).map_err(|_| Status::resource_exhausted("the proxy takes no answers"))
    }

    /// Something changed on which all this rests.
    async fn look_again(
        &mut self,
        answers: &tokio::sync::mpsc::Sender<Result<Bytes, Status>>,
    ) -> Result<(), Status> {
        self.uphold().await?;
        self.vouch();
        self.ask(answers)?;
        self.note().await
    }

    /// Judges the proxy again when what it was let in on has changed, or its time is over.
    async fn uphold(&mut self) -> Result<(), Status> {
        let index = self.health.streams.index.current();
        if !self.health.streams.authenticator.upholds(&self.grant, &index) {
            self.grant = self.health.streams.grant(&self.proxy, self.peer).await?;
            self.lookout = self.health.lookout(&self.proxy, &self.grant, &self.signals);
        }
        Ok(())
    }

    /// Takes in what the proxy found.
    async fn hear(&mut self, request: &Bytes) -> Result<(), Status> {
        metrics::health_heard();
        let Some(RequestType::EndpointHealthResponse(report)) = read(request)? else { return Ok(()) };
        let before = std::mem::replace(&mut self.found, ObservedHealth::of(&report, &self.clusters));
        // What is to be written later will be the newest there is then.
        if before == self.found || self.behind.is_some() {
            return Ok(());
        }
        self.note().await
    }

    /// Writes what was found, where the resource says something else and was not written a moment ago.
    async fn note(&mut self) -> Result<(), Status> {
        self.uphold().await?;
        self.behind = None;
        let Some(stored) = self.stored() else { return Ok(()) };
        let hosts = self.health.hosts.borrow().clone();
        let Some(spec) = self.found.applied_to(&stored, &hosts) else { return Ok(()) };
        let authenticator = &self.health.streams.authenticator;
        let token = authenticator.credential(&self.proxy, self.peer.token.as_deref());
        let now = Instant::now();
        if let Err(wait) = self.health.pace.take(&self.proxy, token.as_deref(), now) {
            self.behind = Some(now + wait);
            return Ok(());
        }
        let mut resource = Resource::clone(&stored).with_spec(Spec::encode(&spec));
        resource.modified = self.health.env.now();
        let write = Write::put_when(resource, Precondition::At(stored.revision));
        match self.health.store.transact(Batch::of([write])).await {
            Ok(_) => tracing::info!(proxy = %self.proxy, "the health of a workload changed"),
            // What somebody else wrote wakes this stream again.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => self.behind = self.later(),
            Err(error) => {
                tracing::warn!(proxy = %self.proxy, %error, "cannot store the health of a workload");
                self.behind = self.later();
            }
        }
        Ok(())
    }

    fn later(&self) -> Option<Instant> {
        Some(Instant::now() + self.health.env.entropy.about(RETRY))
    }

    fn stored(&self) -> Option<Arc<Resource>> {
        self.health.streams.index.current().get(&self.proxy.key()).cloned()
    }
}

fn networking(resource: &Resource) -> Option<proto::dataplane::Networking> {
    resource.spec::<proto::Dataplane>().ok()?.networking
}

fn read(message: &Bytes) -> Result<Option<RequestType>, Status> {
    parts::admit(message, PartLimits::PROXY)
        .map_err(|error| Status::resource_exhausted(error.to_string()))?;
    let request = HealthCheckRequestOrEndpointHealthResponse::decode(&message[..]);
    let malformed = |error| Status::invalid_argument(format!("the request cannot be read: {error}"));
    Ok(request.map_err(malformed)?.request_type)
}

/// A message as gRPC has it on the wire.
fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    message.encode(&mut bytes).expect("the buffer grows");
    bytes.freeze()
}

/// A place for the answers of one stream, and the body that carries them.
pub(super) fn answers()
-> (tokio::sync::mpsc::Sender<Result<Bytes, Status>>, axum::http::Response<axum::body::Body>) {
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, Status>>(WAITING);
    let frames = futures::stream::unfold((receiver, false), |(mut receiver, ended)| async move {
        if ended {
            return None;
        }
        let frame = match receiver.recv().await {
            Some(Ok(message)) => return Some((hyper::body::Frame::data(message), (receiver, false))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        let mut trailers = axum::http::HeaderMap::new();
        let _no_text_of_ours_is_no_header = frame.add_header(&mut trailers);
        Some((hyper::body::Frame::trailers(trailers), (receiver, true)))
    });
    let frames = futures::StreamExt::map(frames, Ok::<_, std::convert::Infallible>);
    let mut response =
        axum::http::Response::new(axum::body::Body::new(http_body_util::StreamBody::new(frames)));
    let grpc = axum::http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, grpc);
    (sender, response)
}
