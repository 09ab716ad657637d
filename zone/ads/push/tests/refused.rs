//! What an Envoy would refuse is not sent, and who had an earlier version of it keeps that.

use super::*;
use crate::generator::{Encoded, ResourceCollection, SharedResources};

const TIMEOUT: &str = "
type: MeshTimeout
mesh: default
name: quick
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s, http: {requestTimeout: 9s}}}]}
";

fn id(name: &str) -> ProxyId {
    ProxyId::new(ProxyKind::Dataplane, "default", name)
}

/// `p-0` and `p-1` call `web`, which `p-1` serves.
fn world() -> World {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    for n in 0..2 {
        world.put(&dataplane(n, "web"), "east");
    }
    world.settle();
    world
}

fn dataplane(n: u32, called: &str) -> String {
    let service = if n == 1 { "web" } else { "client" };
    format!(
        "{{type: Dataplane, mesh: default, name: p-{n}, networking: {{address: 127.0.1.{n}, inbound: [{{port: 80, servicePort: \
         81, tags: {{kuma.io/service: {service}, kuma.io/protocol: http}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: \
         {called}}}}}, {{port: 2, tags: {{kuma.io/service: db}}}}]}}}}"
    )
}

fn patch(top: &str, modifications: &str) -> String {
    format!(
        "{{type: MeshProxyPatch, mesh: default, name: broken, spec: {{targetRef: {top}, default: {{appendModifications: \
         [{modifications}]}}}}}}"
    )
}

const NO_END: &str = "{httpFilter: {operation: AddLast, match: {origin: outbound}, value: '{name: late, typedConfig: \
                      {\"@type\": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, maxRequestBytes: 1}}'}}";
const FINE: &str = "{cluster: {operation: Patch, match: {name: web}, value: 'connectTimeout: 3s'}}";
const NO_TIME: &str = "{cluster: {operation: Patch, match: {name: web}, value: 'lbPolicy: 77'}}";

fn at(world: &World, name: &str, of_type: &str, resource: &str) -> Option<Arc<Encoded>> {
    world.has[&id(name)].get(of_type, resource)
}

fn listener(world: &World, name: &str) -> Option<Arc<Encoded>> {
    let all = world.has[&id(name)].of_type(type_url::LISTENER).map(|(_, listener)| listener);
    let mut called = all.filter(|listener| listener.origin == "outbound" && listener.name.ends_with(":1"));
    called.next()
}

fn refusals(world: &World, name: &str) -> Vec<String> {
    world.problems[&id(name)].iter().filter(|problem| problem.contains("would refuse")).cloned().collect()
}

#[test]
fn r75_a_listener_that_is_broken_stays_as_it_was_until_it_is_corrected() {
    let mut world = world();
    let before = listener(&world, "p-0").unwrap();
    world.put(&patch("{kind: Mesh}", &format!("{FINE}, {NO_END}")), "");
    world.put(TIMEOUT, "");
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(Arc::clone(&before)), "the last good one");
    let cluster = at(&world, "p-0", type_url::CLUSTER, "web").unwrap().to_json().unwrap();
    assert_eq!(cluster["connectTimeout"], "3s", "everything else goes on");
    let told = refusals(&world, "p-0");
    assert_eq!(told.len(), 1, "one of its listeners speaks HTTP: {told:?}");
    assert!(told[0].contains("since modification 1 of MeshProxyPatch broken"), "{told:?}");
    assert!(told[0].contains("filter_chains[0].filters[0].typed_config.http_filters"), "{told:?}");

    // Edits that do not mend it change nothing about that.
    world.put(&TIMEOUT.replace("9s", "8s"), "");
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(Arc::clone(&before)));

    world.put(&patch("{kind: Mesh}", FINE), "");
    world.settle();
    let after = listener(&world, "p-0").unwrap();
    assert!(after.version != before.version && after.broken_rules().is_empty());
    assert_eq!(refusals(&world, "p-0"), Vec::<String>::new());
}

