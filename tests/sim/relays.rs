//! Global, relays and zones in one process, over a network in memory.

mod followers;
mod forged;
mod told_through;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    envoy_admin::{AdminFormat, Ask, AskError, EnvoyAdmin},
    model::{Origin, Resource, ResourceKey, kinds, labels, transcode},
    policy::mesh_timeout,
    rest::{ZoneHealth, ZoneStatus, ZoneStatusSource},
    runtime::http::Limits,
    store::{Store, memory::MemoryStore},
};
use global::{
    kds::{AnyZone, GlobalKdsSettings, Kds, ZoneAuthenticator},
    relay::{RelayControlPlane, RelayParts, RelaySettings},
};
use tokio::time::{sleep, timeout};
use zone::kds::{Dial, Link, Ways, ZoneKdsSettings};

use crate::{
    chaos::number,
    plane::{NoEnvoys, Plane, store},
    sockets::TIMEOUT,
    wire::{WireDial, wire},
    world::DATAPLANE,
};

const PATIENCE: Duration = Duration::from_secs(30);
const QUICK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// Waits until `found` finds something.
async fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, &mut found).await
}

async fn eventually_within<T>(limit: Duration, what: &str, found: &mut impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            match found() {
                Some(found) => return found,
                None => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(limit, looking).await.unwrap_or_else(|_| panic!("never saw {what}"))
}

/// A control plane and the way to it.
struct Node {
    plane: Plane,
    kds: Kds,
    dial: Arc<WireDial>,
}

/// Places enough for all zones.
fn limits() -> Limits {
    Limits { connections: 20_000, per_share: 20_000, ..Limits::default() }
}

async fn global() -> Node {
    global_with(GlobalKdsSettings::default()).await
}

async fn global_with(settings: GlobalKdsSettings) -> Node {
    global_of(settings, Arc::new(AnyZone)).await
}

async fn global_letting_in(authenticator: Arc<dyn ZoneAuthenticator>) -> Node {
    global_of(GlobalKdsSettings::default(), authenticator).await
}

async fn global_of(settings: GlobalKdsSettings, authenticator: Arc<dyn ZoneAuthenticator>) -> Node {
    let mut plane = Plane::start(store(1), "global", 1).await;
    let kds = plane.kds_with(settings, authenticator);
    let (dial, listener) = wire();
    let (serving, stop) = (kds.clone(), plane.stop.clone());
    plane.tasks.spawn(async move { serving.serve(listener, None, limits(), stop).await.unwrap() });
    plane.put(plane.resource(&kinds::mesh::KIND, "", "default", Origin::Global)).await;
    Node { plane, kds, dial }
}

/// A relay of this number behind `above`, on a disk of its own.
async fn relay(number: u64, above: &Arc<WireDial>, disk: &Arc<MemoryStore>) -> Node {
    relay_with(number, above, disk, GlobalKdsSettings::default()).await
}

async fn relay_with(
    number: u64,
    above: &Arc<WireDial>,
    disk: &Arc<MemoryStore>,
    zones: GlobalKdsSettings,
) -> Node {
    let name = format!("relay-{number}");
    let mut plane = Plane::start(Arc::clone(disk), &name, 1000 + number).await;
    let parts = RelayParts {
        settings: RelaySettings { backoff: QUICK, gzip: false, ..RelaySettings::new(&name) },
        zones,
        store: Arc::clone(&plane.store) as Arc<dyn Store>,
        index: plane.index.clone(),
        env: plane.env.clone(),
        dial: Arc::clone(above) as Arc<dyn Dial>,
    };
    let relay = RelayControlPlane::new(parts, |_| Arc::new(AnyZone)).await.unwrap();
    let (dial, listener) = wire();
    let (kds, stop) = (relay.kds(), plane.stop.clone());
    plane.tasks.spawn(async move { kds.serve(listener, None, limits(), stop).await.unwrap() });
    let (following, stop) = (relay.clone(), plane.stop.clone());
    plane.tasks.spawn(async move { following.follow(stop).await });
    Node { kds: relay.kds(), plane, dial }
}

fn settings(name: &str) -> ZoneKdsSettings {
    ZoneKdsSettings { gzip: false, backoff: QUICK, ..ZoneKdsSettings::new(name) }
}

async fn zone(number: u64, name: &str, above: &[&Node]) -> (Plane, Link) {
    zone_with(number, settings(name), above, Arc::new(NoEnvoys)).await
}

async fn zone_with(
    number: u64,
    settings: ZoneKdsSettings,
    above: &[&Node],
    envoys: Arc<dyn EnvoyAdmin>,
) -> (Plane, Link) {
    let name = Arc::clone(&settings.zone);
    let name = &*name;
    let mut plane = Plane::start(store(u128::from(number) + 100_000), name, number).await;
    let ways = above.iter().map(|node| Arc::clone(&node.dial) as Arc<dyn Dial>).collect();
    let ways = Arc::new(Ways::new(ways, &plane.env));
    let link = plane.follow_with(settings, ways, envoys);
    (plane, link)
}

impl Node {
    fn policy(&self, name: &str) -> Resource {
        let policy = self.plane.resource(&mesh_timeout::KIND, "default", name, Origin::Global);
        policy.with_spec(TIMEOUT)
    }

    fn status(&self, zone: &str) -> ZoneStatus {
        self.kds.zone_status(zone, &self.plane.index.current()).unwrap()
    }

    /// Ends all tasks at once: no goodbye.
    async fn kill(mut self) {
        self.plane.tasks.shutdown().await;
    }
}

fn services(index: &common::store::index::Index) -> Vec<(String, Option<String>)> {
    let all = index.list(&kinds::mesh_service::KIND);
    all.map(|r| (r.display_name().to_owned(), r.label(labels::ZONE).map(str::to_owned))).collect()
}

/// What a zone holds of global, with the revision at which it was written.
fn synced(plane: &Plane) -> BTreeSet<(ResourceKey, u64)> {
    let index = plane.index.current();
    let all = index.iter().filter(|resource| resource.kind() != &kinds::zone_insight::KIND);
    all.map(|resource| (resource.key.clone(), resource.revision)).collect()
}

#[tokio::test]
async fn policies_go_down_and_services_go_up_and_across_relays() {
    let global = global().await;
    let relays = [relay(1, &global.dial, &store(2)).await, relay(2, &global.dial, &store(3)).await];
    let first = zone(1, "zone-1", &[&relays[0]]).await;
    let second = zone(2, "zone-2", &[&relays[1]]).await;
    let written = global.plane.put(global.policy("default-timeout-global")).await;
    for (zone, _) in [&first, &second] {
        zone.until("the policy", |index| {
            index.find(&mesh_timeout::KIND, "default", "default-timeout-global-54dbd4c66zwbcf9c").is_some()
        })
        .await;
    }

    let own = first.0.resource(&kinds::mesh_service::KIND, "default", "redis", Origin::Zone("zone-1".into()));
    let key = own.key.clone();
    first.0.put(own).await;
    let expected = vec![("redis".to_owned(), Some("zone-1".to_owned()))];
    global.plane.until("the service", |index| services(index) == expected).await;
    second.0.until("the service", |index| services(index) == expected).await;
    first.0.delete(key).await;
    second.0.until("no service", |index| services(index).is_empty()).await;

    // To global each is a zone of its own, as far as it says.
    for (zone, relay) in [("zone-1", "relay-1"), ("zone-2", "relay-2")] {
        let status = eventually("an answer for the policy", || {
            let status = global.status(zone);
            (status.down.acked >= written).then_some(status)
        })
        .await;
        assert_eq!((status.status, status.relay.as_deref()), (ZoneHealth::Online, Some(relay)));
        assert_eq!(status.notes.iter().filter(|note| note.contains("refused")).count(), 0);
    }
    global.plane.until("the insights", |index| index.count(&kinds::zone_insight::KIND) == 2).await;
    for node in &relays {
        assert_eq!(node.plane.index.current().count(&kinds::dataplane::KIND), 0);
        assert_eq!(node.plane.index.current().count(&kinds::zone_insight::KIND), 0, "global keeps those");
    }

    // A zone that stops says goodbye, also over its relay.
    first.0.stop.cancel();
    eventually("zone-1 offline", || (global.status("zone-1").status == ZoneHealth::Offline).then_some(()))
        .await;
    assert_eq!(global.status("zone-2").status, ZoneHealth::Online);
}

#[tokio::test]
async fn a_zone_whose_relay_is_lost_goes_on_at_another_and_writes_nothing() {
    let global = global().await;
    let mut relays = vec![relay(1, &global.dial, &store(2)).await, relay(2, &global.dial, &store(3)).await];
    for n in 0..20 {
        global.plane.put(global.policy(&format!("p{n}"))).await;
    }
    let (plane, link) = zone(1, "zone-1", &[&relays[0], &relays[1]]).await;
    plane.until("the policies", |index| index.count(&mesh_timeout::KIND) == 20).await;
    let head = global.plane.index.current().revision;
    let at = eventually("zone-1 online below a relay", || {
        let status = global.status("zone-1");
        status.relay.filter(|_| status.status == ZoneHealth::Online && status.down.acked >= head)
    })
    .await;
    let before = synced(&plane);
    let lost = usize::from(at == "relay-2");
    relays.remove(lost).kill().await;
    let other = if lost == 0 { "relay-2" } else { "relay-1" };
    eventually("zone-1 below the other relay", || {
        let status = global.status("zone-1");
        assert_ne!(status.status, ZoneHealth::Offline, "it is away for a moment only");
        (status.relay.as_deref() == Some(other) && status.status == ZoneHealth::Online).then_some(())
    })
    .await;
    assert_eq!(synced(&plane), before, "a move is no reason to write");
    assert_eq!(link.status().held_back, None);
    let written = global.plane.put(global.policy("after")).await;
    plane.until("a policy after the move", |index| index.count(&mesh_timeout::KIND) == 21).await;
    eventually("an answer for it", || (global.status("zone-1").down.acked >= written).then_some(())).await;
}

#[tokio::test]
async fn a_relay_serves_on_without_its_global_also_after_a_restart() {
    let global = global().await;
    global.plane.put(global.policy("t")).await;
    let disk = store(2);
    let first = relay(1, &global.dial, &disk).await;
    let (plane, _link) = zone(1, "zone-1", &[&first]).await;
    plane.until("the policy", |index| index.count(&mesh_timeout::KIND) == 1).await;
    let above = Arc::clone(&global.dial);
    global.kill().await;
    first.kill().await;
    // It starts on what it stored, and so does a zone that lost everything.
    let again = relay(1, &above, &disk).await;
    let (fresh, link) = zone(2, "zone-1", &[&again]).await;
    fresh.until("the policy", |index| index.count(&mesh_timeout::KIND) == 1).await;
    assert!(link.status().connected);
    // Nobody can let in a zone that global does not know.
    let (_unknown, link) = zone(3, "zone-9", &[&again]).await;
    let error = eventually("a refusal", || link.status().last_error).await;
    assert!(error.contains("has no connection to global") || error.contains("another stream"), "{error}");
}

/// Envoys that repeat the question.
struct Echoing;

#[async_trait::async_trait]
impl EnvoyAdmin for Echoing {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        match &*proxy.name {
            "gone" => Err(AskError::NotConnected(proxy.clone())),
            _ => Ok(format!("{proxy}: {}", ask.path()).into()),
        }
    }
}

