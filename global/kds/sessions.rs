//! All zone sessions of this instance, and what is left of the last one of each zone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::{
    events::{Event, EventBus, StreamKind},
    runtime::Env,
    store::{Fence, Store, StoreError},
};
use thiserror::Error;
use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    time::Instant,
};

use super::{
    auth::ZoneCaller,
    ending::EndCause,
    pace::{SESSIONS, ZonePaces},
    questions::FormerSender,
    session::Session,
};

/// The epoch of a lease is what counts; it is taken by force, so its lifetime does not matter.
const LEASE: Duration = Duration::from_secs(60);

/// Why a zone gets no session.
#[derive(Debug, Error)]
pub(crate) enum JoinError {
    /// It begins one after the other.
    #[error("zone {zone} has begun too many sessions in a short time: try again in {}s", wait.as_secs() + 1)]
    TooOften {
        /// Its name.
        zone: String,
        /// When it may begin the next.
        wait: Duration,
    },
    /// The store does not hand out an epoch.
    #[error("open a session: {0}")]
    Store(#[from] StoreError),
}

impl JoinError {
    fn too_often(zone: &str, wait: Duration) -> Self {
        Self::TooOften { zone: zone.to_owned(), wait }
    }
}

/// The sessions.
pub(crate) struct Sessions {
    store: Arc<dyn Store>,
    env: Env,
    bus: EventBus,
    progress: watch::Sender<()>,
    /// Of each zone one stream at a time is taken in, so that those that come together get one session. Zones do not
    /// wait for each other: taking an epoch from the store may take long.
    admissions: Mutex<BTreeMap<String, Weak<AsyncMutex<()>>>>,
    paces: ZonePaces,
    /// Whether this is a relay, which has to tell global about them.
    are_relayed: bool,
    last: Mutex<BTreeMap<Arc<str>, Arc<Session>>>,
}

impl Sessions {
    /// Sessions that show on `progress` when a zone comes further, comes or goes.
    pub(crate) fn new(store: Arc<dyn Store>, env: Env, bus: EventBus, progress: watch::Sender<()>) -> Self {
        let (admissions, last, paces) = (Mutex::default(), Mutex::default(), ZonePaces::new(SESSIONS));
        Self { store, env, bus, progress, are_relayed: false, admissions, last, paces }
    }

    /// The same on a relay.
    pub(crate) fn relayed(self) -> Self {
        Self { are_relayed: true, ..self }
    }

    /// The session `stream` of `caller` belongs to: the one in place, when it lacks that stream, else a
    /// new one, which ends the one in place. `made` is when the zone was made here.
    ///
    /// # Errors
    /// [`JoinError`].
    pub(crate) async fn join(
        &self,
        caller: &ZoneCaller,
        made: DateTime<Utc>,
        stream: StreamKind,
    ) -> Result<Arc<Session>, JoinError> {
        let admission = self.admission_of(&caller.zone);
        let _one_at_a_time = admission.lock().await;
        let current = self.of(&caller.zone);
        let session = match current.filter(|session| session.admit(caller, stream)) {
            Some(session) => session,
            None => {
                let begun = self.paces.begin(&caller.zone, Instant::now());
                begun.map_err(|wait| JoinError::too_often(&caller.zone, wait))?;
                let session = self.open(caller, made).await?;
                session.admit(caller, stream);
                self.replace(&session);
                session
            }
        };
        let (zone, epoch) = (Arc::clone(&session.zone), session.epoch());
        self.bus.publish(Event::ZoneOpenedStream { zone, stream, epoch });
        Ok(session)
    }

    /// Whether `zone` may begin a session: who may not has nothing written on its behalf before that is found either.
    ///
    /// # Errors
    /// [`JoinError::TooOften`].
    pub(crate) fn require_pace(&self, zone: &str) -> Result<(), JoinError> {
        let allowed = self.paces.allow(zone, Instant::now());
        allowed.map_err(|wait| JoinError::too_often(zone, wait))
    }