#[test]
fn r75_a_cluster_that_is_broken_stays_as_it_was_and_who_is_new_gets_everything_else() {
    let mut world = world();
    let before = at(&world, "p-0", type_url::CLUSTER, "web").unwrap();
    world.put(&patch("{kind: Mesh}", NO_TIME), "");
    world.put(&dataplane(2, "web"), "east");
    world.settle();
    assert_eq!(at(&world, "p-0", type_url::CLUSTER, "web"), Some(Arc::clone(&before)));
    assert!(refusals(&world, "p-0")[0].contains("modification 0 of MeshProxyPatch broken"));
    // Who is new had none.
    assert_eq!(at(&world, "p-2", type_url::CLUSTER, "web"), None);
    assert!(at(&world, "p-2", type_url::CLUSTER, "db").is_some() && listener(&world, "p-2").is_some());
    assert_eq!(refusals(&world, "p-2"), refusals(&world, "p-0"));
    // Its endpoints go on meanwhile.
    let endpoints = at(&world, "p-0", type_url::ENDPOINT, "web").unwrap().version;
    world.put(&dataplane(1, "web").replace("127.0.1.1", "127.0.1.9"), "east");
    world.settle();
    assert!(at(&world, "p-0", type_url::ENDPOINT, "web").unwrap().version != endpoints);
    assert_eq!(at(&world, "p-0", type_url::CLUSTER, "web"), Some(Arc::clone(&before)));

    world.apply(ResourceKey::new(&common::policy::mesh_proxy_patch::KIND, "default", "broken"), None);
    world.settle();
    assert_eq!(at(&world, "p-2", type_url::CLUSTER, "web").map(|c| c.version), Some(before.version));
    assert_eq!(refusals(&world, "p-0"), Vec::<String>::new());
}

/// A policy that selects one proxy gives it a profile of its own, in which nothing was made before.
#[test]
fn what_is_kept_is_the_proxys_own_also_when_it_is_selected_anew_or_comes_again() {
    let mut world = world();
    let before = listener(&world, "p-0").unwrap();
    let one = "{kind: Dataplane, name: p-0}";
    world.put(&patch(one, NO_END), "");
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(Arc::clone(&before)));
    assert_eq!(refusals(&world, "p-1"), Vec::<String>::new());
    // Its stream breaks.
    world.meshes.leave(&id("p-0"));
    world.slice(1);
    world.has.remove(&id("p-0"));
    world.meshes.arrive(&proxy(ProxyKind::Dataplane, "p-0"));
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(Arc::clone(&before)));
    // A second stream comes before the first one is gone.
    world.has.remove(&id("p-0"));
    world.meshes.arrive(&proxy(ProxyKind::Dataplane, "p-0"));
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(Arc::clone(&before)));
    // Another patch of the same breaks it as well.
    world.put(&patch(one, &format!("{FINE}, {NO_END}")), "");
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(before));
    assert!(refusals(&world, "p-0")[0].contains("modification 1 of MeshProxyPatch broken"));
}

/// Another process begins with what was noted in the one before.
fn start_again(world: &mut World, kept: BTreeMap<ProxyId, KeptByProxy>) {
    let had = kept.into_iter().map(|(id, kept)| {
        let mut collection = ResourceCollection::default();
        kept.iter().for_each(|one| collection.insert(Arc::clone(one)));
        (id, ResourceSet::new(&collection, &SharedResources::default(), None))
    });
    world.meshes = Meshes::new(east(), Arc::clone(&world.index));
    world.meshes.remember(had.collect());
    world.has.clear();
}

