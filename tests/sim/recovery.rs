//! Global is lost, restored from an old backup or rebuilt from its zones; no resource disappears from a zone meanwhile.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{
    model::{Origin, Resource, ResourceKey, kinds},
    policy::mesh_timeout,
    store::{Batch, Store, Write, memory::MemoryStore},
};
use futures::FutureExt;
use global::recovery::{RecoveryOptions, Winner};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::{
    federation::{Federation, ZONES},
    network::GLOBAL,
    oracle::resources,
};

const SECOND: Duration = Duration::from_secs(1);
/// Schedules of one run.
const SEEDS: u64 = 40;

pub fn timeout(seconds: u32) -> Vec<u8> {
    let spec =
        format!(r#"{{"to":[{{"targetRef":{{"kind":"Mesh"}},"default":{{"idleTimeout":"{seconds}s"}}}}]}}"#);
    spec.into_bytes()
}

fn policy(federation: &mut Federation, name: &str, seconds: u32) {
    federation.put(GLOBAL, &mesh_timeout::KIND, "default", name, timeout(seconds));
}

/// Five policies of global and a service of zone 1, known wherever they belong.
pub fn in_sync(seed: u64) -> Federation {
    let mut federation = Federation::new(seed);
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    (0..5).for_each(|n| policy(&mut federation, &format!("p{n}"), 20));
    let spec = br#"{"ports":[{"port":80}]}"#.to_vec();
    federation.put("zone-1", &kinds::mesh_service::KIND, "default", "s", spec);
    federation.converge(10 * SECOND);
    federation.run_for(2 * SECOND);
    federation
}

/// What a zone holds, its own insight apart: the revision shows whether something was written again.
pub fn held(federation: &Federation, zone: &str) -> BTreeMap<String, u64> {
    let all = resources(&federation.store(zone));
    let kept = all.iter().filter(|r| r.kind() != &kinds::zone_insight::KIND);
    kept.map(|r| (r.key.to_string(), r.revision)).collect()
}

pub fn all_held(federation: &Federation) -> BTreeMap<&'static str, BTreeMap<String, u64>> {
    ZONES.into_iter().map(|zone| (zone, held(federation, zone))).collect()
}

/// A copy of what a host has now, as a backup holds it: of the same history, and behind it soon.
fn backup(federation: &Federation, host: &str) -> Arc<MemoryStore> {
    let (store, all) = (federation.store(host), resources(&federation.store(host)));
    let copy = MemoryStore::new(store.identity().store_id);
    let writes = all.iter().map(|r| Write::put(r.as_ref().clone()));
    copy.transact(Batch::of(writes)).now_or_never().expect("a memory store never waits").unwrap();
    Arc::new(copy)
}

pub fn assert_nothing_disappears(
    federation: &Federation,
    before: &BTreeMap<&'static str, BTreeMap<String, u64>>,
) {
    for (zone, before) in before {
        let now = held(federation, zone);
        let gone: Vec<_> = before.keys().filter(|key| !now.contains_key(*key)).collect();
        assert!(gone.is_empty(), "{zone} lost {gone:?}");
    }
}

pub fn run_watching(
    federation: &mut Federation,
    time: Duration,
    before: &BTreeMap<&'static str, BTreeMap<String, u64>>,
) {
    let end = federation.sim.elapsed() + time;
    while federation.sim.elapsed() < end {
        federation.step();
        assert_nothing_disappears(federation, before);
    }
}

#[test]
fn a_global_that_lost_everything_is_rebuilt_and_zones_write_nothing_again() {
    let mut federation = in_sync(1);
    let (before, owned) = (all_held(&federation), federation.owned_by(GLOBAL));
    federation.crash(GLOBAL, true);
    federation.bounce(GLOBAL);
    run_watching(&mut federation, 10 * SECOND, &before);
    for zone in ZONES {
        let status = federation.link(zone).status();
        assert!(status.held_back.is_some_and(|why| why.contains("store")), "{zone} does not say why");
    }
    let report =
        federation.recover(RecoveryOptions::default(), |f| assert_nothing_disappears(f, &before)).unwrap();
    assert_eq!(
        (report.restored.total, report.conflicts.total, report.absent.total),
        (7, 0, 0),
        "{report:#?}"
    );
    federation.now_owns(GLOBAL, owned);
    run_watching(&mut federation, 10 * SECOND, &before);
    federation.converge(10 * SECOND);
    assert_eq!(all_held(&federation), before, "nothing was written again");
    assert!(ZONES.iter().all(|zone| federation.link(zone).status().connected));
    // What is written from now on arrives.
    policy(&mut federation, "later", 7);
    federation.converge(10 * SECOND);
    let again = federation.recover(RecoveryOptions::default(), |_| {}).unwrap();
    assert_eq!((again.restored.total, again.next), (0, None), "nothing is left to recover: {again:#?}");
}

