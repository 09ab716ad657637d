//! Contexts from whole zones: who serves what, and what is left out.

#![allow(clippy::unwrap_used)]

mod other_zones;
mod secrets;

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, Utc};
use common::{
    document::Document,
    model::{Origin, Resource, ResourceKey},
    store::{Snapshot, StoreIdentity, index::Index},
};
use serde::Deserialize;

use super::{
    Catalogue, Destination, Hosts, Inbound, MeshContext, MeshError, MeshState, Protocol, Surroundings,
    catalogue::{Offers, offered},
    topology::Difference,
};
use crate::share::{DOORS_OF_ZONE, PORTS_OF_SERVICE};

const MESH: &str = "
type: Mesh
name: demo
mtls:
  enabledBackend: ca-1
  backends: [{name: ca-1, type: builtin}]
";

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn index(yaml: &str) -> Index {
    let read = |document| {
        let json = serde_json::Value::deserialize(document).unwrap();
        let mut resource = Document::parse(&json).unwrap().into_resource(now());
        let zone = json.get("zone").and_then(|z| z.as_str()).unwrap_or("zone-1");
        resource.origin = Origin::Zone(zone.into());
        Arc::new(resource)
    };
    let resources: Vec<Arc<Resource>> = serde_norway::Deserializer::from_str(yaml).map(read).collect();
    let store = StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 };
    Index::of(store, Snapshot { revision: 1, commit: None, resources })
}

fn around(index: &Index, hosts: Hosts) -> Surroundings {
    let keys: Vec<ResourceKey> = index.iter().map(|r| r.key.clone()).collect();
    let mut around = Surroundings { zone: "zone-1".into(), hosts, ..Surroundings::default() };
    around.update(&keys, index);
    around
}

fn context_with(yaml: &str, hosts: Hosts) -> MeshContext {
    let index = index(yaml);
    MeshState::new("demo", &index, &around(&index, hosts)).unwrap().context().clone()
}

fn context(yaml: &str) -> MeshContext {
    context_with(yaml, Hosts::default())
}

fn dataplane(name: &str, address: &str, inbound: &str) -> String {
    format!(
        "---\ntype: Dataplane\nmesh: demo\nname: {name}\nnetworking: {{address: {address}, inbound: [{inbound}]}}\n"
    )
}

fn ingress(name: &str, zone: &str, address: &str, services: &str) -> String {
    format!(
        "---\ntype: ZoneIngress\nname: {name}\nzone: {zone}\nnetworking: {{address: {address}, port: 10001, \
         advertisedAddress: {address}, advertisedPort: 10001}}\navailableServices: [{services}]\n"
    )
}

/// `address:port*weight` of every endpoint, with `^` before the priority of those tried later.
fn endpoints(context: &MeshContext, service: &str) -> String {
    let service = context.topology.service(&Destination::Service(service.into()));
    let one = |e: &super::topology::Endpoint| {
        let later = if e.locality.priority > 0 { "^" } else { "" };
        format!("{later}{}:{}*{}", e.address, e.port, e.weight)
    };
    service.endpoints.iter().map(one).collect::<Vec<_>>().join(" ")
}

const WEB: &str = "{port: 80, servicePort: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}";
const FAR_WEB: &str =
    "{mesh: demo, instances: 3, tags: {kuma.io/service: web, kuma.io/protocol: http2, kuma.io/zone: zone-2}}";
const OTHER_MESH: &str = "{mesh: other, instances: 3, tags: {kuma.io/service: web, kuma.io/zone: zone-2}}";

