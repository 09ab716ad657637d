//! Who has a server name and a cluster name at the edges of a zone, where several are called alike.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fixture::Fixture;
use crate::{
    compile::{behind::Side, exposure::Exposure, scratch::Generated},
    generator::type_url,
    mesh::Problem,
};

const MESH: &str = "
type: Mesh
name: demo
mtls: { enabledBackend: ca-1, backends: [{ name: ca-1, type: builtin }] }
routing: { zoneEgress: true }
---
type: ZoneEgress
name: out
networking: { address: 127.0.0.2, port: 10002 }
---
type: ZoneIngress
name: into
networking: { address: 127.0.0.3, port: 10001, advertisedAddress: 127.0.0.3, advertisedPort: 10001 }
---
type: ExternalService
mesh: demo
name: ext
tags: { kuma.io/service: ext, kuma.io/protocol: http }
networking: { address: '192.0.2.7:443' }
";

/// An ingress of another zone that offers these services.
fn offers(zone: &str, address: &str, services: &[&str]) -> String {
    let offered: Vec<String> = services
        .iter()
        .map(|tags| format!("{{ mesh: demo, instances: 1, tags: {{ kuma.io/service: {tags} }} }}"))
        .collect();
    format!(
        "---\ntype: ZoneIngress\nname: of-{zone}\nzone: {zone}\nnetworking: {{ address: {address}, port: 10001, \
         advertisedAddress: {address}, advertisedPort: 10001 }}\navailableServices: [{}]\n",
        offered.join(", ")
    )
}

fn served(name: &str, address: &str, tags: &str) -> String {
    format!(
        "---\ntype: Dataplane\nmesh: demo\nname: {name}\nnetworking:\n  address: {address}\n  inbound: [{{ port: 80, \
         tags: {{ kuma.io/service: {tags} }} }}]\n"
    )
}

/// The cluster that each server name leads to.
fn chains(edge: &Generated) -> BTreeMap<String, String> {
    let listeners = edge.set.iter().filter(|one| one.type_url == type_url::LISTENER);
    let mut all = BTreeMap::new();
    for listener in listeners {
        let json = listener.to_json().unwrap();
        for chain in json["filterChains"].as_array().into_iter().flatten() {
            let text = chain.to_string();
            let cluster = text.split("\"cluster\":\"").nth(1).and_then(|rest| rest.split('"').next());
            let names = chain["filterChainMatch"]["serverNames"].as_array().into_iter().flatten();
            let names = names.filter_map(Value::as_str).map(str::to_owned);
            all.extend(names.map(|name| (name, cluster.unwrap_or_default().to_owned())));
        }
    }
    all
}

/// The addresses behind a cluster.
fn behind(edge: &Generated, cluster: &str) -> String {
    let mut endpoints = edge.set.iter().filter(|one| one.type_url == type_url::ENDPOINT);
    endpoints
        .find(|one| &*one.name == cluster)
        .map_or(String::new(), |one| one.to_json().unwrap().to_string())
}

#[test]
fn a_zone_closes_no_service_of_others_at_an_egress_by_calling_its_own_alike() {
    let west = offers("west", "10.1.0.1", &["bank"]);
    let stolen = offers("stolen", "10.2.0.1", &["BANK", "Bank", "EXT", "other"]);
    let fixture = Fixture::parse(&[MESH, &west, &stolen].concat());
    let egress = &fixture.egresses()["out"];
    let names: Vec<String> = chains(egress).into_keys().collect();
    assert_eq!(names, ["bank{mesh=demo}", "ext{mesh=demo}", "other{mesh=demo}"]);
    let bank = behind(egress, "demo:bank");
    assert!(bank.contains("10.1.0.1") && !bank.contains("10.2.0.1"), "{bank}");
    let told: String =
        fixture.meshes[0].problems.values().flat_map(|all| all.iter()).map(ToString::to_string).collect();
    for lost in ["BANK", "Bank", "EXT"] {
        assert!(told.contains(&format!("service {lost:?} is left out")), "{lost}: {told}");
    }

    // Who serves it here keeps its name in whatever form, against whoever writes it in lower case.
    let here = served("bank-1", "127.0.0.9", "Bank");
    let west = offers("west", "10.1.0.1", &["Bank"]);
    let stolen = offers("stolen", "10.2.0.1", &["bank"]);
    let fixture = Fixture::parse(&[MESH, &here, &west, &stolen].concat());
    let names: Vec<String> = chains(&fixture.egresses()["out"]).into_keys().collect();
    assert_eq!(names, ["Bank{mesh=demo}", "ext{mesh=demo}"]);
}

#[test]
fn at_an_ingress_what_is_in_lower_case_comes_first_and_the_rest_is_told() {
    let all = [served("thief", "127.0.0.8", "BANK"), served("bank-1", "127.0.0.9", "bank")];
    let fixture = Fixture::parse(&[MESH, &all.concat()].concat());
    let ingress = &fixture.generate()["into"];
    let mut chains = chains(ingress);
    chains.retain(|name, _| name.to_ascii_lowercase().starts_with("bank"));
    assert_eq!(chains, BTreeMap::from([("bank{mesh=demo}".to_owned(), "demo:bank".to_owned())]));
    let told: Vec<String> = ingress.problems.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.starts_with("server name \"BANK{mesh=demo}\": ")), "{told:?}");
}

