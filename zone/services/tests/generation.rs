use chrono::Duration;
use common::model::{
    Labels,
    kinds::{
        dataplane, mesh,
        mesh_service::{self, ServiceState},
    },
    labels, names,
};
use serde_json::{Value, json};

use super::world::{World, proxy};

fn web(name: &str) -> String {
    proxy(name, "web", 80, "Ready", "")
}

#[test]
fn a_service_is_made_of_a_tag() {
    let mut world = World::generating();
    world.put(
        "{type: Dataplane, mesh: default, name: web-1, labels: {team: a, kuma.io/x: y}, networking: {address: \
         127.0.0.1, inbound: [{port: 80, name: main, tags: {kuma.io/service: web, kuma.io/protocol: http}}, \
         {port: 81, tags: {kuma.io/service: web}}, {port: 90, tags: {kuma.io/service: No_Label}}]}}",
    );
    world.settle();
    assert!(world.service("No_Label").is_none());
    let service = world.service("web").expect("it was made");
    let spec: Value = serde_json::from_slice(&service.spec).unwrap();
    assert_eq!(
        spec,
        json!({
            "state": "Available",
            "selector": {"dataplaneTags": {"kuma.io/service": "web"}},
            "ports": [
                {"name": "main", "port": 80, "targetPort": 80, "appProtocol": "http"},
                {"name": "81", "port": 81, "targetPort": 81, "appProtocol": "tcp"},
            ],
            "identities": [{"type": "ServiceTag", "value": "web"}],
        })
    );
    let mut shown = service.labels.clone();
    shown.retain(|key, _| !key.starts_with(labels::PROPAGATED_PREFIX));
    let expected = [
        ("kuma.io/display-name", "web"),
        ("kuma.io/env", "universal"),
        ("kuma.io/managed-by", "meshservice-generator"),
        ("kuma.io/mesh", "default"),
        ("kuma.io/origin", "zone"),
        ("kuma.io/zone", "east"),
        ("team", "a"),
    ];
    assert_eq!(shown, Labels::from(expected));
}

/// What global sends is called by a hash, which anybody can make who knows zone and name.
#[test]
fn no_tag_makes_a_service_in_the_place_of_one_of_another_zone() {
    let mut world = World::generating();
    let taken = names::hashed("default", "bank", Some("west"), None);
    world.put(&proxy("p", &taken, 80, "Ready", ""));
    world.put(&proxy("q", "bank-7d4b9c8f6d-x2x4z", 80, "Ready", ""));
    world.settle();
    assert!(world.service(&taken).is_none());
    assert!(world.service("bank-7d4b9c8f6d-x2x4z").is_some());
}

#[test]
fn the_mode_of_the_mesh_decides() {
    let mut world = World::new();
    world.put(&web("web-1"));
    world.settle();
    assert!(world.service("web").is_none(), "the mesh is not known");
    for (mode, made) in [
        ("Disabled", false),
        ("Everywhere", true),
        ("Disabled", false),
        ("ReachableBackends", true),
        ("Exclusive", true),
    ] {
        world.put(&format!("{{type: Mesh, name: default, meshServices: {{mode: {mode}}}}}"));
        world.settle();
        assert_eq!(world.service("web").is_some(), made, "{mode}");
    }
    world.delete(&mesh::KIND, "default");
    world.settle();
    assert!(world.service("web").is_none(), "the mesh is gone");
}

#[test]
fn what_somebody_wrote_is_left_alone() {
    let mut world = World::generating();
    world.put("{type: MeshService, mesh: default, name: web, spec: {ports: [{port: 1}]}}");
    world.put(&web("web-1"));
    world.settle();
    let spec = world.spec("web");
    assert_eq!((spec.ports[0].port, spec.selector), (1, None));
    world.delete(&dataplane::KIND, "web-1");
    world.now += Duration::days(1);
    world.settle();
    assert!(world.service("web").is_some());
    world.put("{type: Mesh, name: default}");
    world.settle();
    assert!(world.service("web").is_some());
}

#[test]
fn a_service_nobody_serves_stays_for_its_time() {
    let mut world = World::generating();
    world.put(&web("web-1"));
    world.settle();
    let address = world.addresses();
    world.delete(&dataplane::KIND, "web-1");
    world.settle();
    let going = |world: &World| {
        let service = world.service("web").expect("it stays");
        service.label(labels::DELETION_GRACE_PERIOD_STARTED_AT).map(str::to_owned)
    };
    assert_eq!(going(&world).as_deref(), Some("1970-01-01T00:00:00Z"));
    assert_eq!(world.spec("web").state, ServiceState::Unavailable);

    world.now += Duration::minutes(59);
    world.put(&web("web-2"));
    world.settle();
    assert_eq!(going(&world), None, "somebody serves it again");
    assert_eq!(world.addresses(), address);

    world.delete(&dataplane::KIND, "web-2");
    world.settle();
    world.now += Duration::minutes(30);
    world.die();
    world.settle();
    assert!(going(&world).is_some(), "who leads is told by the label when it began");
    world.now += Duration::minutes(30);
    world.settle();
    assert!(world.service("web").is_none());
}

