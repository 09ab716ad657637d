//! A zone that makes more resources than anybody has a use for.

use common::{model::kinds::dataplane, proto::envoy::service::discovery::v3::Resource as Item};
use reqwest::Method;
use serde_json::Value;

use crate::{
    harness::{Global, KdsPeer, Options, Zone, eventually, kds_peer::item},
    mesh::federation_with,
};

/// Of a kind, and of all.
const PER_KIND: usize = 40;
const TOTAL: usize = 60;
/// Bytes of what a zone owns.
const BYTES: usize = 64 * 1024;

const PLAIN: &str = r#"{"networking": {"address": "10.9.9.9", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}"#;

async fn narrow() -> (Global, Vec<Zone>) {
    let quota = "multizone.global.kds.zoneQuota";
    let options = Options::default()
        .with(&format!("{quota}.perKind"), &PER_KIND.to_string())
        .with(&format!("{quota}.total"), &TOTAL.to_string())
        .with(&format!("{quota}.bytes"), &BYTES.to_string());
    federation_with(1, options, Options::default()).await
}

/// A dataplane of this zone with nearly as many labels as one may have, each as long as it may be.
fn labelled(peer: &KdsPeer, name: &str) -> Item {
    let mut labelled = peer.honest(&dataplane::KIND, "default", name, PLAIN);
    for n in 0..100 {
        labelled.labels.insert(format!("label-{n}"), "x".repeat(1000));
    }
    item(&labelled)
}

/// A dataplane of this zone, with so many tags more.
fn dataplane(peer: &KdsPeer, name: &str, tags: usize) -> Item {
    let more: String = (0..tags).map(|n| format!(r#", "tag-{n}": "{}""#, "x".repeat(100))).collect();
    let spec = format!(
        r#"{{"networking": {{"address": "10.9.9.9", "inbound": [{{"port": 80, "tags": {{"kuma.io/service": "web"{more}}}}}]}}}}"#
    );
    item(&peer.honest(&dataplane::KIND, "default", name, &spec))
}

/// What global has of a zone, as the zone calls it.
async fn owned(global: &Global, zone: &str) -> Vec<String> {
    let list = global.get("/meshes/default/dataplanes?size=1000").await;
    let items = list["items"].as_array().expect("a list").iter();
    let of_zone = items.filter(|item| item["labels"]["kuma.io/zone"] == zone);
    let name = |item: &Value| item["labels"]["kuma.io/display-name"].as_str().expect("a name").to_owned();
    of_zone.map(name).collect()
}

#[tokio::test]
async fn a_zone_owns_so_much_and_what_is_beyond_is_refused_item_by_item() {
    let (global, zones) = narrow().await;
    let kind = &dataplane::KIND;
    let peer = KdsPeer::connect(&global, "greedy").await;
    let mut up = peer.up().await.expect("its token is good");
    let many = (0..3 * PER_KIND).map(|n| dataplane(&peer, &format!("d-{n}"), 0)).collect();
    let refused = up.offer(kind, many).await.unwrap().expect("they are too many");
    assert!(refused.contains("zoneQuota.perKind") && refused.contains("\"greedy\""), "{refused}");
    let has = owned(&global, "greedy").await;
    assert_eq!(has.len(), PER_KIND);

    // What it has can be changed, and makes room when it goes.
    let changed = up.offer(kind, vec![dataplane(&peer, &has[0], 1)]).await.unwrap();
    assert_eq!(changed, None);
    let refused = up.offer(kind, vec![dataplane(&peer, "late", 0)]).await.unwrap();
    assert!(refused.is_some_and(|why| why.contains("take others away first")));
    let gone = dataplane(&peer, &has[1], 0).name;
    assert_eq!(up.say(kind, vec![dataplane(&peer, "late", 0)], vec![gone]).await.unwrap(), None);
    assert_eq!(owned(&global, "greedy").await.len(), PER_KIND);

    // By growing it fills nothing either.
    let mut fat = Vec::new();
    for name in &has[2..] {
        fat.extend(up.offer(kind, vec![dataplane(&peer, name, 30)]).await.unwrap());
    }
    assert!(!fat.is_empty() && fat.iter().all(|why| why.contains("zoneQuota.bytes")), "{fat:?}");
    let shrunk = up.offer(kind, vec![dataplane(&peer, &has[0], 0)]).await.unwrap();
    assert_eq!(shrunk, None, "what gets shorter is taken");

    // An honest zone beside it is as it was, and global says who has too much.
    zones[0].apply(
        "{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.1, inbound: [{port: 80, \
         servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: web}}]}}",
    );
    eventually("the dataplane of the honest zone", || async {
        let owned = owned(&global, "zone-1").await;
        if owned == ["web"] { Ok(()) } else { Err(format!("{owned:?}")) }
    })
    .await;
    let overview = global.get("/zones/greedy/_overview").await.to_string();
    assert!(overview.contains("zoneQuota"), "{overview}");
    drop(up);
    let _deleted = global.call(Method::DELETE, "/zones/greedy", None).await;
}

#[tokio::test]
async fn labels_fill_nothing_either() {
    let (global, _zones) = narrow().await;
    let kind = &dataplane::KIND;
    let peer = KdsPeer::connect(&global, "wordy").await;
    let mut up = peer.up().await.expect("its token is good");
    // Each is as long as all of the zone may be.
    let refused = up.offer(kind, (0..8).map(|n| labelled(&peer, &format!("d-{n}"))).collect()).await.unwrap();
    assert!(refused.is_some_and(|why| why.contains("zoneQuota.bytes")));
    assert_eq!(owned(&global, "wordy").await, Vec::<String>::new());
    assert_eq!(up.offer(kind, vec![dataplane(&peer, "short", 0)]).await.unwrap(), None);
    let refused = up.offer(kind, vec![labelled(&peer, "short")]).await.unwrap();
    assert!(refused.is_some_and(|why| why.contains("zoneQuota.bytes")), "by growing neither");
    assert_eq!(owned(&global, "wordy").await, ["short"]);
}