#[tokio::test]
async fn global_asks_envoys_over_a_relay() {
    let global = global().await;
    let relay = relay(1, &global.dial, &store(2)).await;
    let (plane, _link) = zone_with(1, settings("zone-1"), &[&relay], Arc::new(Echoing)).await;
    let spec =
        transcode::from_json(&kinds::dataplane::KIND, &serde_json::from_str(DATAPLANE).unwrap()).unwrap();
    for name in ["web", "gone"] {
        let proxy = plane.resource(&kinds::dataplane::KIND, "default", name, Origin::Zone("zone-1".into()));
        plane.put(proxy.with_spec(spec.clone())).await;
    }
    global.plane.until("the dataplanes", |index| index.count(&kinds::dataplane::KIND) == 2).await;
    let key_of = |name: &str| {
        let index = global.plane.index.current();
        let found = index.list(&kinds::dataplane::KIND).find(|r| r.display_name() == name);
        found.unwrap().key.clone()
    };
    let asks = [
        (Ask::ConfigDump { include_eds: true }, "/config_dump?include_eds"),
        (Ask::Stats { format: AdminFormat::Text, used_only: true }, "/stats?usedonly"),
        (Ask::Clusters { format: AdminFormat::Json }, "/clusters?format=json"),
    ];
    for (ask, path) in asks {
        let asking = async {
            loop {
                match global.kds.ask(&key_of("web"), ask).await {
                    // The zone opens these streams after the others.
                    Err(AskError::ZoneAway { .. } | AskError::Zone { .. }) => {
                        sleep(Duration::from_millis(10)).await
                    }
                    answer => return answer,
                }
            }
        };
        let answer = timeout(PATIENCE, asking).await.unwrap().unwrap();
        assert_eq!(answer, format!("Dataplane default/web: {path}"));
    }
    let refused = global.kds.ask(&key_of("gone"), Ask::ConfigDump { include_eds: false }).await;
    assert!(matches!(&refused, Err(AskError::Zone { zone, .. }) if zone == "zone-1"), "{refused:?}");
}

