//! What the other instances of this global know about zones.
//!
//! Each instance writes the state of its own sessions as small documents that never enter the change
//! feed. Nobody compares clocks: a document lives for as long as it is seen to change. While the store cannot be
//! read or written nobody can change anything, so that time counts for nobody.

mod noted;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{
    rest::{ZoneHealth, ZoneStatus},
    store::{Store, StoreError},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub(crate) use self::noted::NotedReports;
use super::health::Patience;

const PREFIX: &str = "kds/session/";

/// A session as its instance describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionReport {
    /// Who wrote it.
    pub(crate) instance: String,
    /// Epoch of the session.
    pub(crate) epoch: u64,
    /// Raised with every write.
    pub(crate) beat: u64,
    /// The state of the zone.
    pub(crate) status: ZoneStatus,
}

#[derive(Clone, Debug)]
struct ObservedReport {
    report: SessionReport,
    /// When it was last seen to change; `None` while it never was.
    changed: Option<Instant>,
    /// When it was found. Who has not spoken since for long enough is gone, however old it was then.
    found: Instant,
}

#[derive(Debug, Default)]
struct ReplicaState {
    zones: BTreeMap<String, ObservedReport>,
    /// Since when the store does not tell.
    blind: Option<Instant>,
    /// When the store was asked for what it has not answered yet.
    asked: Option<Instant>,
    /// When it told again after it last did not.
    back: Option<Instant>,
}

/// The last documents read.
pub(crate) struct Replicas {
    instance: Arc<str>,
    store: Arc<dyn Store>,
    state: Mutex<ReplicaState>,
}

impl Replicas {
    pub(crate) fn new(instance: Arc<str>, store: Arc<dyn Store>) -> Self {
        Self { instance, store, state: Mutex::default() }
    }

    /// Writes the state of this instance's sessions, then reads that of the others. What was written about
    /// a zone that does not `exist` any more goes.
    ///
    /// # Errors
    /// Any [`StoreError`].
    pub(crate) async fn exchange(
        &self,
        own: Vec<(Arc<str>, SessionReport)>,
        exists: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        self.asking(self.try_exchange(&own, exists)).await
    }

    /// Writes `own` and reads nothing: where no other instance can be, nobody else writes.
    ///
    /// # Errors
    /// Any [`StoreError`].
    pub(crate) async fn write(&self, own: &[(Arc<str>, SessionReport)]) -> Result<(), StoreError> {
        self.asking(async {
            self.put(own).await?;
            self.take(Instant::now(), None);
            Ok(())
        })
        .await
    }

    /// Asks the store; while it does not answer this side is blind.
    async fn asking(&self, question: impl Future<Output = Result<(), StoreError>>) -> Result<(), StoreError> {
        let asked = Instant::now();
        self.lock().asked = Some(asked);
        let answered = question.await;
        let mut state = self.lock();
        state.asked = None;
        if answered.is_err() {
            state.blind.get_or_insert(asked);
        }
        drop(state);
        answered
    }

    async fn put(&self, own: &[(Arc<str>, SessionReport)]) -> Result<(), StoreError> {
        let row = |(zone, report): &(Arc<str>, SessionReport)| {
            let document = serde_json::to_string(report).ok()?;
            Some((format!("{PREFIX}{zone}"), Some(document)))
        };
        let rows: Vec<_> = own.iter().filter_map(row).collect();
        if rows.is_empty() { Ok(()) } else { self.store.put_sessions(rows).await }
    }

