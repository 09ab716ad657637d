//! What other zones say, and what of it decides about services here.

use std::collections::BTreeSet;

use super::{FAR_WEB, MESH, WEB, context, dataplane, endpoints, ingress};
use crate::{
    mesh::{Destination, MeshContext, Protocol, topology::Exit},
    share::{DOORS_OF_ZONE, ENDPOINTS_OF_SERVICE, IDENTITY_BYTES_OF_PARTS},
};

const EGRESS: &str = "---\ntype: ZoneEgress\nname: out\nnetworking: {address: 9.9.9.9, port: 10002}\n";

fn offer(service: &str, more: &str) -> String {
    format!("{{mesh: demo, instances: 1{more}, tags: {{kuma.io/service: {service}}}}}")
}

fn external(name: &str, more_tags: &str) -> String {
    format!(
        "---\ntype: ExternalService\nmesh: demo\nname: {name}\nnetworking: {{address: '192.0.2.7:443'}}\n\
         tags: {{kuma.io/service: {name}, kuma.io/protocol: http{more_tags}}}\n"
    )
}

/// What decides how a service is called.
fn nature(context: &MeshContext, service: &str) -> (Protocol, Option<&'static str>) {
    let service = context.topology.service(&Destination::Service(service.into()));
    let exit = service.exit.as_ref().map(|exit| match exit {
        Exit::Direct(_) => "direct",
        Exit::Egress => "egress",
        Exit::OwnEgress(_) => "own egress",
    });
    (service.protocol, exit)
}

#[test]
fn another_zone_makes_no_service_of_this_one_external_or_speechless() {
    let near = dataplane("near", "10.0.0.1", WEB);
    let sick = near.replace("port: 80,", "port: 80, state: NotReady,");
    let external = ingress("far", "zone-2", "1.1.1.1", &offer("web", ", externalService: true"));
    let plain = ingress("far", "zone-2", "1.1.1.1", &offer("web", ""));
    let both = ingress(
        "far",
        "zone-2",
        "1.1.1.1",
        &[offer("web", ", externalService: true"), offer("web", "")].join(", "),
    );
    let check = |zone: &[&String], expected: &str| {
        let zone: String = zone.iter().map(|part| part.as_str()).collect();
        let context = context(&format!("{MESH}{zone}"));
        assert_eq!(nature(&context, "web"), (Protocol::Http, None), "{zone}");
        assert_eq!(endpoints(&context, "web"), expected, "{zone}");
    };
    check(&[&near, &external], "10.0.0.1:80*1");
    check(&[&near, &plain], "10.0.0.1:80*1 1.1.1.1:10001*1");
    check(&[&near, &both], "10.0.0.1:80*1 1.1.1.1:10001*1");
    check(&[&sick, &both], "1.1.1.1:10001*1");
}

#[test]
fn another_zone_decides_nothing_for_the_services_of_a_third() {
    let honest = ingress("b", "zone-3", "3.3.3.3", &FAR_WEB.replace("zone-2", "zone-3"));
    for said in [offer("web", ", externalService: true"), offer("web", "")] {
        let stolen = ingress("a", "zone-2", "1.1.1.1", &said);
        let context = context(&[MESH, &stolen, &honest].concat());
        assert_eq!(nature(&context, "web"), (Protocol::Http2, None), "{said}");
        assert!(endpoints(&context, "web").contains("3.3.3.3:10001*3"), "{said}");
    }
    let says = |zone: usize, protocol: &str| {
        let said = FAR_WEB.replace("http2", protocol);
        ingress(&format!("i-{zone}"), &format!("zone-{zone}"), &format!("1.1.1.{zone}"), &said)
    };
    let spoken = |all: &[&str]| {
        let zones: String = (2..).zip(all).map(|(zone, &protocol)| says(zone, protocol)).collect();
        nature(&context(&format!("{MESH}{zones}")), "web").0
    };
    assert_eq!(spoken(&["http", "tcp"]), Protocol::Http);
    assert_eq!(spoken(&["tcp", "http", "tcp"]), Protocol::Tcp);
    assert_eq!(spoken(&["tcp"]), Protocol::Tcp);
}

#[test]
fn what_global_says_is_outside_no_other_zone_takes_over() {
    let known = external("httpbin", "");
    let offered = [offer("httpbin", ""), offer("httpbin", ", externalService: true")];
    for said in &offered {
        let stolen = ingress("a", "zone-2", "1.1.1.1", said);
        let direct = context(&[MESH, &known, &stolen].concat());
        assert_eq!(nature(&direct, "httpbin"), (Protocol::Http, Some("direct")), "{said}");
        assert_eq!(endpoints(&direct, "httpbin"), "", "{said}");
        let through = context(&[MESH, "routing: {zoneEgress: true}\n", &known, EGRESS, &stolen].concat());
        assert_eq!(nature(&through, "httpbin"), (Protocol::Http, Some("egress")), "{said}");
        let service = through.topology.service(&Destination::Service("httpbin".into()));
        assert_eq!((endpoints(&through, "httpbin").as_str(), service.beyond.len()), ("9.9.9.9:10002*1", 0));
    }
}

