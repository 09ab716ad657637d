#![allow(clippy::unwrap_used)]
use proptest::{prelude::*, sample::select};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    model::kinds,
    proto::kuma::mesh::v1alpha1::{Dataplane, ZoneEgress, ZoneIngress},
};

fn pinned(kind: &'static Kind, sent: &Value) -> (Option<OriginClaim>, Labels, Bytes) {
    let mut spec = transcode::from_json(kind, sent).unwrap().into();
    let mut labels = Labels::new();
    let claim = pin(kind, &mut labels, &mut spec, "zone-1").unwrap();
    (claim, labels, spec)
}

fn check(kind: &'static Kind, sent: Value, stored: Value, claim: Option<&str>) {
    let (found, labels, spec) = pinned(kind, &sent);
    assert_eq!(found.map(|c| c.to_string()).as_deref(), claim, "{sent}");
    assert_eq!(transcode::to_json(kind, &spec).unwrap(), stored);
    assert_eq!((&labels[labels::ZONE], &labels[labels::ORIGIN]), ("zone-1", "zone"));
    let again = pin(kind, &mut labels.clone(), &mut spec.clone(), "zone-1").unwrap();
    assert_eq!(again, None, "what is pinned claims nobody else");
}

#[test]
fn zone_proxies_belong_to_the_sender() {
    let ingress = |zone: &str, tag: &str| {
        json!({"zone": zone, "availableServices": [
            {"tags": {"kuma.io/service": "a", "kuma.io/zone": tag}, "instances": 2}]})
    };
    let kind = &kinds::zone_ingress::KIND;
    let own = || ingress("zone-1", "zone-1");
    check(kind, ingress("zone-2", "zone-2"), own(), Some("zone names zone \"zone-2\""));
    let tag = "availableServices[].tags[\"kuma.io/zone\"] names zone \"zone-3\"";
    check(kind, ingress("zone-1", "zone-3"), own(), Some(tag));
    check(kind, own(), own(), None);
    check(kind, json!({}), json!({"zone": "zone-1"}), None);
    let egress = &kinds::zone_egress::KIND;
    check(egress, json!({"zone": "x"}), json!({"zone": "zone-1"}), Some("zone names zone \"x\""));
}

#[test]
fn tags_of_dataplanes_belong_to_the_sender() {
    let dataplane = |zone: &str| {
        json!({"networking": {"address": "10.0.0.1",
            "inbound": [{"port": 1, "tags": {"kuma.io/zone": zone}}, {"port": 2, "tags": {"a": "b"}}],
            "gateway": {"tags": {"kuma.io/zone": zone}}}})
    };
    let kind = &kinds::dataplane::KIND;
    let claim = "networking.inbound[].tags[\"kuma.io/zone\"] names zone \"zone-2\"";
    check(kind, dataplane("zone-2"), dataplane("zone-1"), Some(claim));
    check(kind, dataplane("zone-1"), dataplane("zone-1"), None);
}

#[test]
fn fields_nobody_knows_survive_pinning() {
    let kind = &kinds::zone_ingress::KIND;
    let unknown = [0x98, 0x06, 0x2a];
    let named = transcode::from_json(kind, &json!({"zone": "zone-2"})).unwrap();
    let mut spec = Bytes::from([&named[..], &unknown].concat());
    assert!(pin(kind, &mut Labels::new(), &mut spec, "zone-1").unwrap().is_some());
    assert!(spec.windows(3).any(|w| w == unknown));
    let decoded = crate::proto::kuma::mesh::v1alpha1::ZoneIngress::decode(spec).unwrap();
    assert_eq!(decoded.zone, "zone-1");
}

#[test]
fn a_label_that_claims_another_zone_is_overruled() {
    let mut labels = Labels::from([(labels::ZONE, "zone-2")]);
    let claim = pin(&kinds::mesh_service::KIND, &mut labels, &mut Bytes::new(), "zone-1").unwrap();
    assert_eq!(claim.unwrap().to_string(), "labels[\"kuma.io/zone\"] names zone \"zone-2\"");
    assert_eq!(&labels[labels::ZONE], "zone-1");
}