    async fn try_exchange(
        &self,
        own: &[(Arc<str>, SessionReport)],
        exists: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        self.put(own).await?;
        let read = self.store.sessions(PREFIX).await?;
        let (kept, gone): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|(key, _)| key.strip_prefix(PREFIX).is_some_and(&exists));
        let reports = kept.into_iter().filter_map(|(key, document)| {
            let report: SessionReport = serde_json::from_str(&document).ok()?;
            Some((key.strip_prefix(PREFIX)?.to_owned(), report))
        });
        self.take(Instant::now(), Some(reports.collect()));
        if gone.is_empty() {
            return Ok(());
        }
        self.store.put_sessions(gone.into_iter().map(|(key, _)| (key, None)).collect()).await
    }

    /// Takes in what was read; without that, nobody has written anything.
    fn take(&self, now: Instant, reports: Option<BTreeMap<String, SessionReport>>) {
        let mut state = self.lock();
        // Who wrote last before the outage may be the last to get round to it afterwards.
        let blind = state.blind.take();
        let was_blind = blind.is_some();
        let lost = match (blind, state.asked) {
            (Some(blind), _) => now - blind + EXCHANGE,
            (None, Some(asked)) => now - asked,
            (None, None) => Duration::ZERO,
        };
        let later = |then: Instant| (then + lost).min(now);
        if was_blind {
            state.back = Some(now);
        }
        let zones = &mut state.zones;
        let Some(reports) = reports else {
            for seen in zones.values_mut() {
                seen.changed = seen.changed.map(later);
                seen.found = later(seen.found);
            }
            return;
        };
        zones.retain(|zone, _| reports.contains_key(zone));
        for (zone, report) in reports {
            match zones.get_mut(&zone) {
                Some(seen) if seen.report == report => {
                    seen.changed = seen.changed.map(later);
                    seen.found = later(seen.found);
                }
                Some(seen) => *seen = ObservedReport { report, changed: Some(now), found: seen.found },
                None => drop(zones.insert(zone, ObservedReport { report, changed: None, found: now })),
            }
        }
    }

    /// Until when no zone could come back: while the store does not tell, none is let in.
    pub(crate) fn shut_until(&self, now: Instant) -> Option<Instant> {
        let state = self.lock();
        state.blind.map(|_| now).or(state.back)
    }

    /// The epoch of the newest session another instance has of a zone.
    pub(crate) fn epoch(&self, zone: &str) -> Option<u64> {
        let state = self.lock();
        let report = state.zones.get(zone).map(|seen| &seen.report);
        report.filter(|r| *r.instance != *self.instance).map(|r| r.epoch)
    }

    /// The other instance that has the newest session of a zone.
    pub(crate) fn instance(&self, zone: &str) -> Option<String> {
        let state = self.lock();
        let report = state.zones.get(zone).map(|seen| &seen.report)?;
        (*report.instance != *self.instance).then(|| report.instance.clone())
    }

    /// Whether another instance has a newer session of a zone than `epoch`.
    pub(crate) fn has_newer(&self, zone: &str, epoch: u64) -> bool {
        self.epoch(zone).is_some_and(|newest| newest > epoch)
    }

    /// The state of a zone as another instance tells it.
    pub(crate) fn status(&self, zone: &str, now: Instant, patience: Patience) -> Option<ZoneStatus> {
        let state = self.lock();
        let seen = state.zones.get(zone).filter(|seen| *seen.report.instance != *self.instance)?.clone();
        // An answer that takes long is awaited for nobody's silence.
        let now = state.blind.or(state.asked).unwrap_or(now);
        drop(state);
        let mut status = seen.report.status;
        let is_forgotten = now - seen.found >= patience.offline_after.max(EXCHANGE * 3);
        let silence = seen.changed.map(|changed| now - changed);
        match silence {
            Some(silence) if silence < patience.unknown_after.max(EXCHANGE * 2) => {}
            Some(silence) if silence < patience.offline_after.max(EXCHANGE * 3) => {
                status.status = ZoneHealth::Unknown;
            }
            None if is_forgotten => status.status = ZoneHealth::Offline,
            // What an earlier process wrote says how it was, not how it is.
            None if status.status == ZoneHealth::Online => status.status = ZoneHealth::Unknown,
            None => {}
            Some(_) => status.status = ZoneHealth::Offline,
        }
        Some(status)
    }

    fn lock(&self) -> MutexGuard<'_, ReplicaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often instances tell each other.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