#[test]
fn endpoints_are_local_proxies_and_remote_ingresses() {
    let check = |what: &str, zone: &[String], expected: &str| {
        let context = context(&format!("{MESH}{}", zone.concat()));
        assert_eq!(endpoints(&context, "web"), expected, "{what}");
    };
    let near = dataplane("near", "10.0.0.1", WEB);
    check("alone", std::slice::from_ref(&near), "10.0.0.1:80*1");
    check("nobody", &[], "");

    let far = ingress("far", "zone-2", "1.1.1.1", FAR_WEB);
    check("another zone", &[near.clone(), far.clone()], "10.0.0.1:80*1 1.1.1.1:10001*3");
    let second = ingress("far-2", "zone-2", "2.2.2.2", FAR_WEB);
    check(
        "local endpoints weigh as much as there are ingresses",
        &[near.clone(), far.clone(), second],
        "10.0.0.1:80*2 1.1.1.1:10001*3 2.2.2.2:10001*3",
    );
    let twin = ingress("far-twin", "zone-2", "1.1.1.1", FAR_WEB);
    check("one balancer before two ingresses", &[far.clone(), twin.clone()], "1.1.1.1:10001*3");
    let empty = ingress("far-0", "zone-2", "1.1.1.1", "");
    check("an empty ingress hides no full one", &[empty, far.clone()], "1.1.1.1:10001*3");
    check("the ingress of this zone", &[ingress("own", "zone-1", "3.3.3.3", FAR_WEB)], "");
    check("another mesh", &[ingress("far", "zone-2", "1.1.1.1", OTHER_MESH)], "");

    let not_ready = WEB.replace("port: 80,", "port: 80, state: NotReady,");
    check("not ready", &[dataplane("near", "10.0.0.1", &not_ready)], "");
    let advertised = near.replace("address: 10.0.0.1,", "address: 10.0.0.1, advertisedAddress: 9.9.9.9,");
    check("advertised", &[advertised], "9.9.9.9:80*1");
}

/// A zone that was taken over may say that it is reached anywhere: where another is, and at more places than there are.
#[test]
fn a_zone_is_reached_at_so_many_addresses_and_hides_no_other() {
    let address = |n: usize| format!("1.1.{}.{}", n / 200, n % 200 + 1);
    let all = 0..3 * DOORS_OF_ZONE;
    let ingresses = all.clone().map(|n| ingress(&format!("a-{n}"), "zone-2", &address(n), FAR_WEB));
    let ingresses: String = ingresses.chain([ingress("z", "zone-3", &address(0), FAR_WEB)]).collect();
    let addresses: String = all
        .map(|n| {
            format!(
                "---\ntype: MeshZoneAddress\nmesh: demo\nname: a-{n}\nlabels: {{kuma.io/zone: zone-4}}\nspec: \
                 {{address: {}, port: 10001}}\n",
                address(n)
            )
        })
        .collect();
    let service = |zone: &str| {
        format!(
            "---\ntype: MeshService\nmesh: demo\nname: web-{zone}\nlabels: {{kuma.io/zone: {zone}}}\nspec: {{ports: \
             [{{port: 80}}]}}\n"
        )
    };
    let services = [service("zone-2"), service("zone-3"), service("zone-4")].concat();
    let context = context(&[MESH, &ingresses, &addresses, &services].concat());
    let of = |destination: Destination, zone: &str| {
        let service = context.topology.service(&destination);
        service.endpoints.iter().filter(|e| e.locality.zone.as_deref() == Some(zone)).count()
    };
    let tagged = || Destination::Service("web".into());
    assert_eq!((of(tagged(), "zone-2"), of(tagged(), "zone-3")), (DOORS_OF_ZONE, 1));
    let port = |zone: &str| of(Destination::Port(format!("web-{zone}").into(), 80), zone);
    assert_eq!((port("zone-2"), port("zone-3"), port("zone-4")), (DOORS_OF_ZONE, 1, DOORS_OF_ZONE));
}

#[test]
fn a_service_of_another_zone_has_so_many_ports() {
    let ports: Vec<String> = (1..=1000).map(|port| format!("{{port: {port}}}")).collect();
    let service = |zone: &str| {
        format!(
            "---\ntype: MeshService\nmesh: demo\nname: web-{zone}\nlabels: {{kuma.io/zone: {zone}}}\nspec: {{ports: \
             [{}]}}\n",
            ports.join(", ")
        )
    };
    let context = context(&[MESH.to_owned(), service("zone-1"), service("zone-2")].concat());
    let called = |name: &str| {
        let all = context.topology.all().map(|(destination, _)| destination);
        all.filter(|called| matches!(called, Destination::Port(of, _) if **of == *name)).count()
    };
    assert_eq!((called("web-zone-1"), called("web-zone-2")), (1000, PORTS_OF_SERVICE));
}

