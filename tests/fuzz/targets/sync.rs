//! What a control plane gets from another over KDS.

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::DateTime;
use common::{
    kds::{
        apply::{DecodedResponse, Follower, plan},
        attribution::{self, Foreign},
        codec, headers,
        metadata::Peer,
        ownership::ZoneNaming,
        quota::ZoneQuota,
    },
    model::{Kind, Labels, kinds, labels},
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource},
        },
        google::protobuf::Any,
        kuma::mesh::v1alpha1::{Dataplane, ZoneEgress, ZoneIngress},
    },
    registry,
    store::{Snapshot, StoreIdentity, index::Index},
    xds::{self, DeltaSource, Input, Sink, SinkType, SourceSettings},
};
use prost::Message;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Target, choice, framed, frames};
use crate::corpus::Corpus;

const ZONE: &str = "zone-1";

/// An item of any kind, as global takes it from a zone: what is stored names no other zone.
pub static ITEMS: Target = Target { name: "sync-items", costs: 1, run: item, seeds: item_seeds };
/// A spec of a kind that names its zone.
pub static ATTRIBUTION: Target = Target { name: "attribution", costs: 1, run: attribute, seeds: spec_seeds };
/// Requests on a sync stream, to whoever has the server role.
pub static REQUESTS: Target = Target { name: "sync-requests", costs: 1, run: requests, seeds: request_seeds };
/// Responses on a sync stream, to whoever has the client role.
pub static RESPONSES: Target =
    Target { name: "sync-responses", costs: 1, run: responses, seeds: response_seeds };

fn synced() -> Vec<&'static Kind> {
    registry::ALL.iter().copied().filter(|kind| kind.flow.written_by_zone()).collect()
}

fn index() -> Index {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    Index::of(store, Snapshot { revision: 1, commit: None, resources: Vec::new() })
}

fn item(data: &[u8]) {
    let kinds = synced();
    let Some((at, value)) = choice(data, kinds.len()) else { return };
    let any = Any { type_url: codec::ENVELOPE_URL.to_owned(), value: value.to_vec() };
    for foreign in [Foreign::Rewrite, Foreign::Refuse] {
        let follower = Follower::Global {
            zone: ZONE.into(),
            foreign,
            naming: ZoneNaming::Hashed,
            quota: ZoneQuota::default(),
        };
        let received =
            DecodedResponse::decode(kinds[at], [("name", Some(&any))], Vec::new(), false, &follower);
        for item in received.items.values() {
            assert_eq!(item.labels.get(labels::ZONE), Some(ZONE));
            names_nobody_else(item.key.kind, &item.spec);
        }
        let plan = plan(&index(), &received, &follower, DateTime::UNIX_EPOCH);
        assert!(plan.removed == 0, "an item removes nothing");
    }
}

fn attribute(data: &[u8]) {
    let kinds = [&kinds::zone_ingress::KIND, &kinds::zone_egress::KIND, &kinds::dataplane::KIND];
    let Some((at, spec)) = choice(data, kinds.len()) else { return };
    let (kind, mut labels) = (kinds[at], Labels::new());
    let named_another = others(kind, spec);
    let mut pinned = Bytes::copy_from_slice(spec);
    let Ok(claim) = attribution::pin(kind, &mut labels, &mut pinned, ZONE) else { return };
    assert!(claim.is_some() || named_another.is_empty(), "no word about {named_another:?}");
    names_nobody_else(kind, &pinned);
    let before = pinned.clone();
    let again = attribution::pin(kind, &mut labels, &mut pinned, ZONE).expect("it decodes");
    assert!(again.is_none() && pinned == before, "pinning twice is pinning once");
}

fn names_nobody_else(kind: &Kind, spec: &[u8]) {
    let others = others(kind, spec);
    assert!(others.is_empty(), "{} names {others:?}", kind.name);
}

/// The zones other than the sender's that a spec names to whoever decodes it.
fn others(kind: &Kind, spec: &[u8]) -> Vec<String> {
    let mut named = Vec::new();
    let mut tags = |tags: &BTreeMap<String, String>| named.extend(tags.get(labels::ZONE).cloned());
    match kind.name {
        "ZoneIngress" => {
            let Ok(ingress) = ZoneIngress::decode(spec) else { return named };
            ingress.available_services.iter().for_each(|service| tags(&service.tags));
            named.push(ingress.zone);
        }
        "ZoneEgress" => named.extend(ZoneEgress::decode(spec).map(|egress| egress.zone)),
        "Dataplane" => {
            let networking = Dataplane::decode(spec).ok().and_then(|dataplane| dataplane.networking);
            let Some(networking) = networking else { return named };
            networking.inbound.iter().for_each(|inbound| tags(&inbound.tags));
            networking.gateway.iter().for_each(|gateway| tags(&gateway.tags));
        }
        _ => {}
    }
    named.retain(|zone| !zone.is_empty() && zone != ZONE);
    named
}

fn item_seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let kinds = synced();
    let seeds = corpus.resources.iter().filter_map(|resource| {
        let at = kinds.iter().position(|kind| *kind == resource.kind())?;
        Some([&[u8::try_from(at).ok()?][..], &codec::encode(resource).value].concat())
    });
    seeds.collect()
}

