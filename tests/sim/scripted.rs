//! A zone that does what a test says, in the words of Kuma's zones.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use common::{
    kds::{
        codec::{self, ENVELOPE_URL},
        features::{self, Features},
        headers::KdsCaller,
        metadata::{Peer, bare_node},
    },
    model::{Resource, ResourceKey, labels, names},
    proto::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            Resource as Item,
        },
        google::{protobuf::Any, rpc},
        kuma::mesh::v1alpha1::{
            Message, StatsRequest, StatsResponse, ZoneHealthCheckRequest,
            global_kds_service_client::GlobalKdsServiceClient, kds_sync_service_client::KdsSyncServiceClient,
            message::Value as Said, multiplex_service_client::MultiplexServiceClient,
        },
    },
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming, codec::CompressionEncoding, metadata::MetadataMap,
    transport::Channel,
};
use zone::kds::Dial;

/// A zone that has connected.
#[derive(Clone)]
pub struct Scripted {
    pub caller: KdsCaller,
    channel: Channel,
}

/// A stream on which this side asks.
pub struct Asking {
    pub requests: mpsc::Sender<DeltaDiscoveryRequest>,
    pub responses: Streaming<DeltaDiscoveryResponse>,
    zone: String,
}

/// A stream on which this side answers.
pub struct Answering {
    pub responses: mpsc::Sender<DeltaDiscoveryResponse>,
    pub requests: Streaming<DeltaDiscoveryRequest>,
    caller: KdsCaller,
}

impl Scripted {
    /// A zone like Kuma's: no session of its own, no resume.
    pub async fn like_kumas(dial: &Arc<dyn Dial>, zone: &str) -> Self {
        let channel = dial.dial(tonic::transport::Endpoint::from_static("http://global")).await.unwrap();
        let features = [features::ZONE_PING_HEALTH, features::HASH_SUFFIX].into_iter().collect();
        let caller = KdsCaller {
            zone: zone.to_owned(),
            features,
            session: None,
            token: None,
            version: "2.14.3".to_owned(),
            issuing_request: None,
        };
        Self { caller, channel }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.caller.write(request.metadata_mut());
        request
    }

    pub async fn ping(&self) -> Result<Response<()>, Status> {
        let mut client = GlobalKdsServiceClient::new(self.channel.clone());
        client.health_check(self.request(ZoneHealthCheckRequest {})).await.map(|r| r.map(drop))
    }

    /// A ping as Kuma's zones send it since 2.10, compressed; the headers of the answer.
    pub async fn ping_compressed(&self) -> Result<MetadataMap, Status> {
        let gzip = CompressionEncoding::Gzip;
        let client = GlobalKdsServiceClient::new(self.channel.clone());
        let mut client = client.send_compressed(gzip).accept_compressed(gzip);
        let answer = client.health_check(self.request(ZoneHealthCheckRequest {})).await?;
        Ok(answer.metadata().clone())
    }

    /// Opens the way down with these first requests.
    pub async fn ask(&self, first: Vec<DeltaDiscoveryRequest>) -> Result<Asking, Status> {
        let (requests, queue) = mpsc::channel(64);
        for request in first {
            requests.send(request).await.unwrap();
        }
        let mut client = KdsSyncServiceClient::new(self.channel.clone());
        let responses =
            client.global_to_zone_sync(self.request(ReceiverStream::new(queue))).await?.into_inner();
        Ok(Asking { requests, responses, zone: self.caller.zone.clone() })
    }

    /// Opens the way up.
    pub async fn answer(&self) -> Result<Answering, Status> {
        let (responses, queue) = mpsc::channel(64);
        let mut client = KdsSyncServiceClient::new(self.channel.clone());
        let requests =
            client.zone_to_global_sync(self.request(ReceiverStream::new(queue))).await?.into_inner();
        Ok(Answering { responses, requests, caller: self.caller.clone() })
    }

