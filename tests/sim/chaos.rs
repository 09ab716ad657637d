//! Random schedules: writes, crashes, partitions, then quiet. `SIM_SEED=7` runs one, `SIM_SEEDS=1000`
//! that many.

use std::time::Duration;

use common::{
    model::{Kind, kinds, transcode},
    policy::mesh_timeout,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::{
    federation::{Federation, Shape, ZONES},
    network::{ANOTHER, GLOBAL, ZONE_REPLICA},
};

/// Schedules in an ordinary run.
const SEEDS: u64 = 100;
/// Schedules that are run twice.
const REPEATED: u64 = 20;
/// Faults and writes of one schedule.
const STEPS: usize = 40;
/// A schedule that did less proves nothing.
const LEAST_RECONNECTS: usize = 1;
/// How long a federation may take to be in sync again after the last fault.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Faults {
    down: Option<&'static str>,
    cut: Option<&'static str>,
    writes: usize,
    faults: usize,
}

/// Runs the schedule of a seed to its end and returns what happened.
fn run(seed: u64) -> Vec<String> {
    // Every other one with two instances of global, and of those and the others every other one with two replicas of
    // a zone.
    let shape = Shape {
        another_global: seed % 2 == 1,
        another_replica: seed / 2 % 2 == 1,
        signed: seed.is_multiple_of(5),
        ..Shape::default()
    };
    let mut federation = Federation::shaped(seed, shape);
    let more = [shape.another_global.then_some(ANOTHER), shape.another_replica.then_some(ZONE_REPLICA)];
    let hosts: Vec<&'static str> =
        [GLOBAL, ZONES[0], ZONES[1]].into_iter().chain(more.into_iter().flatten()).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut faults = Faults::default();
    federation.put(GLOBAL, &kinds::mesh::KIND, "", "default", Vec::new());
    federation.run_for(Duration::from_millis(500));
    for _ in 0..STEPS {
        act(&mut federation, &hosts, &mut rng, &mut faults);
        federation.run_for(Duration::from_millis(rng.random_range(10..600)));
        federation.assert_owners_keep_their_own();
    }
    heal(&mut federation, &mut faults);
    federation.converge(PATIENCE);
    let reconnects = federation.dials() - ZONES.len();
    // One that only waits for its turn goes and comes without a word to anybody.
    if faults.faults > if shape.another_replica { 3 } else { 0 } {
        assert!(reconnects >= LEAST_RECONNECTS, "no fault of the schedule was noticed");
    }
    assert!(faults.writes > 5, "the schedule hardly wrote anything");
    federation.history
}