fn spec_seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let kinds = ["ZoneIngress", "ZoneEgress", "Dataplane"];
    let seeds = corpus.resources.iter().filter_map(|resource| {
        let at = kinds.iter().position(|name| *name == resource.kind().name)?;
        Some([&[u8::try_from(at).ok()?][..], &resource.spec].concat())
    });
    // The zone twice, first the own and then another.
    let twice = b"\x00\x0a\x06zone-1\x0a\x06zone-2".to_vec();
    // A tag whose entry has its key and its value twice.
    let entry = b"\x0a\x01a\x0a\x0ckuma.io/zone\x12\x06zone-1\x12\x06zone-2";
    let service = [&[0x0a, u8::try_from(entry.len()).expect("short")][..], entry].concat();
    let tagged = [&[0, 0x1a, u8::try_from(service.len()).expect("short")][..], &service].concat();
    seeds.chain([twice, tagged]).collect()
}

fn requests(data: &[u8]) {
    let types: Vec<&'static str> = registry::ALL.iter().map(|kind| kind.name).collect();
    let mut source = DeltaSource::new(SourceSettings::kds("global", types));
    let mut want = xds::WantSnapshot::new(1);
    for name in ["a.default", "b.default"] {
        want.put_as("MeshTimeout", xds::Wanted::new(name, codec::ENVELOPE_URL, name.as_bytes()));
    }
    for frame in frames(data) {
        let Ok(request) = DeltaDiscoveryRequest::decode(frame) else { continue };
        if let Some(node) = &request.node {
            let _said = Peer::read(node);
        }
        let _stamp = headers::Upstream::parse(&request.type_url);
        // The end of the stream is a fine answer, and after it nothing more is heard.
        let Ok(outputs) = source.step(Instant::now(), Input::Request(&request), &want) else { return };
        assert!(outputs.len() <= types_and_events(&source), "one response a type is in flight");
    }
}

fn types_and_events(source: &DeltaSource) -> usize {
    // Each type owes at most one response, an unknown one an empty answer; and one event.
    source.progress().count() + 2
}

fn request_seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let node = Node { id: ZONE.to_owned(), ..Node::default() };
    let subscribe = DeltaDiscoveryRequest {
        node: Some(node),
        type_url: "MeshTimeout".to_owned(),
        resource_names_subscribe: vec!["*".to_owned()],
        initial_resource_versions: [("a.default".to_owned(), "1".to_owned())].into(),
        ..Default::default()
    };
    let answer = |nonce: &str, error: Option<&str>| DeltaDiscoveryRequest {
        type_url: "MeshTimeout".to_owned(),
        response_nonce: nonce.to_owned(),
        error_detail: error.map(|message| common::proto::google::rpc::Status {
            code: 3,
            message: message.to_owned(),
            details: Vec::new(),
        }),
        ..Default::default()
    };
    let encoded =
        [subscribe, answer("1", None), answer("2", Some("no"))].map(|request| request.encode_to_vec());
    vec![
        framed(encoded.iter().map(Vec::as_slice)),
        framed(encoded.iter().rev().map(Vec::as_slice)),
        framed(encoded.iter().cycle().take(9).map(Vec::as_slice)),
    ]
}

fn responses(data: &[u8]) {
    let node = Node { id: ZONE.to_owned(), ..Node::default() };
    let types = synced().into_iter().map(|kind| SinkType { type_url: kind.name, resume: None });
    let mut sink = Sink::new(node, types);
    let mut index = index();
    for frame in frames(data) {
        let Ok(response) = DeltaDiscoveryResponse::decode(frame) else { continue };
        match sink.receive(response) {
            Ok(xds::SinkEvent::Batch(batch)) => index = follow(&mut sink, &batch, index),
            Ok(xds::SinkEvent::Unasked { .. } | xds::SinkEvent::Listed(_)) => {}
            Err(_) => return,
        }
    }
}

/// Takes a batch as a zone does: what is refused is said, and what is not refused can be planned.
fn follow(sink: &mut Sink, batch: &xds::ResponseBatch, index: Index) -> Index {
    let Some(kind) = registry::by_name(batch.type_url) else { return index };
    let items = batch.added.iter().map(|resource| (resource.name.as_str(), resource.resource.as_ref()));
    let received = DecodedResponse::decode(kind, items, batch.removed.clone(), batch.full, &Follower::Zone);
    let plan = plan(&index, &received, &Follower::Zone, DateTime::UNIX_EPOCH);
    assert!(plan.verdicts.len() <= batch.added.len(), "a verdict an item");
    let refusals = plan
        .verdicts
        .iter()
        .map(|verdict| xds::Refusal { name: verdict.name.clone(), reason: verdict.reason.clone() });
    let refusals: Vec<xds::Refusal> = refusals.collect();
    let _answer = sink.verdict(batch.type_url, &batch.nonce, &refusals);
    index
}

fn response_seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let response = |nonce: usize, kind: &Kind, value: Bytes| {
        let any = Any { type_url: codec::ENVELOPE_URL.to_owned(), value: value.to_vec() };
        let resource = Resource { name: "a.default".to_owned(), resource: Some(any), ..Default::default() };
        let response = DeltaDiscoveryResponse {
            type_url: kind.name.to_owned(),
            nonce: nonce.to_string(),
            resources: vec![resource],
            removed_resources: vec!["b.default".to_owned()],
            ..Default::default()
        };
        response.encode_to_vec()
    };
    let responses: Vec<Vec<u8>> = corpus
        .resources
        .iter()
        .enumerate()
        .map(|(nonce, resource)| response(nonce, resource.kind(), codec::encode(resource).value))
        .collect();
    responses.chunks(3).map(|chunk| framed(chunk.iter().map(Vec::as_slice))).collect()
}
