//! What global does for zones of Kuma over their life: disabled, deleted, back again, very old.

use std::time::Duration;

use common::{
    kds::features::HASH_SUFFIX,
    model::{Origin, Resource, ResourceKey, kinds, labels, transcode},
    policy::mesh_timeout,
    rest::{ZoneHealth, ZoneStatus, ZoneStatusSource},
};
use tonic::Code;

use crate::{
    scripted::{Answering, Scripted},
    world::{DATAPLANE, World},
};

const INGRESS: &str = r#"{"zone":"zone-2","networking":{"address":"10.0.0.1","port":10001}}"#;

impl World {
    fn zone(&self, name: &str, enabled: bool) -> Resource {
        let spec = serde_json::json!({ "enabled": enabled });
        let spec = transcode::from_json(&kinds::zone::KIND, &spec).unwrap();
        self.global.resource(&kinds::zone::KIND, "", name, Origin::Global).with_spec(spec)
    }

    fn ingress(&self) -> Resource {
        self.of_zone(&kinds::zone_ingress::KIND, "ingress-h", INGRESS)
            .with_label(labels::DISPLAY_NAME, "ingress")
    }
}

/// Sends the full state of a type and waits until global has taken it.
async fn give(up: &mut Answering, type_url: &str, nonce: u64, resources: &[Resource]) {
    up.send(type_url, nonce, resources, &[]).await;
    let verdict = up.verdict(type_url).await;
    assert_eq!(verdict.error_detail, None, "{type_url}");
}

#[tokio::test]
async fn a_disabled_zone_is_served_but_its_ingress_is_withdrawn() {
    let world = World::new().await;
    let owner = Scripted::like_kumas(&world.dial, "zone-2").await;
    let mut owners_down =
        owner.ask(vec![owner.first("MeshTimeout"), owner.first("ZoneIngress")]).await.unwrap();
    let mut up = owner.answer().await.unwrap();
    for _ in 0..2 {
        let first = owners_down.next().await;
        owners_down.reply(&first, None).await;
    }
    give(&mut up, "ZoneIngress", 1, &[world.ingress()]).await;

    let other = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = other.ask(vec![other.first("ZoneIngress")]).await.unwrap();
    let first = down.next().await;
    assert_eq!(first.resources.len(), 1);
    let name = first.resources[0].name.clone();
    down.reply(&first, None).await;

    world.global.put(world.zone("zone-2", false)).await;
    let withdrawn = down.next().await;
    assert_eq!((withdrawn.removed_resources.as_slice(), withdrawn.resources.len()), (&[name.clone()][..], 0));
    down.reply(&withdrawn, None).await;
    // It goes on giving and getting.
    give(&mut up, "ZoneIngress", 2, &[world.ingress().with_label("a", "b")]).await;
    world.global.put(world.policy("p")).await;
    assert_eq!(owners_down.next().await.resources.len(), 1);

    world.global.put(world.zone("zone-2", true)).await;
    let back = down.next().await;
    assert_eq!((back.resources.len(), back.resources[0].name.as_str()), (1, &*name));
}

#[tokio::test]
async fn a_deleted_zone_takes_its_own_along_and_may_come_back() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-2").await;
    let mut down = zone.ask(vec![zone.first("Mesh")]).await.unwrap();
    let mut up = zone.answer().await.unwrap();
    let first = down.next().await;
    down.reply(&first, None).await;
    let dataplane = world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE);
    give(&mut up, "Dataplane", 1, std::slice::from_ref(&dataplane)).await;
    give(&mut up, "ZoneIngress", 2, &[world.ingress()]).await;
    let other = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut others = other.ask(vec![other.first("ZoneIngress")]).await.unwrap();
    let first = others.next().await;
    others.reply(&first, None).await;

    world.global.delete(ResourceKey::global(&kinds::zone::KIND, "zone-2")).await;
    assert_eq!(others.next().await.removed_resources, [first.resources[0].name.clone()]);
    for end in [down.end().await, up.end().await] {
        assert_eq!(end.unwrap().code(), Code::Cancelled, "a zone of Kuma comes back after this");
    }
    let index = world.global.index.current();
    assert_eq!(index.count(&kinds::dataplane::KIND) + index.count(&kinds::zone_ingress::KIND), 0);
    assert!(index.find(&kinds::zone_insight::KIND, "", "zone-2").is_none());

    let mut up = zone.answer().await.unwrap();
    let asked = up.next().await;
    assert!(asked.initial_resource_versions.is_empty(), "its first answer is everything");
    give(&mut up, "Dataplane", 1, &[dataplane]).await;
    let index = world.global.index.current();
    let registered = index.find(&kinds::zone::KIND, "", "zone-2").unwrap();
    assert_eq!(registered.spec, world.zone("zone-2", true).spec);
    assert_eq!(index.count(&kinds::dataplane::KIND), 1);
}