    /// The stream of reverse calls that took what was sent to `questions` ended; the session goes on.
    pub(crate) fn leave(&self, session: &Session, stream: StreamKind, questions: &FormerSender) {
        session.disconnect(stream, questions);
    }

    fn admission_of(&self, zone: &str) -> Arc<AsyncMutex<()>> {
        let mut admissions = self.admissions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(admission) = admissions.get(zone).and_then(Weak::upgrade) {
            return admission;
        }
        admissions.retain(|_, admission| admission.strong_count() > 0);
        let admission = Arc::default();
        admissions.insert(zone.to_owned(), Arc::downgrade(&admission));
        admission
    }

    async fn open(&self, caller: &ZoneCaller, made: DateTime<Utc>) -> Result<Arc<Session>, StoreError> {
        let name = format!("kds/{}", caller.zone);
        // The holder is unique, or the lease would be renewed instead of moving to its next epoch.
        let holder = format!("{}/{}", self.env.instance_id, self.env.entropy.uuid());
        let lease = self.store.acquire(&name, &holder, LEASE, true).await?;
        let epoch = lease.map_or(0, |lease| lease.epoch);
        tracing::info!(zone = caller.zone, epoch, "zone session opened");
        let fence = Fence { name, epoch };
        Ok(Arc::new(Session::new(
            caller,
            made,
            fence,
            self.env.clone(),
            self.bus.clone(),
            self.progress.clone(),
            self.are_relayed,
        )))
    }

    fn replace(&self, session: &Arc<Session>) {
        let older = self.lock().insert(Arc::clone(&session.zone), Arc::clone(session));
        if let Some(older) = older {
            self.end(&older, EndCause::Replaced);
        }
    }

    /// Ends a session, unless it ended before.
    pub(crate) fn end(&self, session: &Session, cause: EndCause) {
        let (is_ours, is_alarming, reason) = (cause.is_ours(), cause.is_alarming(), cause.to_string());
        if !session.end(cause) {
            return;
        }
        self.tell_progress();
        let (zone, epoch) = (&session.zone, session.epoch());
        if is_alarming {
            tracing::warn!(zone = &**zone, epoch, reason, "zone session ended");
        } else {
            tracing::info!(zone = &**zone, epoch, reason, "zone session ended");
        }
        for stream in session.streams().into_iter().filter(|_| is_ours) {
            self.bus.publish(Event::StreamCancelled { zone: Arc::clone(zone), stream, epoch });
        }
        self.bus.publish(Event::SessionEnded { zone: Arc::clone(zone), epoch });
    }

    /// Ends all sessions, because zones are shown another history: they come back and judge it.
    pub(crate) fn renew(&self) {
        self.all().iter().for_each(|session| self.end(session, EndCause::Renewed));
    }

    /// Tells everyone that the zone of a session is offline, unless they know.
    pub(crate) fn announce_offline(&self, session: &Session) {
        if session.announce() {
            let (zone, epoch) = (Arc::clone(&session.zone), session.epoch());
            tracing::info!(zone = &*zone, epoch, "zone is offline");
            self.bus.publish(Event::ZoneWentOffline { zone, epoch });
        }
    }

    /// Shows that something is known anew about zones.
    pub(crate) fn tell_progress(&self) {
        self.progress.send_replace(());
    }

    /// Forgets the last session of a zone that no longer exists.
    pub(crate) fn forget(&self, session: &Arc<Session>) {
        let mut last = self.lock();
        if last.get(&session.zone).is_some_and(|last| Arc::ptr_eq(last, session)) {
            last.remove(&session.zone);
        }
    }

    /// The last session of a zone, running or not.
    pub(crate) fn of(&self, zone: &str) -> Option<Arc<Session>> {
        self.lock().get(zone).cloned()
    }

    /// The last session of every zone.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Session>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
