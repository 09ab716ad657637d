//! The scenarios.

use std::{sync::atomic::Ordering, time::Duration};

use common::proto::{
    envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource},
    google::protobuf::Any,
};
use futures::future::join_all;
use load::process::{processor, resident};
use tempfile::TempDir;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    floor,
    global::MeasuredGlobal,
    sample::{Sample, ratio, show},
    zone::{BareZone, Counters, News, Opening, take_all},
};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long global may come to rest before its memory is read.
const REST: Duration = Duration::from_secs(10);
/// Bytes of one policy on the wire, about.
const POLICY_BYTES: usize = 400;

/// Scales a count by `BENCH_SCALE`.
pub fn scaled(count: usize) -> usize {
    let scale: f64 = std::env::var_os("BENCH_SCALE").and_then(|s| s.to_str()?.parse().ok()).unwrap_or(1.0);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let scaled = (count as f64 * scale).round() as usize;
    scaled.max(1)
}

/// `count` zones, connected at once and in sync.
async fn connect(
    global: &MeasuredGlobal,
    count: usize,
    opening: &Opening,
    counters: &Counters,
) -> (Vec<BareZone>, mpsc::Receiver<News>) {
    let (news, mut told) = mpsc::channel(count.max(1) * 64);
    let url = global.kds();
    let zones = join_all((0..count).map(|n| {
        let (url, news, counters) = (url.as_str(), news.clone(), counters.clone());
        async move { BareZone::connect(url, &format!("zone-{n}"), opening, counters, news).await }
    }))
    .await;
    let mut ready = 0;
    while ready < count {
        match tokio::time::timeout(PATIENCE, told.recv()).await {
            Ok(Some(News::Ready)) => ready += 1,
            Ok(Some(News::Acked(_))) => {}
            Ok(None) | Err(_) => panic!("{ready} of {count} zones came in sync"),
        }
    }
    (zones, told)
}

/// P1: one policy of 1,000 is updated; how long until the last zone acknowledged it.
pub async fn p1(zones: usize) {
    let policies = scaled(1_000);
    let zones = scaled(zones);
    let rounds = 60;
    let global = MeasuredGlobal::start().await;
    global.load_policies(policies).await;
    let (_zones, mut told) = connect(&global, zones, &Opening::of(None), &Counters::default()).await;
    let (mut whole, mut push) = (Sample::default(), Sample::default());
    for round in 0..rounds {
        let start = Instant::now();
        global.put_policy(round % policies, round + 1).await;
        let answered = Instant::now();
        let mut acked = 0;
        while acked < zones {
            match tokio::time::timeout(PATIENCE, told.recv()).await {
                Ok(Some(News::Acked(resources))) => acked += usize::from(resources > 0),
                Ok(Some(News::Ready)) => {}
                Ok(None) | Err(_) => panic!("{acked} of {zones} zones acknowledged"),
            }
        }
        whole.push(start.elapsed());
        push.push(answered.elapsed());
    }
    let folder = TempDir::new().expect("a temporary folder");
    let stream = floor::stream(message(), zones, rounds).await;
    let commit = floor::commit(folder.path(), POLICY_BYTES, rounds).await;
    println!("P1  {policies} policies, one updated, {zones} zones, {rounds} rounds");
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let floor = floor::sum(&stream, &commit, share);
        println!(
            "    {name}  PUT sent to last ACK {}   answer to last ACK {}   floor F1 {} + F2 {}   ratio {} from the PUT, {} from the answer (target 3x)",
            show(whole.quantile(share)),
            show(push.quantile(share)),
            show(stream.quantile(share)),
            show(commit.quantile(share)),
            ratio(whole.quantile(share), floor),
            ratio(push.quantile(share), floor),
        );
    }
}

/// One policy as the floor sends it.
fn message() -> DeltaDiscoveryResponse {
    let any = Any {
        type_url: "type.googleapis.com/kuma.mesh.v1alpha1.KumaResource".into(),
        value: vec![7; POLICY_BYTES],
    };
    DeltaDiscoveryResponse {
        type_url: "MeshTimeout".into(),
        nonce: "1".into(),
        resources: vec![Resource {
            name: "policy-0.default".into(),
            version: "0".repeat(32),
            resource: Some(any),
            ..Resource::default()
        }],
        ..DeltaDiscoveryResponse::default()
    }
}

