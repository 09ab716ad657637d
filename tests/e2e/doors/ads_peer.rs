//! Somebody who opens ADS streams to a zone, and is no Envoy.

use std::time::Duration;

use common::proto::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::protobuf::{Struct, Value, value::Kind},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig},
};

use crate::harness::{Zone, wait::PATIENCE};

/// Clusters.
pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A connection to the server of the proxies.
pub async fn channel(zone: &Zone) -> Channel {
    let certificate = std::fs::read_to_string(zone.certificate()).expect("the zone has a certificate");
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(certificate));
    let address = format!("https://{}", zone.dp_server);
    let endpoint = Channel::from_shared(address).unwrap().tls_config(tls).unwrap();
    endpoint.connect().await.expect("the zone accepts connections")
}

/// A dataplane token of the default mesh, once the zone can check it.
pub async fn token(zone: &Zone, more: &[&str]) -> String {
    zone.proxy_token("default", more).await
}

/// A node that brings this resource along.
pub fn node(id: &str, resource: Option<&str>) -> Node {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let fields = resource.map(|resource| ("dataplane.resource".to_owned(), text(resource)));
    let metadata = Some(Struct { fields: fields.into_iter().collect() });
    Node { id: id.to_owned(), metadata, ..Node::default() }
}

/// An open stream.
pub struct Stream {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl Stream {
    /// Opens one and asks for clusters.
    pub async fn open(channel: Channel, node: Node, token: Option<&str>) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(16);
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", token.parse().unwrap());
        }
        let first = DiscoveryRequest { node: Some(node), type_url: CDS.to_owned(), ..Default::default() };
        requests.send(first).await.expect("there is room");
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client.stream_aggregated_resources(request).await?.into_inner();
        Ok(Self { requests, responses })
    }

    /// The first response, which says that the proxy was let in.
    pub async fn admitted(&mut self) -> Result<(), Status> {
        self.take().await.map(|_| ())
    }

    /// The next response, whenever it comes, which is left unanswered.
    pub async fn hear(&mut self) -> Result<DiscoveryResponse, Status> {
        self.responses.message().await?.ok_or_else(|| Status::unknown("the stream ended"))
    }

    /// Says this.
    pub async fn say(&self, request: DiscoveryRequest) -> Result<(), Status> {
        self.requests.send(request).await.map_err(|_| Status::unknown("the stream ended"))
    }

    /// The next response, accepted.
    pub async fn take(&mut self) -> Result<DiscoveryResponse, Status> {
        let answer = timeout(PATIENCE, self.hear()).await.expect("an answer")?;
        let accepted = DiscoveryRequest {
            version_info: answer.version_info.clone(),
            response_nonce: answer.nonce.clone(),
            type_url: answer.type_url.clone(),
            ..Default::default()
        };
        self.say(accepted).await?;
        Ok(answer)
    }
}

/// Opens a stream and says how that ends: `Ok` with the stream when the proxy is let in.
pub async fn join(zone: &Zone, node: Node, token: Option<&str>) -> Result<Stream, Status> {
    let mut stream = Stream::open(channel(zone).await, node, token).await?;
    stream.admitted().await?;
    Ok(stream)
}

/// Opens a stream that must be refused, with this code and these words, briefly.
pub async fn refused(zone: &Zone, node: Node, token: Option<&str>, code: Code, says: &str) {
    let status = join(zone, node, token).await.err().expect("the stream is refused");
    assert!(status.code() == code && status.message().contains(says), "{status:?}");
    assert!(status.message().len() <= 1024, "{status:?}");
}

/// What somebody who does nothing wrong notices while `flood` goes on: no answer may take longer than this.
pub async fn meanwhile<T>(zone: &Zone, token: &str, budget: Duration, flood: impl Future<Output = T>) -> T {
    let mut flood = std::pin::pin!(flood);
    let mut slowest = Duration::ZERO;
    loop {
        let probe = async {
            let begin = Instant::now();
            zone.get("/meshes/default").await;
            join(zone, node("default.probe", None), Some(token)).await.expect("the probe is served");
            begin.elapsed()
        };
        tokio::select! {
            done = &mut flood => {
                println!("the slowest answer meanwhile took {slowest:?}");
                return done;
            }
            took = probe => {
                assert!(took < budget, "an answer took {took:?}");
                slowest = slowest.max(took);
            }
        }
    }
}