    /// Opens the one stream of KDS v1.
    pub async fn multiplexed(&self) -> Result<Multiplexed, Status> {
        let (messages, queue) = mpsc::channel(64);
        let mut client = MultiplexServiceClient::new(self.channel.clone());
        let inbound = client.stream_message(self.request(ReceiverStream::new(queue))).await?.into_inner();
        let peer =
            Multiplexed { messages, inbound, zone: self.caller.zone.clone(), waiting: VecDeque::new() };
        Ok(peer)
    }

    /// Opens a stream of reverse calls, and never says anything on it.
    pub async fn stats(&self) -> Result<Streaming<StatsRequest>, Status> {
        self.stats_answering(futures::stream::pending()).await
    }

    /// Opens a stream of reverse calls, and says `answers` on it.
    pub async fn stats_answering(
        &self,
        answers: impl futures::Stream<Item = StatsResponse> + Send + 'static,
    ) -> Result<Streaming<StatsRequest>, Status> {
        let mut client = GlobalKdsServiceClient::new(self.channel.clone());
        client.stream_stats(self.request(answers)).await.map(Response::into_inner)
    }

    /// The first request of a type.
    pub fn first(&self, type_url: &str) -> DeltaDiscoveryRequest {
        let peer = Peer { features: Features::ours().without(features::RESUME), ..Peer::default() };
        DeltaDiscoveryRequest {
            node: Some(peer.node(&self.caller.zone)),
            type_url: type_url.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        }
    }
}

/// One stream on which both sides ask and answer.
pub struct Multiplexed {
    pub messages: mpsc::Sender<Message>,
    pub inbound: Streaming<Message>,
    zone: String,
    /// What came while something else was looked for.
    waiting: VecDeque<Message>,
}

impl Multiplexed {
    /// Asks for a type, as Kuma's zones did: with all about itself, and without names.
    pub async fn ask(&self, type_url: &str) {
        let peer = Peer { features: Features::ours().without(features::RESUME), ..Peer::default() };
        let (node, type_url) = (Some(peer.node(&self.zone)), type_url.to_owned());
        self.say(Said::Request(DiscoveryRequest { node, type_url, ..DiscoveryRequest::default() })).await;
    }

    pub async fn say(&self, value: Said) {
        self.messages.send(Message { value: Some(value) }).await.unwrap();
    }

    /// The next response of global.
    pub async fn response(&mut self) -> DiscoveryResponse {
        let is_response = |message: &Message| matches!(message.value, Some(Said::Response(_)));
        let Some(Said::Response(response)) = self.next(is_response).await.value else { unreachable!() };
        response
    }

    /// The next request of global that `is` so.
    pub async fn request(&mut self, is: impl Fn(&DiscoveryRequest) -> bool) -> DiscoveryRequest {
        let is_request = |message: &Message| match &message.value {
            Some(Said::Request(request)) => is(request),
            _ => false,
        };
        let Some(Said::Request(request)) = self.next(is_request).await.value else { unreachable!() };
        request
    }

    async fn next(&mut self, is: impl Fn(&Message) -> bool) -> Message {
        if let Some(at) = self.waiting.iter().position(&is) {
            return self.waiting.remove(at).unwrap();
        }
        loop {
            let message = timeout(Duration::from_secs(10), self.inbound.message()).await;
            let message = message.expect("a message in time").unwrap().unwrap();
            if is(&message) {
                return message;
            }
            self.waiting.push_back(message);
        }
    }

    /// Answers a response: takes it, or refuses it with the version that was taken before.
    pub async fn reply(&self, response: &DiscoveryResponse, refused: Option<(&str, &str)>) {
        let (version_info, error_detail) = match refused {
            None => (response.version_info.clone(), None),
            Some((before, reason)) => {
                let message = reason.to_owned();
                (before.to_owned(), Some(rpc::Status { message, ..rpc::Status::default() }))
            }
        };
        let request = DiscoveryRequest {
            version_info,
            node: Some(bare_node(&self.zone)),
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail,
            ..DiscoveryRequest::default()
        };
        self.say(Said::Request(request)).await;
    }

