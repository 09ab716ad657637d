use std::collections::BTreeSet;

use chrono::Duration;
use common::model::kinds::{
    dataplane,
    destinations::{MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
    mesh_service::{self, ServiceState},
    service_status::{DataplaneProxies, ServiceStatus},
};

use super::world::{World, proxy};
use crate::share::PARTS_OF_ZONE;

const MTLS: &str = "{type: Mesh, name: default, meshServices: {mode: Everywhere}, mtls: {enabledBackend: ca, \
                    backends: [{name: ca, type: builtin}]}}";

fn insight(name: &str, connected: bool, certified: bool) -> String {
    let end = if connected { "" } else { ", disconnectTime: '2026-01-01T00:00:01Z'" };
    let mtls = if certified { ", mTLS: {issuedBackend: ca}" } else { "" };
    format!(
        "{{type: DataplaneInsight, mesh: default, name: {name}, subscriptions: [{{id: '1', connectTime: \
         '2026-01-01T00:00:00Z'{end}}}]{mtls}}}"
    )
}

fn tls(world: &World) -> String {
    world.status(&mesh_service::KIND, "web").tls.unwrap_or_default().status
}

#[test]
fn proxies_are_counted() {
    let mut world = World::generating();
    world.put(&proxy("a", "web", 80, "NotReady", ""));
    world.put(&proxy("b", "web", 80, "NotReady", ""));
    world.settle();
    let counted =
        |world: &World| world.status(&mesh_service::KIND, "web").dataplane_proxies.unwrap_or_default();
    assert_eq!(counted(&world), DataplaneProxies { connected: 0, healthy: 0, total: 2 });
    assert_eq!(world.spec("web").state, ServiceState::Unavailable);
    world.put(&proxy("a", "web", 80, "Ready", ""));
    world.put(&insight("a", true, false));
    world.put(&insight("b", false, false));
    world.settle();
    assert_eq!(counted(&world), DataplaneProxies { connected: 1, healthy: 1, total: 2 });
    assert_eq!(world.spec("web").state, ServiceState::Available);
    world.delete(&dataplane::KIND, "a");
    world.settle();
    assert_eq!(counted(&world), DataplaneProxies { connected: 0, healthy: 0, total: 1 });
}

#[test]
fn tls_is_ready_for_good_once_everybody_is() {
    let mut world = World::generating();
    world.put(&proxy("a", "web", 80, "Ready", ""));
    world.put(&insight("a", true, true));
    world.settle();
    assert_eq!(tls(&world), "NotReady", "there is no mutual TLS");
    world.put(MTLS);
    world.put(&insight("a", true, false));
    world.settle();
    assert_eq!(tls(&world), "NotReady");
    world.put(&insight("a", true, true));
    world.settle();
    assert_eq!(tls(&world), "Ready");
    world.put(&proxy("b", "web", 80, "Ready", ""));
    world.die();
    world.settle();
    assert_eq!(tls(&world), "Ready", "who comes later begins with it");
    world.put("{type: Mesh, name: default, meshServices: {mode: Everywhere}}");
    world.settle();
    assert_eq!(tls(&world), "NotReady");
}

#[test]
fn proxies_are_selected_in_three_ways() {
    let mut world = World::generating();
    world.put(&proxy("a", "web", 80, "Ready", "app: one"));
    world.put(&proxy("b", "api", 80, "Ready", "app: one"));
    for (name, selector) in [
        ("named", "dataplaneRef: {name: b}"),
        ("labelled", "dataplaneLabels: {matchLabels: {app: one}}"),
        ("everybody", "dataplaneLabels: {matchLabels: {}}"),
        ("tagged", "dataplaneTags: {kuma.io/service: web, kuma.io/protocol: http}"),
        ("nobody", "dataplaneTags: {kuma.io/service: web, kuma.io/protocol: tcp}"),
    ] {
        world.put(&format!(
            "{{type: MeshService, mesh: default, name: {name}, spec: {{selector: {{{selector}}}, ports: [{{port: \
             80}}]}}}}"
        ));
    }
    world.settle();
    let identities = |name: &str| {
        let spec = world.spec(name);
        spec.identities.into_iter().map(|identity| identity.value).collect::<Vec<_>>()
    };
    assert_eq!(identities("named"), ["api"]);
    assert_eq!(identities("labelled"), ["api", "web"]);
    assert_eq!(identities("everybody"), ["api", "web"]);
    assert_eq!(identities("tagged"), ["web"]);
    assert_eq!(identities("nobody"), Vec::<String>::new());
}

#[test]
fn identities_of_the_mesh_are_added() {
    let mut world = World::new();
    world.put("{type: Mesh, name: default, meshServices: {mode: Exclusive}}");
    world.put(&proxy("a", "web", 80, "Ready", "kuma.io/workload: shop"));
    world.put(
        "{type: MeshIdentity, mesh: default, name: all, labels: {kuma.io/origin: global}, spec: {selector: \
         {dataplane: {matchLabels: {}}}}}",
    );
    world.settle();
    let values: Vec<String> =
        world.spec("web").identities.into_iter().map(|identity| identity.value).collect();
    assert_eq!(values, ["web", "spiffe://default.east.mesh.local/workload/shop"]);
}

/// A service of another zone, as global sends it.
fn remote(name: &str, zone: &str) -> String {
    format!(
        "{{type: MeshService, mesh: default, name: {name}-{zone}, labels: {{kuma.io/origin: global, kuma.io/zone: \
         {zone}, kuma.io/env: universal, kuma.io/display-name: {name}}}, spec: {{state: Available, ports: [{{port: \
         80}}]}}, status: {{tls: {{}}, dataplaneProxies: {{}}}}}}"
    )
}

#[test]
fn a_service_of_another_zone_gets_addresses_and_keeps_what_it_says() {
    let mut world = World::generating();
    world.put(&remote("web", "west"));
    world.put(&proxy("a", "web", 80, "NotReady", ""));
    world.settle();
    let (spec, status) = (world.spec("web-west"), world.status(&mesh_service::KIND, "web-west"));
    assert_eq!(spec.state, ServiceState::Available);
    assert!(spec.identities.is_empty());
    assert_eq!(status.dataplane_proxies, Some(DataplaneProxies::default()));
    assert!(status.ips().next().is_some());
}

#[test]
fn services_of_several_zones_name_their_parts() {
    let mut world = World::generating();
    world.put(
        "{type: MeshMultiZoneService, mesh: default, name: web, labels: {kuma.io/origin: global}, spec: {selector: \
         {meshService: {matchLabels: {kuma.io/display-name: web, kuma.io/env: universal}}}, ports: [{port: 80}]}}",
    );
    let shown = |world: &World| {
        let status = world.status(&MESH_MULTI_ZONE_SERVICE, "web");
        let zones: Vec<String> = status.mesh_services.into_iter().map(|part| part.zone).collect();
        (zones, status.conditions[0].status.clone())
    };
    world.settle();
    assert_eq!(shown(&world), (vec![], "False".to_owned()));
    world.put(&remote("web", "west"));
    world.put(&remote("api", "west"));
    world.put(&proxy("a", "web", 80, "Ready", ""));
    world.settle();
    assert_eq!(shown(&world), (vec!["east".to_owned(), "west".to_owned()], "True".to_owned()));
    world.delete(&mesh_service::KIND, "web-west");
    world.settle();
    assert_eq!(shown(&world), (vec!["east".to_owned()], "True".to_owned()));
}

/// Of what a zone that was taken over makes, so much counts; what it adds to that costs nobody a word.
#[test]
fn a_zone_is_so_many_parts_of_a_service_of_several_zones() {
    let mut world = World::generating();
    world.put(
        "{type: MeshMultiZoneService, mesh: default, name: web, labels: {kuma.io/origin: global}, spec: {selector: \
         {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80}]}}",
    );
    let part = |name: &str, zone: &str, namespace: &str| {
        let labels = format!(
            "kuma.io/origin: global, kuma.io/zone: {zone}, kuma.io/display-name: web, k8s.kuma.io/namespace: {namespace}"
        );
        format!(
            "{{type: MeshService, mesh: default, name: {name}, labels: {{{labels}}}, spec: {{ports: [{{port: 80}}]}}}}"
        )
    };
    for n in 0..2 * PARTS_OF_ZONE {
        world.put(&part(&format!("web-{n:05}"), "stolen", &format!("n{n}-{}", "x".repeat(900))));
    }
    world.put(&part("web-west", "west", "shop"));
    world.put(&proxy("a", "web", 80, "Ready", ""));
    world.settle();
    let status = |world: &World| world.status(&MESH_MULTI_ZONE_SERVICE, "web");
    let told = status(&world);
    let of = |zone: &str| told.mesh_services.iter().filter(|part| part.zone == zone).count();
    assert_eq!((of("stolen"), of("west"), of("east")), (PARTS_OF_ZONE, 1, 1));
    assert!(told.conditions[0].message.contains("zone stolen has more than 100"), "{:?}", told.conditions);
    assert!(told.encode().len() < 100 * 1024, "{}", told.encode().len());

    world.put(&part("web-99999", "stolen", "one-more"));
    world.settle();
    assert_eq!(status(&world), told);
    world.delete(&mesh_service::KIND, "web-00000");
    world.settle();
    let namespaces = |status: &ServiceStatus| {
        status.mesh_services.iter().map(|part| part.namespace.clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(namespaces(&told).symmetric_difference(&namespaces(&status(&world))).count(), 2);
}

/// They are in the cluster of whoever calls the service.
#[test]
fn the_parts_of_a_zone_share_their_identities() {
    let mut world = World::generating();
    world.put(
        "{type: MeshMultiZoneService, mesh: default, name: web, labels: {kuma.io/origin: global}, spec: {selector: \
         {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80}]}}",
    );
    let part = |name: &str, zone: &str, long: usize| {
        let labels = format!(
            "kuma.io/origin: global, kuma.io/zone: {zone}, kuma.io/display-name: web, k8s.kuma.io/namespace: {name}"
        );
        let identities: Vec<String> = (0..10)
            .map(|n| format!("{{type: SpiffeID, value: 'spiffe://{n}/{name}-{}'}}", "x".repeat(long)))
            .collect();
        format!(
            "{{type: MeshService, mesh: default, name: {name}, labels: {{{labels}}}, spec: {{ports: [{{port: 80}}], \
             identities: [{}]}}}}",
            identities.join(", ")
        )
    };
    for n in 0..30 {
        world.put(&part(&format!("many-{n:02}"), "stolen", 1));
        world.put(&part(&format!("long-{n:02}"), "taken", 1900));
    }
    world.put(&part("web-west", "west", 100));
    world.settle();
    let told = world.status(&MESH_MULTI_ZONE_SERVICE, "web");
    let of = |zone: &str| told.mesh_services.iter().filter(|part| part.zone == zone).count();
    assert_eq!((of("stolen"), of("taken"), of("west")), (20, 3, 1));
    assert!(told.conditions[0].message.contains("zone stolen has more than"), "{:?}", told.conditions);
}

#[test]
fn what_another_zone_made_of_its_tags_is_that_zones() {
    let mut world = World::generating();
    let service = |more: &str| {
        format!(
            "{{type: MeshService, mesh: default, name: web-west, labels: {{kuma.io/origin: global, kuma.io/zone: west, \
             kuma.io/display-name: web, kuma.io/managed-by: meshservice-generator{more}}}, spec: {{ports: [{{port: \
             80}}]}}}}"
        )
    };
    world.put(&service(""));
    world.settle();
    let labels = |world: &World| world.service("web-west").expect("it stays").labels.clone();
    assert_eq!(labels(&world).get("kuma.io/deletion-grace-period-started-at"), None);
    world.put(&service(", kuma.io/deletion-grace-period-started-at: '1970-01-01T00:00:00Z'"));
    world.settle();
    world.now += Duration::days(1);
    world.settle();
    assert_eq!(labels(&world).get("kuma.io/zone"), Some("west"));
    world.put("{type: Mesh, name: default, meshServices: {mode: Disabled}}");
    world.settle();
    assert!(world.service("web-west").is_some());
}

fn generator(name: &str, origin: &str, kind: &str, template: &str) -> String {
    format!(
        "{{type: HostnameGenerator, name: {name}, labels: {{kuma.io/origin: {origin}}}, spec: {{selector: {{{kind}: \
         {{}}}}, template: '{template}'}}}}"
    )
}

#[test]
fn every_generator_makes_a_name() {
    let mut world = World::generating();
    world.put(&generator("b", "global", "meshService", "{{ .DisplayName }}.{{ .Zone }}.mesh"));
    world.put(&generator("a", "zone", "meshService", "{{ .DisplayName }}.mesh"));
    world.put(&generator("c", "zone", "meshService", "{{ label \"absent\" }}.mesh"));
    world.put(&generator("d", "zone", "meshExternalService", "{{ .DisplayName }}.ext"));
    world.put(&generator(
        "e",
        "zone",
        "meshService",
        &format!("{{{{ .DisplayName }}}}.{}", "x".repeat(3000)),
    ));
    world.put(&proxy("p", "web", 80, "Ready", ""));
    world.put(
        "{type: MeshExternalService, mesh: default, name: out, spec: {match: {port: 443}, endpoints: [{address: \
         example.com, port: 443}]}}",
    );
    world.settle();
    let status = world.status(&mesh_service::KIND, "web");
    assert_eq!(status.hostnames().collect::<Vec<_>>(), ["web.mesh", "web.east.mesh"]);
    let became: Vec<(&str, &str)> = status
        .hostname_generators
        .iter()
        .map(|g| (g.hostname_generator_ref.core_name.as_str(), g.conditions[0].reason.as_str()))
        .collect();
    let failed = "TemplateError";
    let told = |message: &str| message.len() < 1024;
    assert!(status.hostname_generators.iter().all(|g| told(&g.conditions[0].message)), "{status:?}");
    assert_eq!(became, [("a", "Generated"), ("b", "Generated"), ("c", failed), ("e", failed)]);
    let outside = world.status(&MESH_EXTERNAL_SERVICE, "out");
    assert_eq!(outside.hostnames().collect::<Vec<_>>(), ["out.ext"]);
    assert!(outside.vip.is_some_and(|vip| vip.ip.starts_with("242.")));
}

#[test]
fn who_has_a_name_first_keeps_it() {
    let mut world = World::generating();
    world.put(&generator("g", "global", "meshService", "one.mesh"));
    world.put(&proxy("b", "bee", 80, "Ready", ""));
    world.settle();
    world.now += Duration::seconds(1);
    world.put(&proxy("a", "ant", 80, "Ready", ""));
    world.settle();
    let names = |world: &World, service: &str| {
        let status = world.status(&mesh_service::KIND, service);
        let reason = status.hostname_generators[0].conditions[0].reason.clone();
        (status.hostnames().count(), reason)
    };
    assert_eq!(names(&world, "bee"), (1, "Generated".to_owned()));
    assert_eq!(names(&world, "ant"), (0, "Collision".to_owned()));
    world.delete(&mesh_service::KIND, "bee");
    world.delete(&dataplane::KIND, "b");
    world.settle();
    assert_eq!(names(&world, "ant"), (1, "Generated".to_owned()));
    // One of the zone comes before all of global.
    world.put(&proxy("b", "bee", 80, "Ready", ""));
    world.put(
        "{type: HostnameGenerator, name: z, spec: {selector: {meshService: {matchLabels: {kuma.io/display-name: \
         bee}}}, template: one.mesh}}",
    );
    world.settle();
    assert_eq!(names(&world, "ant"), (0, "Collision".to_owned()));
}
