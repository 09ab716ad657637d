//! What the event bus of a global tells, and what global does because of it.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use common::{
    events::{Event, ResourceChange, StreamKind, Subscriber},
    model::{Origin, Resource, ResourceKey, kinds},
    rest::ZoneHealth,
    store::{Batch, Store, Write},
    token::{self, Purpose, ZoneClaims, new_signing_key, scope, secret_spec},
};
use global::kds::TokenOfZone;
use tonic::Code;
use zone::kds::{Dial, TokenSource, ZoneKdsSettings};

use crate::{
    federation::Federation,
    network::GLOBAL,
    plane::{Plane, store},
    scripted::Scripted,
    sockets::serve,
    world::{DATAPLANE, World},
};

/// The next event about a zone.
async fn next_of_zone(events: &mut Subscriber) -> Event {
    let next = async {
        loop {
            let event = events.next().await.unwrap();
            if event.zone().is_some() {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), next).await.expect("an event about a zone")
}

fn opened(stream: StreamKind, epoch: u64) -> Event {
    Event::ZoneOpenedStream { zone: "zone-1".into(), stream, epoch }
}

fn introduced(epoch: u64) -> Event {
    Event::ZoneIntroduced { zone: "zone-1".into(), epoch }
}

fn cancelled(stream: StreamKind, epoch: u64) -> Event {
    Event::StreamCancelled { zone: "zone-1".into(), stream, epoch }
}

fn ended(epoch: u64) -> Event {
    Event::SessionEnded { zone: "zone-1".into(), epoch }
}

/// What a zone opens.
const ALL_STREAMS: [StreamKind; 6] = [
    StreamKind::GlobalToZone,
    StreamKind::ZoneToGlobal,
    StreamKind::ConfigDump,
    StreamKind::Stats,
    StreamKind::Clusters,
    StreamKind::Holdings,
];

fn offline(epoch: u64) -> Event {
    Event::ZoneWentOffline { zone: "zone-1".into(), epoch }
}

#[tokio::test]
async fn each_stream_of_a_zone_is_told_and_the_older_ones_when_a_newer_session_cancels_them() {
    let world = World::new().await;
    let mut events = world.global.bus.subscribe("test");
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("Mesh")]).await.unwrap();
    assert_eq!(next_of_zone(&mut events).await, opened(StreamKind::GlobalToZone, 1));
    assert_eq!(next_of_zone(&mut events).await, introduced(1));
    let _up = zone.answer().await.unwrap();
    assert_eq!(next_of_zone(&mut events).await, opened(StreamKind::ZoneToGlobal, 1));
    let mut stats = zone.stats().await.unwrap();
    assert_eq!(next_of_zone(&mut events).await, opened(StreamKind::Stats, 1));

    let again = Scripted::like_kumas(&world.dial, "zone-1").await;
    let _down = again.ask(Vec::new()).await.unwrap();
    for stream in [StreamKind::GlobalToZone, StreamKind::ZoneToGlobal, StreamKind::Stats] {
        assert_eq!(next_of_zone(&mut events).await, cancelled(stream, 1));
    }
    assert_eq!(next_of_zone(&mut events).await, ended(1));
    assert_eq!(next_of_zone(&mut events).await, opened(StreamKind::GlobalToZone, 2));
    for end in [down.end().await.unwrap(), stats.message().await.unwrap_err()] {
        assert_eq!((end.code(), end.message()), (Code::Cancelled, "a newer session of the zone took over"));
    }
}

#[tokio::test]
async fn a_goodbye_takes_a_zone_offline() {
    let world = World::new().await;
    let mut events = world.global.bus.subscribe("test");
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    zone.follow(ZoneKdsSettings::new("zone-1"), Arc::clone(&world.dial));
    let mut streams = Vec::new();
    while streams.len() < ALL_STREAMS.len() {
        if let Event::ZoneOpenedStream { stream, epoch: 1, .. } = next_of_zone(&mut events).await {
            streams.push(stream);
        }
    }
    streams.sort();
    assert_eq!(streams, ALL_STREAMS);
    zone.stop.cancel();
    let last = loop {
        match next_of_zone(&mut events).await {
            Event::ZoneIntroduced { .. } => {}
            other => break [other, next_of_zone(&mut events).await],
        }
    };
    assert_eq!(last, [ended(1), offline(1)]);
}

/// Everything about `zone-1` that the bus of global told, with the second of the simulation.
fn told(federation: &Federation) -> Vec<(u64, Event)> {
    let told = federation.events();
    let of_zone = |event: &Event| event.zone().is_some_and(|zone| **zone == *"zone-1");
    told.into_iter().filter(|(_, e)| of_zone(e)).map(|(at, event)| (at.as_secs(), event)).collect()
}