#[test]
fn a_service_called_like_the_cluster_of_a_part_has_none_of_its_connections() {
    let route = "
---
type: MeshHTTPRoute
mesh: demo
name: split
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: bank }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default: { backendRefs: [{ kind: MeshServiceSubset, name: bank, tags: { version: v1 }, weight: 1 }] }
";
    let parts = ["bank, version: v1", "bank, version: v2"];
    let west = offers("west", "10.1.0.1", &parts);
    let honest = Fixture::parse(&[MESH, route, &west].concat());
    let before = chains(&honest.egresses()["out"]);
    let part = before["bank{mesh=demo,version=v1}"].clone();
    let thief = part.strip_prefix("demo:").unwrap();
    let stolen = offers("stolen", "10.2.0.1", &[thief]);
    let fixture = Fixture::parse(&[MESH, route, &west, &stolen].concat());
    let egress = &fixture.egresses()["out"];
    assert_eq!(chains(egress), before, "its own name leads nowhere");
    let endpoints = behind(egress, &part);
    assert!(endpoints.contains("10.1.0.1") && !endpoints.contains("10.2.0.1"), "{endpoints}");
    let told: Vec<String> = egress.problems.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.contains("is that of a part of another service")), "{told:?}");
}

/// A service of another zone that is a resource, and is called `there` in its zone.
fn service(zone: &str, called: &str, there: &str) -> String {
    format!(
        "---\ntype: MeshService\nmesh: demo\nname: {called}\nlabels: {{ kuma.io/origin: global, kuma.io/zone: {zone}, \
         kuma.io/display-name: {there} }}\nspec:\n  selector: {{ dataplaneTags: {{ kuma.io/service: {there} }} }}\n  ports: \
         [{{ port: 80, targetPort: 80, appProtocol: tcp }}]\n"
    )
}

fn bank(zone: &str, called: &str) -> String {
    service(zone, called, "bank")
}

/// To which clusters an egress leads who calls that, once the zone is so, and what it tells.
fn lets_out(passages: &mut Exposure, resources: &[String]) -> (Vec<String>, BTreeSet<Problem>) {
    let fixture = Fixture::parse(&[MESH, &resources.concat()].concat());
    passages.follow(&fixture.meshes[0], None);
    let mut problems = BTreeSet::new();
    let doors = passages.doors(&mut problems).into_iter();
    let of_bank = doors.filter(|(name, _)| name.ends_with(".bank.80.demo.ms"));
    (of_bank.map(|(_, cluster)| cluster.to_owned()).collect(), problems)
}

#[test]
fn when_who_has_a_server_name_goes_it_is_whose_who_came_next() {
    let edges = [("west", "10.1.0.1"), ("stolen", "10.2.0.1"), ("east", "10.3.0.1")];
    let edges: String = edges.map(|(zone, address)| offers(zone, address, &["other"])).concat();
    let (west, east, thief) = (bank("west", "bank-west"), bank("east", "bank-east"), bank("stolen", "aaa"));
    let mut passages = Exposure::of(Side::Egress);
    for (present, expected) in [
        (&[&west][..], "west"),
        (&[&west, &east][..], "west"),
        (&[&west, &east, &thief][..], "west"),
        (&[&east, &thief][..], "east"),
        // Who comes back is the last.
        (&[&west, &east, &thief][..], "east"),
        (&[&west, &thief][..], "stolen"),
    ] {
        let present: Vec<String> = present.iter().map(|service| (*service).clone()).collect();
        let (to, _) = lets_out(&mut passages, &[vec![edges.clone()], present].concat());
        assert!(to.len() == 1 && to[0].contains(expected), "{to:?} is not {expected}");
    }
}

#[test]
fn of_all_who_are_called_alike_an_egress_tells_some_and_holds_nothing_up() {
    let mut all = vec![offers("west", "10.1.0.1", &["a"]), offers("stolen", "10.2.0.1", &["b"])];
    for (zone, called) in [("west", "a"), ("stolen", "b")] {
        all.extend((0..20).map(|n| service(zone, &format!("{called}-{n}"), &format!("s-{n}"))));
    }
    let (_, problems) = lets_out(&mut Exposure::of(Side::Egress), &all);
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.iter().filter(|told| told.contains("nobody gets in by 12 more")).count(), 1, "{told:?}");
    assert!(told.len() == 9 && problems.iter().all(|problem| !problem.is_lack()), "{told:?}");
}

/// Ingresses know a service that is a resource by its name, whatever zone it is in.
#[test]
fn of_services_of_one_name_in_two_zones_an_egress_leads_to_the_one_that_was_there_first() {
    let (west, stolen) = (offers("west", "10.1.0.1", &["a"]), offers("stolen", "10.2.0.1", &["b"]));
    let before = vec![west, stolen, bank("west", "bank-west")];
    let after = [before.clone(), vec![bank("stolen", "aaa")]].concat();
    let mut passages = Exposure::of(Side::Egress);
    for (all, told) in [(&before, 0), (&after, 1)] {
        let (to, problems) = lets_out(&mut passages, all);
        assert!(to.len() == 1 && to[0].contains("west"), "{to:?}");
        assert_eq!(problems.len(), told, "{problems:?}");
    }
}
