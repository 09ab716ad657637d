//! What the other instances of this global know about zones.
//!
//! Each instance writes the state of its own sessions as small documents that never enter the change
//! feed. Nobody compares clocks: a document lives for as long as it is seen to change.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::{
    rest::{ZoneHealth, ZoneStatus},
    store::{Store, StoreError},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

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
}

/// The last documents read.
pub(crate) struct Replicas {
    instance: Arc<str>,
    store: Arc<dyn Store>,
    zones: Mutex<BTreeMap<String, ObservedReport>>,
}

impl Replicas {
    pub(crate) fn new(instance: Arc<str>, store: Arc<dyn Store>) -> Self {
        Self { instance, store, zones: Mutex::default() }
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
        let row = |(zone, report): (Arc<str>, SessionReport)| {
            let document = serde_json::to_string(&report).ok()?;
            Some((format!("{PREFIX}{zone}"), Some(document)))
        };
        let rows: Vec<_> = own.into_iter().filter_map(row).collect();
        if !rows.is_empty() {
            self.store.put_sessions(rows).await?;
        }
        let read = self.store.sessions(PREFIX).await?;
        let (kept, gone): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|(key, _)| key.strip_prefix(PREFIX).is_some_and(&exists));
        let reports = kept.into_iter().filter_map(|(key, document)| {
            let report: SessionReport = serde_json::from_str(&document).ok()?;
            Some((key.strip_prefix(PREFIX)?.to_owned(), report))
        });
        self.take(Instant::now(), reports.collect());
        if gone.is_empty() {
            return Ok(());
        }
        self.store.put_sessions(gone.into_iter().map(|(key, _)| (key, None)).collect()).await
    }

    fn take(&self, now: Instant, reports: BTreeMap<String, SessionReport>) {
        let mut zones = self.lock();
        zones.retain(|zone, _| reports.contains_key(zone));
        for (zone, report) in reports {
            match zones.get_mut(&zone) {
                Some(seen) if seen.report == report => {}
                Some(seen) => *seen = ObservedReport { report, changed: Some(now) },
                None => drop(zones.insert(zone, ObservedReport { report, changed: None })),
            }
        }
    }

    /// The epoch of the newest session another instance has of a zone.
    pub(crate) fn epoch(&self, zone: &str) -> Option<u64> {
        let zones = self.lock();
        zones.get(zone).map(|seen| &seen.report).filter(|r| *r.instance != *self.instance).map(|r| r.epoch)
    }

    /// The other instance that has the newest session of a zone.
    pub(crate) fn instance(&self, zone: &str) -> Option<String> {
        let zones = self.lock();
        let report = zones.get(zone).map(|seen| &seen.report)?;
        (*report.instance != *self.instance).then(|| report.instance.clone())
    }

    /// Whether another instance has a newer session of a zone than `epoch`.
    pub(crate) fn has_newer(&self, zone: &str, epoch: u64) -> bool {
        self.epoch(zone).is_some_and(|newest| newest > epoch)
    }

    /// The state of a zone as another instance tells it.
    pub(crate) fn status(&self, zone: &str, now: Instant, patience: Patience) -> Option<ZoneStatus> {
        let seen = self.lock().get(zone).filter(|seen| *seen.report.instance != *self.instance)?.clone();
        let mut status = seen.report.status;
        let silence = seen.changed.map(|changed| now - changed);
        match silence {
            Some(silence) if silence < patience.unknown_after.max(EXCHANGE * 2) => {}
            Some(silence) if silence < patience.offline_after.max(EXCHANGE * 3) => {
                status.status = ZoneHealth::Unknown;
            }
            // What an earlier process wrote says how it was, not how it is.
            None if status.status == ZoneHealth::Online => status.status = ZoneHealth::Unknown,
            None => {}
            Some(_) => status.status = ZoneHealth::Offline,
        }
        Some(status)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ObservedReport>> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often instances tell each other.
pub(crate) const EXCHANGE: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use common::store::memory::MemoryStore;
    use uuid::Uuid;

    use super::*;

    const PATIENCE: Patience =
        Patience { unknown_after: Duration::from_secs(10), offline_after: Duration::from_secs(20) };

    fn report(instance: &str, epoch: u64, beat: u64) -> SessionReport {
        let status = ZoneStatus { status: ZoneHealth::Online, ..ZoneStatus::default() };
        SessionReport { instance: instance.to_owned(), epoch, beat, status }
    }

    #[tokio::test(start_paused = true)]
    async fn another_instance_is_believed_while_it_speaks() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let (here, there) = ("here", "there");
        let other = Replicas::new(there.into(), Arc::clone(&store));
        let this = Replicas::new(here.into(), Arc::clone(&store));
        let health = || this.status("zone-1", Instant::now(), PATIENCE).map(|s| s.status);
        assert_eq!(health(), None);
        other.exchange(vec![("zone-1".into(), report(there, 3, 1))], |_| true).await.unwrap();
        this.exchange(Vec::new(), |_| true).await.unwrap();
        assert_eq!(health(), Some(ZoneHealth::Unknown), "nobody knows how old that is");
        other.exchange(vec![("zone-1".into(), report(there, 3, 2))], |_| true).await.unwrap();
        this.exchange(Vec::new(), |_| true).await.unwrap();
        assert_eq!(health(), Some(ZoneHealth::Online));
        assert_eq!(this.epoch("zone-1"), Some(3));
        assert_eq!(other.epoch("zone-1"), None, "that is its own");
        assert_eq!(this.instance("zone-1").as_deref(), Some(there));
        assert_eq!(other.instance("zone-1"), None);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(health(), Some(ZoneHealth::Unknown));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(health(), Some(ZoneHealth::Offline));

        let written = async || store.sessions(PREFIX).await.unwrap().len();
        assert_eq!(written().await, 1);
        this.exchange(Vec::new(), |zone| zone != "zone-1").await.unwrap();
        assert_eq!((health(), written().await), (None, 0), "the zone was deleted");
    }
}
