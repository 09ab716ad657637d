//! A scripted xDS client in either protocol.

use std::{collections::BTreeSet, fmt::Debug, net::IpAddr};

use common::proto::{
    envoy::{
        config::{
            cluster::v3::Cluster, core::v3::Node, endpoint::v3::ClusterLoadAssignment, listener::v3::Listener,
        },
        extensions::transport_sockets::tls::v3::Secret,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::{
        protobuf::{Any, Struct, Value, value::Kind},
        rpc::Status as Refusal,
    },
};
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig},
};

use super::harness::{PATIENCE, Zone};
use crate::generator::type_url;

pub(super) const CDS: &str = type_url::CLUSTER;
pub(super) const EDS: &str = type_url::ENDPOINT;
pub(super) const LDS: &str = type_url::LISTENER;
pub(super) const SDS: &str = type_url::SECRET;

/// Which protocol to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Sotw,
    Delta,
}

pub(super) const BOTH: [Protocol; 2] = [Protocol::Sotw, Protocol::Delta];

/// What a client says about itself.
pub(super) struct Who<'a> {
    pub(super) id: &'a str,
    pub(super) kind: &'a str,
    pub(super) resource: Option<&'a str>,
    pub(super) token: Option<&'a str>,
}

impl<'a> Who<'a> {
    /// A dataplane known to the zone.
    pub(super) fn known(id: &'a str, token: &'a str) -> Self {
        Self { id, kind: "dataplane", resource: None, token: Some(token) }
    }

    pub(super) fn node(&self) -> Node {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let mut fields = vec![("dataplane.proxyType".to_owned(), text(self.kind))];
        fields.extend(self.resource.map(|r| ("dataplane.resource".to_owned(), text(r))));
        let metadata = Some(Struct { fields: fields.into_iter().collect() });
        Node { id: self.id.to_owned(), metadata, ..Node::default() }
    }
}

/// One response, whichever protocol it came in.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) type_url: String,
    /// Names of what came, in order.
    pub(super) names: Vec<String>,
    /// Names of what went; delta only.
    pub(super) removed: Vec<String>,
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) values: Vec<Any>,
}

enum Ends {
    Sotw(mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>),
    Delta(mpsc::Sender<DeltaDiscoveryRequest>, Streaming<DeltaDiscoveryResponse>),
}

pub(super) struct Client {
    ends: Ends,
    node: Option<Node>,
    /// What was asked for by name, which SotW has to repeat.
    names: std::collections::BTreeMap<String, BTreeSet<String>>,
}

pub(super) async fn channel(zone: &Zone) -> Channel {
    channel_from(zone, None).await
}

/// A connection that comes from this address.
pub(super) async fn channel_from(zone: &Zone, from: Option<IpAddr>) -> Channel {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&zone.certificate))
        .domain_name("localhost");
    let address = format!("https://{}", zone.address);
    let endpoint = Channel::from_shared(address).unwrap().local_address(from);
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

pub(super) fn authorized<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    request
}

impl Client {
    pub(super) async fn connect(zone: &Zone, protocol: Protocol, who: Who<'_>) -> Self {
        let mut stub = AggregatedDiscoveryServiceClient::new(channel(zone).await);
        let ends = match protocol {
            Protocol::Sotw => {
                let (sender, receiver) = mpsc::channel(16);
                let requests = authorized(ReceiverStream::new(receiver), who.token);
                let responses = stub.stream_aggregated_resources(requests).await.unwrap().into_inner();
                Ends::Sotw(sender, responses)
            }
            Protocol::Delta => {
                let (sender, receiver) = mpsc::channel(16);
                let requests = authorized(ReceiverStream::new(receiver), who.token);
                let responses = stub.delta_aggregated_resources(requests).await.unwrap().into_inner();
                Ends::Delta(sender, responses)
            }
        };
        Self { ends, node: Some(who.node()), names: Default::default() }
    }

    /// Connects and asks for clusters and listeners, as Envoy does first.
    pub(super) async fn begin(zone: &Zone, protocol: Protocol, who: Who<'_>) -> Self {
        let mut client = Self::connect(zone, protocol, who).await;
        client.subscribe(CDS, &[]).await;
        client.subscribe(LDS, &[]).await;
        client
    }

