//! What control planes of Kuma 2.14 were seen to say on the wire, said again: each of these once went wrong here.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{
    kds::metadata::Peer,
    model::{Kind, Origin, Resource, ResourceKey, kinds},
    policy::{mesh_retry, mesh_timeout},
};
use global::kds::GlobalKdsSettings;
use prost::Message;
use zone::kds::ZoneKdsSettings;

use crate::{
    kumas_global::KumasGlobal,
    plane::{Plane, store},
    scripted::Scripted,
    sockets::TIMEOUT,
    world::World,
};

/// Each of these a control plane of Kuma takes from its users, so its zones send it.
const TAKEN_BY_KUMA: [(&Kind, &str, &str); 8] = [
    (&kinds::dataplane::KIND, "client-only", r#"{"networking":{"address":"10.0.0.1"}}"#),
    (
        &kinds::dataplane::KIND,
        "admin-port-of-an-inbound",
        r#"{"networking":{"address":"10.0.0.1","admin":{"port":8080},
            "inbound":[{"port":8080,"tags":{"kuma.io/service":"web"}}]}}"#,
    ),
    (
        &kinds::dataplane::KIND,
        "probe-port",
        r#"{"probes":{"port":9000,"endpoints":[{"inboundPort":8080,"inboundPath":"/a","path":"/8080/a"}]},
            "networking":{"address":"10.0.0.1","inbound":[{"port":8080,"tags":{"kuma.io/service":"web"}}]}}"#,
    ),
    (
        &kinds::dataplane::KIND,
        "delegated-gateway-without-a-service",
        r#"{"networking":{"address":"10.0.0.1","gateway":{"tags":{"team":"a"}}}}"#,
    ),
    (
        &kinds::dataplane::KIND,
        "inbound-without-tags",
        r#"{"networking":{"address":"10.0.0.1","inbound":[{"port":8080}]}}"#,
    ),
    (
        &kinds::zone_ingress::KIND,
        "admin-port-of-the-ingress",
        r#"{"networking":{"address":"10.0.0.1","port":10001,"admin":{"port":10001}}}"#,
    ),
    (
        &kinds::zone_egress::KIND,
        "admin-port-of-the-egress",
        r#"{"networking":{"address":"10.0.0.1","port":10002,"admin":{"port":10002}}}"#,
    ),
    (&mesh_retry::KIND, "retry-of-nothing", r#"{"targetRef":{"kind":"Mesh"},"to":[]}"#),
];

#[tokio::test]
async fn what_kuma_takes_from_its_users_is_taken_from_its_zones() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut up = zone.answer().await.unwrap();
    let mut sent: BTreeSet<&str> = BTreeSet::new();
    for (nonce, (kind, name, spec)) in (1..).zip(TAKEN_BY_KUMA) {
        let removed: &[&str] = &[];
        // Of each type the first response is everything, and the others add to it.
        up.send(kind.name, nonce, &[world.of_zone(kind, name, spec)], removed).await;
        let verdict = up.verdict(kind.name).await;
        assert_eq!(verdict.error_detail, None, "{name}");
        sent.insert(name);
    }
    let index = world.global.index.current();
    let held = index.iter().filter(|resource| resource.origin == Origin::Zone("zone-1".into()));
    let held: BTreeSet<&str> = held.map(|resource| resource.display_name()).collect();
    assert_eq!(held, sent);
}

/// A zone of Kuma counts the bytes of a message after it was decompressed, and ends its streams over one that is too
/// large.
#[tokio::test]
async fn no_message_is_larger_than_a_zone_of_kuma_takes_however_well_it_compresses() {
    const MOST: usize = 1_000_000;
    let settings = GlobalKdsSettings { max_message: MOST, ..Plane::settings() };
    let world = World::with(settings).await;
    let names: BTreeSet<String> = (0..8).map(|n| format!("p{n}")).collect();
    for name in &names {
        world.global.put(world.policy(name).with_label("large", &"x".repeat(200_000))).await;
    }
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("MeshTimeout")]).await.unwrap();
    let mut arrived = BTreeSet::new();
    while arrived.len() < names.len() {
        let response = down.next().await;
        assert!(response.encoded_len() < MOST, "{} bytes", response.encoded_len());
        assert!(response.removed_resources.is_empty());
        arrived.extend(response.resources.iter().map(|item| item.name.clone()));
        down.reply(&response, None).await;
    }
    assert!(world.notes("zone-1").iter().all(|note| !note.contains("does not get")));
}

