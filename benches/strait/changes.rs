//! Many changes: stored at once, in a storm, and as fast as possible.

use std::time::Duration;

use common::document::Document;
use futures::{StreamExt, stream};
use load::{AdsProtocol, Scenario};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    floor,
    mesh::{PATIENCE, PlayedMesh, scenario},
    push::{cpu, memory},
    sample::{ratio, show},
    scenario::scaled,
};

/// Requests under way.
const AT_ONCE: usize = 16;
/// How long a process may come to rest before its memory is read.
const REST: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// Dataplanes with many outbounds are stored.
pub async fn put() {
    let (count, outbounds) = (scaled(1_000), scaled(1_000));
    let mesh = PlayedMesh::start(scenario(0, outbounds, outbounds, 0)).await;
    let full = Scenario { proxies: count, ..mesh.scenario.clone() };
    let encoded: usize =
        (0..count).map(|n| Document::parse(&full.proxy_document(n)).expect("a dataplane").spec.len()).sum();
    let documents: Vec<_> = (0..count).map(|n| full.proxy_document(n)).collect();
    let (before, spent) = (memory(mesh.zone.pid()), cpu(mesh.zone.pid()));
    let begun = Instant::now();
    mesh.admin.put_all(documents.into_iter()).await.expect("the dataplanes are stored");
    let took = begun.elapsed();
    let spent_at_answer = cpu(mesh.zone.pid()) - spent;
    sleep(REST).await;
    let spent = cpu(mesh.zone.pid()) - spent;
    let (after, rows) = (memory(mesh.zone.pid()), u32::try_from(count).unwrap_or(u32::MAX));
    let folder = TempDir::new().expect("a temporary folder");
    let floor = floor::batches(folder.path(), encoded / count, count, AT_ONCE).await;
    println!(
        "PUT {count} dataplanes with {outbounds} outbounds each on SQLite   {} (target 2 s for 1,000)   processor {} \
         ({} each), {} with what follows   floor F2 {}   ratio {}",
        show(took),
        show(spent_at_answer),
        show(spent_at_answer / rows),
        show(spent),
        show(floor),
        ratio(took, floor),
    );
    let allowed = 3 * encoded as u64 + 64 * MIB;
    println!(
        "    resident before {} MiB, after {} MiB   encoded {} MiB   allowed {} MiB (3x encoded and 64 MiB)",
        before / MIB,
        after / MIB,
        encoded as u64 / MIB,
        allowed / MIB,
    );
}

/// Every second endpoints change, for a minute.
pub async fn storm() {
    let (proxies, services, per_second) = (scaled(1_000), scaled(200), scaled(100));
    let mesh = PlayedMesh::start(scenario(proxies, services, scaled(50), services.max(per_second))).await;
    let fleet = mesh.connect(AdsProtocol::Sotw).await;
    if let Err(error) = fleet.ready(PATIENCE).await {
        return println!("storm  {error}");
    }
    sleep(REST).await;
    let exercise = mesh.exercise(&fleet);
    let alone = exercise.endpoint(0, 1).await.expect("REST answers").last_ack;
    let storm = exercise.storm(per_second, 60).await.expect("REST answers");
    let mut seconds = storm.seconds.clone();
    seconds.sort_unstable();
    let [before, highest, after] = storm.memory.map(|bytes| bytes / MIB);
    println!(
        "storm  {per_second} endpoints a second for a minute, {proxies} proxies   last ACK after a second's changes: \
         median {}, longest {}; after the end {}   floor: one alone {}   ratio {} (target: bounded)",
        show(seconds[seconds.len() / 2]),
        show(seconds[seconds.len() - 1]),
        show(storm.settled.last_ack),
        show(alone),
        ratio(seconds[seconds.len() / 2], alone),
    );
    println!("    memory before {before} MiB, highest {highest} MiB, after {after} MiB (target: flat)");
}

/// Policies and endpoints change as fast as possible.
pub async fn edits() {
    let (count, warm) = (scaled(100_000), scaled(2_000));
    let mesh = PlayedMesh::start(scenario(10, 100, 50, 100)).await;
    let fleet = mesh.connect(AdsProtocol::Delta).await;
    fleet.ready(PATIENCE).await.expect("few proxies get their configuration");
    edit(&mesh, 0..warm).await;
    sleep(REST).await;
    let before = memory(mesh.zone.pid());
    let begun = Instant::now();
    edit(&mesh, warm..warm + count).await;
    let took = begun.elapsed();
    let highest = memory(mesh.zone.pid());
    sleep(REST * 2).await;
    let after = memory(mesh.zone.pid());
    println!(
        "edits  {count} changes of policies and endpoints in {} ({:.0} a second)   memory before {} MiB, at the end {} \
         MiB, at rest {} MiB   ratio {:.2}x (target: where it was)",
        show(took),
        count as f64 / took.as_secs_f64(),
        before / MIB,
        highest / MIB,
        after / MIB,
        after as f64 / before.max(1) as f64,
    );
}

async fn edit(mesh: &PlayedMesh, numbers: std::ops::Range<usize>) {
    let edits = stream::iter(numbers).map(|n| async move {
        let document = match n % 2 {
            0 => mesh.scenario.endpoint_document(n / 2 % 100, n / 200),
            _ => mesh.scenario.timeout(&format!("load-{:03}", n / 2 % 200), Some(n / 2 % 100), n / 400),
        };
        mesh.admin.put(&document).await.expect("the change is stored");
    });
    edits.buffer_unordered(AT_ONCE).collect::<()>().await;
}
