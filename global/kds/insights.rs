//! Keeps the insights of zones current: at once when a zone comes or goes, counters in intervals.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use common::{
    events::{Event, Lost, Subscriber},
    kds::recorder::{RecordedSession, Recorder},
    store::StoreError,
};
use futures::{StreamExt, stream};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{session::Session, sessions::Sessions};

/// Shortest interval in which counters are written.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// Insights that are written at a time: the store makes one commit of those that wait.
const WRITERS: usize = 32;

/// Between two writes of one insight because a zone came or went: one that does nothing else costs no more.
const APART: Duration = Duration::from_secs(1);

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
        let mut turns = InsightTurns::default();
        loop {
            let next = turns.next();
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
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    Due::These(BTreeSet::new())
                }
            };
            let due = match due {
                Due::These(zones) => Due::These(turns.take(zones, Instant::now())),
                Due::All => Due::All,
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

/// Whose insight was written a moment ago, and whose has to wait for that.
#[derive(Debug, Default)]
struct InsightTurns {
    written: BTreeMap<Arc<str>, Instant>,
    waiting: BTreeSet<Arc<str>>,
}

impl InsightTurns {
    /// Of those that waited and these the ones whose turn it is.
    fn take(&mut self, zones: BTreeSet<Arc<str>>, now: Instant) -> BTreeSet<Arc<str>> {
        self.written.retain(|_, at| now < *at + APART);
        self.waiting.extend(zones);
        let all = std::mem::take(&mut self.waiting);
        let (waiting, due): (_, BTreeSet<_>) =
            all.into_iter().partition(|zone| self.written.contains_key(zone));
        self.waiting = waiting;
        self.written.extend(due.iter().map(|zone| (Arc::clone(zone), now)));
        due
    }

    /// When it is the turn of the next one that waits.
    fn next(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|zone| self.written.get(zone)).min().map(|at| *at + APART)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_comes_and_goes_is_written_once_in_a_while() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let of = |zones: &[&str]| zones.iter().map(|zone| Arc::from(*zone)).collect::<BTreeSet<Arc<str>>>();
        let mut turns = InsightTurns::default();
        assert_eq!(turns.take(of(&["a"]), at(0)), of(&["a"]));
        assert_eq!(turns.next(), None);
        assert_eq!(turns.take(of(&["a", "b"]), at(400)), of(&["b"]), "a was written a moment ago");
        assert_eq!(turns.take(of(&["a"]), at(900)), of(&[]));
        assert_eq!(turns.next(), Some(at(1000)));
        assert_eq!(turns.take(of(&[]), at(1000)), of(&["a"]));
        assert_eq!((turns.next(), turns.take(of(&[]), at(5000))), (None, of(&[])));
    }
}
