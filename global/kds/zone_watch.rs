//! Watches over the sessions: ends those that fell silent, and keeps their insights current.

use std::{sync::Arc, time::Duration};

use common::{
    kds::recorder::{Recorder, Seen, is_open},
    model::kinds,
    rest::Health,
    store::{StoreError, index::IndexReader},
};
use futures::{StreamExt, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    health::{Patience, judge},
    replicas::{EXCHANGE, Replicas, Report},
    session::Session,
    sessions::Sessions,
    status::of_session,
};

/// How often sessions are looked at; a fraction of what an operator would notice.
const LOOK: Duration = Duration::from_secs(1);
/// Insights that are written at a time.
const WRITERS: usize = 32;

/// The watch.
pub(crate) struct ZoneWatch {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) recorder: Recorder,
    pub(crate) index: IndexReader,
    pub(crate) patience: Patience,
    pub(crate) flush_interval: Duration,
    pub(crate) started: Instant,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) instance: Arc<str>,
}

impl ZoneWatch {
    /// Watches until `shutdown`, then writes what is left to write.
    pub(crate) async fn run(self, shutdown: CancellationToken, drained: CancellationToken) {
        let mut look = interval(LOOK);
        let mut flush = interval(self.flush_interval.max(LOOK));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut exchange = interval(EXCHANGE);
        exchange.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat = 0;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.sessions.recorder.notified() => self.flush().await,
                _ = flush.tick() => self.flush().await,
                _ = look.tick() => self.look().await,
                _ = exchange.tick() => {
                    beat += 1;
                    self.exchange(beat).await;
                }
            }
        }
        drained.cancelled().await;
        self.flush().await;
        self.exchange(beat + 1).await;
    }

    /// Tells the other instances about the sessions here, and hears about theirs.
    async fn exchange(&self, beat: u64) {
        let now = Instant::now();
        let newest = |session: &Arc<Session>| {
            self.replicas.epoch(&session.zone).is_none_or(|epoch| session.epoch() > epoch)
        };
        let report = |session: Arc<Session>| {
            let status = of_session(&session, now, self.patience);
            let instance = self.instance.to_string();
            (Arc::clone(&session.zone), Report { instance, epoch: session.epoch(), beat, status })
        };
        let own = self.sessions.all().into_iter().filter(newest).map(report).collect();
        if let Err(error) = self.replicas.exchange(own).await {
            tracing::warn!(%error, "cannot tell other instances about zone sessions");
        }
    }

    /// Ends what fell silent, and closes what an earlier process left open.
    async fn look(&self) {
        let now = Instant::now();
        for session in self.sessions.all() {
            let facts = session.facts();
            if facts.ended.is_some() {
                continue;
            }
            let zone = &*session.zone;
            if self.replicas.epoch(zone).is_some_and(|epoch| epoch > session.epoch()) {
                tracing::info!(zone, "zone moved to another instance, ending its session here");
            } else if self.index.current().find(&kinds::zone::KIND, "", zone).is_none() {
                tracing::info!(zone, "zone was deleted, ending its session");
            } else if judge(now, &facts, self.patience).0 == Health::Offline {
                tracing::warn!(zone, "zone fell silent, ending its session");
            } else {
                continue;
            }
            self.sessions.end(&session, false);
        }
        if now - self.started >= self.patience.offline_after {
            self.close_orphans().await;
        }
    }

    async fn close_orphans(&self) {
        let index = self.index.current();
        for insight in index.list(&kinds::zone_insight::KIND) {
            let zone = insight.name();
            let elsewhere = self.replicas.status(zone, Instant::now(), self.patience);
            let is_gone = elsewhere.is_none_or(|status| status.status == Health::Offline);
            if self.sessions.of(zone).is_none() && is_gone && is_open(insight) {
                self.log(insight.name(), self.recorder.close(insight.name()).await);
            }
        }
    }

    /// Writes the insights that changed, many at once: the store makes one commit of those that wait.
    async fn flush(&self) {
        let all = stream::iter(self.sessions.all());
        all.for_each_concurrent(WRITERS, |session| async move { self.write(&session).await }).await;
    }

    async fn write(&self, session: &Session) {
        let Some((subscription, facts)) = session.take_unwritten() else { return };
        let seen = Seen { opened: facts.opened, heard: facts.heard.1 };
        let fence = Some(session.fence.clone());
        let written = self.recorder.record(&session.zone, &subscription, Some(seen), fence).await;
        if matches!(&written, Err(error) if !matches!(error, StoreError::Fenced { .. })) {
            session.rewrite();
        }
        self.log(&session.zone, written);
    }

    fn log(&self, zone: &str, written: Result<(), StoreError>) {
        match written {
            // The newer session ended this one's subscription already.
            Ok(()) | Err(StoreError::Fenced { .. }) => {}
            Err(error) => tracing::warn!(zone, %error, "cannot write the zone insight"),
        }
    }
}