fn act(federation: &mut Federation, hosts: &[&'static str], rng: &mut StdRng, faults: &mut Faults) {
    match rng.random_range(0..100) {
        0..60 => write(federation, rng, faults),
        60..70 => match faults.down.take() {
            Some(host) => federation.bounce(host),
            None => {
                let host = *hosts.choose(rng).unwrap();
                // A global that forgets is another story: zones refuse to follow it.
                let is_alone = ZONES.contains(&host) && !(host == ZONES[0] && hosts.contains(&ZONE_REPLICA));
                let lose_store = is_alone && rng.random_bool(0.3);
                federation.crash(host, lose_store);
                (faults.down, faults.faults) = (Some(host), faults.faults + 1);
            }
        },
        70..80 => match faults.down.take() {
            Some(host) => federation.bounce(host),
            None => {
                let host = *hosts.choose(rng).unwrap();
                federation.crash(host, false);
                federation.bounce(host);
                faults.faults += 1;
            }
        },
        80..95 => match faults.cut.take() {
            Some(zone) => {
                federation.note(format!("{zone} is reached again"));
                federation.sim.repair(GLOBAL, zone);
            }
            None => {
                let below: Vec<_> = hosts.iter().filter(|host| host.starts_with("zone-")).collect();
                let zone = **below.choose(rng).unwrap();
                cut(federation, rng, zone);
                (faults.cut, faults.faults) = (Some(zone), faults.faults + 1);
            }
        },
        _ => federation.run_for(Duration::from_secs(rng.random_range(1..6))),
    }
}

fn cut(federation: &mut Federation, rng: &mut StdRng, zone: &'static str) {
    match rng.random_range(0..3) {
        0 => federation.sim.partition(GLOBAL, zone),
        1 => federation.sim.partition_oneway(GLOBAL, zone),
        _ => federation.sim.partition_oneway(zone, GLOBAL),
    }
    federation.note(format!("{zone} is cut off"));
}

fn heal(federation: &mut Federation, faults: &mut Faults) {
    if let Some(host) = faults.down.take() {
        federation.bounce(host);
    }
    if let Some(zone) = faults.cut.take() {
        federation.sim.repair(GLOBAL, zone);
    }
    federation.note("quiet".to_owned());
}

/// A write or delete by a host that is up.
fn write(federation: &mut Federation, rng: &mut StdRng, faults: &mut Faults) {
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

pub fn content(host: &str, rng: &mut StdRng) -> (&'static Kind, String, Vec<u8>) {
    let number = rng.random_range(0..5);
    let version = rng.random_range(1..1000);
    let timeout =
        format!(r#"{{"to":[{{"targetRef":{{"kind":"Mesh"}},"default":{{"idleTimeout":"{version}s"}}}}]}}"#);
    if host == GLOBAL {
        return (&mesh_timeout::KIND, format!("policy-{number}"), timeout.into_bytes());
    }
    let proto = |kind: &'static Kind, json: String| {
        transcode::from_json(kind, &serde_json::from_str(&json).unwrap()).unwrap()
    };
    match rng.random_range(0..5) {
        4 => {
            let kind = &kinds::zone_ingress_insight::KIND;
            let json = format!(
                r#"{{"subscriptions":[{{"id":"{version}","connectTime":"2026-01-01T00:00:00Z",
                     "status":{{"total":{{"responsesSent":"{version}"}}}}}}]}}"#
            );
            (kind, "ingress".to_owned(), proto(kind, json))
        }
        0 => {
            let kind = &kinds::zone_ingress::KIND;
            let json = format!(
                r#"{{"zone":"{host}","networking":{{"address":"10.0.0.1","port":10001,
                     "advertisedAddress":"192.168.0.1","advertisedPort":{version}}}}}"#
            );
            (kind, "ingress".to_owned(), proto(kind, json))
        }
        1 => {
            let kind = &kinds::dataplane::KIND;
            let json = format!(
                r#"{{"networking":{{"address":"10.0.0.1",
                     "inbound":[{{"port":{version},"tags":{{"kuma.io/service":"web"}}}}]}}}}"#
            );
            (kind, format!("dataplane-{number}"), proto(kind, json))
        }
        2 => (&mesh_timeout::KIND, format!("policy-{number}"), timeout.into_bytes()),
        _ => {
            let spec = format!(r#"{{"ports":[{{"port":{version}}}]}}"#);
            (&kinds::mesh_service::KIND, format!("service-{number}"), spec.into_bytes())
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test is steered from the command line")]
pub fn number(variable: &str) -> Option<u64> {
    std::env::var_os(variable)?.to_str()?.parse().ok()
}

#[test]
fn random_faults_never_lose_or_resurrect_anything() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        if let Ok(history) = &outcome
            && number("SIM_SEED").is_some()
        {
            println!("{}", history.join("\n"));
        }
        assert!(outcome.is_ok(), "seed {seed} failed: SIM_SEED={seed} runs it alone");
    }
}

/// Each run has a process of its own: the runtime takes down the tasks of a crashed host in an order that
/// follows from how many tasks the process has ever had.
#[test]
fn a_seed_gives_one_history() {
    for seed in 0..REPEATED {
        let (first, second) = (run_apart(seed), run_apart(seed));
        let part = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert_eq!(part, None, "seed {seed}: here the histories part");
        assert_eq!(first.len(), second.len(), "seed {seed}");
        assert!(first.contains("in sync"), "seed {seed} says nothing:\n{first}");
    }
}

fn run_apart(seed: u64) -> String {
    let test = "chaos::random_faults_never_lose_or_resurrect_anything";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let child = child.args(["--exact", test, "--nocapture"]).env("SIM_SEED", seed.to_string());
    let output = child.output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().filter(|line| line.contains(" ms ")).collect::<Vec<_>>().join("\n")
}
