//! What was seen of a proxy, written where everybody can read it: `DataplaneInsight` and its siblings.
//!
//! Streams count here, in memory; one task writes. A connect and a disconnect are written at once,
//! counters every few seconds and only when they moved.

mod sampling;
mod spec;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::{
    clip::clip,
    model::{Origin, Resource, labels},
    proto::{google::protobuf::Timestamp, kuma::mesh::v1alpha1 as mesh},
    runtime::Env,
    store::{
        Batch, Store, Write,
        index::{Index, IndexReader},
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    node::{Proxy, ProxyId},
    proxies::StreamId,
};

/// Insights written in one batch.
const BATCH: usize = 200;
/// Between two writes because proxies came or went: those that come in the meantime are written together, and one that does
/// nothing else costs no more.
const APART: Duration = Duration::from_millis(250);
/// Shortest interval in which counters are written, whatever the settings say.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes kept of the reason of a proxy: an insight goes to global and stays there.
const LONGEST_REASON: usize = 1024;

/// What happened to one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It was sent.
    Sent,
    /// The proxy took it.
    Acknowledged,
    /// The proxy refused it, or something in it.
    Rejected,
}

/// What is known of the certificate a proxy was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Certificate {
    /// When it was signed and when it ends; `None` where somebody else sees to that.
    pub(super) life: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// Who gave it.
    pub(super) backend: String,
    /// Who could have.
    pub(super) supported: Vec<String>,
}

/// Subscriptions kept per proxy where nobody chose a number.
pub(super) const SUBSCRIPTIONS: usize = 2;

/// The counters of all streams.
pub(super) struct ProxyInsights {
    env: Env,
    zone: Arc<str>,
    /// How many subscriptions are kept of each proxy.
    kept: usize,
    /// How often a proxy that is connected is spoken of, where other processes could have it.
    sign_of_life: Option<Duration>,
    state: Mutex<InsightState>,
    urgent: Notify,
}

#[derive(Default)]
struct InsightState {
    records: BTreeMap<StreamId, Record>,
    certificates: BTreeMap<ProxyId, (Option<Certificate>, bool)>,
    /// What was left out of the configuration of a proxy, and whether that is still to be written.
    problems: BTreeMap<ProxyId, (Arc<[String]>, bool)>,
}

struct Record {
    proxy: Arc<Proxy>,
    subscription: mesh::DiscoverySubscription,
    /// What it refuses at the moment, by type, and why.
    rejections: BTreeMap<String, String>,
    unwritten: bool,
}

impl Record {
    fn is_open(&self) -> bool {
        self.subscription.disconnect_time.is_none()
    }
}

impl ProxyInsights {
    /// Nothing seen yet.
    pub(super) fn new(zone: &Arc<str>, env: &Env) -> Self {
        Self {
            env: env.clone(),
            zone: Arc::clone(zone),
            kept: SUBSCRIPTIONS,
            sign_of_life: None,
            state: Mutex::default(),
            urgent: Notify::new(),
        }
    }

    /// Keeps so many subscriptions of each proxy, and says so often that those which are connected still are.
    pub(super) fn with(mut self, kept: usize, sign_of_life: Option<Duration>) -> Self {
        (self.kept, self.sign_of_life) = (kept, sign_of_life);
        self
    }

    fn lock(&self) -> MutexGuard<'_, InsightState> {
        // Every change is one assignment, so a panic elsewhere cannot leave half of one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A proxy opened a stream.
    pub(super) fn open(&self, stream: StreamId, proxy: &Arc<Proxy>) {
        let now = self.env.now();
        let subscription = mesh::DiscoverySubscription {
            id: self.env.entropy.uuid().to_string(),
            control_plane_instance_id: self.env.instance_id.to_string(),
            connect_time: Some(timestamp(now)),
            version: Some(spec::version(proxy)),
            status: Some(spec::no_status()),
            ..Default::default()
        };
        let (proxy, rejections) = (Arc::clone(proxy), BTreeMap::new());
        let record = Record { proxy, subscription, rejections, unwritten: true };
        self.lock().records.insert(stream, record);
        self.urgent.notify_one();
    }

    /// Something happened to a response on a stream.
    pub(super) fn count(&self, stream: StreamId, type_url: &str, delivery: Delivery) {
        let now = timestamp(self.env.now());
        if let Some(record) = self.lock().records.get_mut(&stream) {
            let status = record.subscription.status.get_or_insert_with(spec::no_status);
            spec::count(status, type_url, delivery);
            status.last_update_time = Some(now);
            record.unwritten = true;
        }
    }