/// A zone of Kuma names nothing in `details`, leaves the code at 0, asks for everything once more beside its refusal, and
/// marks conflicts of names by how its words begin.
#[tokio::test]
async fn a_refusal_in_kumas_words_is_noted_and_answered_by_nothing() {
    let world = World::new().await;
    world.global.put(world.policy("p")).await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("MeshTimeout"), zone.first("Mesh")]).await.unwrap();
    let mut mesh = None;
    for _ in 0..2 {
        let response = down.next().await;
        if response.type_url == "Mesh" {
            down.reply(&response, None).await;
            mesh = Some(response);
            continue;
        }
        let mut refusal = zone.first("MeshTimeout");
        refusal.node = Some(common::kds::metadata::bare_node("zone-1"));
        refusal.response_nonce = response.nonce;
        let message = "user error\nresource already exists: type=MeshTimeout name=p".to_owned();
        refusal.error_detail = Some(common::proto::google::rpc::Status {
            message,
            ..common::proto::google::rpc::Status::default()
        });
        down.requests.send(refusal).await.unwrap();
    }
    assert!(mesh.is_some());
    world.note("zone-1", &["the zone refused MeshTimeout", "resource already exists"]).await;
    // Had it been answered, that would be here before what is said of something else.
    let mesh = world.global.resource(&kinds::mesh::KIND, "", "other", Origin::Global);
    world.global.put(mesh).await;
    let next = down.next().await;
    assert_eq!((next.type_url.as_str(), next.resources.len()), ("Mesh", 1));
}

/// A control plane of Kuma that gets a message without a node, or a resource in JSON without a spec, is gone.
#[tokio::test]
async fn everything_said_to_a_global_of_kuma_has_what_it_cannot_do_without() {
    let mut global = KumasGlobal::start(true).await;
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    // Nothing was ever written into the spec of this one.
    let key = ResourceKey::new(&mesh_timeout::KIND, "default", "bare");
    let bare = Resource::new(key, chrono::DateTime::UNIX_EPOCH);
    zone.put(Resource { origin: Origin::Zone("zone-1".into()), ..bare }).await;
    let backoff = (Duration::from_millis(10), Duration::from_millis(50));
    let settings = ZoneKdsSettings { backoff, ..ZoneKdsSettings::new("zone-1") };
    let _link = zone.follow(settings, Arc::clone(&global.dial));
    let (mut down, mut up) = global.accept().await;
    let opening = down.opening(45).await;
    for request in &opening {
        let node = request.node.as_ref().unwrap();
        assert_eq!(node.id, "zone-1");
        // What cannot be read as a release goes with every one; what can be and is not like its own does not.
        let version = Peer::read(node).version.version;
        assert!(version.starts_with("strait-"), "{version}");
    }
    let policy = |spec: &[u8]| {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", "p");
        Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_spec(spec.to_vec())
    };
    for (nonce, spec, taken) in [(1, TIMEOUT, true), (2, &b"[]"[..], false)] {
        let answer = down.send("MeshTimeout", nonce, &[policy(spec)], &[]).await;
        assert_eq!(answer.error_detail.is_none(), taken);
        assert_eq!(answer.node.unwrap().id, "zone-1", "{nonce}");
    }
    up.ask("zone-1", "MeshTimeout").await;
    let sent = up.next().await;
    assert_eq!(sent.resources.len(), 1);
    let any = sent.resources[0].resource.clone().unwrap();
    let envelope = common::proto::kuma::mesh::v1alpha1::KumaResource::decode(any.value.as_slice()).unwrap();
    let spec = envelope.spec.expect("a spec");
    assert!(serde_json::from_slice::<serde_json::Value>(&spec.value).is_ok(), "{spec:?}");
}
