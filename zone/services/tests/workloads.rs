use chrono::Duration;
use common::model::{
    Resource,
    kinds::{dataplane, workload},
};
use serde_json::{Value, json};

use super::world::{World, proxy};

fn stored(world: &World) -> Option<&Resource> {
    world.index.find(&workload::KIND, "default", "shop").map(|stored| &**stored)
}

fn counted(world: &World) -> Value {
    serde_json::from_slice(stored(world).unwrap().status.as_ref().unwrap()).unwrap()
}

#[test]
fn a_program_is_there_for_as_long_as_proxies_stand_beside_it() {
    let mut world = World::generating();
    world.put(&proxy("a", "web", 80, "Ready", "kuma.io/workload: shop"));
    world.put(&proxy("b", "api", 80, "NotReady", "kuma.io/workload: shop"));
    world.put(&proxy("c", "db", 80, "Ready", "kuma.io/workload: other"));
    world.settle();
    assert_eq!(counted(&world), json!({ "dataplaneProxies": { "connected": 0, "healthy": 1, "total": 2 } }));
    world.put(
        "{type: DataplaneInsight, mesh: default, name: a, subscriptions: [{id: '1', connectTime: \
         '2026-01-01T00:00:00Z'}]}",
    );
    world.delete(&dataplane::KIND, "b");
    world.settle();
    assert_eq!(counted(&world), json!({ "dataplaneProxies": { "connected": 1, "healthy": 1, "total": 1 } }));

    world.delete(&dataplane::KIND, "a");
    world.settle();
    world.die();
    world.settle();
    assert!(stored(&world).is_some(), "it stays for a while");
    world.now += Duration::hours(2);
    world.settle();
    assert!(stored(&world).is_none());
}

#[test]
fn who_names_one_program_after_the_other_has_a_share_of_them() {
    let mut world = World::generating();
    let named = |proxy_name: &str, token: &str, program: &str| {
        let labels = format!(
            "kuma.io/registered-by: proxy, strait.io/registered-with: {token}, kuma.io/workload: {program}"
        );
        proxy(proxy_name, "web", 80, "Ready", &labels)
    };
    for n in 0..300 {
        world.put(&named("a", "thief", &format!("w-{n}")));
        world.settle();
    }
    let count = |world: &World| world.index.list(&workload::KIND).count();
    assert_eq!(count(&world), 256);
    world.put(&named("b", "other", "shop"));
    world.settle();
    assert!(stored(&world).is_some(), "others are not concerned");
    world.now += Duration::hours(2);
    world.settle();
    assert_eq!(count(&world), 2, "the last it named has room now");
}
