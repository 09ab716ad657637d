//! A zone like Kuma's refuses a response for one item, takes nothing of it and does not say which.

use std::collections::BTreeSet;

use common::rest::{Sending, ZoneStatusSource};

use crate::{scripted::Scripted, world::World};

const POLICIES: usize = 2000;
const BAD: &str = "p0777";
/// One with everything, then two for each time the suspects are halved.
const RESPONSES: usize = 1 + 2 * 11;

#[tokio::test]
async fn its_innocent_neighbours_arrive_and_the_bad_one_is_found() {
    let world = World::new().await;
    let mut revision = 0;
    for n in 0..POLICIES {
        revision = world.global.put(world.policy(&format!("p{n:04}"))).await;
    }
    world.global.index.wait_for(revision).await.unwrap();
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("MeshTimeout")]).await.unwrap();
    let (mut held, mut responses) = (BTreeSet::new(), 0);
    while held.len() < POLICIES - 1 {
        responses += 1;
        assert!(responses <= RESPONSES, "{} of {POLICIES} have arrived", held.len());
        let response = down.next().await;
        let names: Vec<String> = response.resources.iter().map(|item| item.name.clone()).collect();
        let is_bad = names.iter().any(|name| name.starts_with(BAD));
        if !is_bad {
            held.extend(names);
        }
        down.reply(&response, is_bad.then_some("internal error: cannot store resources")).await;
    }
    world.note("zone-1", &["the zone refused MeshTimeout", "cannot store resources"]).await;
    let index = world.global.index.current();
    let sending = |name: &str| world.kds.sending("zone-1", &world.policy(name), &index);
    assert!(matches!(sending(BAD), Sending::Refused(_)), "{:?}", sending(BAD));
    assert_eq!(sending("p0776"), Sending::Sent);

    // What it refused is offered alone once it is another one.
    world.global.put(world.policy(BAD).with_label("team", "a")).await;
    let response = loop {
        let response = down.next().await;
        // The last half of the search may still be under way.
        if response.resources.iter().all(|item| item.name.starts_with(BAD)) {
            break response;
        }
        down.reply(&response, None).await;
    };
    assert_eq!(response.resources.len(), 1);
    down.reply(&response, None).await;
}
