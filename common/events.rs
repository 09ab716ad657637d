//! The in-process event bus: what happened to zones and their streams.
//!
//! An event wakes and informs; truth lives in the store and in the sessions. A subscriber that falls
//! behind loses the oldest events and is told so by the channel.

use std::sync::Arc;

use tokio::sync::broadcast;

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
    /// A zone is offline: its streams ended or it stopped answering.
    ZoneWentOffline {
        /// Which zone.
        zone: Arc<str>,
        /// Epoch of the session that ended.
        epoch: u64,
    },
    /// A stream was ended from this side: a newer session took over, or the watchdog lost patience.
    StreamCancelled {
        /// Which zone.
        zone: Arc<str>,
        /// Which stream.
        stream: StreamKind,
        /// Epoch of the session the stream belongs to.
        epoch: u64,
    },
}

/// The bus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventBus(broadcast::Sender<Event>);

impl EventBus {
    /// A bus that buffers `capacity` events per subscriber.
    pub fn new(capacity: usize) -> Self {
        Self(broadcast::Sender::new(capacity))
    }

    /// Tells every subscriber. Nobody listening is fine.
    pub fn publish(&self, event: Event) {
        let _no_subscriber = self.0.send(event);
    }

    /// From now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
