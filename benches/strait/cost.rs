//! P8: what one change costs, with little and with much around it.
//!
//! The cost is processor time of the process, over many changes: it counts no waiting, and needs no counters
//! of the machine, which a virtual one seldom has.

use std::{path::Path, time::Duration};

use load::{AdminApi, AdsProtocol, Scenario, StandaloneZone};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    global::MeasuredGlobal,
    mesh::{PATIENCE, connect, scenario},
    policies::Around,
    push::cpu,
    sample::{ratio, show},
    scenario::scaled,
};

/// Endpoints of each service: what a change of one of them sends is then the same in a mesh of any size.
const ENDPOINTS: usize = 10;
/// Services the one proxy calls.
const OUTBOUNDS: usize = 50;
/// How often each change is made.
const ROUNDS: usize = 50;
/// Between changes, so that none joins another.
const PAUSE: Duration = Duration::from_millis(20);
/// How long what follows from loading may last.
const REST: Duration = Duration::from_secs(15);

/// Kinds of changes.
const CHANGES: [&str; 3] = ["an endpoint", "a policy", "a dataplane's PUT"];

/// P8: a zone with one proxy, connected to a global, with ever more dataplanes in the mesh.
pub async fn p8() {
    let sizes = [scaled(1_000), scaled(10_000), scaled(100_000)];
    println!(
        "P8  processor time of one change, zone with one proxy / its global, services of {ENDPOINTS} endpoints; floor: the smallest mesh"
    );
    let mut costs = Vec::new();
    for size in sizes {
        let cost = one_size(size, Around::Nothing).await;
        for (what, (zone, global)) in CHANGES.iter().zip(&cost) {
            println!("    {size:>6} resources  {what:<18} zone {}   global {}", show(*zone), show(*global));
        }
        costs.push(cost);
    }
    let (Some(first), Some(last)) = (costs.first(), costs.last()) else { return };
    for ((what, first), last) in CHANGES.iter().zip(first).zip(last) {
        println!(
            "    from first to last  {what:<18} zone {}   global {} (target 1.2x)",
            ratio(last.0, first.0),
            ratio(last.1, first.1)
        );
    }
    let among = one_size(sizes[0], Around::Policies).await;
    for ((what, alone), among) in CHANGES.iter().zip(first).zip(&among) {
        println!(
            "    with {}  {what:<18} zone {} {}   global {} {} (target 1.1x)",
            Around::Policies.shown(),
            show(among.0),
            ratio(among.0, alone.0),
            show(among.1),
            ratio(among.1, alone.1)
        );
    }
}

async fn one_size(size: usize, around: Around) -> Vec<(Duration, Duration)> {
    let global = MeasuredGlobal::start().await;
    let address = global.kds().replacen("http", "grpc", 1);
    let flags = [("multizone.zone.name", "zone-1"), ("multizone.zone.globalAddress", address.as_str())];
    let zone = StandaloneZone::start(Path::new(env!("CARGO_BIN_EXE_strait-zone")), &flags).await;
    let zone = zone.expect("strait-zone starts");
    let (up, down) = (AdminApi::new(&global.api(), None), AdminApi::new(&zone.api(), None));
    let scenario = scenario(1, (size / ENDPOINTS).max(OUTBOUNDS), OUTBOUNDS, size);
    up.put(&scenario.mesh()).await.expect("the mesh is stored");
    around.put(&up, &scenario).await;
    while !down.has(&format!("/meshes/{}", scenario.mesh)).await.expect("REST answers") {
        sleep(PAUSE).await;
    }
    down.put_dataplanes(&scenario).await.expect("the dataplanes are stored");
    let tokens = up.tokens(&scenario.mesh, vec![Scenario::proxy(0)]).await.expect("a token is made");
    let proxies = vec![(Scenario::proxy(0), tokens.into_iter().next())];
    let fleet = connect(&zone.dp_server(), &zone.certificate(), &scenario, proxies, AdsProtocol::Sotw);
    fleet.ready(PATIENCE).await.expect("the proxy gets its configuration");
    sleep(REST).await;
    let mut costs = Vec::new();
    for change in 0..CHANGES.len() {
        let before = (cpu(zone.pid()), cpu(global.pid()));
        for round in 1..=ROUNDS {
            let document = document(&scenario, change, round);
            let admin = if change == 1 { &up } else { &down };
            admin.put(&document).await.expect("the change is stored");
            sleep(PAUSE).await;
        }
        // What follows from the last one belongs to it.
        sleep(PAUSE * 50).await;
        let rounds = u32::try_from(ROUNDS).unwrap_or(u32::MAX);
        costs.push(((cpu(zone.pid()) - before.0) / rounds, (cpu(global.pid()) - before.1) / rounds));
    }
    costs
}

fn document(scenario: &Scenario, change: usize, round: usize) -> Value {
    match change {
        0 => scenario.endpoint_document(0, round),
        1 => scenario.timeout("load-cost", Some(0), round),
        // One that is new, with outbounds of its own.
        _ => scenario.proxy_document(scenario.proxies + round),
    }
}