#[test]
fn what_was_written_after_the_backup_comes_back_from_the_zones() {
    let mut federation = in_sync(2);
    let copy = backup(&federation, GLOBAL);
    policy(&mut federation, "p1", 99);
    policy(&mut federation, "new", 5);
    federation.delete(GLOBAL, &mesh_timeout::KIND, "default", "p2");
    federation.converge(10 * SECOND);
    federation.run_for(2 * SECOND);
    let (before, owned) = (all_held(&federation), federation.owned_by(GLOBAL));
    federation.restore(GLOBAL, copy);
    federation.bounce(GLOBAL);
    run_watching(&mut federation, 10 * SECOND, &before);
    let status = federation.link("zone-1").status();
    assert!(status.held_back.is_some_and(|why| why.contains("went back")), "zone-1 does not say why");
    let options = RecoveryOptions { remove_absent: true, believe_one: true };
    let report = federation.recover(options, |f| assert_nothing_disappears(f, &before)).unwrap();
    let names = |change| -> Vec<_> {
        let items = report.restored.items.iter().filter(|item| item.change == change);
        items.map(|item| item.resource.name.clone()).collect()
    };
    assert_eq!(
        (names("created"), names("replaced")),
        (vec!["new".to_owned()], vec!["p1".to_owned()]),
        "{report:#?}"
    );
    assert_eq!(report.absent.items[0].resource.name, "p2", "{report:#?}");
    federation.now_owns(GLOBAL, owned);
    run_watching(&mut federation, 10 * SECOND, &before);
    federation.converge(10 * SECOND);
    assert_eq!(all_held(&federation), before, "nothing was written again");
}

#[test]
fn of_two_zones_the_one_that_was_further_is_right() {
    let mut federation = in_sync(3);
    federation.sim.partition(GLOBAL, "zone-2");
    federation.run_for(SECOND);
    policy(&mut federation, "p0", 77);
    federation.delete(GLOBAL, &mesh_timeout::KIND, "default", "p3");
    federation.run_for(10 * SECOND);
    let owned = federation.owned_by(GLOBAL);
    federation.crash(GLOBAL, true);
    federation.sim.repair(GLOBAL, "zone-2");
    federation.bounce(GLOBAL);
    federation.run_for(20 * SECOND);
    let report = federation.recover(RecoveryOptions::default(), |_| {}).unwrap();
    let conflicts: Vec<_> = report
        .conflicts
        .items
        .iter()
        .map(|c| (c.resource.name.as_str(), c.winner, c.taken.zones[0].as_ref(), c.left[0].zones[0].as_ref()))
        .collect();
    let expected = [("p0", Winner::Zones, "zone-1", "zone-2"), ("p3", Winner::Gone, "zone-1", "zone-2")];
    assert_eq!(conflicts, expected, "{report:#?}");
    federation.now_owns(GLOBAL, owned);
    federation.converge(20 * SECOND);
}

/// What a zone exports stays with the others while global is rebuilt, also when that zone is away.
#[test]
fn what_an_absent_zone_exports_stays_with_the_others() {
    let mut federation = in_sync(4);
    let (before, owned) = (held(&federation, "zone-2"), federation.owned_by(GLOBAL));
    let before = BTreeMap::from([("zone-2", before)]);
    federation.crash("zone-1", false);
    federation.crash(GLOBAL, true);
    federation.bounce(GLOBAL);
    federation.run_for(10 * SECOND);
    let report =
        federation.recover(RecoveryOptions::default(), |f| assert_nothing_disappears(f, &before)).unwrap();
    let of_zone: Vec<_> = report.restored.items.iter().filter_map(|item| item.owner.as_deref()).collect();
    assert_eq!(of_zone, ["zone-1"], "{report:#?}");
    federation.now_owns(GLOBAL, owned);
    run_watching(&mut federation, 10 * SECOND, &before);
    federation.bounce("zone-1");
    run_watching(&mut federation, 10 * SECOND, &before);
    federation.converge(20 * SECOND);
}

