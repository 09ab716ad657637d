//! The in-process event bus: what happened to zones, their streams, and resources.
//!
//! An event wakes and informs; truth lives in the index and in the sessions. So nobody waits for a slow
//! subscriber: one that falls behind loses the oldest events, is told so, and looks at the truth instead.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

use crate::{
    metering,
    model::{ResourceKey, Revision},
};

/// Changes told with one event; more of them make more events.
const CHANGES: usize = 64;

/// Which stream of a zone session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// Policies on their way down.
    GlobalToZone,
    /// What the zone owns on its way up.
    ZoneToGlobal,
    /// Reverse calls: configuration dump.
    ConfigDump,
    /// Reverse calls: stats.
    Stats,
    /// Reverse calls: clusters.
    Clusters,
    /// Reverse calls: what the zone holds.
    Holdings,
}

impl StreamKind {
    /// Whether global asks and the zone answers, beside the sync.
    pub fn is_reverse(self) -> bool {
        match self {
            Self::GlobalToZone | Self::ZoneToGlobal => false,
            Self::ConfigDump | Self::Stats | Self::Clusters | Self::Holdings => true,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A zone opened a stream.
    ZoneOpenedStream {
        /// Which zone.
        zone: Arc<str>,
        /// Which stream.
        stream: StreamKind,
        /// Epoch of its session.
        epoch: u64,
    },
    /// A zone said who it is: instance, version, configuration.
    ZoneIntroduced {
        /// Which zone.
        zone: Arc<str>,
        /// Epoch of its session.
        epoch: u64,
    },
    /// A stream was ended from this side: a newer session took over, or the zone fell silent, was deleted
    /// or lost its credential.
    StreamCancelled {
        /// Which zone.
        zone: Arc<str>,
        /// Which stream.
        stream: StreamKind,
        /// Epoch of the session the stream belongs to.
        epoch: u64,
    },
    /// A session ended, for whatever reason; its zone may come back at once.
    SessionEnded {
        /// Which zone.
        zone: Arc<str>,
        /// Epoch of the session.
        epoch: u64,
    },
    /// A zone is offline: it said goodbye, stopped answering, was sent away, or did not come back.
    ZoneWentOffline {
        /// Which zone.
        zone: Arc<str>,
        /// Epoch of its last session.
        epoch: u64,
    },
    /// The index moved on by these changes, in commit order; it shows them already.
    ResourcesChanged(Arc<[ResourceChange]>),
    /// The index was taken anew: anything may have changed.
    IndexReplaced {
        /// Revision it is at.
        revision: Revision,
    },
}

impl Event {
    /// What counters call it.
    fn name(&self) -> &'static str {
        match self {
            Self::ZoneOpenedStream { .. } => "opened_stream",
            Self::ZoneIntroduced { .. } => "introduced",
            Self::StreamCancelled { .. } => "stream_cancelled",
            Self::SessionEnded { .. } => "session_ended",
            Self::ZoneWentOffline { .. } => "went_offline",
            Self::ResourcesChanged(_) => "resources_changed",
            Self::IndexReplaced { .. } => "index_replaced",
        }
    }

    /// The zone it happened to.
    pub fn zone(&self) -> Option<&Arc<str>> {
        match self {
            Self::ZoneOpenedStream { zone, .. }
            | Self::ZoneIntroduced { zone, .. }
            | Self::StreamCancelled { zone, .. }
            | Self::SessionEnded { zone, .. }
            | Self::ZoneWentOffline { zone, .. } => Some(zone),
            Self::ResourcesChanged(_) | Self::IndexReplaced { .. } => None,
        }
    }
}

/// That a resource changed, and when; what it is now, the index says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    /// Revision of the change.
    pub revision: Revision,
    /// Which resource.
    pub key: ResourceKey,
    /// Whether it is gone.
    pub deleted: bool,
}

/// The bus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventBus(broadcast::Sender<Event>);

impl EventBus {
    /// A bus that buffers about `capacity` events for its slowest subscriber.
    pub fn new(capacity: usize) -> Self {
        Self(broadcast::Sender::new(capacity))
    }

    /// Tells every subscriber, and counts what happens to zones. Nobody listening is fine.
    pub fn publish(&self, event: Event) {
        if let Some(zone) = event.zone() {
            let zone = metering::zone(zone);
            metrics::counter!("zone_events_total", "event" => event.name(), "zone_name" => zone).increment(1);
        }
        let _no_subscriber = self.0.send(event);
    }

