//! Endpoints, and what they neither change nor wait for.

use common::policy::mesh_load_balancing_strategy;

use super::*;

#[test]
fn an_endpoint_more_leaves_everything_else_as_it_is() {
    let mut world = World::new(0);
    world.put_services();
    let mesh =
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}";
    world.put(mesh, "");
    world.put_authority();
    let dataplane = |name: &str, last: u32, protocol: &str| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.{last}, inbound: [{{port: 80, \
             servicePort: 81, tags: {{kuma.io/service: web, version: v1, kuma.io/protocol: {protocol}}}}}], outbound: \
             [{{port: 1, tags: {{kuma.io/service: web}}}}, {{port: 2, tags: {{kuma.io/service: web, version: v1}}}}, \
             {{port: 3, backendRef: {{kind: MeshService, name: web-here, port: 80}}}}]}}}}"
        )
    };
    world.put(&dataplane("p-0", 1, "http"), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");

    let before = world.has[&client].clone();
    world.put(&dataplane("p-1", 2, "http"), "east");
    world.settle();
    let after = world.has[&client].clone();
    let changes = after.changes_since(&before);
    assert_eq!(changes.0.keys().copied().collect::<Vec<_>>(), [type_url::ENDPOINT]);
    assert_eq!(
        changes.of(type_url::ENDPOINT).count(),
        3,
        "the service, its subset and the resource: {changes:?}"
    );

    // Another protocol is more than another endpoint.
    world.put(&dataplane("p-1", 2, "tcp"), "east");
    world.settle();
    assert!(world.has[&client].changes_since(&after).of(type_url::LISTENER).next().is_some());
}

/// Endpoints of clients overtake whatever else is being compiled.
#[test]
fn an_endpoint_does_not_wait_for_a_policy() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..500).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    let caller = format!(
        "{{type: Dataplane, mesh: default, name: p-0, networking: {{address: 127.0.0.1, inbound: [{{port: 8000, tags: {{kuma.io/service: web}}}}], outbound: [{outbounds}]}}}}"
    );
    world.put(&caller, "east");
    let server = |port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: s-7, networking: {{address: 127.0.0.7, inbound: [{{port: {port}, tags: {{kuma.io/service: s-7}}}}]}}}}"
        )
    };
    world.put(&server(80), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let before = world.has[&client].clone();

    world.put("{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}}", "");
    world.slice(1);
    assert!(!world.meshes.is_idle(), "a policy for all of them is more than one batch");
    world.put(&server(81), "east");
    world.slice(1);
    let changes = world.has[&client].changes_since(&before);
    assert!(!world.meshes.is_idle());
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["s-7"]);
    assert_eq!(changes.0.len(), 1, "nothing half done is published: {:?}", changes.0.keys());
    world.settle();
    assert_eq!(world.has[&client].changes_since(&before).of(type_url::CLUSTER).count(), 500);
}

/// Who is selected by another policy gets everything anew, and endpoints until then.
#[test]
fn an_endpoint_does_not_wait_for_a_new_selection() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..500).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    let caller = format!(
        "{{type: Dataplane, mesh: default, name: p-0, networking: {{address: 127.0.0.1, inbound: [{{port: 8000, tags: \
         {{kuma.io/service: web, version: v1}}}}], outbound: [{outbounds}]}}}}"
    );
    world.put(&caller, "east");
    let server = |port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: s-7, networking: {{address: 127.0.0.7, inbound: [{{port: {port}, tags: \
             {{kuma.io/service: s-7}}}}]}}}}"
        )
    };
    world.put(&server(80), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let before = world.has[&client].clone();

    let timeout = |tag: &str| {
        format!(
            "{{type: MeshTimeout, mesh: default, name: some, spec: {{targetRef: {{kind: MeshSubset, tags: {{{tag}}}}}, to: \
             [{{targetRef: {{kind: Mesh}}, default: {{connectionTimeout: 7s}}}}]}}}}"
        )
    };
    world.put(&timeout("version: v1"), "");
    for port in 81..84 {
        world.slice(1);
        assert!(!world.meshes.is_idle(), "all it calls is more than one batch");
        world.put(&server(port), "east");
    }
    world.slice(1);
    let changes = world.has[&client].changes_since(&before);
    assert!(!world.meshes.is_idle());
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["s-7"]);
    assert_eq!(changes.0.len(), 1, "nothing half done is published: {:?}", changes.0.keys());
    // It changes its mind, and back, before all of it is made.
    world.put(&timeout("version: v2"), "");
    world.slice(1);
    world.put(&timeout("version: v1"), "");
    world.slice(1);
    world.put(&server(84), "east");
    world.settle();
    world.check(0, 0);
    assert_eq!(world.has[&client].changes_since(&before).of(type_url::CLUSTER).count(), 500);
    world.meshes.leave(&client);
    assert_eq!(world.meshes.held(), 0, "nothing of what it had before is kept");
}

