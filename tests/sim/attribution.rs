//! A zone that claims another's name, or writes what another one owns.

use chrono::{DateTime, TimeDelta};
use common::{
    ca,
    kds::features::{ATTRIBUTION, RESUME},
    keys::{KeyForm, PrivateKey},
    model::{
        Kind, Origin, Resource,
        kinds::{self, mesh_trust},
        labels, transcode,
    },
    policy::{mesh_proxy_patch, mesh_timeout, mesh_traffic_permission},
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;

use crate::{
    scripted::{Scripted, on_global},
    world::{DATAPLANE, World},
};

/// Every place in which `zone-1` can say that something belongs to `zone-2`, with the field a message names.
fn claims(world: &World) -> Vec<(&'static Kind, Resource, &'static str)> {
    let dataplane = |part: &str| format!(r#"{{"networking":{{"address":"10.0.0.1",{part}}}}}"#);
    let inbound = r#""inbound":[{"port":80,"tags":{"kuma.io/service":"web","kuma.io/zone":"zone-2"}}]"#;
    let gateway = r#""gateway":{"tags":{"kuma.io/service":"web","kuma.io/zone":"zone-2"}}"#;
    let ingress = |part: &str| format!(r#"{{"networking":{{"address":"10.0.0.1","port":10001}},{part}}}"#);
    let services = r#""availableServices":[{"tags":{"kuma.io/service":"web","kuma.io/zone":"zone-2"}}]"#;
    let zone = r#""zone":"zone-2""#;
    let labelled =
        world.of_zone(&kinds::dataplane::KIND, "item", DATAPLANE).with_label(labels::ZONE, "zone-2");
    let of = |kind, spec: &str| world.of_zone(kind, "item", spec);
    let (dataplanes, ingresses) = (&kinds::dataplane::KIND, &kinds::zone_ingress::KIND);
    let egresses = &kinds::zone_egress::KIND;
    vec![
        (dataplanes, labelled, "labels[\"kuma.io/zone\"]"),
        (dataplanes, of(dataplanes, &dataplane(inbound)), "networking.inbound[].tags[\"kuma.io/zone\"]"),
        (dataplanes, of(dataplanes, &dataplane(gateway)), "networking.gateway.tags[\"kuma.io/zone\"]"),
        (ingresses, of(ingresses, &ingress(zone)), "zone names"),
        (ingresses, of(ingresses, &ingress(services)), "availableServices[].tags[\"kuma.io/zone\"]"),
        (egresses, of(egresses, &ingress(zone)), "zone names"),
    ]
}

/// Counts what happens on this thread, which a test has to itself.
fn counted() -> (metrics::LocalRecorderGuard<'static>, PrometheusHandle) {
    let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
    let handle = recorder.handle();
    (metrics::set_default_local_recorder(recorder), handle)
}

fn total(metrics: &PrometheusHandle, counter: &str) -> u64 {
    let text = metrics.render();
    let lines = text.lines().filter(|line| line.starts_with(&format!("{counter}{{")));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn what_a_zone_of_kuma_claims_for_another_is_attributed_to_it_counted_and_noted() {
    let (_guard, metrics) = counted();
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut up = zone.answer().await.unwrap();
    let mut named = std::collections::BTreeSet::new();
    for (n, (kind, item, field)) in (1..).zip(claims(&world)) {
        up.send(kind.name, n, &[item], &[]).await;
        assert_eq!(up.verdict(kind.name).await.error_detail, None, "{field}");
        let index = world.global.index.current();
        let stored = index.list(kind).find(|r| r.display_name() == "item").unwrap();
        assert_eq!(stored.origin, Origin::Zone("zone-1".into()), "{field}");
        assert_eq!(stored.label(labels::ZONE), Some("zone-1"), "{field}");
        let spec = transcode::to_json(kind, &stored.spec).unwrap().to_string();
        assert!(!spec.contains("zone-2"), "{field}: {spec}");
        // Some of them are the same resource, which says it elsewhere now.
        named.insert((kind.name, stored.key.clone()));
        let count = format!("{} resources claimed another zone", named.len());
        let note = world.note("zone-1", &[&count, field]).await;
        assert!(note.contains("\"zone-2\"") && note.ends_with("name \"zone-1\" there"), "{note}");
    }
    assert_eq!(total(&metrics, "kds_zone_attribution_rewrites_total"), 6);
    assert_eq!(total(&metrics, "kds_zone_attribution_refusals_total"), 0);

    // What is gone, and what says it no more, claims nothing.
    for (n, (kind, key)) in (100..).zip(&named) {
        let name = common::kds::names::delta_name(&key.name, &key.mesh);
        match *kind == kinds::dataplane::KIND.name {
            true => up.send(kind, n, &[world.of_zone(&kinds::dataplane::KIND, "item", DATAPLANE)], &[]).await,
            false => up.send(kind, n, &[], &[&name]).await,
        }
        assert_eq!(up.verdict(kind).await.error_detail, None, "{kind}");
    }
    assert!(
        world.notes("zone-1").iter().all(|note| !note.contains("claimed")),
        "{:?}",
        world.notes("zone-1")
    );
}

#[tokio::test]
async fn a_zone_that_answers_for_its_names_is_refused_another_ones_and_what_is_stored_stays() {
    let (_guard, metrics) = counted();
    let world = World::new().await;
    let mut zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    zone.caller.features.insert(RESUME);
    zone.caller.features.insert(ATTRIBUTION);
    let mut up = zone.answer().await.unwrap();
    let kind = &kinds::dataplane::KIND;
    let stored = world.of_zone(kind, "item", DATAPLANE).with_label("team", "a");
    up.send(kind.name, 1, &[stored], &[]).await;
    assert_eq!(up.verdict(kind.name).await.error_detail, None);
    let name = on_global(&world.of_zone(kind, "item", DATAPLANE), "zone-1").key.name;
    let before = world.global.index.current().find(kind, "default", &name).unwrap().revision;

    for (n, (kind, item, field)) in (2..).zip(claims(&world)) {
        let good = world.of_zone(kind, &format!("good-{n}"), DATAPLANE);
        let sent = if kind.name == "Dataplane" { vec![item, good] } else { vec![item] };
        up.send(kind.name, n, &sent, &[]).await;
        let message = up.verdict(kind.name).await.error_detail.unwrap().message;
        let says =
            [field, "names zone \"zone-2\", but zone \"zone-1\" sends it", "apply it on the zone it names"];
        assert!(says.iter().all(|words| message.contains(words)), "{message}");
        assert!(message.starts_with("item-") && !message.contains("good-"), "only the bad one: {message}");
        let keeps =
            "global refused ".to_owned() + kind.name + " and keeps what it had; correct it in the zone";
        world.note("zone-1", &[&keeps, field]).await;
    }
    let index = world.global.index.current();
    assert_eq!(index.find(kind, "default", &name).unwrap().revision, before, "it stays as it was");
    assert_eq!(index.count(kind), 1 + 3, "the good ones beside the bad ones were taken");
    assert_eq!(index.count(&kinds::zone_ingress::KIND) + index.count(&kinds::zone_egress::KIND), 0);
    assert_eq!(total(&metrics, "kds_zone_attribution_refusals_total"), 6);
    assert_eq!(total(&metrics, "kds_zone_attribution_rewrites_total"), 0);

    // Named right, it is taken, and the note is gone.
    up.send(kind.name, 9, &[world.of_zone(kind, "item", DATAPLANE)], &[]).await;
    assert_eq!(up.verdict(kind.name).await.error_detail, None);
    let notes = world.notes("zone-1");
    assert!(notes.iter().all(|note| !note.contains("refused Dataplane")), "{notes:?}");
}

#[tokio::test]
async fn what_another_one_owns_is_not_overwritten_and_both_are_named() {
    let world = World::new().await;
    let kind = &kinds::dataplane::KIND;
    let owner = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut owners = owner.answer().await.unwrap();
    let theirs = on_global(&world.of_zone(kind, "theirs", DATAPLANE), "zone-1");
    owners.send_as_named(kind.name, 1, std::slice::from_ref(&theirs), &[]).await;
    assert_eq!(owners.verdict(kind.name).await.error_detail, None);
    world.global.put(world.policy("theirs")).await;

    let thief = Scripted::like_kumas(&world.dial, "zone-2").await;
    let mut up = thief.answer().await.unwrap();
    let stolen = [
        (kind, theirs, "it is the name of what zone \"zone-1\" calls so"),
        (&mesh_timeout::KIND, world.policy("theirs"), "it may be another zone's"),
    ];
    for (n, (kind, item, owner)) in (1..).zip(stolen) {
        let name = item.name().to_owned();
        let before = world.global.index.current().find(kind, "default", &name).unwrap().clone();
        let removed = format!("{name}.default");
        up.send_as_named(kind.name, n, &[item.with_label("stolen", "yes")], &[&removed]).await;
        let message = up.verdict(kind.name).await.error_detail.unwrap().message;
        let thief =
            format!("user error\n{removed}: {name:?} is not the name on global of what zone \"zone-2\"");
        assert!(message.starts_with(&thief) && message.ends_with(owner), "{message}");
        let index = world.global.index.current();
        assert_eq!(index.find(kind, "default", &name), Some(&before), "neither written nor removed");
        world.note("zone-2", &["is not the name on global", owner]).await;
        let refused = world.notes("zone-1").into_iter().find(|note| note.contains("refused"));
        assert_eq!(refused, None, "the owner has nothing to do with it");
    }
}

/// What a zone says to others is what their decoders read of it, whatever it calls that and whatever else it writes.
#[tokio::test]
async fn a_zone_tells_others_how_its_services_are_called_and_nothing_else() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut up = zone.answer().await.unwrap();
    let produced = |kind: &'static Kind, name: &str, spec: &serde_json::Value| {
        let policy = world.global.resource(kind, "default", name, Origin::Global).with_spec(spec.to_string());
        policy.with_label(labels::POLICY_ROLE, "producer").with_label(labels::NAMESPACE, "demo")
    };
    let to =
        json!([{"targetRef": {"kind": "MeshService", "name": "redis"}, "default": {"idleTimeout": "1s"}}]);
    let (all, patches) =
        (json!({"kind": "Mesh"}), json!({"appendModifications": [{"cluster": {"operation": "Remove"}}]}));
    let rules = json!([{"default": {"allow": [{"spiffeID": {"type": "Prefix", "value": "spiffe://default.zone-1.mesh.local/workload"}}]}}]);
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    let root = ca::create_root("default", &key, TimeDelta::days(1), DateTime::UNIX_EPOCH).unwrap();
    let trust = |name: &str, domain: &str| {
        let bundle = json!({"type": "Pem", "pem": {"value": root.certificate}});
        produced(&mesh_trust::KIND, name, &json!({"trustDomain": domain, "caBundles": [bundle]}))
    };
    let sent = [
        produced(&mesh_timeout::KIND, "timeout", &json!({"to": to})),
        produced(&mesh_timeout::KIND, "inbound", &json!({"rules": [{"default": {"idleTimeout": "1s"}}]})),
        produced(&mesh_proxy_patch::KIND, "patch", &json!({"targetRef": all, "to": to, "default": patches})),
        produced(
            &mesh_traffic_permission::KIND,
            "permission",
            &json!({"targetRef": all, "to": to, "rules": rules}),
        ),
        trust("own", "default.zone-1.mesh.local"),
        trust("foreign", "default.zone-2.mesh.local"),
        trust("named", "zone-2.zone-1.mesh.local"),
    ];
    let kinds: std::collections::BTreeSet<&str> = sent.iter().map(|resource| resource.kind().name).collect();
    for (nonce, kind) in (1..).zip(&kinds) {
        let of_kind: Vec<Resource> = sent.iter().filter(|one| one.kind().name == *kind).cloned().collect();
        up.send(kind, nonce, &of_kind, &[]).await;
        assert_eq!(up.verdict(kind).await.error_detail, None, "{kind} is kept, for who looks at the zone");
    }
    let other = Scripted::like_kumas(&world.dial, "zone-3").await;
    let mut down = other.ask(kinds.iter().map(|kind| other.first(kind)).collect()).await.unwrap();
    let mut told = std::collections::BTreeSet::new();
    for _ in &kinds {
        let response = down.next().await;
        told.extend(response.resources.iter().map(|item| (response.type_url.clone(), item.name.clone())));
    }
    let name = |resource: &Resource| {
        let key = on_global(resource, "zone-1").key;
        (key.kind.name.to_owned(), common::kds::names::delta_name(&key.name, &key.mesh))
    };
    // zone-3 looks at what a MeshIdentity gives zone-1 before it believes the last.
    assert_eq!(told, [&sent[0], &sent[4], &sent[6]].map(name).into());
}
