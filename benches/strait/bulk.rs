//! P2: a new zone takes all there is.

use std::{
    path::Path,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use futures::{StreamExt, stream};
use load::{AdminApi, StandaloneZone, process::resident};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use crate::{
    floor,
    global::MeasuredGlobal,
    mesh::PATIENCE,
    sample::{ratio, show},
    scenario::scaled,
    zone::{BareZone, Counters, News, Opening},
};

/// Requests under way.
const AT_ONCE: usize = 16;
/// Between two looks at memory.
const LOOK: Duration = Duration::from_millis(5);
/// Between two questions whether it is all there, each of which counts what is.
const ASK: Duration = Duration::from_millis(50);
/// How long a process may come to rest before its memory is read.
const REST: Duration = Duration::from_secs(5);
const MIB: u64 = 1 << 20;

/// P2.
pub async fn p2() {
    let count = scaled(100_000);
    let global = MeasuredGlobal::start().await;
    let admin = AdminApi::new(&global.api(), None);
    stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, |n| {
            let admin = admin.clone();
            async move { admin.put(&policy(n)).await.expect("the policy is stored") }
        })
        .await;
    // What global encodes for its first zone is there for the second.
    take(&global).await;
    sleep(REST).await;
    let peak = PeakMemory::watch(global.pid());
    let (took, bytes) = take(&global).await;
    let extra = peak.end().await;
    let floor = floor::transfer(bytes, CHUNK).await;
    println!(
        "P2  a zone takes {count} policies of {} B   global sends {} MiB in {} ({:.0} MiB/s)   floor F1 {}   ratio {} (target 2x)   \
         memory of global for it {} MiB (target {} MiB)",
        bytes / count as u64,
        bytes / MIB,
        show(took),
        per_second(bytes, took),
        show(floor),
        ratio(took, floor),
        extra / MIB,
        2 * bytes / MIB,
    );
    real_zone(&global, count, bytes, floor).await;
}

/// Bytes of one response of the floor, as those of global.
const CHUNK: usize = 512 * 1024;

#[allow(clippy::cast_precision_loss)]
fn per_second(bytes: u64, took: Duration) -> f64 {
    (bytes / MIB) as f64 / took.as_secs_f64()
}

/// A zone that keeps nothing takes everything: how long that lasts, and how many bytes it is.
async fn take(global: &MeasuredGlobal) -> (Duration, u64) {
    let (news, mut told) = mpsc::channel(64);
    let counters = Counters::default();
    let begun = Instant::now();
    let zone = BareZone::connect(&global.kds(), "taker", &Opening::of(None), counters.clone(), news).await;
    let ready = tokio::time::timeout(PATIENCE, told.recv()).await;
    assert!(matches!(ready, Ok(Some(News::Ready))), "the zone came in sync");
    let took = begun.elapsed();
    drop(zone);
    (took, counters.bytes.load(Ordering::Relaxed))
}

/// The same with a zone that stores what it takes.
async fn real_zone(global: &MeasuredGlobal, count: usize, bytes: u64, floor: Duration) {
    let address = global.kds().replacen("http", "grpc", 1);
    let flags = [("multizone.zone.name", "zone-1"), ("multizone.zone.globalAddress", address.as_str())];
    let begun = Instant::now();
    let zone = StandaloneZone::start(Path::new(env!("CARGO_BIN_EXE_strait-zone")), &flags).await;
    let zone = zone.expect("strait-zone starts");
    let peak = PeakMemory::watch(zone.pid());
    let http = Client::new();
    let url = format!("{}/meshes/default/meshtimeouts?size=1", zone.api());
    loop {
        let answer = http.get(&url).send().await.expect("REST answers");
        let page: Value = answer.json().await.unwrap_or_default();
        // The mesh has policies of its own besides.
        if page["total"].as_u64().is_some_and(|total| total >= count as u64) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the zone has everything in time");
        sleep(ASK).await;
    }
    let took = begun.elapsed();
    let extra = peak.end().await;
    sleep(REST).await;
    println!(
        "    a zone on SQLite, from its start until all is stored and shown {}   floor F1 {}   ratio {}   \
         peak memory {} MiB beyond its start, payload {} MiB, {} MiB at rest",
        show(took),
        show(floor),
        ratio(took, floor),
        extra / MIB,
        bytes / MIB,
        resident(zone.pid()).unwrap_or_default() / MIB,
    );
}

/// A policy of about 1 KiB.
fn policy(n: usize) -> Value {
    let to = |m: usize| {
        json!({"targetRef": {"kind": "MeshService", "name": format!("service-{n}-{m}-with-a-name-of-some-length")},
               "default": {"connectionTimeout": "5s", "idleTimeout": "60s"}})
    };
    json!({"type": "MeshTimeout", "mesh": "default", "name": format!("policy-{n}"),
           "spec": {"to": [to(0), to(1), to(2), to(3), to(4), to(5)]}})
}

/// The largest memory of a process beyond what it had at first.
struct PeakMemory {
    first: u64,
    largest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    watcher: tokio::task::JoinHandle<()>,
}

impl PeakMemory {
    fn watch(pid: u32) -> Self {
        let first = resident(pid).unwrap_or_default();
        let (largest, stop) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicBool::new(false)));
        let watcher = tokio::spawn({
            let (largest, stop) = (Arc::clone(&largest), Arc::clone(&stop));
            async move {
                while !stop.load(Ordering::Relaxed) {
                    largest.fetch_max(resident(pid).unwrap_or_default(), Ordering::Relaxed);
                    sleep(LOOK).await;
                }
            }
        });
        Self { first, largest, stop, watcher }
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.await.expect("looking at memory does not fail");
        self.largest.load(Ordering::Relaxed).saturating_sub(self.first)
    }
}
