//! What all proxies together have seen since a moment.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{ResourceType, response::ResponseEnd};

/// How often it is looked whether everybody is done.
const GLANCE: Duration = Duration::from_millis(5);

/// Responses of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Responses.
    pub responses: u64,
    /// Resources in them.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Resources somebody waits for: of a type, with names that begin so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Their type.
    pub kind: ResourceType,
    /// How their names begin.
    pub prefix: String,
}

/// What came of one change.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Whether as many proxies acknowledged as were expected.
    pub complete: bool,
    /// Proxies that acknowledged anything.
    pub proxies: usize,
    /// From the change to the last acknowledgement.
    pub last_ack: Duration,
    /// Proxies that acknowledged what was watched, and when the last of them did.
    pub watched: (usize, Duration),
    /// What was sent, by type.
    pub traffic: [(ResourceType, Traffic); 5],
}

impl Observation {
    /// Bytes of all types.
    pub fn bytes(&self) -> u64 {
        self.traffic.iter().map(|(_, traffic)| traffic.bytes).sum()
    }

    /// Responses of all types.
    pub fn responses(&self) -> u64 {
        self.traffic.iter().map(|(_, traffic)| traffic.responses).sum()
    }

    /// In words: `EDS 100 responses 100 resources 52 KiB`.
    pub fn shown(&self) -> String {
        let busy = self.traffic.iter().filter(|(_, t)| t.responses > 0);
        let words = busy.map(|(kind, t)| {
            format!("{} {} in {} responses, {}", kind.short(), t.resources, t.responses, bytes(t.bytes))
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

/// A number of bytes in the unit people read.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} B"),
        10_240..10_485_760 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

#[derive(Default)]
struct Meter {
    responses: AtomicU64,
    resources: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    fn read(&self) -> Traffic {
        Traffic {
            responses: self.responses.load(Relaxed),
            resources: self.resources.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

/// Shared by all proxies of a fleet; one change is observed at a time.
pub struct Observer {
    begun: Instant,
    meters: [Meter; 5],
    /// Which change is observed; a proxy that has not counted for it yet does.
    round: AtomicU64,
    proxies: AtomicUsize,
    last_ack: AtomicU64,
    watches: AtomicBool,
    watched: Mutex<Option<Watched>>,
    watched_proxies: AtomicUsize,
    watched_last: AtomicU64,
    ready: AtomicUsize,
    last_ready: AtomicU64,
}

/// Up to which change one proxy has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChangeCursor {
    any: u64,
    watched: u64,
}

/// A change under observation.
pub struct Since {
    at: Duration,
    traffic: [Traffic; 5],
}

impl Observer {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            meters: Default::default(),
            round: AtomicU64::new(1),
            proxies: AtomicUsize::new(0),
            last_ack: AtomicU64::new(0),
            watches: AtomicBool::new(false),
            watched: Mutex::default(),
            watched_proxies: AtomicUsize::new(0),
            watched_last: AtomicU64::new(0),
            ready: AtomicUsize::new(0),
            last_ready: AtomicU64::new(0),
        }
    }

    /// Begins to observe a change that is made now, of which `watched` is timed on its own.
    pub fn begin(&self, watched: Option<Watched>) -> Since {
        self.watches.store(watched.is_some(), Relaxed);
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = watched;
        self.proxies.store(0, Relaxed);
        self.watched_proxies.store(0, Relaxed);
        self.watched_last.store(0, Relaxed);
        self.round.fetch_add(1, Relaxed);
        Since { at: self.begun.elapsed(), traffic: self.traffic() }
    }

    /// Waits until `expected` proxies acknowledged something, and as many what is watched, and none has for a
    /// time of `quiet`.
    pub async fn settled(
        &self,
        since: &Since,
        expected: usize,
        quiet: Duration,
        patience: Duration,
    ) -> Observation {
        let given_up = self.begun.elapsed() + patience;
        let complete = loop {
            let now = self.begun.elapsed();
            let last = Duration::from_nanos(self.last_ack.load(Relaxed)).max(since.at);
            if self.has(expected) && now.saturating_sub(last) >= quiet {
                break true;
            }
            if now >= given_up {
                break false;
            }
            sleep(GLANCE).await;
        };
        self.observe(since, complete)
    }

    fn has(&self, expected: usize) -> bool {
        let watched = !self.watches.load(Relaxed) || self.watched_proxies.load(Relaxed) >= expected;
        watched && self.proxies.load(Relaxed) >= expected
    }

    fn observe(&self, since: &Since, complete: bool) -> Observation {
        let after = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Relaxed)).saturating_sub(since.at);
        let now = self.traffic();
        let traffic = std::array::from_fn(|i| {
            let (now, before) = (now[i], since.traffic[i]);
            let spent = Traffic {
                responses: now.responses - before.responses,
                resources: now.resources - before.resources,
                bytes: now.bytes - before.bytes,
            };
            (ResourceType::ALL[i], spent)
        });
        Observation {
            complete,
            proxies: self.proxies.load(Relaxed),
            last_ack: after(&self.last_ack),
            watched: (self.watched_proxies.load(Relaxed), after(&self.watched_last)),
            traffic,
        }
    }

    /// What was sent since the beginning, by type.
    pub fn traffic(&self) -> [Traffic; 5] {
        std::array::from_fn(|i| self.meters[i].read())
    }

    /// Proxies that have everything they asked for.
    pub fn ready(&self) -> usize {
        self.ready.load(Relaxed)
    }

    /// When the last of them had it, since the beginning.
    pub fn last_ready(&self) -> Duration {
        Duration::from_nanos(self.last_ready.load(Relaxed))
    }

    /// A proxy has everything it asked for, for the first time.
    pub(crate) fn became_ready(&self) {
        self.last_ready.fetch_max(self.now(), Relaxed);
        self.ready.fetch_add(1, Relaxed);
    }

    /// Whether this is what is waited for.
    pub(crate) fn watches(&self, kind: ResourceType, name: &[u8]) -> bool {
        self.watches.load(Relaxed) && {
            let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.as_ref().is_some_and(|w| w.kind == kind && name.starts_with(w.prefix.as_bytes()))
        }
    }

    /// A proxy has sent its acknowledgement of this response.
    pub(crate) fn acknowledged(
        &self,
        counted: &mut ChangeCursor,
        kind: ResourceType,
        end: &ResponseEnd,
        watched: bool,
    ) {
        let meter = &self.meters[kind as usize];
        meter.responses.fetch_add(1, Relaxed);
        meter.resources.fetch_add(end.resources as u64, Relaxed);
        meter.bytes.fetch_add(end.bytes as u64, Relaxed);
        let (round, now) = (self.round.load(Relaxed), self.now());
        self.last_ack.fetch_max(now, Relaxed);
        if counted.any != round {
            counted.any = round;
            self.proxies.fetch_add(1, Relaxed);
        }
        if watched && counted.watched != round {
            counted.watched = round;
            self.watched_last.fetch_max(now, Relaxed);
            self.watched_proxies.fetch_add(1, Relaxed);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_settled_when_everybody_was_heard_and_it_is_quiet() {
        let observer = Observer::new();
        let (mut one, mut two) = (ChangeCursor::default(), ChangeCursor::default());
        let end = ResponseEnd { bytes: 10, resources: 1, ..ResponseEnd::default() };
        let quiet = Duration::from_millis(100);
        let watched = Watched { kind: ResourceType::Endpoint, prefix: "web".to_owned() };
        let since = observer.begin(Some(watched));
        assert!(observer.watches(ResourceType::Endpoint, b"web-1"));
        assert!(!observer.watches(ResourceType::Endpoint, b"api"));
        tokio::time::advance(Duration::from_millis(30)).await;
        observer.acknowledged(&mut one, ResourceType::Endpoint, &end, true);
        let half = observer.settled(&since, 2, quiet, Duration::from_secs(1)).await;
        assert!(!half.complete);
        assert_eq!(half.proxies, 1);
        observer.acknowledged(&mut two, ResourceType::Cluster, &end, false);
        observer.acknowledged(&mut two, ResourceType::Endpoint, &end, true);
        let whole = observer.settled(&since, 2, quiet, Duration::from_secs(1)).await;
        assert!(whole.complete);
        assert_eq!((whole.proxies, whole.watched.0), (2, 2));
        assert_eq!((whole.bytes(), whole.responses()), (30, 3));
        assert!(whole.last_ack >= Duration::from_millis(1030), "{:?}", whole.last_ack);
        assert_eq!(observer.observe(&observer.begin(None), true).bytes(), 0);
    }
}