#[tokio::test]
async fn zones_from_before_hashed_names_give_and_get_plain_ones() {
    let world = World::new().await;
    world.global.put(world.policy("p")).await;
    let dataplane = || world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE);
    let mut ups = Vec::new();
    for name in ["zone-1", "zone-2"] {
        let mut zone = Scripted::like_kumas(&world.dial, name).await;
        zone.caller.features = std::mem::take(&mut zone.caller.features).without(HASH_SUFFIX);
        let mut first = zone.first("MeshTimeout");
        first.node = Some(common::kds::metadata::bare_node(name));
        let mut down = zone.ask(vec![first]).await.unwrap();
        // It does not say that it can do without a target, so this one is not for it.
        assert!(down.next().await.resources.is_empty());
        let mut first = zone.first("Secret");
        first.node = Some(common::kds::metadata::bare_node(name));
        down.requests.send(first).await.unwrap();
        assert!(down.next().await.resources.is_empty());
        let mut up = zone.answer().await.unwrap();
        give(&mut up, "Dataplane", 1, &[dataplane()]).await;
        ups.push((down, up));
    }
    let names = || -> Vec<String> {
        world.global.index.current().list(&kinds::dataplane::KIND).map(|r| r.name().to_owned()).collect()
    };
    assert_eq!(names(), ["zone-1.d", "zone-2.d"]);
    ups[0].1.send("Dataplane", 2, &[], &["d.default"]).await;
    assert_eq!(ups[0].1.verdict("Dataplane").await.error_detail, None);
    assert_eq!(names(), ["zone-2.d"]);

    let targeted = br#"{"targetRef":{"kind":"Mesh"},"to":[]}"#;
    let policy = world.global.resource(&mesh_timeout::KIND, "default", "plain", Origin::Global);
    world.global.put(policy.with_spec(&targeted[..])).await;
    let mut old = Scripted::like_kumas(&world.dial, "zone-3").await;
    old.caller.features = std::mem::take(&mut old.caller.features).without(HASH_SUFFIX);
    let mut first = old.first("MeshTimeout");
    first.node = Some(common::kds::metadata::bare_node("zone-3"));
    let mut down = old.ask(vec![first]).await.unwrap();
    let names: Vec<String> = down.next().await.resources.into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["plain.default"]);
}

#[tokio::test]
async fn what_comes_compressed_is_answered_compressed() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    zone.ping().await.unwrap();
    let headers = zone.ping_compressed().await.unwrap();
    assert_eq!(headers.get("grpc-encoding").unwrap(), "gzip");
}

#[tokio::test]
async fn a_zone_that_is_away_is_shown_with_what_it_misses() {
    let world = World::new().await;
    world.global.put(world.policy("before")).await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("MeshTimeout")]).await.unwrap();
    let first = down.next().await;
    down.reply(&first, None).await;
    let status = || world.kds.zone_status("zone-1", &world.global.index.current()).unwrap();
    let until = async |what: &str, holds: &dyn Fn(&ZoneStatus) -> bool| {
        let seen = async {
            while !holds(&status()) {
                tokio::task::yield_now().await;
            }
        };
        let seen = tokio::time::timeout(Duration::from_secs(10), seen).await;
        assert!(seen.is_ok(), "never {what}: {:?}", status());
    };
    until("in sync", &|s| s.status == ZoneHealth::Online && s.down.lag == 0 && s.down.acked > 0).await;
    drop(down);
    until("away", &|s| s.status == ZoneHealth::Offline).await;
    let revision = world.global.put(world.policy("p")).await;
    world.global.put(world.policy("before").with_label("team", "a")).await;
    // Neither of these is for zones.
    let secret = world.of_zone(&kinds::secret::GLOBAL_SECRET, "envoy-admin-ca", "{}");
    world.global.put(secret).await;
    world.global.put(world.zone("zone-9", true)).await;
    until("behind", &|s| s.down.head > revision + 2 && s.down.lag == 2).await;
}
