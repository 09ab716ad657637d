//! One client, as its connection, its requests and its listener know it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Limits,
    answers::{Lying, Ready},
    progress::{Over, Progress},
};

/// What the connection, its requests and the listener know of one client.
pub(super) struct Guest {
    peer: SocketAddr,
    progress: Mutex<Progress>,
    lying: Arc<Lying>,
    /// Its deadline moved closer.
    sooner: Notify,
    displaced: CancellationToken,
}

impl Guest {
    /// One that has just come.
    pub(super) fn new(peer: SocketAddr, ready: Ready, now: Instant) -> Self {
        Self {
            peer,
            progress: Mutex::new(Progress::new(now)),
            lying: Arc::new(Lying::new(ready, now)),
            sooner: Notify::new(),
            displaced: CancellationToken::new(),
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What lies ready for it.
    pub(super) fn lying(&self) -> &Arc<Lying> {
        &self.lying
    }

    /// Since when it keeps us waiting, by asking nothing or by taking nothing of its answer, or waits for what others
    /// do, and whether it has ever asked; `None` while something is done for it.
    pub(super) fn keeps_waiting_since(&self) -> Option<(Instant, bool)> {
        let (bytes, since) = self.lying.now();
        let progress = self.progress();
        let lies = (bytes > 0).then_some(since);
        Some((lies.or_else(|| progress.asks_nothing_since())?, progress.has_asked()))
    }

    /// One of its exchanges waits for what others do, until what is returned is dropped.
    pub(super) fn park(self: &Arc<Self>) -> Parked {
        self.progress().parked(Instant::now());
        Parked(Some(Arc::clone(self)))
    }

    /// Bytes went to it.
    pub(super) fn told(&self, bytes: usize, now: Instant) {
        self.progress().told(bytes, now);
        self.lying.taken(bytes, now);
    }

    /// It goes: for somebody else, or because its connection is over. Nothing is made for it any more.
    pub(super) fn make_way(&self) {
        self.lying.leave();
        self.displaced.cancel();
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.displaced.is_cancelled()
    }

    /// Resolves when it made way.
    pub(super) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }

    /// The deadline moved closer.
    pub(super) fn hurry(&self) {
        self.sooner.notify_one();
    }

    /// Resolves when the connection is over, with the reason; `None` when it was displaced, which is
    /// counted already.
    pub(super) async fn over(&self, limits: &Limits) -> Option<Over> {
        loop {
            let deadline = self.progress().deadline(limits);
            if let Some((_, over)) = deadline.filter(|(at, _)| *at <= Instant::now()) {
                return Some(over);
            }
            let overdue = async {
                match deadline {
                    Some((at, _)) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.displaced.cancelled() => return None,
                () = self.sooner.notified() => {}
                // It may have moved away meanwhile.
                () = overdue => {}
            }
        }
    }
}

/// An exchange for which nothing is done: it waits for what others do, and its client makes way before those who are
/// worked for.
#[derive(Default)]
pub struct Parked(Option<Arc<Guest>>);

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(guest) = &self.0 {
            guest.progress().unparked();
        }
    }
}
