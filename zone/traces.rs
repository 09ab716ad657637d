//! What a zone has to tell of writes: that it took them, and that its proxies have answered.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    kds::headers::Upstream,
    model::Kind,
    rest::ProxyProgressSource,
    runtime::Env,
    store::{Revision, StoreIdentity},
    traces::{SpanRecord, TracePart, Traces, WriteTrace},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Writes of which one message is told. Of more that came together only the newest are.
const TOGETHER: u64 = 16;
/// Writes that may wait for proxies.
const WAITING: usize = 256;

/// The traces of one zone. Cheap to clone.
#[derive(Clone)]
pub struct ZoneTraces(Arc<ZoneTracesInner>);

struct ZoneTracesInner {
    zone: Arc<str>,
    history: StoreIdentity,
    traces: Traces,
    env: Env,
    state: Mutex<TraceState>,
    /// There is more to wait for.
    more: Notify,
}

#[derive(Default)]
struct TraceState {
    /// The newest write of global that was told.
    told: Option<Upstream>,
    waiting: VecDeque<UnansweredWrite>,
}

/// A write whose proxies have not all answered.
struct UnansweredWrite {
    trace: WriteTrace,
    /// Whether it was taken from global; else it was written here.
    was_taken: bool,
    /// All that follows from it is there from this revision of the zone on.
    here: Revision,
    since: DateTime<Utc>,
}

impl ZoneTraces {
    /// Of this zone, whose store has this history.
    pub fn new(zone: &str, history: StoreIdentity, traces: Traces, env: Env) -> Self {
        let (state, more) = (Mutex::default(), Notify::new());
        Self(Arc::new(ZoneTracesInner { zone: zone.into(), history, traces, env, state, more }))
    }

    /// Something of `kind` that was written up to `upstream` was taken just now, which took so long; it is here from revision
    /// `here` on.
    pub(crate) fn taken(&self, upstream: Upstream, kind: &Kind, took: Duration, here: Revision) {
        let inner = &*self.0;
        if !inner.traces.is_heard() {
            return;
        }
        let history = StoreIdentity { store_id: upstream.store_id, epoch: upstream.epoch };
        let now = inner.env.now();
        let mut state = inner.lock();
        let told = state.told.filter(|told| (told.store_id, told.epoch) == (history.store_id, history.epoch));
        let last = told.map_or(upstream.revision.saturating_sub(1), |told| told.revision);
        let first = (last + 1).max(upstream.revision.saturating_sub(TOGETHER - 1));
        for revision in first..=upstream.revision {
            let trace = WriteTrace::of(history, revision);
            inner.traces.record(SpanRecord {
                trace,
                part: TracePart::Taken { zone: &inner.zone },
                parent: Some(TracePart::Request),
                name: format!("take in zone {}", inner.zone),
                start: now - TimeDelta::from_std(took).unwrap_or_default(),
                end: now,
                attributes: vec![
                    ("strait.zone", inner.zone.to_string()),
                    ("strait.kind", kind.name.to_owned()),
                    ("strait.revision", revision.to_string()),
                ],
                error: None,
            });
            state.wait(UnansweredWrite { trace, was_taken: true, here, since: now });
        }
        state.told = Some(upstream);
        drop(state);
        inner.more.notify_one();
    }

    /// Something was written here, as this revision.
    pub(crate) fn written(&self, revision: Revision) {
        let inner = &*self.0;
        let trace = WriteTrace::of(inner.history, revision);
        let since = inner.env.now();
        inner.lock().wait(UnansweredWrite { trace, was_taken: false, here: revision, since });
        inner.more.notify_one();
    }

    /// Tells when proxies have answered, until `shutdown`.
    pub(crate) async fn follow(self, progress: Arc<dyn ProxyProgressSource>, shutdown: CancellationToken) {
        let mut moved = progress.progressed();
        loop {
            tokio::select! {
                changed = moved.changed() => if changed.is_err() {
                    return;
                },
                () = self.0.more.notified() => {}
                () = shutdown.cancelled() => return,
            }
            let now = progress.proxy_progress();
            self.answered(now.acked, now.connected);
        }
    }

    /// All proxies have answered for what is here up to `acked`.
    fn answered(&self, acked: Revision, proxies: u64) {
        let inner = &*self.0;
        let end = inner.env.now();
        let mut state = inner.lock();
        let (over, waiting) =
            std::mem::take(&mut state.waiting).into_iter().partition(|write| write.here <= acked);
        state.waiting = waiting;
        drop(state);
        let over: VecDeque<UnansweredWrite> = over;
        for write in over {
            let parent =
                if write.was_taken { TracePart::Taken { zone: &inner.zone } } else { TracePart::Request };
            inner.traces.record(SpanRecord {
                trace: write.trace,
                part: TracePart::Answered { zone: &inner.zone },
                parent: Some(parent),
                name: format!("proxies of zone {} answer", inner.zone),
                start: write.since,
                end,
                attributes: vec![
                    ("strait.zone", inner.zone.to_string()),
                    ("strait.proxies", proxies.to_string()),
                ],
                error: None,
            });
        }
    }
}

impl ZoneTracesInner {
    fn lock(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceState {
    /// One that nobody answers for makes room for newer ones.
    fn wait(&mut self, write: UnansweredWrite) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(write);
    }
}