#[test]
fn r75_what_is_kept_outlives_the_process() {
    let mut world = world();
    let before = listener(&world, "p-0").unwrap();
    world.put(&patch("{kind: Mesh}", NO_END), "");
    // What the listener leads to is not called by anybody any more.
    world.put(&dataplane(0, "client"), "east");
    world.settle();
    let kept = std::mem::take(&mut world.kept);
    let of_one: Vec<(&str, &str)> =
        kept[&id("p-0")].iter().map(|one| (one.origin, one.name.as_ref())).collect();
    assert!(of_one.contains(&(before.origin, &*before.name)) && of_one.len() > 2, "{of_one:?}");

    start_again(&mut world, kept);
    world.put(&dataplane(2, "web"), "east");
    ["p-0", "p-2"].iter().for_each(|name| world.meshes.arrive(&proxy(ProxyKind::Dataplane, name)));
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(before));
    for of_type in [type_url::CLUSTER, type_url::ENDPOINT] {
        assert!(at(&world, "p-0", of_type, "web").is_some(), "{of_type}");
    }
    assert!(listener(&world, "p-2").is_none(), "who never had it does without");
    assert!(!world.kept[&id("p-0")].is_empty() && world.kept[&id("p-2")].is_empty());

    world.put(&patch("{kind: Mesh}", FINE), "");
    world.settle();
    assert!(world.kept[&id("p-0")].is_empty());
    assert_eq!(at(&world, "p-0", type_url::CLUSTER, "web"), None);
}

#[test]
fn what_a_kept_listener_leads_to_stays_as_long_as_it_does() {
    let mut world = world();
    let before = listener(&world, "p-0").unwrap();
    world.put(&patch("{kind: Mesh}", NO_END), "");
    // Another service that speaks HTTP.
    world.put(&dataplane(0, "client"), "east");
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(before), "at the same address");
    for of_type in [type_url::CLUSTER, type_url::ENDPOINT] {
        assert!(at(&world, "p-0", of_type, "web").is_some(), "{of_type}");
    }
    world.put(&patch("{kind: Mesh}", FINE), "");
    world.settle();
    assert!(at(&world, "p-0", type_url::CLUSTER, "client").is_some());
    assert_eq!(at(&world, "p-0", type_url::CLUSTER, "web"), None);
    assert_eq!(at(&world, "p-0", type_url::ENDPOINT, "web"), None);
}

#[test]
fn what_belongs_to_one_proxy_is_kept_as_well_and_goes_with_what_it_is_for() {
    let mut world = world();
    let inbound = |world: &World| {
        let mut all = world.has[&id("p-0")].of_type(type_url::LISTENER).map(|(_, listener)| listener);
        all.find(|listener| listener.origin == "inbound")
    };
    let before = inbound(&world).unwrap();
    let broken = "{listener: {operation: Patch, match: {origin: inbound}, jsonPatches: [{op: remove, path: /address}]}}";
    world.put(&patch("{kind: Mesh}", broken), "");
    world.put(&dataplane(2, "web"), "east");
    world.settle();
    assert_eq!(inbound(&world), Some(Arc::clone(&before)));
    assert!(refusals(&world, "p-0")[0].contains("since modification 0 of MeshProxyPatch broken"));
    let fresh = &world.has[&id("p-2")];
    assert!(fresh.of_type(type_url::LISTENER).all(|(_, listener)| listener.origin != "inbound"));
    assert!(listener(&world, "p-2").is_some());
    // The port goes, and its listener with it.
    world.put(&dataplane(0, "web").replace("port: 80,", "port: 90,"), "east");
    world.settle();
    assert_eq!(inbound(&world), None);
}

#[test]
fn what_a_patch_adds_where_something_listens_is_left_out() {
    let mut world = world();
    let added = |name: &str, port: u32| {
        format!(
            "{{listener: {{operation: Add, value: '{{name: {name}, address: {{socketAddress: {{address: 127.0.0.1, portValue: \
             {port}}}}}, filterChains: [{{filters: []}}]}}'}}}}"
        )
    };
    let modifications = [added("b", 7), added("a", 7), added("c", 1), added("d", 8)].join(", ");
    world.put(&patch("{kind: Mesh}", &modifications), "");
    world.settle();
    let has = &world.has[&id("p-0")];
    let there = |name: &str| has.get(type_url::LISTENER, name).is_some();
    assert_eq!(["a", "b", "c", "d"].map(there), [true, false, false, true]);
    let told: Vec<&String> =
        world.problems[&id("p-0")].iter().filter(|p| p.contains("is taken by")).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("Listener \"b\"") && told[0].ends_with("127.0.0.1 7 is taken by a"),
        "{told:?}"
    );
    assert!(told[1].starts_with("Listener \"c\"") && told[1].contains("what it calls there"), "{told:?}");
}

