//! A zone that asks to sign with one key after the other: each would be certified for every mesh, and told to all zones.

use common::{
    issuing,
    kds::metadata::Peer,
    keys::{KeyForm, PrivateKey},
};
use serde_json::Value;

use crate::{
    harness::{Global, kds_peer::KdsPeer},
    mesh::MESH,
};

const CALLS: usize = 200;
/// Taken at once, and one a minute while the calls are made.
const MOST: usize = 10;

fn request(key: &PrivateKey) -> Option<String> {
    Some(issuing::request(key.pem()).expect("the key can sign"))
}

/// How many changes there were to resources of `kind` with `part` in their names.
async fn changes(global: &Global, kind: &str, part: &str) -> usize {
    let history = global.get(&format!("/history?kind={kind}&size=1000")).await;
    let items = history["items"].as_array().expect("a list").iter();
    let is_meant = |item: &&Value| item["name"].as_str().is_some_and(|name| name.contains(part));
    items.filter(is_meant).count()
}

#[tokio::test]
async fn a_zone_is_certified_for_few_keys_however_often_it_calls() {
    let global = Global::start().await;
    global.apply(MESH);
    let mut peer = KdsPeer::connect(&global, "thief").await;
    let mut taken = Vec::new();
    for _ in 0..CALLS {
        let key = PrivateKey::generate(KeyForm::P256).expect("there is randomness");
        peer.caller.issuing_request = request(&key);
        match peer.down(peer.first("Secret", Peer::default())).await {
            Ok(_) => taken.push(key),
            Err(refused) => assert!(refused.message().contains("too many keys"), "{refused}"),
        }
    }
    let kept = changes(&global, "GlobalSecret", "zone-issuing-request.thief").await;
    assert!((1..=MOST).contains(&kept), "{kept} requests were kept");
    let signed = changes(&global, "Secret", ".thief").await;
    assert!(signed <= kept, "{signed} certificates for {kept} keys");

    // A zone that starts again has its key, and another signature under its request.
    let key = taken.last().expect("the first is taken");
    for _ in 0..MOST {
        peer.caller.issuing_request = request(key);
        let again = peer.down(peer.first("Secret", Peer::default())).await;
        again.map(drop).expect("its key is known");
    }
    assert_eq!(changes(&global, "GlobalSecret", "zone-issuing-request.thief").await, kept);
}