#[tokio::test]
async fn a_zone_that_is_deleted_on_global_is_sent_away_by_its_relay() {
    let global = global().await;
    let relay = relay(1, &global.dial, &store(2)).await;
    let (plane, link) = zone(1, "zone-1", &[&relay]).await;
    plane.until("the mesh", |index| index.count(&kinds::mesh::KIND) == 1).await;
    eventually("zone-1 online", || (global.status("zone-1").status == ZoneHealth::Online).then_some(()))
        .await;
    let revision = |index: &common::store::index::Index| {
        index.find(&kinds::zone::KIND, "", "zone-1").map(|zone| zone.revision)
    };
    let before = revision(&global.plane.index.current());
    assert!(before.is_some());
    global.plane.delete(ResourceKey::global(&kinds::zone::KIND, "zone-1")).await;
    // It is made again when the zone comes again, which it does because the relay ended its session.
    global
        .plane
        .until("the zone again", |index| revision(index).is_some_and(|now| Some(now) != before))
        .await;
    eventually("zone-1 online again", || {
        (global.status("zone-1").status == ZoneHealth::Online && link.status().connected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_relay_behind_a_relay_is_told_that_it_has_no_global() {
    let global = global().await;
    let first = relay(1, &global.dial, &store(2)).await;
    let second = relay(2, &first.dial, &store(3)).await;
    let (_plane, link) = zone(1, "zone-1", &[&second]).await;
    let error = eventually("a refusal", || link.status().last_error).await;
    assert!(error.contains("this relay has nothing of global yet"), "{error}");
    assert_eq!(second.plane.index.current().count(&kinds::mesh::KIND), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_zones_below_many_relays_take_one_change_over_one_stream_for_each_relay() {
    let (relays, below) = (number("RELAY_SIM_RELAYS").unwrap_or(5), number("RELAY_SIM_ZONES").unwrap_or(10));
    let patience = Duration::from_secs(30 + relays * below / 2);
    // A machine that is busy with so many is no reason to give anybody up.
    let patient = GlobalKdsSettings {
        unknown_after: patience,
        offline_after: patience,
        stall_after: patience,
        ..GlobalKdsSettings::default()
    };
    let global = global_with(patient.clone()).await;
    let mut nodes = Vec::new();
    for n in 1..=relays {
        nodes.push(relay_with(n, &global.dial, &store(u128::from(n) + 1), patient.clone()).await);
    }
    let mut zones: Vec<(String, (Plane, Link))> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        for _ in 0..below {
            let number = zones.len() + 1;
            let name = format!("zone-{number}");
            let settings =
                ZoneKdsSettings { connect_timeout: patience, stall_after: patience, ..settings(&name) };
            let above = [node, &nodes[(at + 1) % nodes.len()]];
            let number = u64::try_from(number).unwrap();
            zones.push((name, zone_with(number, settings, &above, Arc::new(NoEnvoys)).await));
        }
        // One relay after the other: this is about many zones, not about all of them at one moment.
        let is_there = |name: &str| global.kds.zone_progress(name).down.acked > 0;
        let there = || zones.iter().all(|(name, _)| is_there(name)).then_some(());
        eventually_within(patience, "the zones below a relay", &mut { there }).await;
    }
    let all_at = |revision: u64| {
        let behind = zones.iter().find(|(name, _)| global.kds.zone_progress(name).down.acked < revision);
        behind.is_none().then_some(())
    };
    let written = global.plane.put(global.policy("t")).await;
    eventually_within(patience, "every answer", &mut || all_at(written)).await;
    for (name, (plane, _)) in &zones {
        assert_eq!(plane.index.current().count(&mesh_timeout::KIND), 1, "{name}");
        let status = global.kds.zone_progress(name);
        assert!(status.status == ZoneHealth::Online && status.relay.is_some(), "{name}: {status:?}");
    }

    // The zones of a lost relay are spread over the others.
    let lost = nodes.remove(0);
    let lost_name = "relay-1".to_owned();
    lost.kill().await;
    let moved = || {
        let left = zones.iter().find(|(name, _)| {
            let status = global.kds.zone_progress(name);
            status.relay.as_ref() == Some(&lost_name) || status.status != ZoneHealth::Online
        });
        left.is_none().then_some(())
    };
    eventually_within(patience, "every zone below another relay", &mut { moved }).await;
    let written = global.plane.put(global.policy("u")).await;
    eventually_within(patience, "every answer again", &mut || all_at(written)).await;
}
