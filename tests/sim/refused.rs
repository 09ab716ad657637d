//! What control planes of Kuma refuse of each other, as messages: it is refused here as well, by name, and what came in the
//! same message is taken. Were it taken, it would be sent on to a peer that refuses it for ever.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::DateTime;
use common::{
    model::{Kind, Origin, Resource, ResourceKey, kinds, transcode},
    registry,
};
use zone::kds::ZoneKdsSettings;

use crate::{
    kumas_global::KumasGlobal,
    plane::{Plane, store},
    scripted::Scripted,
    world::World,
};

/// A kind, a spec of it that Kuma refuses, and one that it takes.
const REFUSED_BY_KUMA: [(&str, &str, &str); 12] = [
    ("Mesh", r#"{"routing":{"zoneEgress":true}}"#, "{}"),
    ("MeshAccessLog", "{}", r#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"backends":[]}}]}"#),
    ("MeshTrace", "{}", r#"{"default":{"backends":[]}}"#),
    (
        "MeshGateway",
        "{}",
        r#"{"selectors":[{"match":{"kuma.io/service":"edge"}}],
            "conf":{"listeners":[{"port":80,"protocol":"HTTP"}]}}"#,
    ),
    ("MeshRateLimit", r#"{"targetRef":{"kind":"MeshExternalService","name":"a"}}"#, "{}"),
    (
        "MeshPassthrough",
        r#"{"default":{"passthroughMode":"Some"}}"#,
        r#"{"default":{"passthroughMode":"None"}}"#,
    ),
    (
        "HealthCheck",
        r#"{"sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"web"}}],
            "conf":{"interval":"0s","timeout":"1s","unhealthyThreshold":1,"healthyThreshold":1}}"#,
        r#"{"sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"web"}}],
            "conf":{"interval":"1s","timeout":"1s","unhealthyThreshold":1,"healthyThreshold":1}}"#,
    ),
    (
        "TrafficPermission",
        "{}",
        r#"{"sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"web"}}]}"#,
    ),
    (
        "MeshHTTPRoute",
        r#"{"targetRef":{"kind":"MeshHTTPRoute","name":"a"}}"#,
        r#"{"targetRef":{"kind":"Mesh"}}"#,
    ),
    ("MeshFaultInjection", r#"{"targetRef":{"kind":"MeshExternalService","name":"a"}}"#, "{}"),
    ("MeshTLS", r#"{"targetRef":{"kind":"MeshExternalService","name":"a"}}"#, "{}"),
    ("MeshHealthCheck", r#"{"targetRef":{"kind":"MeshExternalService","name":"a"}}"#, "{}"),
];

fn resource(kind: &'static Kind, name: &str, spec: &str) -> Resource {
    let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
    let key = ResourceKey::new(kind, mesh, name);
    let spec = match kind.is_json() {
        true => spec.as_bytes().to_vec(),
        false => transcode::from_json(kind, &serde_json::from_str(spec).unwrap()).unwrap(),
    };
    Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec)
}

fn names(plane: &Plane, kind: &Kind) -> BTreeSet<String> {
    plane.index.current().list(kind).map(|r| r.display_name().to_owned()).collect()
}

#[tokio::test]
async fn a_zone_refuses_of_a_global_what_a_zone_of_kuma_refuses() {
    let mut global = KumasGlobal::start(true).await;
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    let backoff = (Duration::from_millis(10), Duration::from_millis(50));
    let settings = ZoneKdsSettings { backoff, ..ZoneKdsSettings::new("zone-1") };
    let _link = zone.follow(settings, Arc::clone(&global.dial));
    let (mut down, _up) = global.accept().await;
    let _opening = down.opening(45).await;
    for (nonce, (kind, bad, good)) in (1..).zip(REFUSED_BY_KUMA) {
        let kind = registry::by_name(kind).unwrap();
        let sent = [resource(kind, "bad", bad), resource(kind, "good", good)];
        let answer = down.send(kind.name, nonce, &sent, &[]).await;
        let reason = answer.error_detail.unwrap_or_else(|| panic!("{} was taken", kind.name)).message;
        assert!(reason.contains("bad.") && !reason.contains("good."), "{}: {reason}", kind.name);
        assert_eq!(names(&zone, kind), BTreeSet::from(["good".to_owned()]), "{}", kind.name);
    }
}

#[tokio::test]
async fn global_refuses_of_a_zone_what_a_global_of_kuma_refuses() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut up = zone.answer().await.unwrap();
    let mut tried = 0;
    for (nonce, (kind, bad, good)) in (1..).zip(REFUSED_BY_KUMA) {
        let kind = registry::by_name(kind).unwrap();
        if !kind.flow.requested_by_global() {
            continue;
        }
        tried += 1;
        let sent = [resource(kind, "bad", bad), resource(kind, "good", good)];
        up.send(kind.name, nonce, &sent, &[]).await;
        let verdict = up.verdict(kind.name).await;
        let reason = verdict.error_detail.unwrap_or_else(|| panic!("{} was taken", kind.name)).message;
        assert!(reason.contains("bad-") && !reason.contains("good-"), "{}: {reason}", kind.name);
        let index = world.global.index.current();
        let of_zone = index.list(kind).filter(|r| r.origin == Origin::Zone("zone-1".into()));
        let held: Vec<&str> = of_zone.map(|r| r.display_name()).collect();
        assert_eq!(held, ["good"], "{}", kind.name);
    }
    assert!(tried > 6, "{tried} kinds go up");
    // And nothing of it reaches another zone of Kuma.
    assert!(world.global.index.current().count(&kinds::mesh::KIND) == 1);
}