#[test]
fn what_stands_twice_is_read_as_a_decoder_reads_it() {
    // First its own name, then another's: who takes the first is told a lie.
    let twice = |first: &str, last: &str| {
        let text = |zone: &str| Piece::Text(1, zone.to_owned());
        Bytes::from(encode(&[text(first), text(last)]))
    };
    let kind = &kinds::zone_ingress::KIND;
    let mut lie = twice("zone-1", "zone-2");
    let claim = pin(kind, &mut Labels::new(), &mut lie, "zone-1").unwrap();
    assert_eq!(claim.unwrap().zone, "zone-2");
    let mut harmless = twice("zone-2", "zone-1");
    assert_eq!(pin(kind, &mut Labels::new(), &mut harmless, "zone-1").unwrap(), None);
    assert_eq!((&lie, &*lie), (&harmless, &b"\x0a\x06zone-1"[..]), "one form is left of both");
}

/// A field as an attacker writes it: of any number and wire type, anywhere, any number of times.
#[derive(Clone, Debug)]
enum Piece {
    Text(u32, String),
    Number(u32, u64),
    Nested(u32, Vec<Piece>),
}

fn encode(pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        let (number, content) = match piece {
            Piece::Number(number, value) => {
                encode_key(*number, WireType::Varint, &mut out);
                encode_varint(*value, &mut out);
                continue;
            }
            Piece::Text(number, text) => (*number, text.clone().into_bytes()),
            Piece::Nested(number, inner) => (*number, encode(inner)),
        };
        prost::encoding::bytes::encode(number, &content, &mut out);
    }
    out
}

fn zone_name() -> impl Strategy<Value = String> {
    select(vec!["zone-1", "zone-2", "zone-3", ""]).prop_map(str::to_owned)
}

/// A field nobody knows, and now and then a known one of the wrong type.
fn noise() -> impl Strategy<Value = Piece> {
    prop_oneof![
        8 => (90..99u32, any::<u64>()).prop_map(|(number, value)| Piece::Number(number, value)),
        8 => (90..99u32, "[a-z]{0,3}").prop_map(|(number, text)| Piece::Text(number, text)),
        1 => (1..8u32, any::<u64>()).prop_map(|(number, value)| Piece::Number(number, value)),
        1 => (1..8u32, zone_name()).prop_map(|(number, text)| Piece::Text(number, text)),
    ]
}

fn with_noise(pieces: impl Strategy<Value = Piece>) -> impl Strategy<Value = Vec<Piece>> {
    proptest::collection::vec(prop_oneof![6 => pieces, 1 => noise()], 0..5)
}

/// Tags as entries of a map, in which keys and values stand twice, in any order, or not at all.
fn tags(number: u32) -> impl Strategy<Value = Piece> {
    let key = select(vec!["kuma.io/zone", "kuma.io/zone", "kuma.io/service", ""]);
    let part = prop_oneof![
        key.prop_map(|key| Piece::Text(1, key.to_owned())),
        zone_name().prop_map(|zone| Piece::Text(2, zone)),
    ];
    with_noise(part).prop_map(move |entry| Piece::Nested(number, entry))
}

fn inside(number: u32, pieces: impl Strategy<Value = Piece>) -> impl Strategy<Value = Piece> {
    with_noise(pieces).prop_map(move |inner| Piece::Nested(number, inner))
}

fn zone_proxy() -> impl Strategy<Value = Vec<u8>> {
    let zone = zone_name().prop_map(|zone| Piece::Text(1, zone));
    let pieces = prop_oneof![zone, inside(3, tags(1)), inside(2, noise())];
    with_noise(pieces).prop_map(|pieces| encode(&pieces))
}

fn dataplane() -> impl Strategy<Value = Vec<u8>> {
    // The whole of it may come in pieces, and so may the gateway.
    let networking = prop_oneof![inside(1, tags(2)), inside(3, tags(1)), inside(2, tags(5))];
    with_noise(inside(1, networking)).prop_map(|pieces| encode(&pieces))
}