#[test]
fn a_zone_that_falls_silent_is_cut_off_once_and_stays_offline_until_it_is_back() {
    // The watch has the first word, because the connection is not probed before.
    let settings = global::kds::GlobalKdsSettings { keepalive: Duration::from_secs(60), ..Plane::settings() };
    let patience = settings.offline_after.as_secs();
    let mut federation = Federation::with_settings(11, settings);
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    federation.converge(Duration::from_secs(10));
    let before = told(&federation).len();
    let cut = federation.sim.elapsed().as_secs();
    federation.sim.partition(GLOBAL, "zone-1");
    federation.until_health("zone-1", ZoneHealth::Offline, Duration::from_secs(25));
    let (_, since) = federation.health("zone-1");
    federation.run_for(Duration::from_secs(40));
    assert_eq!(federation.health("zone-1"), (ZoneHealth::Offline, since), "what is offline stays so");
    let (at, events): (Vec<_>, Vec<_>) = told(&federation).split_off(before).into_iter().unzip();
    let streams = ALL_STREAMS.map(|stream| cancelled(stream, 1));
    assert_eq!(events, [&streams[..], &[ended(1), offline(1)]].concat());
    // It pinged every five seconds before.
    assert!(at.iter().all(|at| (cut + patience - 5..=cut + patience).contains(at)), "cut at {cut}: {at:?}");
    federation.sim.repair(GLOBAL, "zone-1");
    federation.until_health("zone-1", ZoneHealth::Online, Duration::from_secs(60));
    assert!(
        told(&federation)
            .contains(&(federation.health("zone-1").1.as_secs(), opened(StreamKind::GlobalToZone, 2)))
    );
}

#[tokio::test]
async fn resource_changes_are_told_in_commit_order_once_the_index_shows_them() {
    let world = World::new().await;
    let mut events = world.global.bus.subscribe("test");
    let (global, p, q) = (&world.global, world.policy("p"), world.policy("q"));
    // What is told of a resource is how it is when it is read, so it is waited for what becomes of this one.
    let first = global.put(p.clone()).await;
    global.until("the policy", |index| index.get(&p.key).is_some()).await;
    global.delete(p.key.clone()).await;
    global.until("no policy", |index| index.get(&p.key).is_none()).await;
    global.store.transact(Batch::of([Write::put(p.clone()), Write::put(q.clone())])).await.unwrap();
    global.put(q.clone()).await;
    let last = global.put(q.clone().with_label("team", "a")).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|change: &ResourceChange| change.revision < last) {
        let Event::ResourcesChanged(changes) = events.next().await.unwrap() else { panic!("what else?") };
        let newest = changes.last().unwrap().revision;
        assert!(global.index.current().revision >= newest, "told before it can be seen");
        told.extend(changes.iter().filter(|change| change.revision >= first).cloned());
    }
    let change = |after: u64, key: &ResourceKey, deleted| ResourceChange {
        revision: first + after,
        key: key.clone(),
        deleted,
    };
    let expected = [
        change(0, &p.key, false),
        change(1, &p.key, true),
        change(2, &p.key, false),
        change(2, &q.key, false),
        // What changes nothing is no change.
        change(3, &q.key, false),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_zone_that_is_deleted_loses_its_session_and_what_it_sent_and_may_begin_anew() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("Mesh")]).await.unwrap();
    let mut up = zone.answer().await.unwrap();
    up.send("Dataplane", 1, &[world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE)], &[]).await;
    assert!(up.verdict("Dataplane").await.error_detail.is_none());
    let mut events = world.global.bus.subscribe("test");
    world.global.delete(ResourceKey::global(&kinds::zone::KIND, "zone-1")).await;
    for end in [down.end().await.unwrap(), up.end().await.unwrap()] {
        assert_eq!(end.code(), Code::Cancelled);
        assert!(end.message().contains("deleted"), "{end}");
    }
    let all: Vec<Event> = {
        let mut all = Vec::new();
        while all.last() != Some(&offline(1)) {
            all.push(next_of_zone(&mut events).await);
        }
        all
    };
    let cut = [StreamKind::GlobalToZone, StreamKind::ZoneToGlobal].map(|stream| cancelled(stream, 1));
    assert_eq!(all, [&cut[..], &[ended(1), offline(1)]].concat());
    world
        .global
        .until("nothing of the zone", |index| {
            [&kinds::zone::KIND, &kinds::dataplane::KIND, &kinds::zone_insight::KIND]
                .iter()
                .all(|kind| index.count(kind) == 0)
        })
        .await;
    // It is let in again as any zone that is new.
    let again = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut up = again.answer().await.unwrap();
    up.send("Dataplane", 1, &[world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE)], &[]).await;
    assert!(up.verdict("Dataplane").await.error_detail.is_none());
}