#[test]
fn where_ports_clash_what_is_there_stays_while_one_has_it() {
    let mut world = World::generating();
    let ports = |world: &World| world.spec("web").ports.iter().map(|p| p.port).collect::<Vec<_>>();
    world.put(&proxy("b", "web", 80, "Ready", ""));
    world.now += Duration::seconds(1);
    world.put(&proxy("a", "web", 90, "Ready", ""));
    world.settle();
    assert_eq!(ports(&world), [80], "the older decides");
    world.put(&proxy("b", "web", 90, "Ready", ""));
    world.put(&proxy("a", "web", 80, "Ready", ""));
    world.settle();
    assert_eq!(ports(&world), [80], "one of them still has it");
    world.put(&proxy("a", "web", 70, "Ready", ""));
    world.settle();
    assert_eq!(ports(&world), [90], "nobody has it, so the older decides again");
}

#[test]
fn labels_are_those_of_most_proxies_and_others_stay() {
    let mut world = World::generating();
    for (name, team) in [("a", "red"), ("b", "blue"), ("c", "blue")] {
        world.put(&proxy(name, "web", 80, "Ready", &format!("team: {team}")));
    }
    world.settle();
    let label = |world: &World, key: &str| world.service("web").and_then(|s| s.label(key).map(str::to_owned));
    assert_eq!(label(&world, "team").as_deref(), Some("blue"));
    let mut edited = (**world.service("web").unwrap()).clone().with_label("owner", "ann");
    edited.revision = 0;
    let shown = serde_json::to_string(&edited.labels).unwrap();
    let spec = String::from_utf8(edited.spec.to_vec()).unwrap();
    world.put(&format!("{{type: MeshService, mesh: default, name: web, labels: {shown}, spec: {spec}}}"));
    for name in ["b", "c"] {
        world.put(&proxy(name, "web", 80, "Ready", ""));
    }
    world.settle();
    assert_eq!(label(&world, "team").as_deref(), Some("red"));
    world.delete(&dataplane::KIND, "a");
    world.settle();
    assert_eq!(label(&world, "team"), None);
    assert_eq!(label(&world, "owner").as_deref(), Some("ann"));
}

/// A dataplane that a proxy brought along with this token, with an inbound for each of these services.
fn registered(name: &str, token: &str, services: std::ops::Range<usize>) -> String {
    let inbounds = services.map(|n| json!({"port": n + 1, "tags": {"kuma.io/service": format!("s-{n:05}")}}));
    json!({
        "type": "Dataplane", "mesh": "default", "name": name,
        "labels": {"kuma.io/registered-by": "proxy", "strait.io/registered-with": token},
        "networking": {"address": "127.0.0.1", "inbound": inbounds.collect::<Vec<_>>()},
    })
    .to_string()
}

#[test]
fn what_is_made_of_a_proxy_grows_with_what_it_says() {
    let bytes = |world: &World| {
        let services = world.index.list(&mesh_service::KIND);
        services.map(|s| s.spec.len() + s.status.as_ref().map_or(0, |status| status.len())).sum::<usize>()
    };
    let mut of_each = Vec::new();
    for services in [8, 64] {
        let mut world = World::generating();
        let text = registered("web-1", "t", 0..services);
        world.put(&text);
        world.settle();
        assert!(bytes(&world) < 16 * text.len());
        of_each.push(bytes(&world) / services);
    }
    assert!(of_each[1] <= of_each[0] + 16, "{of_each:?}");
}

#[test]
fn who_comes_again_with_other_tags_has_a_share_of_the_services() {
    let mut world = World::generating();
    let count = |world: &World| world.index.list(&mesh_service::KIND).count();
    for round in 0..8 {
        world.put(&registered("web-1", "t", round * 64..(round + 1) * 64));
        world.settle();
        world.delete(&dataplane::KIND, "web-1");
        world.settle();
        world.now += Duration::minutes(1);
    }
    assert_eq!(count(&world), 256);
    // Others are not concerned, nor is what they have in common with it.
    world.put(&registered("api-1", "other", 500..510));
    world.put(&proxy("b", "bank", 80, "Ready", ""));
    world.settle();
    assert_eq!(count(&world), 267);
    // What waits is made when something of before has gone.
    world.put(&registered("web-1", "t", 600..664));
    world.settle();
    assert!(world.service("s-00600").is_none());
    world.now += Duration::minutes(55);
    world.settle();
    assert!(world.service("s-00600").is_some() && world.service("s-00663").is_some());
}
