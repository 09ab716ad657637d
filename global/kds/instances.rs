//! Keeps the instances of one global together: each tells the others about its sessions, gives up those that
//! moved on, and cleans up after one that died.

use std::{sync::Arc, time::Duration};

use common::{
    kds::recorder::{Recorder, is_open},
    model::kinds,
    rest::ZoneHealth,
    store::{Nudge, Nudges},
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    ending::EndCause,
    health::Patience,
    history::ZoneHistory,
    replicas::{EXCHANGE, NotedReports, Replicas, SessionReport},
    session::Session,
    sessions::Sessions,
    status::of_session,
};

/// After this everybody has answered who was called.
const ROLL_CALL: Duration = Duration::from_millis(500);

/// So many times less often than others are asked, an instance that can have no others looks at what earlier processes
/// left.
const SELDOM: u64 = 12;

/// The pause after the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// This instance among the others.
pub(crate) struct Instances {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) history: ZoneHistory,
    pub(crate) recorder: Recorder,
    pub(crate) patience: Patience,
    pub(crate) started: Instant,
}

impl Instances {
    /// Exchanges until every stream is `drained`, then says a last time how things stand. What it finds at its
    /// start may be old, so it calls the others, who then speak at once.
    pub(crate) async fn run(self, mut nudged: watch::Receiver<Nudges>, drained: CancellationToken) {
        let mut tick = interval(EXCHANGE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut beat, mut calls) = (0, 0);
        let mut alone = nudged.has_changed().is_err();
        let mut noted = NotedReports::default();
        let (mut is_new, mut again) = (true, None);
        loop {
            beat += 1;
            tokio::select! {
                () = drained.cancelled() => break,
                _ = tick.tick() => {}
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => again = None,
                changed = nudged.changed(), if !alone => {
                    alone = changed.is_err();
                    let called = nudged.borrow_and_update().roll_call;
                    if std::mem::replace(&mut calls, called) == called {
                        continue;
                    }
                }
            }
            if !self.exchange(beat, alone.then_some(&mut noted)).await {
                // Others ask again when it is back, and take who has not spoken by then for gone.
                again = Some(Instant::now() + RETRY);
                continue;
            }
            if std::mem::take(&mut is_new) && !alone {
                self.call_roll().await;
                again = Some(Instant::now() + ROLL_CALL);
            }
            self.end_moved();
            self.follow_history().await;
            if self.started.elapsed() >= self.patience.offline_after {
                self.close_orphans().await;
            }
        }
        self.exchange(beat, alone.then_some(&mut noted)).await;
    }

    async fn call_roll(&self) {
        if let Err(error) = self.recorder.store.nudge(Nudge::RollCall).await {
            tracing::debug!(%error, "cannot call other instances, they speak by themselves");
        }
    }

    /// Whether the store took and gave it. Who can have no others says only what is new beside what was `noted`.
    async fn exchange(&self, beat: u64, noted: Option<&mut NotedReports>) -> bool {
        let now = Instant::now();
        let shut_until = self.replicas.shut_until(now);
        let newest =
            |session: &Arc<Session>| self.replicas.epoch(&session.zone).is_none_or(|e| session.epoch() > e);
        let report = |session: Arc<Session>| {
            let status = of_session(&session, now, self.patience, shut_until);
            let instance = self.recorder.env.instance_id.to_string();
            (Arc::clone(&session.zone), SessionReport { instance, epoch: session.epoch(), beat, status })
        };
        let own: Vec<_> = self.sessions.all().into_iter().filter(newest).map(report).collect();
        let index = self.recorder.index.current();
        let exists = |zone: &str| index.find(&kinds::zone::KIND, "", zone).is_some();
        let exchanged = match noted {
            None => self.replicas.exchange(own, exists).await,
            Some(noted) => {
                noted.retain(exists);
                let due = noted.due(own);
                // Where there is nothing to write, only reading shows whether the store is there.
                let exchanged = match due.is_empty() || beat % SELDOM == 1 {
                    true => self.replicas.exchange(due.clone(), exists).await,
                    false => self.replicas.write(&due).await,
                };
                if exchanged.is_ok() {
                    noted.note(&due);
                }
                exchanged
            }
        };
        if let Err(error) = &exchanged {
            tracing::warn!(%error, "cannot tell other instances about zone sessions");
        }
        self.sessions.tell_progress();
        exchanged.is_ok()
    }

    /// Ends the sessions of zones that have a newer one elsewhere.
    fn end_moved(&self) {
        for session in self.sessions.all() {
            if self.replicas.has_newer(&session.zone, session.epoch()) {
                self.sessions.end(&session, EndCause::Moved);
            }
        }
    }

    /// Shows zones what another replica was told to show them.
    async fn follow_history(&self) {
        match self.history.refresh().await {
            Ok(true) => self.sessions.renew(),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot read which history zones are shown"),
        }
    }

    /// Closes the insights an instance left open that is no more; this one's last run, for example.
    async fn close_orphans(&self) {
        let index = self.recorder.index.current();
        for insight in index.list(&kinds::zone_insight::KIND) {
            let zone = insight.name();
            if self.sessions.of(zone).is_some() {
                continue;
            }
            let elsewhere = self.replicas.status(zone, Instant::now(), self.patience);
            let is_gone = elsewhere.is_none_or(|status| status.status == ZoneHealth::Offline);
            if is_gone
                && is_open(insight)
                && let Err(error) = self.recorder.close(zone).await
            {
                tracing::warn!(zone, %error, "cannot close the zone insight");
            }
        }
    }
}