/// A global that wants zone tokens, with a key for each of the serials.
async fn guarded(serials: &[u32]) -> (Plane, Arc<dyn Dial>) {
    let mut global = Plane::start(store(1), "global", 1).await;
    for serial in serials {
        let key = new_signing_key().unwrap();
        let secret = Resource::new(Purpose::Zone.key(*serial), global.env.now());
        let revision = global.put(secret.with_spec(secret_spec(key.pem()))).await;
        global.index.wait_for(revision).await.unwrap();
    }
    let authenticator = TokenOfZone { index: global.index.clone(), env: global.env.clone() };
    let kds = global.kds_with(Plane::settings(), Arc::new(authenticator));
    let dial = serve(&mut global, &kds).await;
    (global, dial)
}

fn token_of(global: &Plane, zone: &str) -> String {
    let claims =
        ZoneClaims { zone: zone.to_owned(), scope: vec![scope::CP.to_owned()], ..ZoneClaims::default() };
    token::issue(&global.index.current(), Purpose::Zone, &claims, token::TEN_YEARS, &global.env).unwrap()
}

#[tokio::test]
async fn a_zone_whose_token_is_revoked_is_cut_off_and_nobody_else() {
    let (global, dial) = guarded(&[1]).await;
    let mut zones = Vec::new();
    for (number, name) in [(2, "zone-1"), (3, "zone-2")] {
        let mut zone = Plane::start(store(number), name, number as u64).await;
        let token = token_of(&global, name);
        let settings =
            ZoneKdsSettings { token: TokenSource::Inline(token.clone()), ..ZoneKdsSettings::new(name) };
        let link = zone.follow(settings, Arc::clone(&dial));
        zones.push((zone, link, token));
    }
    let mesh = global.resource(&kinds::mesh::KIND, "", "default", Origin::Global);
    global.put(mesh.clone()).await;
    for (zone, ..) in &zones {
        zone.until("the mesh", |index| index.count(&kinds::mesh::KIND) == 1).await;
    }
    let mut events = global.bus.subscribe("test");
    let key = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, "zone-token-revocations");
    let list = Resource::new(key, global.env.now()).with_spec(secret_spec(id_of(&zones[0].2)));
    global.put(list).await;
    while next_of_zone(&mut events).await != offline(1) {}
    let link = &zones[0].1;
    let refused = async {
        while !link.status().last_error.is_some_and(|error| error.contains("revoked")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), refused).await.expect("the zone says why");
    // The other one goes on in its session, the revoked one gets nothing more.
    global.put(mesh.with_label("team", "a")).await;
    let team = |index: &common::store::index::Index| {
        index.list(&kinds::mesh::KIND).all(|mesh| mesh.label("team") == Some("a"))
    };
    zones[1].0.until("the label", team).await;
    assert!(!team(&zones[0].0.index.current()));
    assert!(zones[1].1.status().connected);
}

/// The id of a token.
fn id_of(token: &str) -> String {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    claims["jti"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_that_is_deleted_takes_the_sessions_of_its_tokens_with_it() {
    let (global, dial) = guarded(&[1]).await;
    let mut old = Scripted::like_kumas(&dial, "zone-1").await;
    old.caller.token = Some(token_of(&global, "zone-1"));
    let mut down = old.ask(vec![old.first("Mesh")]).await.unwrap();
    let mut up = old.answer().await.unwrap();
    let mut stats = old.stats().await.unwrap();
    // A second key alone changes nothing for those who are in.
    let key = new_signing_key().unwrap();
    let secret = Resource::new(Purpose::Zone.key(2), global.env.now()).with_spec(secret_spec(key.pem()));
    let revision = global.put(secret).await;
    global.index.wait_for(revision).await.unwrap();
    let mut new = Scripted::like_kumas(&dial, "zone-2").await;
    new.caller.token = Some(token_of(&global, "zone-2"));
    let mut other = new.ask(vec![new.first("Mesh")]).await.unwrap();
    other.next().await;
    old.ping().await.unwrap();
    down.next().await;

    global.delete(Purpose::Zone.key(1)).await;
    for end in [down.end().await.unwrap(), up.end().await.unwrap(), stats.message().await.unwrap_err()] {
        assert_eq!(end.code(), Code::Unauthenticated, "{end}");
        assert!(end.message().contains("no signing key has the id \"1\""), "{end}");
    }
    assert_eq!(old.answer().await.err().unwrap().code(), Code::Unauthenticated);
    global.put(global.resource(&kinds::mesh::KIND, "", "default", Origin::Global)).await;
    new.ping().await.unwrap();
}