/// P6: every zone reconnects at once and nothing has changed.
pub async fn p6() {
    let resources = scaled(10_000);
    let global = MeasuredGlobal::start().await;
    global.load_policies(resources).await;
    let opening = Opening::of(Some(&take_all(&global.kds()).await));
    let before = resident(global.pid()).unwrap_or_default();
    println!(
        "P6  all zones reconnect at once, {resources} resources each, nothing changed; global alone {} MiB",
        before >> 20
    );
    let mut per_zone = Vec::new();
    for zones in [scaled(50), scaled(500), scaled(2_000)] {
        let counters = Counters::default();
        let start = Instant::now();
        let (connected, _) = connect(&global, zones, &opening, &counters).await;
        let settled = start.elapsed();
        let in_sync = resident(global.pid()).unwrap_or_default();
        tokio::time::sleep(REST).await;
        let at_rest = resident(global.pid()).unwrap_or_default();
        drop(connected);
        let floor = floor::reconnect(&opening, zones).await;
        per_zone.push(settled / u32::try_from(zones).unwrap_or(u32::MAX));
        println!(
            "    {zones:>5} zones  in sync after {} (target 30 s)   floor F1 {}   ratio {}   resources resent {}   resident memory of global {} MiB, {} MiB after {} (target 150 MiB at 500), {} KiB a zone",
            show(settled),
            show(floor),
            ratio(settled, floor),
            counters.resources.load(Ordering::Relaxed),
            in_sync >> 20,
            at_rest >> 20,
            show(REST),
            (at_rest.saturating_sub(before) >> 10) / zones as u64,
        );
    }
    println!("    time per zone, 500 over 50: {} (1.00x is linear)", ratio(per_zone[1], per_zone[0]));
}

/// P7: zones are connected and nothing changes; then the same while they show that they are there.
pub async fn p7() {
    for zones in [scaled(100), scaled(2_000)] {
        at_rest(zones).await;
    }
}

async fn at_rest(zones: usize) {
    let idle = Duration::from_secs(60);
    let global = MeasuredGlobal::start().await;
    let counters = Counters::default();
    let (mut connected, _) = connect(&global, zones, &Opening::of(None), &counters).await;
    global.comes_to_rest(REST * 3 / 2).await;
    let responses = counters.responses.load(Ordering::Relaxed);
    let silent = used_in(idle, &global).await;
    connected.iter_mut().for_each(BareZone::pings);
    tokio::time::sleep(REST).await;
    let pinged = used_in(idle, &global).await;
    let sent = counters.responses.load(Ordering::Relaxed) - responses;
    assert!(connected.iter().all(BareZone::is_connected), "whoever is gone costs nothing");
    drop((connected, global));
    let (streams, pings) = (floor::at_rest(zones, idle).await, floor::pinged(zones, idle).await);
    println!(
        "P7  {zones} zones connected, nothing changes for {}   responses sent {sent}   processor {silent:.2} % of a core (target 0.5 % at 100, 1 % at 2,000)   floor F1, both ends {:.2} %",
        show(idle),
        share(streams, idle),
    );
    println!(
        "    each pings every 5 s   processor {pinged:.2} %   floor F1, both ends {:.2} %   ratio to half of that {:.2}x",
        share(pings, idle),
        pinged * 2.0 / share(pings, idle).max(f64::MIN_POSITIVE),
    );
}

/// What global uses in this time, in hundredths of a core.
async fn used_in(time: Duration, global: &MeasuredGlobal) -> f64 {
    let used = || processor(global.pid()).unwrap_or_default();
    let before = used();
    tokio::time::sleep(time).await;
    share(used().saturating_sub(before), time)
}

fn share(used: Duration, of: Duration) -> f64 {
    used.as_secs_f64() / of.as_secs_f64() * 100.0
}