#[test]
fn other_zones_are_reached_over_mutual_tls_only_and_last_when_asked_so() {
    let zone = [dataplane("near", "10.0.0.1", WEB), ingress("far", "zone-2", "1.1.1.1", FAR_WEB)].concat();
    let open = context(&format!("type: Mesh\nname: demo\n{zone}"));
    assert_eq!(endpoints(&open, "web"), "10.0.0.1:80*1");
    let local = context(&format!("{MESH}routing: {{localityAwareLoadBalancing: true}}\n{zone}"));
    assert_eq!(endpoints(&local, "web"), "10.0.0.1:80*1 ^1.1.1.1:10001*3");
    assert_eq!(
        local.topology.service(&Destination::Service("web".into())).protocol,
        Protocol::Http,
        "what another zone speaks decides nothing here"
    );
}

#[test]
fn the_catalogue_groups_healthy_inbounds_by_their_tags() {
    let two = "{port: 80, tags: {kuma.io/service: web}}, {port: 81, tags: {kuma.io/service: web}}, \
               {port: 82, state: NotReady, tags: {kuma.io/service: web}}, \
               {port: 83, tags: {kuma.io/service: web, version: v2}}, {port: 84, tags: {}}";
    let context = context(&format!("{MESH}{}", dataplane("near", "10.0.0.1", two)));
    let (mut catalogue, mesh) = (Catalogue::default(), Arc::from("demo"));
    let offers = |inbounds: &[Inbound]| Offers { tags: offered(inbounds), ..Offers::default() };
    for dataplane in context.dataplanes.values() {
        assert!(catalogue.moved(&mesh, &Offers::default(), &offers(&dataplane.inbounds)));
    }
    let services = catalogue.services(&BTreeSet::new());
    let shown: Vec<String> = services
        .iter()
        .map(|s| &s.service)
        .map(|s| format!("{} {:?} {}", s.mesh, s.tags, s.instances))
        .collect();
    assert_eq!(
        shown,
        [r#"demo {"kuma.io/service": "web"} 2"#, r#"demo {"kuma.io/service": "web", "version": "v2"} 1"#]
    );
    assert!(catalogue.services(&[Arc::clone(&mesh)].into()).is_empty(), "published as resources only");
    for dataplane in context.dataplanes.values() {
        let offers = offers(&dataplane.inbounds);
        assert!(!catalogue.moved(&mesh, &offers, &offers));
        catalogue.moved(&mesh, &offers, &Offers::default());
    }
    assert!(catalogue.services(&BTreeSet::new()).is_empty());
}

#[test]
fn what_cannot_be_used_is_a_problem_and_the_rest_stands() {
    let named = dataplane("named", "db.example", WEB);
    let zone = format!("{MESH}{named}{}", dataplane("near", "10.0.0.1", WEB));
    let context = context(&zone);
    let problems: Vec<String> = problems(&context);
    assert_eq!(
        problems,
        [
            "Dataplane demo/named: inbound 80: the host name \"db.example\" is not resolved",
            "mTLS backend ca-1 of mesh demo: the secret \"demo.ca-builtin-cert-ca-1\" is not here",
        ]
    );
    assert_eq!(endpoints(&context, "web"), "10.0.0.1:80*1");
    let near = &context.dataplanes["near"];
    let error = context.lacks_certificate(near, None, now()).unwrap_err();
    assert!(error.to_string().contains("see that its secrets have been synced"), "{error}");

    let hosts =
        Hosts([("db.example".to_owned(), std::net::IpAddr::from([10, 0, 0, 7]))].into_iter().collect());
    assert_eq!(endpoints(&context_with(&zone, hosts), "web"), "10.0.0.1:80*1 10.0.0.7:80*1");
}

#[test]
fn a_service_whose_name_no_host_can_have_is_told_that_nobody_finds_it() {
    let path = WEB.replace("kuma.io/service: web", "kuma.io/service: team/web");
    let context = context(&format!(
        "type: Mesh\nname: demo\n{}{}",
        dataplane("near", "10.0.0.1", WEB),
        dataplane("path", "10.0.0.2", &path)
    ));
    let told = "Dataplane demo/path: inbound 80: its service has a name that no host can have, so it gets no virtual address";
    assert_eq!(problems(&context), [told]);
    assert_eq!(context.dataplanes["path"].problems.len(), 1, "which its proxy is told");
    assert_eq!(endpoints(&context, "team/web"), "10.0.0.2:80*1", "who names it reaches it");
}

fn problems(context: &MeshContext) -> Vec<String> {
    context.problems.values().flat_map(|problems| problems.iter()).map(ToString::to_string).collect()
}

#[test]
fn a_backend_that_does_not_exist_does_not_switch_encryption_off() {
    let context = context(&format!(
        "type: Mesh\nname: demo\nmtls: {{enabledBackend: gone}}\n{}",
        dataplane("near", "10.0.0.1", WEB)
    ));
    let mtls = context.mtls.as_ref().unwrap();
    assert!(mtls.authority.is_none() && !mtls.permissive);
    let problem = problems(&context).concat();
    assert!(problem.contains("not among the backends"), "{problem}");
}

#[test]
fn a_mesh_that_is_not_here_has_no_context() {
    let index = index(&dataplane("near", "10.0.0.1", WEB));
    let error = MeshState::new("demo", &index, &around(&index, Hosts::default())).unwrap_err();
    assert_eq!(error, MeshError::NoMesh("demo".into()));
}

#[test]
fn an_update_says_what_differs_and_reads_nothing_else_again() {
    let zone = |port: u32| {
        let far = FAR_WEB.replace("kuma.io/service: web", "kuma.io/service: far");
        let zone = [
            "type: Mesh\nname: demo\n".to_owned(),
            dataplane("a", "10.0.0.1", WEB),
            dataplane("b", "10.0.0.2", &WEB.replace("port: 80,", &format!("port: {port},"))),
            dataplane("c", "10.0.0.3", &WEB.replace("service: web", "service: db")),
            ingress("far", "zone-2", "1.1.1.1", &far),
        ];
        index(&zone.concat())
    };
    let before = zone(80);
    let around = around(&before, Hosts::default());
    let mut state = MeshState::new("demo", &before, &around).unwrap();
    let first = state.context().clone();
    let after = zone(81);
    let key = first.dataplanes["b"].resource.key.clone();
    let change = state.update(&[key], &after, &around).unwrap();
    let services: Vec<_> = change.services.into_iter().collect();
    assert_eq!(services, [(Destination::Service("web".into()), Difference::Endpoints)]);
    assert_eq!(change.dataplanes.into_iter().collect::<Vec<_>>(), ["b".into()]);
    assert!(!change.everything && change.references.is_empty() && change.policies.is_empty());
    let second = state.context();
    assert!(Arc::ptr_eq(&first.dataplanes["a"], &second.dataplanes["a"]));
    assert!(!Arc::ptr_eq(&first.dataplanes["b"], &second.dataplanes["b"]));
    let db = Destination::Service("db".into());
    assert!(Arc::ptr_eq(&first.topology.service(&db), &second.topology.service(&db)));
}

#[test]
fn a_workload_listens_where_its_proxy_does_unless_told_otherwise() {
    let inbound = "{port: 80, tags: {kuma.io/service: a}}, \
                   {port: 81, servicePort: 8081, serviceAddress: 127.0.0.1, address: 10.0.0.9, name: admin, tags: {}}";
    let context = context(&format!("{MESH}{}", dataplane("near", "10.0.0.1", inbound)));
    let inbounds = &context.dataplanes["near"].inbounds;
    let shown: Vec<String> = inbounds
        .iter()
        .map(|i| format!("{} {}:{} -> {}:{}", i.section, i.listen, i.port, i.workload, i.workload_port))
        .collect();
    assert_eq!(shown, ["80 10.0.0.1:80 -> 10.0.0.1:80", "admin 10.0.0.9:81 -> 127.0.0.1:8081"]);
}

#[test]
fn a_permissive_mesh_uses_tls_once_every_proxy_of_a_service_has_a_certificate() {
    let mesh = MESH.replace("type: builtin", "type: builtin, mode: PERMISSIVE");
    let insight = |name: &str| {
        format!("---\ntype: DataplaneInsight\nmesh: demo\nname: {name}\nmTLS: {{issuedBackend: ca-1}}\n")
    };
    let two = [dataplane("a", "10.0.0.1", WEB), dataplane("b", "10.0.0.2", WEB)].concat();
    let check = |insights: &[String], ready| {
        let context = context(&format!("{mesh}{two}{}", insights.concat()));
        assert_eq!(
            context.topology.service(&Destination::Service("web".into())).tls_ready,
            ready,
            "{insights:?}"
        );
    };
    check(&[], false);
    check(&[insight("a")], false);
    check(&[insight("a"), insight("b")], true);
}