/// Random states, a backup that is taken at any time, zones that crash before and while global is rebuilt.
fn random(seed: u64) {
    let mut federation = Federation::new(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    let steps = rng.random_range(5..30);
    let backup_at = rng.random_bool(0.5).then(|| rng.random_range(0..steps));
    let mut copy = None;
    for step in 0..steps {
        if backup_at == Some(step) {
            federation.converge(20 * SECOND);
            copy = Some(backup(&federation, GLOBAL));
        }
        write(&mut federation, &mut rng);
        federation.run_for(Duration::from_millis(rng.random_range(10..800)));
    }
    federation.converge(20 * SECOND);
    federation.run_for(2 * SECOND);
    let (before, owned) = (all_held(&federation), federation.owned_by(GLOBAL));
    match copy {
        Some(copy) => federation.restore(GLOBAL, copy),
        None => federation.crash(GLOBAL, true),
    }
    federation.bounce(GLOBAL);
    for _ in 0..rng.random_range(0..3) {
        let zone = *ZONES.choose(&mut rng).unwrap();
        federation.crash(zone, false);
        run_watching(&mut federation, Duration::from_millis(rng.random_range(10..3000)), &before);
        federation.bounce(zone);
    }
    run_watching(&mut federation, 15 * SECOND, &before);
    let options = RecoveryOptions { remove_absent: true, believe_one: true };
    federation.recover(options, |f| assert_nothing_disappears(f, &before)).unwrap();
    federation.now_owns(GLOBAL, owned);
    if rng.random_bool(0.3) {
        federation.crash(GLOBAL, false);
        federation.bounce(GLOBAL);
    }
    run_watching(&mut federation, 15 * SECOND, &before);
    federation.converge(20 * SECOND);
}

fn write(federation: &mut Federation, rng: &mut StdRng) {
    let name = format!("policy-{}", rng.random_range(0..6));
    let seconds = rng.random_range(1..1000);
    match rng.random_range(0..10) {
        0..2 => federation.delete(GLOBAL, &mesh_timeout::KIND, "default", &name),
        2..7 => policy(federation, &name, seconds),
        _ => {
            let zone = *ZONES.choose(rng).unwrap();
            let spec = format!(r#"{{"ports":[{{"port":{seconds}}}]}}"#).into_bytes();
            federation.put(zone, &kinds::mesh_service::KIND, "default", &name, spec);
        }
    }
}

#[test]
fn whatever_was_lost_is_rebuilt_without_a_gap() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| random(seed));
        assert!(outcome.is_ok(), "seed {seed} failed");
    }
}

/// A zone that was taken over can put words into global's mouth only where nobody contradicts; never those of a zone
/// that is heard itself.
#[test]
fn nobody_speaks_for_a_zone_that_is_heard() {
    let mut federation = in_sync(5);
    let owned = federation.owned_by(GLOBAL);
    let forged = resources(&federation.store("zone-2"));
    let forged = forged.iter().find(|r| r.kind() == &kinds::mesh_service::KIND).unwrap();
    let forged = Resource { origin: Origin::Global, ..forged.as_ref().clone() };
    federation.plant("zone-2", forged.with_spec(br#"{"ports":[{"port":666}]}"#.to_vec()));
    federation.crash(GLOBAL, true);
    federation.bounce(GLOBAL);
    federation.run_for(10 * SECOND);
    federation.recover(RecoveryOptions::default(), |_| {}).unwrap();
    federation.now_owns(GLOBAL, owned);
    federation.converge(20 * SECOND);
    let on_global = resources(&federation.store(GLOBAL));
    let service = on_global.iter().find(|r| r.kind() == &kinds::mesh_service::KIND).unwrap();
    assert!(!service.spec.escape_ascii().to_string().contains("666"), "{service:?}");
    let key = ResourceKey::new(&kinds::mesh_service::KIND, "default", service.name());
    assert_eq!(service.key, key);
}
