//! What tells who calls: made once for all who call, and told to each in its own words.

use std::sync::Arc;

use super::{ProxyId, ProxyKind, World, proxy};
use crate::generator::{ResourceSet, type_url};

/// Policies and older ones that tell who calls: in a log, in a trace, in a header.
const TELLING: [&str; 3] = [
    "{type: MeshAccessLog, mesh: default, name: log, spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [{type: \
     File, file: {path: /tmp/log, format: {type: Plain, plain: 'from %KUMA_SOURCE_SERVICE% at %KUMA_SOURCE_ADDRESS%'}}}]}}]}}",
    "{type: MeshTrace, mesh: default, name: trace, spec: {default: {backends: [{type: OpenTelemetry, openTelemetry: \
     {endpoint: 'collector:4317'}}]}}}",
    "{type: FaultInjection, mesh: default, name: fault, sources: [{match: {kuma.io/service: '*'}}], destinations: \
     [{match: {kuma.io/service: '*', kuma.io/protocol: http}}], conf: {abort: {percentage: 1, httpStatus: 500}}}",
];

fn dataplane(i: usize, address: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: p-{i}, networking: {{address: {address}, inbound: [{{port: 80, tags: \
         {{kuma.io/service: s-{i}, kuma.io/protocol: http}}}}], outbound: [{{port: 9001, tags: {{kuma.io/service: \
         s-7}}}}, {{port: 9002, tags: {{kuma.io/service: s-8}}}}]}}}}"
    )
}

fn id(i: usize) -> ProxyId {
    ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}"))
}

fn listener(set: &ResourceSet, port: u16) -> String {
    let name = format!("outbound:127.0.0.1:{port}");
    set.get(type_url::LISTENER, &name).unwrap().to_json().unwrap().to_string()
}

/// A mesh in which three of different services call the same.
fn world() -> World {
    let mut world = World::new(5);
    world.put("{type: Mesh, name: default}", "");
    for i in 0..3 {
        world.meshes.arrive(&proxy(ProxyKind::Dataplane, &format!("p-{i}")));
        world.put(&dataplane(i, &format!("10.0.0.{}", i + 1)), "east");
    }
    for service in [7, 8] {
        world.put(&dataplane(service, &format!("10.0.1.{service}")), "east");
    }
    world.settle();
    world
}

#[test]
fn what_tells_who_calls_is_made_once_and_told_to_each_in_its_own_words() {
    let mut world = world();
    let without = world.meshes.held();
    for policy in TELLING {
        world.put(policy, "");
    }
    world.settle();
    world.check(5, 0);
    assert_eq!(world.meshes.held(), without, "nothing more is made where callers differ in what is told");
    for i in 0..3 {
        let told = listener(&world.has[&id(i)], 9001);
        let own = [format!("from s-{i} at 10.0.0.{}:0", i + 1), format!("&kuma.io/service=s-{i}&")];
        assert!(own.iter().all(|own| told.contains(own)), "p-{i}: {told}");
        assert!((0..3).all(|other| other == i || !told.contains(&format!("s-{other}"))), "p-{i}: {told}");
        assert!(!told.contains('\u{10fffe}') && !told.contains('\u{10ffff}'), "p-{i}: {told}");
    }
}

#[test]
fn who_is_known_as_something_else_is_told_what_says_so_and_nobody_else_is() {
    let mut world = world();
    world.put(TELLING[0], "");
    world.settle();
    let before = world.has.clone();
    world.put(&dataplane(1, "fd00::1"), "east");
    world.settle();
    world.check(5, 1);
    let changes = world.has[&id(1)].changes_since(&before[&id(1)]);
    let listeners: Vec<&str> = changes.of(type_url::LISTENER).collect();
    assert!(listeners.contains(&"outbound:127.0.0.1:9001") && listeners.contains(&"outbound:127.0.0.1:9002"));
    assert!(listener(&world.has[&id(1)], 9001).contains("at [fd00::1]:0"), "an address before a port");
    assert!(changes.of(type_url::CLUSTER).all(|name| !["s-7", "s-8"].contains(&name)), "{changes:?}");
    for i in [0, 2] {
        assert!(world.has[&id(i)].is_same(&before[&id(i)]), "p-{i} calls and is called as before");
    }
}

#[test]
fn one_policy_for_one_service_leaves_what_others_are_called_by_as_it_is() {
    let mut world = world();
    for policy in TELLING {
        world.put(policy, "");
    }
    world.settle();
    let before = world.has.clone();
    world.put(
        "{type: MeshTimeout, mesh: default, name: one, spec: {to: [{targetRef: {kind: MeshService, name: s-7}, default: \
         {http: {requestTimeout: 7s}}}]}}",
        "",
    );
    world.settle();
    world.check(5, 2);
    for i in 0..3 {
        let changes = world.has[&id(i)].changes_since(&before[&id(i)]);
        assert_eq!(changes.of(type_url::LISTENER).collect::<Vec<_>>(), ["outbound:127.0.0.1:9001"], "p-{i}");
    }
    let stored = |i: usize| {
        let all = world.has[&id(i)].collection(type_url::LISTENER);
        let found =
            all.stored().find(|(name, _)| name.ends_with(":9001")).map(|(_, stored)| Arc::clone(stored));
        found.unwrap()
    };
    assert!(Arc::ptr_eq(&stored(0), &stored(2)), "it is kept once");
}
