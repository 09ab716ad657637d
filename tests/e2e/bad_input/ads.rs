//! A client of ADS that says anything, in either protocol.

use std::collections::HashMap;

use bytes::Bytes;
use common::proto::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            ResourceLocator,
        },
    },
    google::{
        protobuf::{Struct, Value, value::Kind},
        rpc::Status,
    },
};
use prost::Message;

use super::{
    grpc::{Call, Grpc, framed},
    table::Answer,
};
use crate::harness::addresses;

/// Clusters.
pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Endpoints.
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Secrets.
pub const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Listeners.
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// Virtual hosts.
pub const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

/// Either protocol.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// State of the world.
    Sotw,
    /// Incremental.
    Delta,
}

/// A request, as both protocols know it.
#[derive(Clone, Default)]
pub struct Ask {
    /// Who asks.
    pub node: Option<Node>,
    /// For what.
    pub type_url: String,
    /// By name.
    pub names: Vec<String>,
    /// By name, and by so many parameters.
    pub located: Vec<(String, usize)>,
    /// No longer by name; incremental only.
    pub not: Vec<String>,
    /// What is held already; incremental only.
    pub held: HashMap<String, String>,
    /// Which response it answers.
    pub nonce: String,
    /// Why it was refused.
    pub error: Option<String>,
}

impl Ask {
    /// The first request for a type, without a node.
    pub fn of(type_url: &str) -> Self {
        Self { type_url: type_url.to_owned(), ..Self::default() }
    }

    /// From this node.
    pub fn from(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }

    /// By these names.
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }

    /// In the incremental protocol, which KDS speaks too.
    pub fn delta(&self) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: self.node.clone(),
            type_url: self.type_url.clone(),
            resource_names_subscribe: self.names.clone(),
            resource_locators_subscribe: self.locators(),
            resource_names_unsubscribe: self.not.clone(),
            initial_resource_versions: self.held.clone(),
            response_nonce: self.nonce.clone(),
            error_detail: self.error.as_deref().map(refusal),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn locators(&self) -> Vec<ResourceLocator> {
        let locator = |(name, parameters): &(String, usize)| {
            let dynamic_parameters = (0..*parameters).map(|n| (format!("p{n}"), "v".to_owned())).collect();
            ResourceLocator { name: name.clone(), dynamic_parameters }
        };
        self.located.iter().map(locator).collect()
    }

    fn sotw(&self) -> DiscoveryRequest {
        DiscoveryRequest {
            node: self.node.clone(),
            type_url: self.type_url.clone(),
            resource_names: self.names.clone(),
            resource_locators: self.locators(),
            response_nonce: self.nonce.clone(),
            error_detail: self.error.as_deref().map(refusal),
            ..DiscoveryRequest::default()
        }
    }
}

fn refusal(message: &str) -> Status {
    Status { code: 13, message: message.to_owned(), details: Vec::new() }
}

/// What a proxy says first.
pub fn first(id: &str) -> Ask {
    Ask::of(CDS).from(node(id, []))
}

/// A node with these metadata.
pub fn node<const N: usize>(id: &str, metadata: [(&str, Value); N]) -> Node {
    let fields = metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Node { id: id.to_owned(), metadata: Some(Struct { fields }), ..Node::default() }
}

/// A text in metadata.
pub fn text(text: impl Into<String>) -> Value {
    Value { kind: Some(Kind::StringValue(text.into())) }
}

/// A stream on which `asks` are said one after the other without waiting; `served` once clusters come.
pub fn stream(protocol: Protocol, asks: &[Ask]) -> Call {
    let body = asks.iter().map(|ask| match protocol {
        Protocol::Sotw => framed(&ask.sotw()),
        Protocol::Delta => framed(&ask.delta()),
    });
    raw(protocol, body.collect())
}

/// A stream on which anything is sent.
pub fn raw(protocol: Protocol, body: Vec<Bytes>) -> Call {
    let path = match protocol {
        Protocol::Sotw => "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        Protocol::Delta => "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    };
    let type_of = move |message: &[u8]| match protocol {
        Protocol::Sotw => DiscoveryResponse::decode(message).map(|response| response.type_url),
        Protocol::Delta => DeltaDiscoveryResponse::decode(message).map(|response| response.type_url),
    };
    let until = move |message: &[u8]| {
        type_of(message).is_ok_and(|type_url| type_url == CDS).then(|| Answer::new("served", ""))
    };
    Call { path, metadata: Vec::new(), body, closes: false, until: Box::new(until) }
}

/// The same in the incremental protocol.
pub fn delta(asks: &[Ask]) -> Call {
    stream(Protocol::Delta, asks)
}

/// Opens a stream as a proxy should, and says how that went.
pub async fn well_behaved(ads: &Grpc, id: &str, token: &str) -> Answer {
    let mut call = delta(&[first(id)]);
    call.metadata.push(("authorization".to_owned(), token.to_owned()));
    ads.call(&call).await
}

/// A dataplane of the mesh `default`.
pub fn dataplane(name: &str) -> String {
    let address = addresses::loopback();
    format!(
        "type: Dataplane
mesh: default
name: {name}
networking:
  address: {address}
  inbound: [{{port: 80, tags: {{kuma.io/service: web}}}}]
"
    )
}
