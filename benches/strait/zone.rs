//! Zones that cost next to nothing: they speak the protocol, decode no more than they answer, and keep nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use common::{
    kds::{
        features::{Features, ZONE_PING_HEALTH},
        headers::KdsCaller,
        metadata::Peer,
        watch::Position,
    },
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        kuma::mesh::v1alpha1::{
            ZoneHealthCheckRequest, global_kds_service_client::GlobalKdsServiceClient,
            kds_sync_service_client::KdsSyncServiceClient,
        },
    },
    registry,
    xds::{Sink, SinkEvent, SinkType, Versions},
};
use futures::StreamExt;
use load::wire::{FieldValue, fields};
use prost::Message;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};

/// Largest message taken, in bytes.
const LARGEST: usize = 64 << 20;
/// How often a zone pings by default.
const PING: Duration = Duration::from_secs(5);
const DOWN: &str = "/kuma.mesh.v1alpha1.KDSSyncService/GlobalToZoneSync";
/// What a response says when another follows that belongs to it.
const MORE: &[u8] = b"more";

/// What a zone holds, by type.
pub type HeldVersions = BTreeMap<&'static str, Versions>;

/// What zones tell the scenario.
#[derive(Debug)]
pub enum News {
    /// Every type was answered; this zone is in sync.
    Ready,
    /// It acknowledged a response with this many resources after it was ready.
    Acked(usize),
}

/// Counters over all zones of a scenario.
#[derive(Clone, Default)]
pub struct Counters {
    /// Responses received.
    pub responses: Arc<AtomicU64>,
    /// Resources received.
    pub resources: Arc<AtomicU64>,
    /// Bytes of them.
    pub bytes: Arc<AtomicU64>,
}

/// The requests that open a stream, encoded once for all zones but for their names.
#[derive(Clone)]
pub struct Opening(Arc<[Bytes]>);