    /// Asks for these names, or for all when there are none.
    pub(super) async fn subscribe(&mut self, type_url: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        self.names.insert(type_url.to_owned(), names.iter().cloned().collect());
        let (node, type_url) = (self.node.take(), type_url.to_owned());
        // A stream that has ended says why when it is read.
        match &self.ends {
            Ends::Sotw(requests, _) => {
                let request =
                    DiscoveryRequest { node, type_url, resource_names: names, ..Default::default() };
                let _ended = requests.send(request).await;
            }
            Ends::Delta(requests, _) => {
                let resource_names_subscribe = names;
                let request =
                    DeltaDiscoveryRequest { node, type_url, resource_names_subscribe, ..Default::default() };
                let _ended = requests.send(request).await;
            }
        }
    }

    /// The next response, or the status the stream ended with.
    pub(super) async fn receive(&mut self) -> Result<Answer, Status> {
        let ended = || Status::unknown("the stream ended without a status");
        match &mut self.ends {
            Ends::Sotw(_, responses) => {
                let response = timeout(PATIENCE, responses.message()).await.expect("an answer")?;
                let response = response.ok_or_else(ended)?;
                Ok(Answer {
                    names: response.resources.iter().map(name_of).collect(),
                    type_url: response.type_url,
                    removed: Vec::new(),
                    version: response.version_info,
                    nonce: response.nonce,
                    values: response.resources,
                })
            }
            Ends::Delta(_, responses) => {
                let response = timeout(PATIENCE, responses.message()).await.expect("an answer")?;
                let response = response.ok_or_else(ended)?;
                Ok(Answer {
                    type_url: response.type_url,
                    names: response.resources.iter().map(|r| r.name.clone()).collect(),
                    removed: response.removed_resources,
                    version: response.system_version_info,
                    nonce: response.nonce,
                    values: response.resources.into_iter().filter_map(|r| r.resource).collect(),
                })
            }
        }
    }

    /// The next response, which must be of this type; not answered yet.
    pub(super) async fn expect(&mut self, type_url: &str) -> Answer {
        let answer = self.receive().await.unwrap();
        assert_eq!(answer.type_url, type_url, "{:?} removed {:?}", answer.names, answer.removed);
        answer
    }

    /// The next response, which must be of this type; acknowledged.
    pub(super) async fn take(&mut self, type_url: &str) -> Answer {
        let answer = self.expect(type_url).await;
        self.answer(&answer, None).await;
        answer
    }

    /// Acknowledges.
    pub(super) async fn accept(&mut self, answer: &Answer) {
        self.answer(answer, None).await;
    }

    pub(super) async fn refuse(&mut self, answer: &Answer, why: &str) {
        self.answer(answer, Some(why)).await;
    }

    async fn answer(&mut self, answer: &Answer, error: Option<&str>) {
        let error_detail = error.map(|e| Refusal { code: 13, message: e.to_owned(), details: Vec::new() });
        let (type_url, response_nonce) = (answer.type_url.clone(), answer.nonce.clone());
        match &self.ends {
            Ends::Sotw(requests, _) => {
                let names = self.names.get(&type_url).into_iter().flatten().cloned().collect();
                let version_info = if error.is_none() { answer.version.clone() } else { String::new() };
                let request = DiscoveryRequest {
                    type_url,
                    response_nonce,
                    version_info,
                    error_detail,
                    resource_names: names,
                    ..Default::default()
                };
                requests.send(request).await.unwrap();
            }
            Ends::Delta(requests, _) => {
                let request =
                    DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() };
                requests.send(request).await.unwrap();
            }
        }
    }

    /// The status the stream ends with.
    pub(super) async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.receive().await {
                return status;
            }
        }
    }
}

fn name_of(any: &Any) -> String {
    fn decode<M: Message + Default>(any: &Any) -> M {
        M::decode(&any.value[..]).unwrap()
    }
    match any.type_url.as_str() {
        CDS => decode::<Cluster>(any).name,
        EDS => decode::<ClusterLoadAssignment>(any).cluster_name,
        LDS => decode::<Listener>(any).name,
        SDS => decode::<Secret>(any).name,
        other => panic!("unexpected type {other}"),
    }
}

/// The addresses in an answer with one load assignment.
pub(super) fn addresses(answer: &Answer) -> Vec<String> {
    use common::proto::envoy::config::{
        core::v3::address::Address, endpoint::v3::lb_endpoint::HostIdentifier,
    };
    let assignment = ClusterLoadAssignment::decode(&answer.values[0].value[..]).unwrap();
    let endpoints = assignment.endpoints.into_iter().flat_map(|l| l.lb_endpoints);
    endpoints
        .filter_map(|e| match e.host_identifier? {
            HostIdentifier::Endpoint(endpoint) => match endpoint.address?.address? {
                Address::SocketAddress(socket) => Some(socket.address),
                _ => None,
            },
            HostIdentifier::EndpointName(_) => None,
        })
        .collect()
}
