//! Applications with gRPC libraries: what they call by names of their own, and what they share.

use common::model::kinds::dataplane;

use super::*;
use crate::mesh::address_book;

const WITHIN_REACH: usize = 20;

impl World {
    /// The application calls something else, is something else, or goes.
    pub(super) fn change_library(&mut self) {
        let n = self.rng.random_range(0..8_usize);
        let [one, other] = [(); 2].map(|()| SERVICES[self.rng.random_range(0..SERVICES.len())]);
        if n == 7 {
            let key = ResourceKey::new(&dataplane::KIND, "default", "lib-0");
            return self.apply(key, None);
        }
        let called = [
            String::new(),
            format!("{{port: 1000, tags: {{kuma.io/service: {one}}}}}"),
            format!(
                "{{port: 1000, tags: {{kuma.io/service: {other}}}}}, {{port: 1001, tags: {{kuma.io/service: {one}}}}}"
            ),
            format!("{{port: 1000, tags: {{kuma.io/service: {one}, version: v1}}}}"),
            format!("{{port: 1000, backendRef: {{kind: MeshService, name: {one}-here, port: 80}}}}"),
            format!("{{port: 80, address: 240.0.0.1, tags: {{kuma.io/service: {other}}}}}"),
            "{port: 1000, backendRef: {kind: MeshService, name: nobody, port: 80}}".to_owned(),
        ];
        let limit = ["", "", "", ", transparentProxying: {reachableServices: [web]}"]
            [self.rng.random_range(0..4_usize)];
        self.put(
            &format!(
                "{{type: Dataplane, mesh: default, name: lib-0, labels: {{team: {}}}, networking: {{address: 127.1.0.9, \
                 inbound: [{{port: 80, tags: {{kuma.io/service: {other}, kuma.io/protocol: grpc, version: v{}}}}}], \
                 outbound: [{}]{limit}}}}}",
                ["a", "b"][n % 2],
                n % 3,
                called[n]
            ),
            "east",
        );
    }
}

fn application(n: usize, port: u32, service: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: lib-{n}, networking: {{address: 127.1.0.{n}, inbound: [{{port: 80, tags: \
         {{kuma.io/service: app, kuma.io/protocol: grpc}}}}], outbound: [{{address: 127.2.0.{n}, port: {port}, tags: \
         {{kuma.io/service: {service}}}}}]}}}}"
    )
}

fn id(n: usize) -> ProxyId {
    ProxyId::new(ProxyKind::Dataplane, "default", &format!("lib-{n}"))
}

fn listens(world: &World, n: usize, name: &str) -> bool {
    world.has[&id(n)].get(type_url::LISTENER, name).is_some()
}

/// Whoever has names of its own for what everybody calls has these alone, and the rest with all others.
#[test]
fn names_of_their_own_cost_no_list_of_their_own() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let entry = |n: usize| {
        format!(
            r#""0:s-{n}":{{"address":"240.0.0.{n}","outbounds":[{{"Port":0,"TagSet":{{"kuma.io/service":"s-{n}"}}}}]}}"#
        )
    };
    let book: Vec<String> = (1..=WITHIN_REACH).map(entry).collect();
    let name = address_book::key("default").name;
    world.put(&format!("{{type: Config, name: {name}, config: '{{{}}}'}}", book.join(",")), "east");
    let mut held = Vec::new();
    for n in 1..6 {
        world.put(&application(n, 1000, &format!("s-{n}")), "east");
        world.meshes.arrive(&proxy(ProxyKind::Dataplane, &format!("lib-{n}")));
        world.settle();
        world.check(0, n);
        held.push(world.meshes.held());
        assert!(listens(&world, n, &format!("127.2.0.{n}:1000")), "its own name");
        assert!(listens(&world, n, "s-20"), "and everybody's");
    }
    assert!(held.iter().all(|one| *one == held[0]), "each one more adds nothing that is kept: {held:?}");

    // A part of a service is not the service, by whatever name either is called.
    let part = "{type: Dataplane, mesh: default, name: lib-1, networking: {address: 127.1.0.1, inbound: [{port: 80, tags: \
                {kuma.io/service: app, kuma.io/protocol: grpc}}], outbound: [{port: 1001, tags: {kuma.io/service: s-1, \
                version: v1}}, {port: 1000, tags: {kuma.io/service: s-1}}]}}";
    world.put(part, "east");
    world.settle();
    world.check(1, 0);
    let routes = |name: &str| {
        let listener = world.has[&id(1)].get(type_url::LISTENER, name).unwrap().to_json().unwrap();
        listener.pointer("/apiListener/apiListener/rds/routeConfigName").unwrap().to_string()
    };
    let (of_part, of_whole) = (routes("127.0.0.1:1001"), routes("127.0.0.1:1000"));
    assert_ne!(of_part, of_whole);

    // What it calls so becomes something else, then something that nobody else calls, then what it was.
    for (step, service) in ["s-2", "elsewhere", "s-1"].into_iter().enumerate() {
        world.put(&application(1, 1000, service), "east");
        world.settle();
        world.check(1, step);
        let routes = world.has[&id(1)].get(type_url::LISTENER, "127.2.0.1:1000").unwrap().to_json().unwrap();
        assert!(routes.to_string().contains(&format!("outbound:{service}\"")), "{routes}");
    }
    assert_eq!(world.meshes.held(), held[0]);
}
