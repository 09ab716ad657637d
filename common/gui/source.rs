//! What only global or only a zone can tell the page.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{model::kinds::zone, rest::ZoneStatusSource, store::index::Index};

/// How far both directions of sync with one peer are behind, in changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The zone, or on a zone global.
    pub peer: String,
    /// From global to the zone.
    pub down: u64,
    /// From the zone to global.
    pub up: u64,
}

/// What only global or only a zone can tell the page.
pub trait PageSource: Send + Sync {
    /// Each changes when something changed that is no resource: how far a peer is, whether it is there.
    fn signals(&self) -> Vec<watch::Receiver<()>>;

    /// How far everybody is behind who is followed from here.
    fn lags(&self, index: &Index) -> Vec<Lag>;
}

/// What global can tell.
pub struct ZonesSeen(pub Arc<dyn ZoneStatusSource>);

impl PageSource for ZonesSeen {
    fn signals(&self) -> Vec<watch::Receiver<()>> {
        vec![self.0.progressed()]
    }

    fn lags(&self, index: &Index) -> Vec<Lag> {
        let zones = index.list(&zone::KIND).map(|zone| {
            let status = self.0.zone_progress(zone.name());
            Lag { peer: zone.name().to_owned(), down: status.down.lag, up: status.up.lag }
        });
        zones.collect()
    }
}