    /// Sends all resources of a type, under the names they have on global; what global says to that.
    pub async fn state(&mut self, type_url: &str, nonce: u64, resources: &[Resource]) -> DiscoveryRequest {
        let nonce = nonce.to_string();
        let named = resources.iter().map(|resource| on_global(resource, &self.zone));
        let response = DiscoveryResponse {
            version_info: format!("version-{nonce}"),
            resources: named.filter_map(|resource| item(&resource).resource).collect(),
            type_url: type_url.to_owned(),
            nonce: nonce.clone(),
            ..DiscoveryResponse::default()
        };
        self.say(Said::Response(response)).await;
        self.request(|request| request.type_url == type_url && request.response_nonce == nonce).await
    }

    /// The status the stream ends with.
    pub async fn end(&mut self) -> Option<Status> {
        loop {
            match timeout(Duration::from_secs(10), self.inbound.message()).await.expect("an end") {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}

impl Asking {
    pub async fn next(&mut self) -> DeltaDiscoveryResponse {
        timeout(Duration::from_secs(10), self.responses.message()).await.expect("an answer").unwrap().unwrap()
    }

    /// Answers a response, with an error or without.
    pub async fn reply(&self, response: &DeltaDiscoveryResponse, error: Option<&str>) {
        let error_detail =
            error.map(|message| rpc::Status { message: message.to_owned(), ..rpc::Status::default() });
        let request = DeltaDiscoveryRequest {
            node: Some(bare_node(&self.zone)),
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail,
            ..DeltaDiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    /// The status the stream ends with.
    pub async fn end(&mut self) -> Option<Status> {
        loop {
            match timeout(Duration::from_secs(10), self.responses.message()).await.expect("an end") {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}

impl Answering {
    pub async fn next(&mut self) -> DeltaDiscoveryRequest {
        timeout(Duration::from_secs(10), self.requests.message()).await.expect("a request").unwrap().unwrap()
    }

    /// Waits for the answer to a response of this type.
    pub async fn verdict(&mut self, type_url: &str) -> DeltaDiscoveryRequest {
        loop {
            let request = self.next().await;
            if request.type_url == type_url && !request.response_nonce.is_empty() {
                return request;
            }
        }
    }

    /// Sends resources under the names they have on global.
    pub async fn send(&self, type_url: &str, nonce: u64, resources: &[Resource], removed: &[&str]) {
        let named = |resource: &Resource| match self.caller.features.has(features::HASH_SUFFIX) {
            true => on_global(resource, &self.caller.zone),
            false => resource.clone(),
        };
        let named: Vec<Resource> = resources.iter().map(named).collect();
        self.send_as_named(type_url, nonce, &named, removed).await;
    }

    /// Sends resources under the names they have.
    pub async fn send_as_named(&self, type_url: &str, nonce: u64, resources: &[Resource], removed: &[&str]) {
        let response = DeltaDiscoveryResponse {
            type_url: type_url.to_owned(),
            nonce: nonce.to_string(),
            resources: resources.iter().map(item).collect(),
            removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
            ..DeltaDiscoveryResponse::default()
        };
        self.responses.send(response).await.unwrap();
    }

    /// The status the stream ends with.
    pub async fn end(&mut self) -> Option<Status> {
        loop {
            match timeout(Duration::from_secs(10), self.requests.message()).await.expect("an end") {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}

/// A resource of a zone under the name it has on global; whatever its labels say.
pub fn on_global(resource: &Resource, zone: &str) -> Resource {
    let mut named = resource.clone();
    let display = named.display_name().to_owned();
    let name = names::hashed(named.mesh(), &display, Some(zone), named.label(labels::NAMESPACE));
    named.labels.insert(labels::DISPLAY_NAME, display);
    named.key = ResourceKey::new(named.kind(), named.mesh(), &name);
    named
}

/// A resource as it travels.
pub fn item(resource: &Resource) -> Item {
    let wanted = codec::encode(resource);
    Item {
        name: wanted.name.to_string(),
        version: wanted.version.to_string(),
        resource: Some(Any { type_url: ENVELOPE_URL.to_owned(), value: wanted.value.to_vec() }),
        ..Item::default()
    }
}
