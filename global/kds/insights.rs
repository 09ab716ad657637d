//! Keeps the insights of zones current: at once when a zone comes or goes, counters in intervals.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{
    events::{Event, Lost, Subscriber},
    kds::recorder::{RecordedSession, Recorder},
    store::StoreError,
};
use futures::{StreamExt, stream};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{session::Session, sessions::Sessions};

/// Shortest interval in which counters are written.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// Insights that are written at a time: the store makes one commit of those that wait.
const WRITERS: usize = 32;

/// Writes what sessions have seen of their zones.
pub(crate) struct ZoneInsights {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) recorder: Recorder,
    pub(crate) interval: Duration,
}

/// Whose insights to write.
enum Due {
    These(BTreeSet<Arc<str>>),
    All,
}

impl ZoneInsights {
    /// Writes until every stream is `drained`, then what is left.
    pub(crate) async fn run(self, mut events: Subscriber, drained: CancellationToken) {
        let mut tick = interval(self.interval.max(LEAST_INTERVAL));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = tokio::select! {
                () = drained.cancelled() => break,
                heard = events.next() => {
                    // What waits together is written together.
                    let mut due = Due::These(BTreeSet::new());
                    due.note(heard);
                    while let Some(heard) = events.waiting() {
                        due.note(heard);
                    }
                    due
                }
                _ = tick.tick() => Due::All,
            };
            self.write(due).await;
        }
        self.write(Due::All).await;
    }

    async fn write(&self, due: Due) {
        let sessions = match due {
            Due::All => self.sessions.all(),
            Due::These(zones) => zones.iter().filter_map(|zone| self.sessions.of(zone)).collect(),
        };
        let writes = stream::iter(sessions);
        writes.for_each_concurrent(WRITERS, |session| async move { self.write_of(&session).await }).await;
    }

    async fn write_of(&self, session: &Session) {
        let Some((subscription, facts)) = session.take_unwritten() else { return };
        let streams = session.streams();
        let seen = RecordedSession { opened: facts.opened, heard: facts.heard.1, streams };
        let fence = Some(session.fence.clone());
        match self.recorder.record(&session.zone, &subscription, Some(seen), fence).await {
            // The newer session ended this one's subscription already.
            Ok(()) | Err(StoreError::Fenced { .. }) => {}
            Err(error) => {
                session.rewrite();
                tracing::warn!(zone = &*session.zone, %error, "cannot write the zone insight");
            }
        }
    }
}

impl Due {
    fn note(&mut self, heard: Result<Event, Lost>) {
        match (&mut *self, heard) {
            (
                Self::These(zones),
                Ok(Event::ZoneIntroduced { zone, .. } | Event::SessionEnded { zone, .. }),
            ) => {
                zones.insert(zone);
            }
            (_, Err(_lost)) => *self = Self::All,
            (_, Ok(_)) => {}
        }
    }
}
