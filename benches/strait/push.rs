//! P4 and P5: what it takes to tell many proxies.

use std::time::Duration;

use load::{
    AdsProtocol, Fleet, Observation,
    process::{processor, resident},
};
use tokio::time::{Instant, sleep};

use crate::{
    ads_floor::{BareAds, Messages},
    mesh::{PATIENCE, PlayedMesh, connect_bare, scenario},
    policies::Around,
    sample::{Sample, ratio, show},
    scenario::scaled,
};

/// How often an endpoint changes, and how often each policy.
const ENDPOINTS: usize = 7;
const POLICIES: usize = 3;
/// How long a server may come to rest before its memory is read.
const REST: Duration = Duration::from_secs(10);
/// How long nothing may come before a change counts as arrived.
const QUIET: Duration = Duration::from_millis(400);
/// After a policy for the whole mesh, an endpoint changes.
const BEHIND: Duration = Duration::from_millis(50);

/// A change that was made several times.
struct TimedChange {
    times: Sample,
    /// Processor time of each.
    processor: Duration,
    last: Observation,
    messages: Messages,
}

/// What a run of P4 came to, each as a multiple of its floor.
pub struct Multiples(Vec<(&'static str, f64)>);

/// What policies add to the multiples of a mesh without them: the floor sends the bytes that each of them asks for.
pub fn compare(alone: Option<Multiples>, among: Option<Multiples>) {
    let (Some(alone), Some(among)) = (alone, among) else { return };
    println!("    with {} as a multiple of without, both beside their floors:", Around::Policies.shown());
    for ((what, alone), (_, among)) in alone.0.iter().zip(&among.0) {
        println!("        {what:<26} {:.2}x (target 1.1x)", among / alone.max(1e-9));
    }
}

/// P4: endpoints and policies change in a mesh in which everybody calls everybody.
pub async fn p4(protocol: AdsProtocol, around: Around) -> Option<Multiples> {
    let (proxies, services) = (scaled(1_000), scaled(1_000));
    println!(
        "P4  {proxies} proxies x {services} services, {protocol:?}, TLS, {}; floor: bare tonic, same bytes",
        around.shown()
    );
    let mesh = PlayedMesh::start_among(scenario(proxies, services, services, 1), around).await;
    let (before, spent) = (memory(mesh.zone.pid()), cpu(mesh.zone.pid()));
    let fleet = mesh.connect(protocol).await;
    let first = fleet.ready(PATIENCE).await;
    let first = match first {
        Ok(first) => first,
        Err(error) => {
            println!("    {error}");
            return None;
        }
    };
    let spent = cpu(mesh.zone.pid()) - spent;
    let sent: u64 = fleet.observer().traffic().iter().map(|t| t.bytes).sum();
    let configuration = fleet.recorded();
    sleep(REST).await;
    let resting = memory(mesh.zone.pid()).saturating_sub(before) / proxies as u64;
    let exercise = mesh.exercise(&fleet);
    let change = |what| made(&mesh, &fleet, what);
    let endpoint = change(ChangeKind::Endpoint).await;
    let route = change(ChangeKind::Route).await;
    let wide = change(ChangeKind::MeshWide).await;
    let behind = exercise.endpoint_behind_mesh_wide(0, ENDPOINTS + 1, BEHIND).await;
    let behind = behind.expect("REST answers");
    drop(fleet);
    drop(mesh);

    let changes = [&endpoint.messages, &route.messages, &wide.messages];
    let mut floor = BareAds::start(&configuration, &changes);
    let scenario = scenario(proxies, services, services, 1);
    let before = memory(floor.pid());
    let fleet = connect_bare(&floor.url(), &floor.certificate(), &scenario, protocol);
    let bare = match fleet.ready(PATIENCE).await {
        Ok(bare) => bare,
        Err(error) => {
            println!("    the floor: {error}");
            return None;
        }
    };
    let mut multiples = vec![("first configuration", multiple(first, bare))];
    sleep(REST).await;
    let bare_resting = memory(floor.pid()).saturating_sub(before) / proxies as u64;
    println!(
        "    first configuration        {}   processor {}   {} MiB   floor {}   ratio {} (target 2x)",
        show(first),
        show(spent),
        sent >> 20,
        show(bare),
        ratio(first, bare),
    );
    println!(
        "    memory at rest             {} KiB a proxy (target 64)   floor {} KiB",
        resting >> 10,
        bare_resting >> 10
    );
    for (number, (what, made, target)) in [
        ("one endpoint", &endpoint, 1),
        ("route of one service", &route, 2),
        ("policy for the mesh", &wide, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let mut times = Sample::default();
        for _ in 0..if number == 0 { ENDPOINTS } else { POLICIES } {
            let since = fleet.observer().begin(None);
            floor.send(number);
            let expected = if made.messages.is_empty() { 0 } else { proxies };
            times.push(fleet.observer().settled(&since, expected, QUIET, PATIENCE).await.last_ack);
        }
        print_change(what, made, &times, target, (proxies, services));
        multiples.push((what, multiple(made.times.quantile(0.5), times.quantile(0.5))));
    }
    multiples.push(("memory at rest", resting as f64 / bare_resting.max(1) as f64));
    let alone = endpoint.times.quantile(0.5);
    println!(
        "    endpoint behind that       {}   alone {}   ratio {} (target 2x)   arrived at {} of {proxies}",
        show(behind.watched.1),
        show(alone),
        ratio(behind.watched.1, alone),
        behind.watched.0,
    );
    Some(Multiples(multiples))
}

fn multiple(time: Duration, floor: Duration) -> f64 {
    time.as_secs_f64() / floor.as_secs_f64().max(1e-9)
}

fn print_change(
    what: &str,
    made: &TimedChange,
    floor: &Sample,
    target: usize,
    (proxies, services): (usize, usize),
) {
    let (time, floor) = (made.times.quantile(0.5), floor.quantile(0.5));
    let each = made.processor / u32::try_from(services).unwrap_or(u32::MAX).max(1);
    println!(
        "    {what:<26} {}   processor {} ({} a destination)   floor {}   ratio {} (target {target}x)",
        show(time),
        show(made.processor),
        show(each),
        show(floor),
        ratio(time, floor),
    );
    println!(
        "        sent to {} of {proxies}: {} B each; {}{}",
        made.last.proxies,
        made.last.bytes() / proxies as u64,
        made.last.shown(),
        if made.last.complete { "" } else { "; not acknowledged by all" },
    );
}

#[derive(Clone, Copy)]
enum ChangeKind {
    Endpoint,
    Route,
    MeshWide,
}

/// Makes a change several times.
async fn made(mesh: &PlayedMesh, fleet: &Fleet, what: ChangeKind) -> TimedChange {
    let exercise = mesh.exercise(fleet);
    let rounds = if matches!(what, ChangeKind::Endpoint) { ENDPOINTS } else { POLICIES };
    // The first makes what the others change.
    let warm = matches!(what, ChangeKind::Route | ChangeKind::MeshWide);
    let (mut times, mut last, mut spent) = (Sample::default(), None, cpu(mesh.zone.pid()));
    for round in 0..rounds + usize::from(warm) {
        if warm && round == 1 {
            spent = cpu(mesh.zone.pid());
        }
        fleet.recorded();
        let observed = match what {
            ChangeKind::Endpoint => exercise.endpoint(0, round + 1).await,
            ChangeKind::Route => exercise.route(0, round).await,
            ChangeKind::MeshWide => exercise.mesh_wide(round).await,
        };
        let observed = observed.expect("REST answers");
        if !warm || round > 0 {
            times.push(observed.last_ack);
        }
        last = Some(observed);
    }
    let spent = cpu(mesh.zone.pid()).saturating_sub(spent);
    TimedChange {
        times,
        processor: spent / u32::try_from(rounds).unwrap_or(u32::MAX),
        last: last.expect("it was made"),
        messages: fleet.recorded(),
    }
}

/// P5: what a connected proxy keeps the zone from giving back.
pub async fn p5() {
    let (proxies, services) = (scaled(10_000), 100);
    println!("P5  {proxies} proxies x {services} services at rest, TLS; floor: bare tonic, same bytes");
    for (protocol, around) in [
        (AdsProtocol::Sotw, Around::Nothing),
        (AdsProtocol::Delta, Around::Nothing),
        (AdsProtocol::Delta, Around::Policies),
    ] {
        let mesh = PlayedMesh::start_among(scenario(proxies, services, services, 0), around).await;
        sleep(REST).await;
        let before = memory(mesh.zone.pid());
        let begun = Instant::now();
        let fleet = mesh.connect(protocol).await;
        if let Err(error) = fleet.ready(PATIENCE).await {
            println!("    {protocol:?}  {error}");
            continue;
        }
        let took = begun.elapsed();
        sleep(REST * 2).await;
        let (all, configuration) = (memory(mesh.zone.pid()), fleet.recorded());
        let scenario = mesh.scenario.clone();
        drop(fleet);
        drop(mesh);
        let floor = BareAds::start(&configuration, &[]);
        let bare_before = memory(floor.pid());
        let fleet = connect_bare(&floor.url(), &floor.certificate(), &scenario, protocol);
        let bare = fleet.ready(PATIENCE).await;
        sleep(REST).await;
        let bare = bare.map(|_| memory(floor.pid()).saturating_sub(bare_before) / proxies as u64);
        let each = all.saturating_sub(before) / proxies as u64;
        println!(
            "    {protocol:?}, {}  {} KiB a proxy (target 64)   floor {} KiB   ratio {:.2}x   zone {} MiB in all \
             (target 2048 for 10,000)   connected after {}",
            around.shown(),
            each >> 10,
            bare.as_ref().map_or(0, |bare| bare >> 10),
            each as f64 / bare.map_or(1, |bare| bare.max(1)) as f64,
            all >> 20,
            show(took),
        );
    }
}

/// Resident memory of a process.
pub fn memory(pid: u32) -> u64 {
    resident(pid).unwrap_or_default()
}

/// Processor time of a process.
pub fn cpu(pid: u32) -> Duration {
    processor(pid).unwrap_or_default()
}
