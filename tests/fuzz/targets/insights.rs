//! What was seen of proxies and zones, as a zone sends it and a store keeps it.

use chrono::DateTime;
use common::{
    kds::{
        insight::{KEPT, Outcome, SubscriptionRecord},
        metadata::Peer,
        recorder,
    },
    model::{Kind, Resource, ResourceKey, kinds, transcode},
    proto::{
        envoy::config::core::v3::Node,
        kuma::{
            mesh::v1alpha1::{DataplaneInsight, DiscoverySubscription},
            system::v1alpha1::{KdsSubscription, ZoneInsight},
        },
    },
    redact,
};
use prost::Message;

use super::{Target, choice};
use crate::corpus::Corpus;

/// An insight of one of the kinds, or the node a zone describes itself in.
pub static INSIGHTS: Target = Target { name: "insights", costs: 1, run, seeds };

const KINDS: [&Kind; 4] = [
    &kinds::dataplane_insight::KIND,
    &kinds::zone_insight::KIND,
    &kinds::zone_ingress_insight::KIND,
    &kinds::zone_egress_insight::KIND,
];

fn run(data: &[u8]) {
    let Some((which, spec)) = choice(data, KINDS.len() + 1) else { return };
    let Some(kind) = KINDS.get(which) else { return introduce(spec) };
    if let Ok(mut shown) = transcode::to_json(kind, spec) {
        redact::json(&mut shown);
    }
    if *kind == &kinds::zone_insight::KIND {
        record(spec);
    }
}

/// Whatever is stored, the newest subscription is in it afterwards, and not too many others.
fn record(stored: &[u8]) {
    let mut subscription =
        SubscriptionRecord::open("newest".to_owned(), "global-1", false, DateTime::UNIX_EPOCH);
    subscription.count("Mesh", Outcome::Acknowledged, DateTime::UNIX_EPOCH);
    let insight = subscription.put_into(stored);
    assert!(insight.subscriptions.len() <= KEPT);
    assert!(insight.subscriptions.iter().any(|s| s.id == "newest"));
    let key = ResourceKey::global(&kinds::zone_insight::KIND, "zone-1");
    let resource = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(insight.encode_to_vec());
    assert!(recorder::is_open(&resource));
}

/// What a zone says about itself is kept in few bytes.
fn introduce(node: &[u8]) {
    let Ok(node) = Node::decode(node) else { return };
    let peer = Peer::read(&node);
    assert!(peer.instance.len() <= 256 && peer.version.version.len() <= 256);
    let mut subscription = SubscriptionRecord::open("1".to_owned(), "global-1", true, DateTime::UNIX_EPOCH);
    subscription.introduce(&peer, "1.0.0");
    assert!(subscription.put_into(&[]).encoded_len() <= 128 << 10);
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let proxies = DiscoverySubscription { id: "1".to_owned(), ..DiscoverySubscription::default() };
    let dataplane = DataplaneInsight { subscriptions: vec![proxies], ..DataplaneInsight::default() };
    let zones = (0..12).map(|id| KdsSubscription { id: id.to_string(), ..KdsSubscription::default() });
    let zone = ZoneInsight { subscriptions: zones.collect(), ..ZoneInsight::default() };
    let mut peer = Peer { instance: "zone-1-a".to_owned(), ..Peer::default() };
    peer.config = r#"{"store":{"postgres":{"password":"*****"}}}"#.to_owned();
    let of = |which: u8, spec: Vec<u8>| [vec![which], spec].concat();
    vec![
        of(0, dataplane.encode_to_vec()),
        of(1, zone.encode_to_vec()),
        of(2, dataplane.encode_to_vec()),
        of(3, dataplane.encode_to_vec()),
        of(4, peer.node("zone-1").encode_to_vec()),
    ]
}