    /// What a proxy refuses of a type at the moment, in its words; `None` when it takes everything.
    pub(super) fn refuses(&self, stream: StreamId, type_url: &str, words: Option<&str>) {
        if let Some(record) = self.lock().records.get_mut(&stream) {
            let type_name = spec::short(type_url);
            let words = words.map(|words| clip(words, LONGEST_REASON).to_owned());
            if record.rejections.get(type_name) != words.as_ref() {
                record.unwritten = true;
                match words {
                    Some(words) => drop(record.rejections.insert(type_name.to_owned(), words)),
                    None => drop(record.rejections.remove(type_name)),
                }
            }
        }
    }

    /// The stream is over.
    pub(super) fn close(&self, stream: StreamId) {
        let now = timestamp(self.env.now());
        if let Some(record) = self.lock().records.get_mut(&stream) {
            record.subscription.disconnect_time = Some(now);
            record.unwritten = true;
        }
        self.urgent.notify_one();
    }

    /// A proxy was given a certificate, or has none because its mesh asks for none.
    pub(super) fn certificate(&self, proxy: &ProxyId, certificate: Option<Certificate>) {
        let mut state = self.lock();
        if state.certificates.get(proxy).is_none_or(|(known, _)| *known != certificate) {
            state.certificates.insert(proxy.clone(), (certificate, true));
        }
    }

    /// What could not be done for a proxy, in place of what was known of that.
    pub(super) fn problems(&self, proxy: &ProxyId, problems: Arc<[String]>) {
        self.lock().problems.insert(proxy.clone(), (problems, true));
    }

