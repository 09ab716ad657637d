//! What the engine takes with many proxies that call many services.

use std::sync::Arc;

use common::store::{StoreIdentity, index::Index};

use super::{World, east, proxy};
use crate::ads::{node::ProxyKind, push::meshes::Meshes};

/// Prints what the engine takes at scale: `cargo test --release -p zone --lib at_scale -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn at_scale() {
    let (proxies, services) = (1_000, 1_000);
    let index = Arc::new(Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }));
    let mut world = World::new(0);
    world.meshes = Meshes::new(east(), index);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..services).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    let dataplane = |i: usize, port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: p-{i}, networking: {{address: 127.1.{}.{}, inbound: [{{port: {port}, \
             tags: {{kuma.io/service: s-{}, kuma.io/protocol: http}}}}], outbound: [{outbounds}]}}}}",
            i / 250,
            i % 250,
            i % services
        )
    };
    let time = |what: &str, start: std::time::Instant| println!("{what}: {:?}", start.elapsed());
    let start = std::time::Instant::now();
    for i in 0..proxies {
        world.put(&dataplane(i, 60_000), "east");
    }
    time("put", start);
    for i in 0..proxies {
        world.meshes.arrive(&proxy(ProxyKind::Dataplane, &format!("p-{i}")));
    }
    let start = std::time::Instant::now();
    world.settle();
    time("first", start);
    let policy = |name: &str, target: &str, seconds: u32| {
        format!(
            "{{type: MeshTimeout, mesh: default, name: {name}, spec: {{targetRef: {{kind: Mesh}}, to: [{{targetRef: {target}, \
             default: {{connectionTimeout: {seconds}s}}}}]}}}}"
        )
    };
    for round in 1..4 {
        for (what, yaml) in [
            ("endpoint", dataplane(7, 60_000 + round)),
            ("policy of one", policy("one", "{kind: MeshService, name: s-3}", round)),
            ("policy of all", policy("all", "{kind: Mesh}", round)),
        ] {
            world.put(&yaml, if what == "endpoint" { "east" } else { "" });
            world.has.clear();
            let start = std::time::Instant::now();
            world.settle();
            time(what, start);
            println!("  told {}", world.has.len());
        }
    }
}
