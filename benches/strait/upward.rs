//! A zone that owns thousands of dataplanes: how fast global takes them, and what it keeps of each.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    document::Document,
    kds::{codec, headers::KdsCaller, mapper, order},
    model::{Resource, ResourceKey, labels},
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
    },
    xds::{DeltaSource, Input, Name, SourceSettings, WantSnapshot, Wanted},
};
use futures::StreamExt;
use load::{Scenario, process::resident};
use tempfile::TempDir;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::{
    floor,
    global::MeasuredGlobal,
    mesh::scenario,
    push::cpu,
    sample::{ratio, show},
    scenario::scaled,
    zone::{caller, channel},
};

/// Bytes of one response, as zones send them.
const CHUNK: usize = 512 * 1024;
/// How often every dataplane changes.
const ROUNDS: usize = 5;
/// How long global may come to rest before its memory is read.
const REST: Duration = Duration::from_secs(10);
const TYPE: &str = "Dataplane";

/// A zone in server role, without a store.
struct OwningZone {
    responses: mpsc::Sender<DeltaDiscoveryResponse>,
    requests: Streaming<DeltaDiscoveryRequest>,
    source: DeltaSource,
    want: WantSnapshot,
}

impl OwningZone {
    /// Connects with nothing, and lets global ask.
    async fn connect(url: &str, zone: &str) -> Self {
        let caller: KdsCaller = caller(zone);
        let mut client = KdsSyncServiceClient::new(channel(url).await);
        let (responses, receiver) = mpsc::channel(4);
        let mut request = Request::new(ReceiverStream::new(receiver));
        caller.write(request.metadata_mut());
        let stream = client.zone_to_global_sync(request).await.expect("the stream opens");
        let types = order::requested_by_global().into_iter().map(|kind| kind.name);
        let mut source = DeltaSource::new(SourceSettings::kds(zone, types));
        source.limit_bytes(Some(CHUNK));
        let mut zone = Self { responses, requests: stream.into_inner(), source, want: WantSnapshot::new(1) };
        let asked = order::requested_by_global().len();
        while zone.source.progress().count() < asked || !zone.source.is_settled() {
            zone.exchange().await;
        }
        zone
    }

    /// Sends what there is to send and takes one request.
    async fn exchange(&mut self) {
        while let Some(response) = self.source.next(Instant::now(), &self.want) {
            self.responses.send(response).await.expect("the stream is open");
        }
        if self.source.is_settled() && self.source.progress().count() == order::requested_by_global().len() {
            return;
        }
        let request = self.requests.next().await.expect("the stream goes on").expect("it does not break");
        let event = self.source.handle(Input::Request(&request), &self.want).expect("global is well-formed");
        assert!(request.error_detail.is_none(), "global refused: {event:?}");
    }

    /// Has these dataplanes from now on; returns when global has acknowledged, and so stored, them all.
    async fn own(&mut self, dataplanes: Vec<Wanted>) {
        let names: Vec<Name> = dataplanes.iter().map(|wanted| Name::clone(&wanted.name)).collect();
        self.want.revision += 1;
        dataplanes.into_iter().for_each(|wanted| self.want.put_as(TYPE, wanted));
        let changed = BTreeMap::from([(TYPE, names)]);
        self.source.handle(Input::Changed(&changed), &self.want).expect("a change is no request");
        loop {
            self.exchange().await;
            let pending = self.source.progress().any(|progress| progress.pending > 0);
            if self.source.is_settled() && !pending {
                return;
            }
        }
    }
}

/// The form in which `zone` sends dataplane `number`.
fn dataplane(scenario: &Scenario, zone: &str, number: usize, version: usize) -> Wanted {
    let document = Document::parse(&scenario.endpoint_document(number, version)).expect("a dataplane");
    let key = ResourceKey::new(document.kind, &scenario.mesh, &document.name);
    let resource = Resource::new(key, DateTime::<Utc>::UNIX_EPOCH)
        .with_spec(document.spec)
        .with_label(labels::MESH, &scenario.mesh)
        .with_label(labels::ZONE, zone)
        .with_label(labels::ORIGIN, labels::ORIGIN_ZONE);
    codec::encode(&mapper::up(&resource, zone, &[]).expect("a dataplane has a form"))
}

async fn global_with_mesh(scenario: &Scenario) -> MeasuredGlobal {
    let global = MeasuredGlobal::start().await;
    let admin = load::AdminApi::new(&global.api(), None);
    admin.put(&scenario.mesh()).await.expect("the mesh is stored");
    global
}

/// P3: all dataplanes of a zone change, again and again.
pub async fn p3() {
    let (count, services) = (scaled(10_000), scaled(1_000));
    let scenario = scenario(0, services, 0, count);
    let global = global_with_mesh(&scenario).await;
    let mut zone = OwningZone::connect(&global.kds(), "zone-1").await;
    let all = |version| (0..count).map(|n| dataplane(&scenario, "zone-1", n, version)).collect::<Vec<_>>();
    let first = all(0);
    let bytes = first.iter().map(Wanted::size).sum::<usize>() / count;
    zone.own(first).await;
    let (mut took, before) = (Duration::ZERO, cpu(global.pid()));
    for version in 1..=ROUNDS {
        let changed = all(version);
        let begun = Instant::now();
        zone.own(changed).await;
        took += begun.elapsed();
    }
    let spent = cpu(global.pid()).saturating_sub(before);
    let rows = count * ROUNDS;
    let folder = TempDir::new().expect("a temporary folder");
    let floor = floor::batches(folder.path(), bytes, rows, (CHUNK / bytes).max(1)).await;
    #[allow(clippy::cast_precision_loss)]
    let rate = rows as f64 / took.as_secs_f64();
    println!(
        "P3  a zone with {count} dataplanes, all change {ROUNDS} times   {rate:.0} resources/s durable on global (target 10,000)   \
         processor {} each   floor F2 {}   ratio {} (target 2x)",
        show(spent / u32::try_from(rows).unwrap_or(u32::MAX)),
        show(floor),
        ratio(took, floor),
    );
}

/// P9: what global keeps of a dataplane of a zone.
pub async fn p9() {
    let (count, services) = (scaled(100_000), scaled(1_000));
    let scenario = scenario(0, services, 0, count);
    let global = global_with_mesh(&scenario).await;
    let mut zone = OwningZone::connect(&global.kds(), "zone-1").await;
    sleep(REST).await;
    let before = resident(global.pid()).unwrap_or_default();
    let mut encoded = 0;
    for first in (0..count).step_by(10_000) {
        let part: Vec<_> =
            (first..count.min(first + 10_000)).map(|n| dataplane(&scenario, "zone-1", n, 0)).collect();
        encoded += part.iter().map(|wanted| wanted.value.len() as u64).sum::<u64>();
        zone.own(part).await;
    }
    sleep(REST).await;
    let after = resident(global.pid()).unwrap_or_default();
    let kept = after.saturating_sub(before);
    println!(
        "P9  {count} dataplanes of a zone on global   resident {} MiB, before {} MiB   {} B each beyond their {} B encoded (target 1024 B)",
        after >> 20,
        before >> 20,
        kept.saturating_sub(encoded) / count as u64,
        encoded / count as u64,
    );
}