    /// Writes until `shutdown`, then once more after every stream has ended, which `drained` tells.
    pub(super) async fn run(
        &self,
        store: Arc<dyn Store>,
        index: IndexReader,
        every: Duration,
        shutdown: CancellationToken,
        drained: impl Future<Output = ()>,
    ) {
        let [mut tick, mut life] =
            [every, self.sign_of_life.unwrap_or(every)].map(|period| interval(period.max(LEAST_INTERVAL)));
        for tick in [&mut tick, &mut life] {
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut rested = Instant::now();
        loop {
            let urgent = async {
                sleep_until(rested).await;
                self.urgent.notified().await;
            };
            let urgent_only = tokio::select! {
                () = shutdown.cancelled() => break,
                () = urgent => true,
                _ = tick.tick() => false,
                _ = life.tick(), if self.sign_of_life.is_some() => {
                    self.show_life();
                    continue;
                }
            };
            self.flush(store.as_ref(), &index, urgent_only).await;
            if urgent_only {
                rested = Instant::now() + APART;
            }
        }
        drained.await;
        self.flush(store.as_ref(), &index, false).await;
    }

    /// Makes every insight of a connected proxy another one, so that whoever shares the store sees that this process
    /// is there and has it.
    fn show_life(&self) {
        for record in self.lock().records.values_mut().filter(|record| record.is_open()) {
            record.subscription.generation = record.subscription.generation.wrapping_add(1);
            record.unwritten = true;
        }
    }

    /// Ends the subscriptions a former life of this process left open, when nobody else can own them.
    pub(super) async fn close_left_over(&self, store: &dyn Store, index: &Index) {
        let now = self.env.now();
        let kinds = [
            super::node::ProxyKind::Dataplane,
            super::node::ProxyKind::Ingress,
            super::node::ProxyKind::Egress,
        ];
        let ours = |r: &&Arc<Resource>| r.origin == Origin::Zone(Arc::clone(&self.zone));
        let left_open = kinds.iter().flat_map(|kind| index.list(kind.insight())).filter(ours);
        let writes = left_open.filter_map(|insight| {
            let spec = spec::closed(insight, timestamp(now))?;
            let mut closed = Resource::clone(insight).with_spec(spec);
            closed.modified = now;
            Some(Write::put(closed))
        });
        write(store, writes.collect()).await;
    }

    async fn flush(&self, store: &dyn Store, index: &IndexReader, urgent_only: bool) {
        let writes = self.due(&index.current(), urgent_only);
        let (proxies, writes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
        if !write(store, writes).await {
            let unwritten: BTreeSet<ProxyId> = proxies.into_iter().collect();
            let mut state = self.lock();
            for record in state.records.values_mut().filter(|r| unwritten.contains(&r.proxy.id)) {
                record.unwritten = true;
            }
        }
        // A closed stream is of no more use once it is written.
        self.lock().records.retain(|_, record| record.is_open() || record.unwritten);
    }

    /// The insights to write now, whose records then count as written.
    fn due(&self, index: &Index, urgent_only: bool) -> Vec<(ProxyId, Write)> {
        let now = self.env.now();
        let mut state = self.lock();
        let InsightState { records, certificates, problems } = &mut *state;
        let mut by_proxy: BTreeMap<ProxyId, Vec<&mut Record>> = BTreeMap::new();
        for record in records.values_mut() {
            by_proxy.entry(record.proxy.id.clone()).or_default().push(record);
        }
        // A certificate outlives a stream only until the proxy is back.
        certificates.retain(|proxy, _| by_proxy.contains_key(proxy));
        // They are told when they change, which may be before its stream is noted here.
        problems.retain(|proxy, (_, unwritten)| *unwritten || by_proxy.contains_key(proxy));
        let mut writes = Vec::new();
        for (id, records) in by_proxy {
            let certificate = certificates.get_mut(&id);
            let edge = |r: &&mut Record| {
                let sent = r.subscription.status.and_then(|s| s.total).map_or(0, |t| t.responses_sent);
                r.unwritten && (!r.is_open() || sent == 0)
            };
            let left_out = problems.get_mut(&id);
            let moved = records.iter().any(|r| r.unwritten)
                || certificate.as_ref().is_some_and(|c| c.1)
                || left_out.as_ref().is_some_and(|(_, unwritten)| *unwritten);
            let due = if urgent_only { records.iter().any(edge) } else { moved };
            // An insight cannot exist without the proxy it is about: what is over is forgotten then.
            if index.get(&id.key()).is_none() {
                records.into_iter().filter(|r| !r.is_open()).for_each(|r| r.unwritten = false);
                continue;
            }
            if !due {
                continue;
            }
            let existing = index.get(&id.insight_key());
            let known = certificate.map(|(known, unwritten)| {
                *unwritten = false;
                known.as_ref()
            });
            let subscriptions = records.iter().map(|r| r.subscription.clone()).collect();
            let left_out = left_out.map(|(problems, unwritten)| {
                *unwritten = false;
                &**problems
            });
            let newest = records.last().map(|newest| {
                let open = records.iter().filter(|r| r.is_open()).flat_map(|r| r.rejections.clone());
                let refused = if newest.is_open() { open.collect() } else { newest.rejections.clone() };
                spec::metadata(&newest.proxy, &refused, left_out.unwrap_or_default())
            });
            let update = spec::InsightUpdate {
                subscriptions,
                metadata: newest,
                certificate: known,
                now: timestamp(now),
                kept: self.kept,
            };
            let spec = spec::merge(existing.map(Arc::as_ref), id.kind, update);
            records.into_iter().for_each(|r| r.unwritten = false);
            writes.push((id.clone(), Write::put(self.resource(&id, spec, now))));
        }
        writes
    }

    fn resource(&self, id: &ProxyId, spec: Vec<u8>, now: DateTime<Utc>) -> Resource {
        let mut resource = Resource::new(id.insight_key(), now).with_spec(spec);
        if !id.mesh.is_empty() {
            resource = resource.with_label(labels::MESH, &id.mesh);
        }
        resource = resource
            .with_label(labels::ORIGIN, labels::ORIGIN_ZONE)
            .with_label(labels::ZONE, &self.zone)
            .with_label(labels::ENV, labels::ENV_UNIVERSAL);
        resource.origin = Origin::Zone(Arc::clone(&self.zone));
        resource.owner = Some(id.key());
        resource
    }
}

/// The subscriptions of a proxy, as they were written.
pub(super) fn subscriptions(insight: &Resource) -> Vec<mesh::DiscoverySubscription> {
    spec::subscriptions(insight)
}

/// The spec of an insight with every open subscription ended, `None` when there is no open one.
pub(super) fn with_all_ended(insight: &Resource, now: DateTime<Utc>) -> Option<Vec<u8>> {
    spec::closed(insight, timestamp(now))
}

/// Whether everything was written.
async fn write(store: &dyn Store, writes: Vec<Write>) -> bool {
    for chunk in writes.chunks(BATCH) {
        if let Err(error) = store.transact(Batch::of(chunk.iter().cloned())).await {
            tracing::warn!(%error, insights = writes.len(), "cannot write insights, trying again later");
            return false;
        }
    }
    true
}

fn timestamp(time: DateTime<Utc>) -> Timestamp {
    Timestamp {
        seconds: time.timestamp(),
        nanos: i32::try_from(time.timestamp_subsec_nanos()).unwrap_or_default(),
    }
}
