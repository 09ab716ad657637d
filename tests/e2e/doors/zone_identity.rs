//! A zone that says it is another one, in every way a message can say it.

use common::model::{Kind, kinds, labels};
use prost::encoding::{bytes, string};
use serde_json::Value;

use crate::{
    harness::{
        Global, KdsPeer, Zone, eventually,
        kds_peer::{Up, item, with_spec},
    },
    mesh::federation,
};

const ADDRESS: &str = r#"{"networking": {"address": "10.9.9.9", "port": 10001,
    "advertisedAddress": "10.9.9.9", "advertisedPort": 10001}}"#;
const DATAPLANE: &str = r#"{"networking": {"address": "10.9.9.9", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}"#;

/// Text as a field.
fn text(number: u32, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    string::encode(number, &text.to_owned(), &mut out);
    out
}

/// Fields as a message in a field.
fn message(number: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes::encode(number, &fields.concat(), &mut out);
    out
}

/// An entry of tags with each key and each value, one after the other.
fn tag(number: u32, keys: &[&str], values: &[&str]) -> Vec<u8> {
    let keys = keys.iter().map(|key| text(1, key));
    message(number, &keys.chain(values.iter().map(|value| text(2, value))).collect::<Vec<_>>())
}

/// What an attacker adds to an honest spec, so that a careless reader finds `own` in it and a decoder
/// `victim`: of which kind, and what it is called.
fn lies(own: &str, victim: &str) -> Vec<(&'static Kind, &'static str, Vec<u8>)> {
    const ZONE: &str = labels::ZONE;
    let service = || tag(1, &["kuma.io/service"], &["web"]);
    let services = |entries: &[Vec<u8>]| message(3, entries);
    let inbound = |entries: &[Vec<u8>]| {
        let port: Vec<u8> = vec![0x18, 81];
        let entries: Vec<Vec<u8>> =
            [vec![port, tag(2, &["kuma.io/service"], &["web"])], entries.to_vec()].concat();
        message(1, &[message(1, &entries)])
    };
    let (ingress, egress, dataplane) =
        (&kinds::zone_ingress::KIND, &kinds::zone_egress::KIND, &kinds::dataplane::KIND);
    vec![
        (ingress, "zone-twice", [text(1, own), text(1, victim)].concat()),
        (egress, "egress-twice", [text(1, own), text(1, victim)].concat()),
        (ingress, "value-twice", services(&[service(), tag(1, &[ZONE], &[own, victim])])),
        (ingress, "key-twice", services(&[service(), tag(1, &["x", ZONE], &[victim])])),
        (
            ingress,
            "value-first",
            services(&[service(), [message(1, &[text(2, victim), text(1, ZONE)])].concat()]),
        ),
        (ingress, "entry-twice", services(&[service(), tag(1, &[ZONE], &[own]), tag(1, &[ZONE], &[victim])])),
        (dataplane, "inbound-value-twice", inbound(&[tag(2, &[ZONE], &[own, victim])])),
        (dataplane, "inbound-key-twice", inbound(&[tag(2, &["x", ZONE], &[victim])])),
    ]
}

/// Sends every lie; the answers to them, by name.
async fn tell(
    peer: &KdsPeer,
    up: &mut Up,
    victim: &str,
) -> Vec<(&'static Kind, &'static str, Option<String>)> {
    let mut answers = Vec::new();
    for (kind, name, lie) in lies(&peer.caller.zone, victim) {
        let (mesh, spec) = if kind.is_mesh_scoped() { ("default", DATAPLANE) } else { ("", ADDRESS) };
        let honest = peer.honest(kind, mesh, name, spec);
        let spec = [honest.spec.to_vec(), lie].concat();
        let answer = up.offer(kind, vec![with_spec(item(&honest), spec)]).await.expect("the stream goes on");
        answers.push((kind, name, answer));
    }
    answers
}

/// Waits for a note of this zone on global with these words.
async fn note(global: &Global, zone: &str, words: &str) {
    eventually(&format!("a note about {zone} with {words:?}"), || async move {
        let overview = global.try_get(&format!("/zones/{zone}/_overview")).await?;
        let notes = overview["strait"]["notes"].to_string();
        if notes.contains(words) { Ok(()) } else { Err(notes) }
    })
    .await;
}

/// The item of a collection with this display name.
fn called<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["items"].as_array()?.iter().find(|item| item["labels"]["kuma.io/display-name"] == name)
}

#[tokio::test]
async fn whatever_a_zone_writes_into_a_message_no_reader_finds_another_zone_in_it() {
    let (global, zones) = federation(2).await;
    let peer = KdsPeer::connect(&global, "liar").await;
    let mut up = peer.up().await.unwrap();
    for (kind, name, refused) in tell(&peer, &mut up, "zone-1").await {
        assert_eq!(refused, None, "{name}: what a zone of Kuma claims is attributed to it");
        let path = if kind.is_mesh_scoped() { "/meshes/default/" } else { "/" };
        let list = global.get(&format!("{path}{}", kind.path)).await;
        let stored = called(&list, name).unwrap_or_else(|| panic!("{name} in {list}"));
        assert_eq!(stored["labels"]["kuma.io/zone"], "liar", "{name}");
        assert!(!stored.to_string().contains("zone-1"), "{name}: {stored}");
    }
    note(&global, "liar", "resources claimed another zone").await;

    // The neighbours of the victim hold the same, and nothing of it is the victim's.
    let neighbour: &Zone = &zones[1];
    let list = eventually("the ingresses of the liar in another zone", || async move {
        let list = neighbour.try_get("/zoneingresses").await?;
        let all = ["zone-twice", "value-twice", "key-twice", "value-first", "entry-twice"];
        if all.iter().all(|name| called(&list, name).is_some()) { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    assert!(!list.to_string().contains("zone-1"), "{list}");
}

#[tokio::test]
async fn a_zone_that_answers_for_its_names_is_refused_every_lie_alone() {
    use common::kds::features::ATTRIBUTION;

    let (global, _zones) = federation(1).await;
    let mut peer = KdsPeer::connect(&global, "liar").await;
    peer.caller.features.insert(ATTRIBUTION);
    let mut up = peer.up().await.unwrap();
    for (_, name, refused) in tell(&peer, &mut up, "zone-1").await {
        let refused = refused.unwrap_or_else(|| panic!("{name} was taken"));
        assert!(refused.contains("names zone \"zone-1\", but zone \"liar\" sends it"), "{name}: {refused}");
    }
    let kind = &kinds::dataplane::KIND;
    let honest = peer.honest(kind, "default", "honest", DATAPLANE);
    assert_eq!(up.offer(kind, vec![item(&honest)]).await.unwrap(), None);
    let policy = peer.honest(&common::policy::mesh_timeout::KIND, "default", "two-minds", r#"{"to":[]}"#);
    let twice = br#"{"to":[],"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"1s"}}]}"#.to_vec();
    let refused = up.offer(policy.kind(), vec![with_spec(item(&policy), twice)]).await.unwrap();
    assert!(refused.is_some_and(|text| text.contains("\"to\" stands there twice")));
    let list = global.get("/meshes/default/dataplanes").await;
    assert_eq!((list["total"].as_u64(), called(&list, "honest").is_some()), (Some(1), true), "{list}");
}