#[test]
fn two_clusters_of_one_name_are_told() {
    let mut world = world();
    let added = "{cluster: {operation: Add, value: '{name: web, type: STATIC, connectTimeout: 1s}'}}";
    world.put(&patch("{kind: Mesh}", added), "");
    world.settle();
    let cluster = at(&world, "p-0", type_url::CLUSTER, "web").unwrap();
    assert_eq!(cluster.origin, "mesh-proxy-patch");
    let told = world.problems[&id("p-0")].iter().find(|problem| problem.starts_with("Cluster \"web\""));
    assert!(told.is_some_and(|told| told.contains("is there twice")), "{:?}", world.problems[&id("p-0")]);
}

/// What was applied was valid, but another version of this program may have judged that.
#[test]
fn the_policy_that_breaks_something_is_named() {
    let mut world = world();
    let before = listener(&world, "p-0").unwrap();
    let all = "targetRef: {kind: Mesh}";
    let nowhere = "{backends: [{type: File, file: {path: ''}}]}";
    world.put(
        &format!(
            "{{type: MeshAccessLog, mesh: default, name: nowhere, spec: {{{all}, to: [{{{all}, default: {nowhere}}}], \
             from: [{{{all}, default: {nowhere}}}]}}}}"
        ),
        "",
    );
    world.put(&TIMEOUT.replace("7s", "0s"), "");
    world.settle();
    assert_eq!(listener(&world, "p-0"), Some(before));
    let told = refusals(&world, "p-0");
    let named = |resource: &str, by: &str| {
        told.iter().any(|told| told.starts_with(resource) && told.contains(&format!("(since {by})")))
    };
    assert!(named("Cluster \"web\"", "MeshTimeout quick"), "{told:?}");
    assert!(named("Listener \"outbound:127.0.0.1:1\"", "MeshAccessLog nowhere"), "{told:?}");
    assert!(named("Listener \"inbound:127.0.1.0:80\"", "MeshAccessLog nowhere"), "{told:?}");
}

#[test]
fn what_ingresses_share_is_looked_at_and_stays_as_it_was() {
    let mut world = World::new(0);
    world.put(
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}",
        "",
    );
    world.put_authority();
    world.put(
        "{type: ZoneIngress, name: east-in, zone: east, networking: {address: 10.0.0.9, port: 1}}",
        "east",
    );
    world.put(&dataplane(1, "db"), "east");
    world.settle();
    let ingress = ProxyId::new(ProxyKind::Ingress, "", "east-in");
    let behind = |world: &World| -> Vec<Arc<Encoded>> {
        world.has[&ingress].of_type(type_url::ENDPOINT).map(|(_, one)| one).collect()
    };
    let told = |world: &World| -> Vec<String> {
        world.problems[&ingress].iter().filter(|told| told.contains("would refuse")).cloned().collect()
    };
    let before = behind(&world);
    assert_eq!((before.len(), told(&world)), (1, Vec::new()));
    let broken = dataplane(1, "db").replace("{port: 80,", "{port: 70000,");
    world.put(&broken, "east");
    world.settle();
    assert_eq!(behind(&world), before);
    assert!(told(&world).len() == 1 && told(&world)[0].contains("port_value"), "{:?}", told(&world));
    // Its stream breaks, and then the process ends.
    world.meshes.leave(&ingress);
    world.slice(1);
    world.has.remove(&ingress);
    world.meshes.arrive(&proxy(ProxyKind::Ingress, "east-in"));
    world.settle();
    assert_eq!(behind(&world), before);
    let kept = std::mem::take(&mut world.kept);
    start_again(&mut world, kept);
    world.meshes.arrive(&proxy(ProxyKind::Ingress, "east-in"));
    world.settle();
    assert_eq!(behind(&world), before);
    world.put(&dataplane(1, "db").replace("{port: 80,", "{port: 90,"), "east");
    world.settle();
    assert!(behind(&world) != before && told(&world).is_empty(), "{:?}", told(&world));
}
