//! A zone moves to another global, and no resource disappears from it on the way.

use std::{collections::BTreeMap, time::Duration};

use common::{model::kinds, policy::mesh_timeout};
use futures::FutureExt;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use zone::kds::{MoveError, MoveStatus, MoveTarget};

use crate::{
    federation::Federation,
    network::{GLOBAL, SECOND_GLOBAL},
    oracle,
    recovery::{all_held, assert_nothing_disappears, held, in_sync, run_watching, timeout},
};

const SECOND: Duration = Duration::from_secs(1);
const ZONE: &str = "zone-1";
/// Schedules of one run.
const SEEDS: u64 = 40;

fn target(to: &str) -> MoveTarget {
    MoveTarget { to: to.to_owned(), token: None, ca_cert: None, skip_verify: false }
}

fn begin(federation: &Federation, to: &str) {
    federation.moves(ZONE).begin(target(to)).now_or_never().expect("a memory store never waits").unwrap();
}

fn commit(federation: &Federation) -> Result<(), MoveError> {
    federation.moves(ZONE).commit(false).now_or_never().expect("a memory store never waits")
}

/// A second global with the same mesh and `policies` of the five policies.
fn with_second(federation: &mut Federation, policies: usize) {
    federation.start_second_global(77);
    federation.put(SECOND_GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    for n in 0..policies {
        federation.put(SECOND_GLOBAL, &mesh_timeout::KIND, "default", &format!("p{n}"), timeout(20));
    }
}

/// Runs, watching, until the move stands so.
fn until(
    federation: &mut Federation,
    before: &BTreeMap<&'static str, BTreeMap<String, u64>>,
    what: &str,
    holds: impl Fn(&MoveStatus) -> bool,
) -> MoveStatus {
    let end = federation.sim.elapsed() + 60 * SECOND;
    loop {
        let status = federation.moves(ZONE).status().expect("a move that was begun");
        if holds(&status) {
            return status;
        }
        assert!(federation.sim.elapsed() < end, "not {what}: {status:?}");
        run_watching(federation, Duration::from_millis(100), before);
    }
}

/// What keeps the zone from being in sync with the second global.
fn differences(federation: &Federation) -> Vec<String> {
    let zones = [(ZONE, federation.store(ZONE))].into_iter().collect();
    oracle::differences(&federation.store(SECOND_GLOBAL), &zones)
}

fn converge(federation: &mut Federation, before: &BTreeMap<&'static str, BTreeMap<String, u64>>) {
    let end = federation.sim.elapsed() + 40 * SECOND;
    while !differences(federation).is_empty() || !federation.link(ZONE).status().connected {
        assert!(federation.sim.elapsed() < end, "not in sync: {:#?}", differences(federation));
        run_watching(federation, Duration::from_millis(200), before);
    }
}

#[test]
fn a_zone_moves_once_the_other_global_has_everything_and_loses_nothing_on_the_way() {
    let mut federation = in_sync(21);
    let before = all_held(&federation);
    with_second(&mut federation, 4);
    begin(&federation, SECOND_GLOBAL);
    let seen = until(&mut federation, &before, "seen", |status| status.offered > 0);
    assert_eq!((seen.complete, seen.difference.missing.total), (false, 1), "{seen:?}");
    assert!(seen.difference.missing.names[0].starts_with("MeshTimeout default/p4"), "{seen:?}");
    assert!(matches!(commit(&federation), Err(MoveError::Missing(1, _))));
    assert_eq!(all_held(&federation), before, "looking changes nothing");

    federation.put(SECOND_GLOBAL, &mesh_timeout::KIND, "default", "p4", timeout(20));
    until(&mut federation, &before, "complete", |status| status.complete);
    // Until now it follows the first one.
    federation.put(GLOBAL, &mesh_timeout::KIND, "default", "p0", timeout(21));
    let changed = until(&mut federation, &before, "changed", |status| status.difference.changed.total == 1);
    assert!(changed.complete, "{changed:?}");
    commit(&federation).unwrap();
    converge(&mut federation, &before);
    let own = oracle::resources(&federation.store(SECOND_GLOBAL));
    assert!(own.iter().any(|r| r.kind() == &kinds::mesh_service::KIND), "what the zone owns is there");
    // The first one is not obeyed any more.
    federation.delete(GLOBAL, &mesh_timeout::KIND, "default", "p1");
    let moved = BTreeMap::from([(ZONE, before[ZONE].clone())]);
    run_watching(&mut federation, 5 * SECOND, &moved);
    // What stays the same was not written again.
    let unchanged = |all: BTreeMap<String, u64>| -> Vec<_> {
        all.into_iter().filter(|(key, _)| key.contains("/p2") || key.contains("/p3")).collect()
    };
    assert_eq!(unchanged(held(&federation, ZONE)), unchanged(before[ZONE].clone()));
}

#[test]
fn a_move_that_is_given_up_changes_nothing() {
    let mut federation = in_sync(22);
    let before = all_held(&federation);
    with_second(&mut federation, 5);
    begin(&federation, SECOND_GLOBAL);
    until(&mut federation, &before, "complete", |status| status.complete);
    federation.moves(ZONE).back().now_or_never().expect("a memory store never waits").unwrap();
    assert!(federation.moves(ZONE).status().is_none());
    run_watching(&mut federation, 5 * SECOND, &before);
    federation.converge(10 * SECOND);
    assert_eq!(all_held(&federation), before);
    assert!(matches!(commit(&federation), Err(MoveError::None)));
}

/// The move goes on through crashes of everybody, also right after it was committed.
fn random(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut federation = in_sync(seed);
    let before = all_held(&federation);
    let present = rng.random_range(0..6);
    with_second(&mut federation, present);
    begin(&federation, SECOND_GLOBAL);
    disturb(&mut federation, &mut rng, &before);
    (present..5).for_each(|n| {
        federation.put(SECOND_GLOBAL, &mesh_timeout::KIND, "default", &format!("p{n}"), timeout(20));
    });
    disturb(&mut federation, &mut rng, &before);
    until(&mut federation, &before, "complete", |status| status.complete);
    assert_nothing_disappears(&federation, &before);
    commit(&federation).unwrap();
    disturb(&mut federation, &mut rng, &before);
    converge(&mut federation, &before);
    run_watching(&mut federation, 3 * SECOND, &before);
    assert_eq!(differences(&federation), Vec::<String>::new());
}

fn disturb(
    federation: &mut Federation,
    rng: &mut StdRng,
    before: &BTreeMap<&'static str, BTreeMap<String, u64>>,
) {
    for _ in 0..rng.random_range(0..3) {
        let host = *[GLOBAL, SECOND_GLOBAL, ZONE].choose(rng).unwrap();
        let while_away = Duration::from_millis(rng.random_range(1..3000));
        if rng.random_bool(0.5) {
            federation.crash(host, false);
            run_watching(federation, while_away, before);
            federation.bounce(host);
        } else if host != ZONE {
            federation.sim.partition(host, ZONE);
            run_watching(federation, while_away, before);
            federation.sim.repair(host, ZONE);
        }
        run_watching(federation, Duration::from_millis(rng.random_range(1..2000)), before);
    }
}

#[test]
fn whatever_happens_on_the_way_nothing_disappears() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| random(seed));
        assert!(outcome.is_ok(), "seed {seed} failed");
    }
}