/// A certificate that is only to be renewed serves until it ends, so nobody waits for the next one.
#[test]
fn what_cannot_be_renewed_holds_up_nothing() {
    let mut world = World::new(0);
    let with_tls =
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}";
    world.put(with_tls, "");
    world.put_authority();
    let server = |last: u32, port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: p-{last}, networking: {{address: 127.0.0.{}, inbound: [{{port: {port}, \
             tags: {{kuma.io/service: web}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: web}}}}]}}}}",
            last + 1
        )
    };
    world.put(&server(0, 80), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let before = world.has[&client].clone();

    assert_eq!(world.refuse_renewals(), std::slice::from_ref(&client));

    world.put(&server(1, 81), "east");
    world.put("{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}}", "");
    world.settle();
    let changes = world.has[&client].changes_since(&before);
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["web"]);
    assert_eq!(changes.of(type_url::CLUSTER).collect::<Vec<_>>(), ["web"]);
    assert_eq!(world.problems[&client], ["the authority is away"]);

    // Once it is signed nobody is told of trouble any more.
    world.meshes.retry(&client);
    world.settle();
    assert!(world.problems[&client].is_empty());
    assert!(world.has[&client].changes_since(&before).of(type_url::SECRET).next().is_some());

    // Without mutual TLS there is nothing to renew, and nothing that could not be renewed.
    assert!(world.refuse_renewals().contains(&client));
    world.settle();
    assert_eq!(world.problems[&client], ["the authority is away"]);
    world.put("{type: Mesh, name: default}", "");
    world.settle();
    assert!(world.problems[&client].is_empty());
}

/// What one policy names is all that is compiled for it.
#[test]
fn a_policy_for_one_service_touches_those_who_call_it() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    for i in 0..PROXIES {
        let yaml = format!(
            "{{type: Dataplane, mesh: default, name: p-{i}, networking: {{address: 127.0.0.{}, inbound: [{{port: 80, tags: {{kuma.io/service: web}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: s-{}}}}}]}}}}",
            i + 1,
            i % 2
        );
        world.put(&yaml, "east");
    }
    world.settle();
    world.has.clear();
    world.put("{type: MeshTimeout, mesh: default, name: one, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: s-1}, default: {connectionTimeout: 7s}}]}}", "");
    world.settle();
    let told: Vec<&str> = world.has.keys().map(|id| &*id.name).collect();
    assert_eq!(told, ["p-1", "p-3", "p-5"]);
}

/// Proxies in different places see the endpoints of a service differently, and each change once.
#[test]
fn an_endpoint_is_told_to_each_class_as_it_sees_it() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..300).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    for (i, node) in ["a", "b", "a"].into_iter().enumerate() {
        let caller = format!(
            "{{type: Dataplane, mesh: default, name: p-{i}, networking: {{address: 127.0.0.{}, inbound: [{{port: 8000, tags: \
             {{kuma.io/service: web, node: {node}}}}}], outbound: [{outbounds}]}}}}",
            i + 1
        );
        world.put(&caller, "east");
    }
    let server = |name: &str, node: &str, port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.7, inbound: [{{port: {port}, \
             tags: {{kuma.io/service: {name}, node: {node}}}}}]}}}}"
        )
    };
    world.put(&server("s-7", "a", 80), "east");
    world.put(&server("s-8", "a", 80), "east");
    world.settle();
    let near = |to: &str, key: &str| {
        format!(
            "{{type: MeshLoadBalancingStrategy, mesh: default, name: near, spec: {{to: [{{targetRef: {{kind: MeshService, \
             name: {to}}}, default: {{localityAwareness: {{localZone: {{affinityTags: [{{key: {key}}}]}}}}}}}}]}}}}"
        )
    };
    world.put(&near("s-7", "node"), "");
    world.settle();
    world.check(0, 0);
    let has = |world: &World, i: usize| {
        world.has[&ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}"))].clone()
    };
    let endpoints =
        |world: &World, i: usize, name: &str| has(world, i).get(type_url::ENDPOINT, name).unwrap();
    assert!(Arc::ptr_eq(&endpoints(&world, 0, "s-7"), &endpoints(&world, 2, "s-7")), "one class, one part");
    assert_ne!(endpoints(&world, 0, "s-7").version, endpoints(&world, 1, "s-7").version);
    assert!(Arc::ptr_eq(&endpoints(&world, 0, "s-8"), &endpoints(&world, 1, "s-8")), "nothing is said of it");

    // An endpoint overtakes a policy for everything, and each class sees it in its way.
    let before = [has(&world, 0), has(&world, 1)];
    world.put("{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}}", "");
    world.slice(1);
    world.put(&server("s-7", "a", 81), "east");
    world.slice(1);
    assert!(!world.meshes.is_idle());
    for (i, before) in before.iter().enumerate() {
        let changes = has(&world, i).changes_since(before);
        assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["s-7"], "p-{i}");
        assert_eq!(changes.0.len(), 1, "p-{i}");
    }
    let text = |world: &World, i: usize| endpoints(world, i, "s-7").to_json().unwrap().to_string();
    assert!(text(&world, 0).contains("node=a") && !text(&world, 1).contains("node="));
    world.settle();
    world.check(0, 1);

    // Another tag tells what is near, then nothing does.
    world.put(&near("s-7", "kuma.io/service"), "");
    world.settle();
    world.check(0, 2);
    assert_eq!(endpoints(&world, 0, "s-7").version, endpoints(&world, 1, "s-7").version);
    world.apply(ResourceKey::new(&mesh_load_balancing_strategy::KIND, "default", "near"), None);
    world.settle();
    world.check(0, 3);
    for i in 0..PROXIES {
        world.meshes.leave(&ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}")));
    }
    assert_eq!(world.meshes.held(), 0);
}