impl Opening {
    /// Those of zones that resume from `held`, or start anew.
    pub fn of(held: Option<&HeldVersions>) -> Self {
        let sink = sink("", held);
        let encoded = sink.open().map(|request| {
            let request = DeltaDiscoveryRequest { node: None, ..request };
            Bytes::from(request.encode_to_vec())
        });
        Self(encoded.collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those of one zone: what is encoded one after the other is one message.
    pub fn requests(&self, zone: &str) -> Vec<RequestParts> {
        let node = DeltaDiscoveryRequest { node: Some(peer().node(zone)), ..Default::default() };
        let node = Bytes::from(node.encode_to_vec());
        self.0.iter().map(|request| (node.clone(), request.clone())).collect()
    }
}

/// A connected zone; ends when dropped.
pub struct BareZone {
    tasks: Vec<JoinHandle<()>>,
    channel: Channel,
    caller: KdsCaller,
}

impl Drop for BareZone {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl BareZone {
    /// Connects as `name` with `opening`, and reports to `news`.
    pub async fn connect(
        url: &str,
        name: &str,
        opening: &Opening,
        counters: Counters,
        news: mpsc::Sender<News>,
    ) -> Self {
        let channel = channel(url).await;
        let caller = caller(name);
        let client = KdsSyncServiceClient::new(channel.clone());
        let up = tokio::spawn(answer_nothing(client, caller.clone()));
        let follows = follow(channel.clone(), caller.clone(), opening.clone(), counters, news);
        Self { tasks: vec![up, tokio::spawn(follows)], channel, caller }
    }

    /// Shows from now on that it is there, as often as a zone does by default.
    pub fn pings(&mut self) {
        self.tasks.push(tokio::spawn(ping(self.channel.clone(), self.caller.clone())));
    }
}

impl BareZone {
    /// Whether each of its streams is still there.
    pub fn is_connected(&self) -> bool {
        !self.tasks.iter().any(JoinHandle::is_finished)
    }
}

/// Pings over and over, first at a time of its own so that not all do it at once.
pub async fn ping(channel: Channel, caller: KdsCaller) {
    let spread = caller.zone.bytes().fold(0, |sum: u64, byte| (sum * 31 + u64::from(byte)) % 5_000);
    tokio::time::sleep(Duration::from_millis(spread)).await;
    let mut client = GlobalKdsServiceClient::new(channel);
    let mut tick = tokio::time::interval(PING);
    loop {
        tick.tick().await;
        let mut request = Request::new(ZoneHealthCheckRequest {});
        caller.write(request.metadata_mut());
        Position::default().write(request.metadata_mut());
        client.health_check(request).await.expect("a ping is answered");
    }
}

/// A connection to the sync port of global.
pub async fn channel(url: &str) -> Channel {
    let endpoint = Endpoint::from_shared(url.to_owned()).expect("a URL");
    endpoint.connect().await.expect("global listens")
}

/// Who calls as `zone`.
pub fn caller(zone: &str) -> KdsCaller {
    KdsCaller {
        zone: zone.to_owned(),
        features: features(),
        session: Some(zone.to_owned()),
        token: None,
        version: "2.14.3".to_owned(),
        issuing_request: None,
    }
}

/// Those of a zone that is known by its connection, whether it pings or not.
fn features() -> Features {
    Features::ours().without(ZONE_PING_HEALTH)
}

fn peer() -> Peer {
    Peer {
        config: r#"{"store":{"type":"memory"}}"#.to_owned(),
        instance: "bench".to_owned(),
        features: features(),
        ..Peer::default()
    }
}

/// Acknowledges whatever comes. The stream ends with the process or the zone.
async fn follow(
    channel: Channel,
    caller: KdsCaller,
    opening: Opening,
    counters: Counters,
    news: mpsc::Sender<News>,
) {
    let first = opening.requests(&caller.zone);
    let Some((requests, mut responses)) = open(channel, &caller, first).await else { return };
    let mut answered = BTreeSet::new();
    let mut ready = false;
    while let Some(Ok(response)) = responses.next().await {
        let seen = Seen::of(&response);
        counters.responses.fetch_add(1, Ordering::Relaxed);
        counters.resources.fetch_add(seen.resources as u64, Ordering::Relaxed);
        counters.bytes.fetch_add(response.len() as u64, Ordering::Relaxed);
        if requests.send((Bytes::new(), seen.acknowledgement(&caller.zone))).await.is_err() {
            return;
        }
        if ready && news.send(News::Acked(seen.resources)).await.is_err() {
            return;
        }
        if !ready && !seen.more {
            answered.insert(Box::<[u8]>::from(seen.type_url));
            ready = answered.len() == opening.len();
            if ready && news.send(News::Ready).await.is_err() {
                return;
            }
        }
    }
}

/// A request in two parts, which are one message.
pub type RequestParts = (Bytes, Bytes);

/// The stream down, with its `first` requests on their way.
pub async fn open(
    channel: Channel,
    caller: &KdsCaller,
    first: Vec<RequestParts>,
) -> Option<(mpsc::Sender<RequestParts>, Streaming<Bytes>)> {
    let (requests, receiver) = mpsc::channel(first.len().max(4));
    for request in first {
        requests.send(request).await.ok()?;
    }
    let mut request = Request::new(ReceiverStream::new(receiver));
    caller.write(request.metadata_mut());
    let mut grpc = Grpc::new(channel).max_decoding_message_size(LARGEST);
    grpc.ready().await.ok()?;
    let responses = grpc.streaming(request, PathAndQuery::from_static(DOWN), Uncoded).await.ok()?;
    Some((requests, responses.into_inner()))
}

/// What there is to know of a response to answer it.
pub struct Seen<'a> {
    type_url: &'a [u8],
    nonce: &'a [u8],
    /// How many resources it brings.
    pub resources: usize,
    more: bool,
}

impl<'a> Seen<'a> {
    /// Looks through a `DeltaDiscoveryResponse`.
    pub fn of(response: &'a [u8]) -> Self {
        let mut seen = Self { type_url: &[], nonce: &[], resources: 0, more: false };
        for (number, value) in fields(response) {
            match (number, value) {
                (1, FieldValue::Bytes(stamp)) => seen.more = stamp == MORE,
                (2, FieldValue::Bytes(_)) => seen.resources += 1,
                (4, FieldValue::Bytes(type_url)) => seen.type_url = type_url,
                (5, FieldValue::Bytes(nonce)) => seen.nonce = nonce,
                _ => {}
            }
        }
        seen
    }

    /// The answer of `zone`.
    pub fn acknowledgement(&self, zone: &str) -> Bytes {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let ack = DeltaDiscoveryRequest {
            node: Some(common::kds::metadata::bare_node(zone)),
            type_url: text(self.type_url),
            response_nonce: text(self.nonce),
            ..DeltaDiscoveryRequest::default()
        };
        ack.encode_to_vec().into()
    }
}

/// Messages as they are on the wire.
struct Uncoded;

impl Codec for Uncoded {
    type Encode = RequestParts;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Uncoded {
    type Item = RequestParts;
    type Error = Status;

    fn encode(&mut self, (head, rest): RequestParts, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(head);
        into.put(rest);
        Ok(())
    }
}

impl Decoder for Uncoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// What a zone holds that takes all there is.
pub async fn take_all(url: &str) -> HeldVersions {
    let caller = caller("taker");
    let mut client = KdsSyncServiceClient::new(channel(url).await).max_decoding_message_size(LARGEST);
    let mut sink = sink(&caller.zone, None);
    let (requests, receiver) = mpsc::channel(64);
    for request in sink.open() {
        requests.send(request).await.expect("the channel is open");
    }
    let mut request = Request::new(ReceiverStream::new(receiver));
    caller.write(request.metadata_mut());
    let mut responses = client.global_to_zone_sync(request).await.expect("the stream opens").into_inner();
    while !sink.is_ready() {
        let response = responses.next().await.expect("the stream goes on").expect("it does not break");
        let Ok(SinkEvent::Batch(batch)) = sink.receive(response) else {
            panic!("global sends what is asked")
        };
        let ack = sink.verdict(batch.type_url, &batch.nonce, &[]).expect("the batch is there");
        requests.send(ack).await.expect("the stream is open");
    }
    registry::ALL.iter().filter_map(|kind| Some((kind.name, sink.held(kind.name)?.clone()))).collect()
}

/// The protocol side of a zone that resumes from `held`, or starts anew.
fn sink(zone: &str, held: Option<&HeldVersions>) -> Sink {
    let types = registry::ALL.iter().filter(|kind| kind.flow.requested_by_zone()).map(|kind| SinkType {
        type_url: kind.name,
        resume: held.map(|held| held.get(kind.name).cloned().unwrap_or_default()),
    });
    // What Strait's own zones do.
    Sink::new(peer().node(zone), types).summing_up()
}

/// The way up of a zone that owns nothing.
async fn answer_nothing(mut client: KdsSyncServiceClient<Channel>, caller: KdsCaller) {
    let (responses, receiver) = mpsc::channel::<DeltaDiscoveryResponse>(64);
    let mut request = Request::new(ReceiverStream::new(receiver));
    caller.write(request.metadata_mut());
    let stream = client.zone_to_global_sync(request).await.expect("the stream opens");
    let mut requests: Streaming<DeltaDiscoveryRequest> = stream.into_inner();
    let mut nonce = 0_u64;
    while let Some(Ok(request)) = requests.next().await {
        if !request.response_nonce.is_empty() {
            continue;
        }
        nonce += 1;
        let empty = DeltaDiscoveryResponse {
            type_url: request.type_url,
            nonce: nonce.to_string(),
            ..DeltaDiscoveryResponse::default()
        };
        if responses.send(empty).await.is_err() {
            return;
        }
    }
}
