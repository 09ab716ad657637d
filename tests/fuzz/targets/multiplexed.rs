//! What a control plane gets from another over KDS v1: requests to its server half, states to its client half.

use chrono::DateTime;
use common::{
    kds::{
        apply::{DecodedResponse, Follower, plan},
        codec,
        multiplex::Differences,
        order,
    },
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        },
        google::protobuf::Any,
        kuma::mesh::v1alpha1::{Message, message::Value},
    },
    registry,
    store::{Snapshot, StoreIdentity, index::Index},
    xds::{self, Input, Refusal, Sink, SinkEvent, SinkType, SotwSource, SourceSettings},
};
use prost::Message as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Target, framed, frames};
use crate::corpus::Corpus;

const ZONE: &str = "zone-1";

/// Messages of either direction on the one stream of a zone.
pub static MESSAGES: Target = Target { name: "sync-v1", costs: 1, run: messages, seeds: message_seeds };

fn messages(data: &[u8]) {
    let kinds = order::requested_by_zone();
    let types: Vec<&'static str> = kinds.iter().map(|kind| kind.name).collect();
    let mut source = SotwSource::new(SourceSettings::kds(ZONE, types.iter().copied()));
    let mut want = xds::WantSnapshot::new(1);
    want.put_as("MeshTimeout", xds::Wanted::new("a.default", codec::ENVELOPE_URL, &b"a"[..]));
    let node = Node { id: ZONE.to_owned(), ..Node::default() };
    let mut sink = Sink::new(node, types.iter().map(|type_url| SinkType { type_url, resume: None }));
    let mut differences = Differences::new(kinds);
    for frame in frames(data) {
        match Message::decode(frame).ok().and_then(|message| message.value) {
            Some(Value::Request(request)) => {
                let Ok(outputs) = source.step(Instant::now(), Input::Request(&request), &want) else {
                    return;
                };
                assert!(outputs.len() <= source.progress().count() + 2, "one response a type is in flight");
            }
            Some(Value::Response(response)) => {
                let resources = response.resources.len();
                let Ok(read) = differences.read(response) else { return };
                assert!(read.resources.len() <= resources, "nothing is told that was not sent");
                let Ok(SinkEvent::Batch(batch)) = sink.receive(read) else { continue };
                let answer = follow(&mut sink, &batch);
                let written = answer.map(|answer| differences.write(answer));
                assert!(written.is_none_or(|written| written.response_nonce == batch.nonce));
            }
            None => {}
        }
    }
}

/// Takes a batch as a zone does, and says what it refuses.
fn follow(
    sink: &mut Sink,
    batch: &xds::ResponseBatch,
) -> Option<common::proto::envoy::service::discovery::v3::DeltaDiscoveryRequest> {
    let kind = registry::by_name(batch.type_url)?;
    let items = batch.added.iter().map(|resource| (resource.name.as_str(), resource.resource.as_ref()));
    let received = DecodedResponse::decode(kind, items, batch.removed.clone(), batch.full, &Follower::Zone);
    let index = Index::of(
        StoreIdentity { store_id: Uuid::nil(), epoch: 1 },
        Snapshot { revision: 1, commit: None, resources: Vec::new() },
    );
    let plan = plan(&index, &received, &Follower::Zone, DateTime::UNIX_EPOCH);
    let refusals = plan
        .verdicts
        .iter()
        .map(|verdict| Refusal { name: verdict.name.clone(), reason: verdict.reason.clone() });
    sink.verdict(batch.type_url, &batch.nonce, &refusals.collect::<Vec<_>>())
}

fn message_seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let encoded = |value: Value| Message { value: Some(value) }.encode_to_vec();
    let request = |nonce: &str| DiscoveryRequest {
        node: Some(Node { id: ZONE.to_owned(), ..Node::default() }),
        type_url: "MeshTimeout".to_owned(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };
    let state = |nonce: usize, resource: &common::model::Resource| DiscoveryResponse {
        version_info: nonce.to_string(),
        type_url: resource.kind().name.to_owned(),
        nonce: nonce.to_string(),
        resources: vec![Any {
            type_url: codec::ENVELOPE_URL.to_owned(),
            value: codec::encode(resource).value.to_vec(),
        }],
        ..DiscoveryResponse::default()
    };
    let states = corpus.resources.iter().enumerate();
    let states: Vec<Vec<u8>> = states.map(|(nonce, r)| encoded(Value::Response(state(nonce, r)))).collect();
    let requests = ["", "1", "2"].map(|nonce| encoded(Value::Request(request(nonce))));
    let mixed = states.chunks(3).map(|chunk| framed(requests.iter().chain(chunk).map(Vec::as_slice)));
    mixed.collect()
}
