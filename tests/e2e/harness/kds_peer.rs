//! A zone control plane that says what a test wants, with a token of its own and over the real wire.

use std::time::Duration;

use common::{
    kds::{
        codec::{self, ENVELOPE_URL},
        features::{self, Features},
        headers::KdsCaller,
        mapper,
        metadata::{Peer, bare_node},
    },
    model::{Kind, Resource, ResourceKey, transcode},
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Item},
        google::{self, protobuf::Any},
        kuma::mesh::v1alpha1::{KumaResource, kds_sync_service_client::KdsSyncServiceClient},
    },
    tls::Trust,
};
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Channel, Endpoint},
};
use zone::kds::{Dial, Trusted};

use super::{Global, wait::PATIENCE};

/// Largest message it takes and sends: more than global does.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// A connection over TLS to a server whose certificate is in this file.
pub async fn dial(address: &str, certificate: &std::path::Path) -> Channel {
    let roots = std::fs::read_to_string(certificate).expect("the certificate can be read");
    let dial = Trusted::new(address, &Trust::Roots(roots)).expect("an address with TLS");
    let endpoint = Endpoint::from_static("http://peer").connect_timeout(Duration::from_secs(10));
    dial.dial(endpoint).await.expect("a connection")
}

/// A zone that has connected.
pub struct KdsPeer {
    /// What it says in the headers of each call; a test may change it before it opens a stream.
    pub caller: KdsCaller,
    channel: Channel,
}

/// The way up: this side answers for what the zone owns.
pub struct Up {
    /// What it says.
    pub responses: mpsc::Sender<DeltaDiscoveryResponse>,
    /// What global asks and answers.
    pub requests: Streaming<DeltaDiscoveryRequest>,
    nonce: u64,
}

/// The way down: this side asks.
pub struct Down {
    /// What it asks.
    pub requests: mpsc::Sender<DeltaDiscoveryRequest>,
    /// What global answers.
    pub responses: Streaming<DeltaDiscoveryResponse>,
}

impl KdsPeer {
    /// A zone of this name that behaves like Kuma's, with a token global made for it.
    pub async fn connect(global: &Global, zone: &str) -> Self {
        let token = global.straitctl(&["generate", "zone-token", "--zone", zone, "--scope", "cp"]);
        let caller = KdsCaller {
            zone: zone.to_owned(),
            features: [features::ZONE_PING_HEALTH, features::HASH_SUFFIX].into_iter().collect(),
            session: None,
            token: Some(token.trim().to_owned()),
            version: "2.14.3".to_owned(),
            issuing_request: None,
        };
        let channel = dial(&global.kds_address(), &global.certificate()).await;
        Self { caller, channel }
    }

    fn client(&self) -> KdsSyncServiceClient<Channel> {
        KdsSyncServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.caller.write(request.metadata_mut());
        request
    }

    /// Opens the way up.
    pub async fn up(&self) -> Result<Up, Status> {
        let (responses, queue) = mpsc::channel(64);
        let request = self.request(ReceiverStream::new(queue));
        let requests = self.client().zone_to_global_sync(request).await?.into_inner();
        Ok(Up { responses, requests, nonce: 0 })
    }

    /// Opens the way down with this request.
    pub async fn down(&self, first: DeltaDiscoveryRequest) -> Result<Down, Status> {
        let (requests, queue) = mpsc::channel(64);
        requests.send(first).await.expect("the queue is there");
        let request = self.request(ReceiverStream::new(queue));
        let responses = self.client().global_to_zone_sync(request).await?.into_inner();
        Ok(Down { requests, responses })
    }

    /// The first request of a type, from a zone that says this about itself.
    pub fn first(&self, type_url: &str, peer: Peer) -> DeltaDiscoveryRequest {
        let features = Features::ours().without(features::RESUME);
        DeltaDiscoveryRequest {
            node: Some(Peer { features, ..peer }.node(&self.caller.zone)),
            type_url: type_url.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        }
    }

    /// A resource as an honest zone of this name would send it.
    pub fn honest(&self, kind: &'static Kind, mesh: &str, name: &str, spec: &str) -> Resource {
        let spec = serde_json::from_str(spec).expect("a spec in JSON");
        let spec = transcode::from_json(kind, &spec).expect("a spec of this kind");
        let resource = Resource::new(ResourceKey::new(kind, mesh, name), chrono::DateTime::UNIX_EPOCH);
        mapper::up(&resource.with_spec(spec), &self.caller.zone, &[]).expect("a spec that decodes")
    }
}

impl Up {
    /// Sends items of a type and waits for the answer: why something of it was refused, or `None`.
    pub async fn offer(&mut self, kind: &Kind, items: Vec<Item>) -> Result<Option<String>, Status> {
        self.say(kind, items, Vec::new()).await
    }

    /// The same, while what is called so is gone.
    pub async fn say(
        &mut self,
        kind: &Kind,
        items: Vec<Item>,
        gone: Vec<String>,
    ) -> Result<Option<String>, Status> {
        self.nonce += 1;
        let nonce = self.nonce.to_string();
        let response = DeltaDiscoveryResponse {
            type_url: kind.name.to_owned(),
            nonce: nonce.clone(),
            resources: items,
            removed_resources: gone,
            ..DeltaDiscoveryResponse::default()
        };
        // When the stream is gone, reading from it says why.
        let _gone = self.responses.send(response).await;
        loop {
            let heard = timeout(PATIENCE, self.requests.message()).await.expect("an answer in time")?;
            let request = heard.ok_or_else(|| Status::cancelled("the stream ended well"))?;
            if request.type_url == kind.name && request.response_nonce == nonce {
                return Ok(request.error_detail.map(|error| error.message));
            }
        }
    }
}

impl Down {
    /// The next answer.
    pub async fn next(&mut self) -> Result<DeltaDiscoveryResponse, Status> {
        let heard = timeout(PATIENCE, self.responses.message()).await.expect("an answer in time")?;
        heard.ok_or_else(|| Status::cancelled("the stream ended well"))
    }

    /// Accepts an answer.
    pub async fn accept(&self, zone: &str, response: &DeltaDiscoveryResponse) {
        let request = DeltaDiscoveryRequest {
            node: Some(bare_node(zone)),
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        };
        let _gone = self.requests.send(request).await;
    }

    /// Refuses one item of an answer, in these words, and takes the rest.
    pub async fn refuse(&self, zone: &str, response: &DeltaDiscoveryResponse, item: &str, words: &str) {
        let request = DeltaDiscoveryRequest {
            node: Some(bare_node(zone)),
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(google::rpc::Status {
                code: Code::InvalidArgument.into(),
                message: format!("Error adding/updating {} {item}: {words}", response.type_url),
                details: Vec::new(),
            }),
            ..DeltaDiscoveryRequest::default()
        };
        let _gone = self.requests.send(request).await;
    }

    /// The status the stream ends with.
    pub async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }
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

/// The same with other bytes for its spec, which need not be in any form an honest zone writes.
pub fn with_spec(mut item: Item, spec: Vec<u8>) -> Item {
    let any = item.resource.as_mut().expect("an item has a resource");
    let mut envelope = KumaResource::decode(any.value.as_slice()).expect("an item is an envelope");
    envelope.spec.as_mut().expect("an envelope has a spec").value = spec;
    any.value = envelope.encode_to_vec();
    item
}
