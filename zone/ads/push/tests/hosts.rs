//! What host names stand for changes while everything else does.

use std::{net::IpAddr, sync::Arc};

use rand::Rng;

use super::{PROXIES, ProxyKind, World, proxy};

impl World {
    fn resolve(&mut self, name: &str, address: Option<&str>) {
        match address.map(|address| address.parse::<IpAddr>().unwrap()) {
            Some(address) => self.hosts.0.insert(name.to_owned(), address),
            None => self.hosts.0.remove(name),
        };
    }

    fn put_named(&mut self, who: usize, host: &str) {
        let yaml = format!(
            "{{type: Dataplane, mesh: default, name: p-{who}, networking: {{address: {host}, inbound: [{{port: {}, \
             tags: {{kuma.io/service: web}}}}]}}}}",
            80 + who
        );
        self.put(&yaml, "east");
    }

    fn put_ingress_named(&mut self, host: &str) {
        let yaml = format!(
            "{{type: ZoneIngress, name: west-in, zone: west, networking: {{address: 10.0.9.1, port: 1, advertisedAddress: \
             {host}, advertisedPort: 2}}, availableServices: [{{mesh: default, instances: 1, tags: {{kuma.io/service: \
             far}}}}]}}"
        );
        self.put(&yaml, "");
    }

    fn change_hosts(&mut self) {
        let (n, who) = (self.rng.random_range(0..6_usize), self.rng.random_range(0..PROXIES));
        let name = ["a.local", "b.local", "edge.local"][n % 3];
        match self.rng.random_range(0..4_u32) {
            0 => self.put_named(who, name),
            1 => self.put_ingress_named(name),
            _ => {
                let addresses = [None, Some("10.1.0.1"), Some("10.1.0.2")];
                let address = addresses[self.rng.random_range(0..addresses.len())];
                self.resolve(name, address);
            }
        }
    }
}

#[test]
fn names_that_move_come_to_the_same_as_everything_read_again() {
    let mut compared = 0;
    for seed in 0..12 {
        let mut world = World::new(seed);
        world.put("{type: Mesh, name: default}", "");
        world.put(
            "{type: ZoneIngress, name: east-in, zone: east, networking: {address: in.local, port: 1}}",
            "east",
        );
        world.put_egress("east-out", 9);
        world.put_services();
        world.put_authority();
        world.put_identity_authorities();
        for step in 0..30 {
            world.change_hosts();
            if world.rng.random_bool(0.3) {
                world.change();
            }
            if world.rng.random_bool(0.3) {
                world.slice(1);
                continue;
            }
            world.settle();
            compared += world.check(seed, step);
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn only_what_has_the_name_is_read_again() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    world.put_named(0, "a.local");
    world.put_named(1, "10.0.0.2");
    world.put_ingress_named("edge.local");
    world.meshes.arrive(&proxy(ProxyKind::Dataplane, "p-0"));
    world.resolve("a.local", Some("10.0.0.1"));
    world.settle();
    let read =
        |world: &World, name: &str| Arc::clone(&world.meshes.context("default").unwrap().dataplanes[name]);
    let (named, plain) = (read(&world, "p-0"), read(&world, "p-1"));
    // A name that another zone lets move concerns no proxy of this one as it stands there.
    for address in ["10.0.1.1", "10.0.1.2"] {
        world.resolve("edge.local", Some(address));
        world.settle();
        assert!(Arc::ptr_eq(&named, &read(&world, "p-0")) && Arc::ptr_eq(&plain, &read(&world, "p-1")));
    }
    world.resolve("a.local", Some("10.0.0.7"));
    world.settle();
    assert!(!Arc::ptr_eq(&named, &read(&world, "p-0")));
    assert!(Arc::ptr_eq(&plain, &read(&world, "p-1")));
}
