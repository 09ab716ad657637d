//! Zones that cost next to nothing: they speak the protocol and remember versions, and keep no store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use common::{
    kds::{features::Features, headers::KdsCaller, metadata::Peer},
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
    },
    registry,
    xds::{Sink, SinkEvent, SinkType, Versions},
};
use futures::StreamExt;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Streaming,
    transport::{Channel, Endpoint},
};

/// What a zone holds, by type.
pub type HeldVersions = BTreeMap<&'static str, Versions>;

/// What zones tell the scenario.
#[derive(Debug)]
pub enum News {
    /// Every type was answered; this zone is in sync. What it holds, when it was asked to tell.
    Ready(HeldVersions),
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
}

/// A connected zone; ends when dropped.
pub struct BareZone(Vec<JoinHandle<()>>);

impl Drop for BareZone {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl BareZone {
    /// Connects as `name`, resuming from `held` when there is any, and reports to `news`.
    pub async fn connect(
        url: &str,
        name: &str,
        held: Option<&HeldVersions>,
        tell_held: bool,
        counters: Counters,
        news: mpsc::Sender<News>,
    ) -> Self {
        let endpoint = Endpoint::from_shared(url.to_owned()).expect("a URL");
        let channel = endpoint.connect().await.expect("global listens");
        let client = KdsSyncServiceClient::new(channel).max_decoding_message_size(64 << 20);
        let caller = KdsCaller {
            zone: name.to_owned(),
            features: Features::ours(),
            session: Some(name.to_owned()),
            token: None,
            version: "2.14.3".to_owned(),
            issuing_request: None,
        };
        let up = tokio::spawn(answer_nothing(client.clone(), caller.clone()));
        let down = tokio::spawn(follow(client, caller, held.cloned(), tell_held, counters, news));
        Self(vec![up, down])
    }
}

async fn follow(
    mut client: KdsSyncServiceClient<Channel>,
    caller: KdsCaller,
    held: Option<HeldVersions>,
    tell_held: bool,
    counters: Counters,
    news: mpsc::Sender<News>,
) {
    let mut sink = sink(&caller.zone, held.as_ref());
    let (requests, receiver) = mpsc::channel(64);
    for request in sink.open() {
        requests.send(request).await.expect("the channel is open");
    }
    let mut request = Request::new(ReceiverStream::new(receiver));
    caller.write(request.metadata_mut());
    let mut responses = client.global_to_zone_sync(request).await.expect("the stream opens").into_inner();
    let mut ready = false;
    while let Some(Ok(response)) = responses.next().await {
        let Ok(SinkEvent::Batch(batch)) = sink.receive(response) else { return };
        counters.responses.fetch_add(1, Ordering::Relaxed);
        counters.resources.fetch_add(batch.added.len() as u64, Ordering::Relaxed);
        let Some(ack) = sink.verdict(batch.type_url, &batch.nonce, &[]) else { return };
        if requests.send(ack).await.is_err() {
            return;
        }
        if ready && news.send(News::Acked(batch.added.len())).await.is_err() {
            return;
        }
        if !ready && sink.is_ready() {
            ready = true;
            let held = if tell_held { holds(&sink) } else { HeldVersions::new() };
            if news.send(News::Ready(held)).await.is_err() {
                return;
            }
        }
    }
}

/// The protocol side of a zone that resumes from `held`, or starts anew.
pub fn sink(zone: &str, held: Option<&HeldVersions>) -> Sink {
    let types = registry::ALL.iter().filter(|kind| kind.flow.requested_by_zone()).map(|kind| SinkType {
        type_url: kind.name,
        resume: held.map(|held| held.get(kind.name).cloned().unwrap_or_default()),
    });
    let peer = Peer {
        config: r#"{"store":{"type":"memory"}}"#.to_owned(),
        instance: "bench".to_owned(),
        features: Features::ours(),
        ..Peer::default()
    };
    Sink::new(peer.node(zone), types)
}

fn holds(sink: &Sink) -> HeldVersions {
    registry::ALL.iter().filter_map(|kind| Some((kind.name, sink.held(kind.name)?.clone()))).collect()
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
