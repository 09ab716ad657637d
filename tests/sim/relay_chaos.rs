//! Random schedules with relays: writes, crashes of anybody, partitions above and below a relay, then quiet.
//! `RELAY_SEED=7` runs one, `RELAY_SEEDS=1000` that many.

use std::time::Duration;

use common::model::kinds;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::{
    chaos::{content, number},
    federation::{Federation, Shape, ZONES},
    network::{GLOBAL, RELAYS},
};

/// Schedules in an ordinary run.
const SEEDS: u64 = 25;
/// Faults and writes of one schedule.
const STEPS: usize = 40;
/// How long a federation may take to be in sync again after the last fault.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Default)]
struct RelayFaults {
    down: Option<&'static str>,
    cut: Option<(&'static str, &'static str)>,
    writes: usize,
}

fn run(seed: u64) -> Vec<String> {
    // In every other one nobody takes from a relay what global did not sign.
    let shape = Shape { relays: true, signed: seed % 2 == 1, ..Shape::default() };
    let mut federation = Federation::shaped(seed, shape);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut faults = RelayFaults::default();
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    federation.run_for(Duration::from_secs(2));
    for _ in 0..STEPS {
        act(&mut federation, &mut rng, &mut faults);
        federation.run_for(Duration::from_millis(rng.random_range(10..600)));
        federation.assert_owners_keep_their_own();
    }
    if let Some(host) = faults.down.take() {
        federation.bounce(host);
    }
    if let Some((above, below)) = faults.cut.take() {
        federation.sim.repair(above, below);
    }
    federation.note("quiet".to_owned());
    federation.converge(PATIENCE);
    assert!(faults.writes > 5, "the schedule hardly wrote anything");
    federation.history
}

fn act(federation: &mut Federation, rng: &mut StdRng, faults: &mut RelayFaults) {
    match rng.random_range(0..100) {
        0..60 => write(federation, rng, faults),
        60..80 => match faults.down.take() {
            Some(host) => federation.bounce(host),
            None => {
                let host = *[GLOBAL, RELAYS[0], RELAYS[1], ZONES[0], ZONES[1]].choose(rng).unwrap();
                // A global that forgets is another story.
                let lose_store = host != GLOBAL && rng.random_bool(0.3);
                federation.crash(host, lose_store);
                faults.down = Some(host);
            }
        },
        80..95 => match faults.cut.take() {
            Some((above, below)) => {
                federation.note(format!("{below} is reached by {above} again"));
                federation.sim.repair(above, below);
            }
            None => {
                let relay = *RELAYS.choose(rng).unwrap();
                let (above, below) =
                    if rng.random_bool(0.5) { (GLOBAL, relay) } else { (relay, *ZONES.choose(rng).unwrap()) };
                federation.sim.partition(above, below);
                federation.note(format!("{below} is cut off {above}"));
                faults.cut = Some((above, below));
            }
        },
        _ => federation.run_for(Duration::from_secs(rng.random_range(1..6))),
    }
}

fn write(federation: &mut Federation, rng: &mut StdRng, faults: &mut RelayFaults) {
    let host = *[GLOBAL, ZONES[0], ZONES[1]].choose(rng).unwrap();
    if faults.down == Some(host) {
        return;
    }
    faults.writes += 1;
    let (kind, name, spec) = content(host, rng);
    let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
    if rng.random_bool(0.3) {
        federation.delete(host, kind, mesh, &name);
    } else {
        federation.put(host, kind, mesh, &name, spec);
    }
}

#[test]
fn random_faults_behind_relays_never_lose_or_resurrect_anything() {
    let seeds = match number("RELAY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RELAY_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        if let Ok(history) = &outcome
            && number("RELAY_SEED").is_some()
        {
            println!("{}", history.join("\n"));
        }
        assert!(outcome.is_ok(), "seed {seed} failed: RELAY_SEED={seed} runs it alone");
    }
}