/// Every unknown field of a message, and of those in it, by where it stands.
fn unknown(message: &DynamicMessage, at: &str, found: &mut Vec<String>) {
    found.extend(message.unknown_fields().map(|field| format!("{at} {field:?}")));
    for (field, value) in message.fields() {
        let at = format!("{at}.{}", field.name());
        match value {
            prost_reflect::Value::Message(inner) => unknown(inner, &at, found),
            prost_reflect::Value::List(items) => {
                items.iter().filter_map(|item| item.as_message()).for_each(|item| unknown(item, &at, found));
            }
            _ => {}
        }
    }
}

/// The second opinion: the generated type of the same message, and how it is corrected.
trait Opinion: Message + Default + PartialEq {
    /// Every place in which it names a zone.
    fn named(&mut self) -> Vec<&mut String>;
}

fn tagged(tags: &mut std::collections::BTreeMap<String, String>) -> Option<&mut String> {
    tags.get_mut(labels::ZONE)
}

impl Opinion for ZoneIngress {
    fn named(&mut self) -> Vec<&mut String> {
        let services = self.available_services.iter_mut().filter_map(|service| tagged(&mut service.tags));
        [&mut self.zone].into_iter().chain(services).collect()
    }
}

impl Opinion for ZoneEgress {
    fn named(&mut self) -> Vec<&mut String> {
        vec![&mut self.zone]
    }
}

impl Opinion for Dataplane {
    fn named(&mut self) -> Vec<&mut String> {
        let Some(networking) = &mut self.networking else { return Vec::new() };
        let gateway = networking.gateway.as_mut().and_then(|gateway| tagged(&mut gateway.tags));
        networking.inbound.iter_mut().filter_map(|inbound| tagged(&mut inbound.tags)).chain(gateway).collect()
    }
}

fn judge<M: Opinion>(kind: &'static Kind, sent: Vec<u8>) -> Result<(), TestCaseError> {
    let mut spec = Bytes::from(sent.clone());
    let claim = pin(kind, &mut Labels::new(), &mut spec, "zone-1");
    let (Ok(claim), Ok(mut expected)) = (&claim, M::decode(sent.as_slice())) else {
        prop_assert!(claim.is_err() && M::decode(sent.as_slice()).is_err(), "two decoders, two minds");
        return Ok(());
    };
    let others = expected.named().iter().any(|zone| !zone.is_empty() && **zone != "zone-1");
    prop_assert_eq!(claim.is_some(), others, "{:?}", claim);
    expected.named().into_iter().for_each(|zone| "zone-1".clone_into(zone));
    prop_assert!(M::decode(spec.clone()).unwrap() == expected, "nothing else changed");

    let Format::Proto { message } = kind.format else { unreachable!("these kinds are protobuf") };
    let unknown = |bytes: &[u8]| {
        let mut found = Vec::new();
        unknown(&transcode::reflect(message, bytes).unwrap(), "", &mut found);
        found.sort();
        found
    };
    prop_assert_eq!(unknown(&sent), unknown(&spec));

    let mut again = spec.clone();
    prop_assert_eq!(pin(kind, &mut Labels::new(), &mut again, "zone-1").unwrap(), None);
    prop_assert_eq!(again, spec, "equal content, equal bytes");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn no_decoder_reads_another_zone_in_a_pinned_ingress(sent in zone_proxy()) {
        judge::<ZoneIngress>(&kinds::zone_ingress::KIND, sent)?;
    }

    #[test]
    fn no_decoder_reads_another_zone_in_a_pinned_egress(sent in zone_proxy()) {
        judge::<ZoneEgress>(&kinds::zone_egress::KIND, sent)?;
    }

    #[test]
    fn no_decoder_reads_another_zone_in_a_pinned_dataplane(sent in dataplane()) {
        judge::<Dataplane>(&kinds::dataplane::KIND, sent)?;
    }
}