/// What is reached from one zone only that zone offers, and no other.
#[test]
fn what_is_outside_is_offered_by_the_zone_that_global_names() {
    let known = external("httpbin", ", kuma.io/zone: zone-3");
    let external = offer("httpbin", ", externalService: true");
    let through = |ingresses: &[String]| {
        let zone = [MESH, "routing: {zoneEgress: true}\n", &known, EGRESS, &ingresses.concat()].concat();
        let context = context(&zone);
        let service = context.topology.service(&Destination::Service("httpbin".into()));
        let zones: Vec<_> = service.beyond.iter().filter_map(|e| e.locality.zone.clone()).collect();
        (nature(&context, "httpbin"), zones)
    };
    let of_zone = |name: &str, zone: &str, said: &str| {
        ingress(name, zone, &format!("{}.1.1.1", zone.len() + name.len()), said)
    };
    let honest = of_zone("honest", "zone-3", &external);
    let reached = ((Protocol::Http, Some("egress")), vec!["zone-3".to_owned()]);
    assert_eq!(through(std::slice::from_ref(&honest)), reached);
    for said in [&external, &offer("httpbin", "")] {
        let stolen = of_zone("a", "zone-2", said);
        assert_eq!(through(&[honest.clone(), stolen.clone()]), reached, "{said}");
        assert_eq!(through(&[stolen]), ((Protocol::Unknown, None), Vec::new()), "{said}");
    }
}

/// Clients believe whoever is called so about all that is outside.
#[test]
fn no_other_zone_serves_as_an_egress_of_the_mesh() {
    let said = [offer("zone-egress", ""), offer("web", "")].join(", ");
    let context = context(&[MESH, &ingress("a", "zone-2", "1.1.1.1", &said)].concat());
    assert_eq!(
        (endpoints(&context, "zone-egress"), endpoints(&context, "web").is_empty()),
        (String::new(), false)
    );
}

/// They are in the cluster of whoever calls it.
#[test]
fn the_identities_of_a_zone_in_a_service_of_several_zones_are_so_much() {
    let part = |name: &str, zone: &str, long: usize| {
        let identities: Vec<String> = (0..10)
            .map(|n| format!("{{type: SpiffeID, value: 'spiffe://{n}/{name}-{}'}}", "x".repeat(long)))
            .collect();
        format!(
            "---\ntype: MeshService\nmesh: demo\nname: {name}\nlabels: {{kuma.io/zone: {zone}, app: x}}\nspec: \
             {{ports: [{{port: 80}}], identities: [{}]}}\n",
            identities.join(", ")
        )
    };
    let composed = "---\ntype: MeshMultiZoneService\nmesh: demo\nname: all\nspec: {selector: {meshService: \
                    {matchLabels: {app: x}}}, ports: [{port: 80}]}\n";
    let stolen: String = (0..30).map(|n| part(&format!("a-{n}"), "zone-2", 1900)).collect();
    let honest = part("b", "zone-3", 100);
    let here: String = (0..30).map(|n| part(&format!("c-{n}"), "zone-1", 100)).collect();
    let context = context(&[MESH, composed, &stolen, &honest, &here].concat());
    let all = context.multi_zone_services.get("all").unwrap();
    let of = |zone: &str| {
        let parts = all.parts(&context.mesh_services);
        let of_zone = parts.filter(|part| part.resource.label("kuma.io/zone") == Some(zone));
        let identities = of_zone.flat_map(|part| part.spec.identities.iter().map(|one| one.value.len()));
        let lengths: Vec<usize> = identities.collect();
        (lengths.len(), lengths.iter().sum::<usize>() <= IDENTITY_BYTES_OF_PARTS)
    };
    assert_eq!((of("zone-2"), of("zone-3"), of("zone-1").0), ((30, true), (10, true), 300));
}

/// Every client of a service gets all of its endpoints.
#[test]
fn a_zone_has_so_many_endpoints_of_a_service() {
    let offered = |sets: usize| {
        let one = |n: usize| FAR_WEB.replace("kuma.io/zone: zone-2", &format!("a: v-{n}"));
        (0..sets).map(one).collect::<Vec<_>>().join(", ")
    };
    let all = (1..=DOORS_OF_ZONE)
        .map(|n| ingress(&format!("a-{n}"), "zone-2", &format!("1.1.1.{n}"), &offered(20)));
    let few = (1..=3).map(|n| ingress(&format!("b-{n}"), "zone-3", &format!("1.1.3.{n}"), &offered(20)));
    let one = ingress("c", "zone-4", "1.1.4.1", &offered(ENDPOINTS_OF_SERVICE + 1));
    let context = context(&[MESH.to_owned(), all.chain(few).collect(), one].concat());
    let web = context.topology.service(&Destination::Service("web".into()));
    let of =
        |zone: &'static str| web.endpoints.iter().filter(move |e| e.locality.zone.as_deref() == Some(zone));
    assert_eq!(of("zone-2").count(), ENDPOINTS_OF_SERVICE);
    let addresses: BTreeSet<_> = of("zone-2").map(|e| e.address).collect();
    assert_eq!(addresses.len(), DOORS_OF_ZONE, "through all of its ingresses");
    assert_eq!((of("zone-3").count(), of("zone-4").count()), (60, ENDPOINTS_OF_SERVICE));
}
