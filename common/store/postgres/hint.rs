//! Tells other replicas that the head moved, and hears when theirs did.
//!
//! Nothing here carries truth: a lost hint costs a moment, because the head is also looked up without
//! one. So that a crowd of commits costs the database one notification and not one each, they are
//! gathered for a moment; so that the lookups of replicas do not fall together, their pause varies.

use std::{sync::Arc, time::Duration};

use rand::Rng;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connections::PostgresConnections,
    listener::ChannelListener,
    silence::{PROMPT, unless_silent},
};
use crate::store::{
    Revision,
    nudge::{self, Nudge, Nudges},
};

const CHANNEL: &str = "strait";
/// Commits within this time share a notification.
const GATHER: Duration = Duration::from_millis(50);
/// The head is looked up this often (milliseconds) even when nothing was heard.
const IDLE: std::ops::Range<u64> = 500..1_000;
/// How long the connection that hears may say nothing when it is asked for the head.
const SHORT: Duration = Duration::from_secs(5);

/// The task that sends and hears; it ends with the store.
pub(super) struct Hints {
    committed: Arc<Notify>,
    closing: CancellationToken,
    task: TaskTracker,
    listen: PostgresConnections,
    nudges: Arc<watch::Sender<Nudges>>,
}

impl Hints {
    /// Starts the task. `listen` is its own, for the one connection that hears.
    pub(super) fn start(
        connections: PostgresConnections,
        listen: PostgresConnections,
        head: Arc<watch::Sender<Revision>>,
    ) -> Self {
        let committed = Arc::new(Notify::new());
        let closing = CancellationToken::new();
        let task = TaskTracker::new();
        let nudges = Arc::new(watch::Sender::default());
        let told = Arc::clone(&nudges);
        let relay = Relay {
            connections,
            listen: listen.clone(),
            head,
            listener: None,
            reachable: true,
            nudges: told,
        };
        let (noticed, until) = (Arc::clone(&committed), closing.clone());
        // Whatever it waits for: nothing of it is worth waiting for at the end.
        task.spawn(async move { until.run_until_cancelled(relay.run(noticed)).await });
        task.close();
        Self { committed, closing, task, listen, nudges }
    }

    /// To be notified after each commit of this process.
    pub(super) fn committed(&self) -> Arc<Notify> {
        Arc::clone(&self.committed)
    }

    /// What replicas tell each other.
    pub(super) fn nudged(&self) -> watch::Receiver<Nudges> {
        self.nudges.subscribe()
    }

    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.task.wait().await;
        self.listen.close().await;
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

struct Relay {
    connections: PostgresConnections,
    listen: PostgresConnections,
    head: Arc<watch::Sender<Revision>>,
    listener: Option<ChannelListener>,
    /// Whether the last lookup worked, so that an outage is logged once.
    reachable: bool,
    nudges: Arc<watch::Sender<Nudges>>,
}

/// Tells every replica, this one included.
///
/// # Errors
/// When the server cannot be asked.
pub(super) async fn nudge(connections: &PostgresConnections, nudge: Nudge) -> sqlx::Result<()> {
    notify(connections, nudge.word()).await
}

async fn notify(connections: &PostgresConnections, word: &str) -> sqlx::Result<()> {
    unless_silent(PROMPT, async |watch| {
        let mut connection = connections.take(&watch).await?;
        let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(word);
        notify.execute(&mut *connection).await.map(|_| ())
    })
    .await
}

/// What ended the wait.
enum Woken {
    Committed,
    SendNow,
    Look,
}

impl Relay {
    async fn run(mut self, committed: Arc<Notify>) {
        let mut look_at = Instant::now();
        let mut send_at: Option<Instant> = None;
        loop {
            let woken = tokio::select! {
                () = committed.notified(), if send_at.is_none() => Woken::Committed,
                () = sleep_until(send_at.unwrap_or(look_at)), if send_at.is_some() => Woken::SendNow,
                () = sleep_until(look_at) => Woken::Look,
                () = hear(&mut self.listener, &self.nudges) => Woken::Look,
            };
            match woken {
                Woken::Committed => send_at = Some(Instant::now() + GATHER),
                Woken::SendNow => {
                    send_at = None;
                    self.send().await;
                }
                Woken::Look => {
                    self.look().await;
                    look_at = Instant::now() + Duration::from_millis(rand::rng().random_range(IDLE));
                }
            }
        }
    }

    async fn send(&self) {
        // Others look by themselves when this fails.
        if let Err(error) = notify(&self.connections, "").await {
            tracing::debug!(%error, "cannot notify other replicas, they find the change by themselves");
        }
    }

    async fn look(&mut self) {
        let outcome = self.try_look().await;
        match (&outcome, self.reachable) {
            (Err(error), true) => {
                tracing::warn!(%error, "cannot look up the head of the store, trying again")
            }
            (Ok(()), false) => tracing::info!("the store can be reached again"),
            _ => {}
        }
        self.reachable = outcome.is_ok();
    }

    async fn try_look(&mut self) -> sqlx::Result<()> {
        // Heard from before it is looked up, so that nothing falls between the two.
        let mut listener = match self.listener.take() {
            Some(listener) => listener,
            None => unless_silent(PROMPT, |_| self.listen.listen(CHANNEL)).await?,
        };
        let before = *self.head.borrow();
        // On the connection that hears: that it is lost, or silent, would be found out by nothing else.
        let found = unless_silent(SHORT, |_| listener.ask("SELECT revision FROM meta")).await;
        match &found {
            Ok(_) => self.listener = Some(listener),
            Err(_) => nudge::note(&self.nudges, Nudge::ALL),
        }
        let found = found?.unsigned_abs();
        self.head.send_if_modified(|head| {
            // What was known before it was asked can only be missing now if the database lost it.
            let is_lost = found < before && *head == before;
            let moved = found > *head || is_lost;
            if moved {
                *head = found;
            }
            moved
        });
        Ok(())
    }
}

/// Waits for a hint. A connection that is lost may have swallowed some, so it counts as one, and the
/// next lookup makes a new one.
async fn hear(listener: &mut Option<ChannelListener>, nudges: &watch::Sender<Nudges>) {
    let heard = match listener {
        Some(listening) => listening.heard().await,
        None => std::future::pending().await,
    };
    match heard {
        // An empty one is about the head.
        Ok(Some(hint)) if hint.payload().is_empty() => {}
        Ok(Some(hint)) => {
            nudge::note(nudges, Nudge::ALL.into_iter().filter(|nudge| nudge.word() == hint.payload()));
        }
        _ => {
            *listener = None;
            nudge::note(nudges, Nudge::ALL);
        }
    }
}
