//! What a proxy sends to its zone.

use common::{
    model::text::TextLimits,
    proto::{
        envoy::{
            config::core::v3::{Locality, Node},
            service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        },
        google::protobuf::{Struct, Value, value::Kind},
    },
    xds::{self, DeltaSource, Input, SotwSource, SourceSettings, envoy},
};
use prost::Message;
use tokio::time::Instant;
use zone::ads::node::Proxy;

use super::{Target, choice, framed, frames};
use crate::corpus::Corpus;

/// Requests on a stream to a zone, in either form of the protocol.
pub static REQUESTS: Target = Target { name: "ads-requests", costs: 1, run: requests, seeds: request_seeds };
/// The node of a first request: what a zone takes from it can be shown, and is the proxy it says.
pub static NODES: Target = Target { name: "ads-nodes", costs: 1, run: node, seeds: node_seeds };

fn want() -> xds::WantSnapshot {
    let mut want = xds::WantSnapshot::new(1);
    for type_url in [envoy::CLUSTER, envoy::ENDPOINTS, envoy::LISTENER, envoy::ROUTE, envoy::SECRET] {
        for name in ["a", "b", "c"] {
            want.put(xds::Wanted::new(name, type_url, name.as_bytes()));
        }
    }
    want
}

fn requests(data: &[u8]) {
    let Some((form, data)) = choice(data, 2) else { return };
    if form == 0 { sotw(data) } else { delta(data) }
}

fn sotw(data: &[u8]) {
    let (mut source, want) = (SotwSource::new(SourceSettings::ads("zone")), want());
    for frame in frames(data) {
        let Ok(request) = DiscoveryRequest::decode(frame) else { continue };
        if source.step(Instant::now(), Input::Request(&request), &want).is_err() {
            return;
        }
    }
}

fn delta(data: &[u8]) {
    let (mut source, want) = (DeltaSource::new(SourceSettings::ads("zone")), want());
    for frame in frames(data) {
        let Ok(request) = DeltaDiscoveryRequest::decode(frame) else { continue };
        if source.step(Instant::now(), Input::Request(&request), &want).is_err() {
            return;
        }
    }
}

fn node(data: &[u8]) {
    let Ok(node) = Node::decode(data) else { return };
    let id = node.id.clone();
    match Proxy::of(Some(node)) {
        Ok((proxy, resource)) => {
            assert!(id.ends_with(&*proxy.id.name), "{id:?} is not {}", proxy.id);
            assert!(resource.is_none_or(|text| text.len() <= TextLimits::INLINE.bytes));
            let version = proxy.version("envoy", "version");
            assert!(version.len() <= 256, "what is kept for as long as a stream lives is short: {version}");
        }
        Err(error) => assert!(error.to_string().len() < 2048, "an error is short, whatever it is about"),
    }
}

fn request_seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let node = || Some(Node { id: "default.web-1".to_owned(), ..Node::default() });
    let subscribe = |type_url: &str, names: &[&str]| DiscoveryRequest {
        node: node(),
        type_url: type_url.to_owned(),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    };
    let acknowledge = |type_url: &str, nonce: u64| DiscoveryRequest {
        type_url: type_url.to_owned(),
        version_info: "1".to_owned(),
        response_nonce: nonce.to_string(),
        ..Default::default()
    };
    let sotw = [
        subscribe(envoy::CLUSTER, &[]),
        acknowledge(envoy::CLUSTER, 1),
        subscribe(envoy::ENDPOINTS, &["a", "b"]),
        subscribe(envoy::LISTENER, &["*"]),
        acknowledge(envoy::ENDPOINTS, 2),
    ];
    let delta = |type_url: &str, names: &[&str], nonce: &str| DeltaDiscoveryRequest {
        node: node(),
        type_url: type_url.to_owned(),
        resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
        response_nonce: nonce.to_owned(),
        ..Default::default()
    };
    let delta = [
        delta(envoy::CLUSTER, &["*"], ""),
        delta(envoy::CLUSTER, &[], "1"),
        delta(envoy::ENDPOINTS, &["a", "zz"], ""),
        delta(envoy::ROUTE, &["a"], ""),
    ];
    let sotw: Vec<Vec<u8>> = sotw.iter().map(Message::encode_to_vec).collect();
    let delta: Vec<Vec<u8>> = delta.iter().map(Message::encode_to_vec).collect();
    let seed =
        |form: u8, messages: &[Vec<u8>]| [vec![form], framed(messages.iter().map(Vec::as_slice))].concat();
    vec![seed(0, &sotw), seed(1, &delta)]
}

fn node_seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let text = |text: String| Value { kind: Some(Kind::StringValue(text)) };
    let of = |id: &str, kind: &str, resource: String| {
        let members = [
            ("dataplane.proxyType", text(kind.to_owned())),
            ("dataplane.resource", text(resource)),
            ("dataplane.admin.port", text("9901".to_owned())),
        ];
        let fields = members.map(|(name, value)| (name.to_owned(), value)).into();
        let locality = Locality { zone: "zone-1".to_owned(), ..Locality::default() };
        let metadata = Some(Struct { fields });
        Node { id: id.to_owned(), metadata, locality: Some(locality), ..Node::default() }.encode_to_vec()
    };
    let documents = corpus.documents.iter().filter(|document| document["type"] == "Dataplane").take(20);
    let dataplanes = documents.map(|document| of("default.web-1", "dataplane", document.to_string()));
    dataplanes.chain([of(".in-1", "ingress", String::new()), of(".out-1", "egress", String::new())]).collect()
}
