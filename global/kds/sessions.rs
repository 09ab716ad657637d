//! All zone sessions of this instance, and what is left of the last one of each zone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{
    events::{Event, EventBus, StreamKind},
    kds::headers::Caller,
    runtime::Env,
    store::{Fence, Store, StoreError},
};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::session::Session;

/// The epoch of a lease is what counts; it is taken by force, so its lifetime does not matter.
const LEASE: Duration = Duration::from_secs(60);

/// The sessions.
pub(crate) struct Sessions {
    store: Arc<dyn Store>,
    env: Env,
    bus: EventBus,
    /// Woken when an insight should be written without delay.
    pub(crate) recorder: Arc<Notify>,
    /// One at a time decides which session a stream belongs to.
    admission: AsyncMutex<()>,
    last: Mutex<BTreeMap<Arc<str>, Arc<Session>>>,
}

impl Sessions {
    pub(crate) fn new(store: Arc<dyn Store>, env: Env, bus: EventBus) -> Self {
        let recorder = Arc::new(Notify::new());
        Self { store, env, bus, recorder, admission: AsyncMutex::new(()), last: Mutex::default() }
    }

    /// The session `stream` of `caller` belongs to: the one in place, when it lacks that stream, else a
    /// new one, which ends the one in place.
    ///
    /// # Errors
    /// When the store does not hand out an epoch.
    pub(crate) async fn join(&self, caller: &Caller, stream: StreamKind) -> Result<Arc<Session>, StoreError> {
        let _one_at_a_time = self.admission.lock().await;
        let current = self.of(&caller.zone);
        let session = match current.filter(|session| session.admit(caller, stream)) {
            Some(session) => session,
            None => {
                let session = self.open(caller).await?;
                session.admit(caller, stream);
                self.replace(&session);
                session
            }
        };
        count_streams(&session.zone, session.streams().len());
        let (zone, epoch) = (Arc::clone(&session.zone), session.epoch());
        self.bus.publish(Event::ZoneOpenedStream { zone, stream, epoch });
        Ok(session)
    }

    async fn open(&self, caller: &Caller) -> Result<Arc<Session>, StoreError> {
        let name = format!("kds/{}", caller.zone);
        // The holder is unique, or the lease would be renewed instead of moving to its next epoch.
        let holder = format!("{}/{}", self.env.instance_id, self.env.entropy.uuid());
        let lease = self.store.acquire(&name, &holder, LEASE, true).await?;
        let epoch = lease.map_or(0, |lease| lease.epoch);
        tracing::info!(zone = caller.zone, epoch, "zone session opened");
        let fence = Fence { name, epoch };
        Ok(Arc::new(Session::new(caller, fence, self.env.clone(), Arc::clone(&self.recorder))))
    }

    fn replace(&self, session: &Arc<Session>) {
        let older = self.lock().insert(Arc::clone(&session.zone), Arc::clone(session));
        let Some(older) = older.filter(|older| older.end(false)) else { return };
        tracing::info!(
            zone = &*older.zone,
            epoch = older.epoch(),
            by = session.epoch(),
            "zone session replaced"
        );
        for stream in older.streams() {
            let zone = Arc::clone(&older.zone);
            self.bus.publish(Event::StreamCancelled { zone, stream, epoch: older.epoch() });
        }
    }

    /// Ends a session, unless it was replaced or ended before.
    pub(crate) fn end(&self, session: &Session, clean: bool) {
        if session.end(clean) {
            tracing::info!(zone = &*session.zone, epoch = session.epoch(), clean, "zone session ended");
            count_streams(&session.zone, 0);
            let (zone, epoch) = (Arc::clone(&session.zone), session.epoch());
            self.bus.publish(Event::ZoneWentOffline { zone, epoch });
            self.recorder.notify_one();
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

/// Shows how many streams of a zone are open.
fn count_streams(zone: &str, streams: usize) {
    let streams = u32::try_from(streams).unwrap_or(u32::MAX);
    metrics::gauge!("kds_zone_active_connections", "zone_name" => zone.to_owned()).set(streams);
}