    /// Tells that the index moved on. Costs nothing while nobody listens.
    pub fn resources_changed(&self, changes: &[ResourceChange]) {
        if self.0.receiver_count() == 0 {
            return;
        }
        for changes in changes.chunks(CHANGES) {
            self.publish(Event::ResourcesChanged(changes.into()));
        }
    }

    /// A subscriber that hears what happens from now on. Its name is for counting.
    pub fn subscribe(&self, name: &'static str) -> Subscriber {
        Subscriber { name, events: self.0.subscribe() }
    }
}

/// Events were lost on the way to a slow subscriber.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{0} events were lost")]
pub struct Lost(pub u64);

/// One end of the bus.
#[derive(Debug)]
pub struct Subscriber {
    name: &'static str,
    events: broadcast::Receiver<Event>,
}

impl Subscriber {
    /// Waits for the next event; for ever when nobody is left to publish one.
    ///
    /// # Errors
    /// [`Lost`] when this subscriber fell behind. It goes on with what is left.
    pub async fn next(&mut self) -> Result<Event, Lost> {
        match self.events.recv().await {
            Ok(event) => Ok(event),
            Err(RecvError::Lagged(events)) => Err(self.lost(events)),
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next event, when it happened already.
    ///
    /// # Errors
    /// As [`Subscriber::next`].
    pub fn waiting(&mut self) -> Option<Result<Event, Lost>> {
        match self.events.try_recv() {
            Ok(event) => Some(Ok(event)),
            Err(TryRecvError::Lagged(events)) => Some(Err(self.lost(events))),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    fn lost(&self, events: u64) -> Lost {
        metrics::counter!("events_dropped", "subscriber" => self.name).increment(events);
        tracing::debug!(subscriber = self.name, events, "fell behind the event bus");
        Lost(events)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;

    use super::*;
    use crate::model::kinds;

    fn offline(epoch: u64) -> Event {
        Event::ZoneWentOffline { zone: "zone-1".into(), epoch }
    }

    fn change(revision: Revision, deleted: bool) -> ResourceChange {
        let key = ResourceKey::global(&kinds::zone::KIND, &format!("zone-{revision}"));
        ResourceChange { revision, key, deleted }
    }

    #[tokio::test]
    async fn every_subscriber_hears_what_happens_from_then_on_in_order() {
        let bus = EventBus::new(4);
        bus.publish(offline(0));
        let (mut first, mut second) = (bus.subscribe("first"), bus.subscribe("second"));
        for epoch in 1..=3 {
            bus.publish(offline(epoch));
        }
        for subscriber in [&mut first, &mut second] {
            for epoch in 1..=3 {
                assert_eq!(subscriber.next().await, Ok(offline(epoch)));
            }
            assert_eq!(subscriber.waiting(), None);
        }
    }

    #[tokio::test]
    async fn a_subscriber_that_falls_behind_is_told_and_goes_on_with_the_newest() {
        let bus = EventBus::new(4);
        let (mut slow, mut quick) = (bus.subscribe("slow"), bus.subscribe("quick"));
        for epoch in 1..=10 {
            bus.publish(offline(epoch));
            assert_eq!(quick.next().await, Ok(offline(epoch)), "it waits for nobody");
        }
        assert_eq!(slow.next().await, Err(Lost(6)));
        for epoch in 7..=10 {
            assert_eq!(slow.waiting(), Some(Ok(offline(epoch))));
        }
    }

    #[tokio::test]
    async fn nobody_needs_to_listen_and_nobody_needs_to_speak() {
        let bus = EventBus::new(1);
        bus.publish(offline(1));
        bus.resources_changed(&[change(1, false)]);
        let mut last = bus.subscribe("last");
        drop(bus);
        assert_eq!(last.next().now_or_never(), None, "it does not spin");
        assert_eq!(last.waiting(), None);
    }

    #[tokio::test]
    async fn changes_are_told_in_parts_of_bounded_size() {
        let bus = EventBus::new(8);
        let mut subscriber = bus.subscribe("test");
        let changes: Vec<ResourceChange> =
            (1..=150).map(|revision| change(revision, revision % 2 == 0)).collect();
        bus.resources_changed(&changes);
        let mut told = Vec::new();
        while let Some(event) = subscriber.waiting() {
            let Ok(Event::ResourcesChanged(part)) = event else { panic!("{event:?}") };
            assert!(part.len() <= CHANGES);
            told.extend(part.iter().cloned());
        }
        assert_eq!(told, changes);
    }
}
