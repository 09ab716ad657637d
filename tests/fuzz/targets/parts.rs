//! What a message becomes in memory.

use common::{
    parts::{self, PartLimits},
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        },
        google::protobuf::{Any, Struct, Value, value::Kind},
    },
};
use prost::Message;

use super::{Target, choice};
use crate::corpus::Corpus;

/// Whatever is let through has no more parts, once it is decoded, than were allowed.
pub static PARTS: Target = Target { name: "parts", costs: 1, run, seeds };

/// Few enough for an input of a few hundred bytes to have too many.
const MEMBERS: usize = 20;
const ALL: usize = 60;

fn run(data: &[u8]) {
    let Some((form, data)) = choice(data, 3) else { return };
    let is_let_through = parts::admit(data, PartLimits::new(MEMBERS, ALL)).is_ok();
    let made = match form {
        0 => DeltaDiscoveryRequest::decode(data).ok().map(|request| of_request(&request)),
        1 => DeltaDiscoveryResponse::decode(data).ok().map(|response| of_response(&response)),
        _ => Node::decode(data).ok().map(|node| of_node(&node)),
    };
    if let Some(made) = made.filter(|_| is_let_through) {
        assert!(made <= ALL, "{made} parts came out of a message of at most {ALL}");
    }
}

fn of_request(request: &DeltaDiscoveryRequest) -> usize {
    let names = request.resource_names_subscribe.len() + request.resource_names_unsubscribe.len();
    let error = request.error_detail.as_ref().map_or(0, |error| 1 + error.details.len());
    names + request.initial_resource_versions.len() + error + request.node.as_ref().map_or(0, of_node)
}

fn of_response(response: &DeltaDiscoveryResponse) -> usize {
    let resource = |resource: &common::proto::envoy::service::discovery::v3::Resource| {
        1 + resource.aliases.len() + usize::from(resource.resource.is_some())
    };
    response.resources.iter().map(resource).sum::<usize>() + response.removed_resources.len()
}

fn of_node(node: &Node) -> usize {
    node.extensions.len() + node.client_features.len() + node.metadata.as_ref().map_or(0, of_struct)
}

fn of_struct(all: &Struct) -> usize {
    all.fields.values().map(|value| 1 + of_value(value)).sum()
}

fn of_value(value: &Value) -> usize {
    match &value.kind {
        Some(Kind::StructValue(all)) => of_struct(all),
        Some(Kind::ListValue(list)) => list.values.iter().map(|value| 1 + of_value(value)).sum(),
        _ => 0,
    }
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let leaf = || Value { kind: Some(Kind::BoolValue(true)) };
    let nested = (0..8).fold(leaf(), |value, _| Value {
        kind: Some(Kind::StructValue(Struct { fields: [("a".to_owned(), value)].into() })),
    });
    let metadata = Struct { fields: [("deep".to_owned(), nested), ("flat".to_owned(), leaf())].into() };
    let node = Node { id: "default.web-1".to_owned(), metadata: Some(metadata), ..Node::default() };
    let request = DeltaDiscoveryRequest {
        node: Some(node.clone()),
        resource_names_subscribe: names(12),
        initial_resource_versions: names(4).into_iter().map(|name| (name, "1".to_owned())).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    let resource = |name: String| common::proto::envoy::service::discovery::v3::Resource {
        name,
        resource: Some(Any { type_url: "type.googleapis.com/kuma".to_owned(), value: vec![8, 1] }),
        ..Default::default()
    };
    let response = DeltaDiscoveryResponse {
        resources: names(9).into_iter().map(resource).collect(),
        removed_resources: names(5),
        ..DeltaDiscoveryResponse::default()
    };
    [request.encode_to_vec(), response.encode_to_vec(), node.encode_to_vec()]
        .into_iter()
        .zip(0..)
        .map(|(message, form)| [vec![form], message].concat())
        .collect()
}
