//! What becomes of a session on its way over a relay: on the relay what it has to tell, on global what it is
//! told.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    events::StreamKind,
    kds::{metadata::Peer, proxies::ProxyProgress, watch::Position},
    xds::Name,
};

use super::session::Session;

/// A session below a relay, as the relay sees it at one moment.
pub(crate) struct SeenSession {
    pub(crate) zone: Arc<str>,
    /// As the zone calls it.
    pub(crate) key: String,
    /// Tells two sessions of a zone apart.
    pub(crate) epoch: u64,
    pub(crate) peer: Arc<Peer>,
    pub(crate) down: Position,
    pub(crate) up: Position,
    /// By type and name.
    pub(crate) refusals: BTreeMap<(String, Name), Arc<str>>,
    /// By type.
    pub(crate) withheld: BTreeMap<String, String>,
    /// How far its proxies are, if it tells.
    pub(crate) proxies: Option<ProxyProgress>,
}

impl Session {
    /// Its way up has reached global.
    pub(crate) fn is_passed(&self) {
        self.lock().is_passed = true;
        self.tell_progress();
    }

    /// What there is to tell of it; nothing before global knows it and the zone said who it is.
    pub(crate) fn seen(&self) -> Option<SeenSession> {
        let state = self.lock();
        if !state.is_passed || state.ended.is_some() {
            return None;
        }
        let down = state.refusals.iter().filter(|((stream, _), _)| *stream == StreamKind::GlobalToZone);
        let refusals = down.flat_map(|((_, type_name), refused)| {
            let items = refused.items.iter();
            items.map(|(name, reason)| ((type_name.clone(), Arc::clone(name)), Arc::clone(reason)))
        });
        Some(SeenSession {
            zone: Arc::clone(&self.zone),
            key: self.key().to_owned(),
            epoch: self.epoch(),
            peer: state.peer.clone()?,
            down: state.down,
            up: state.up,
            refusals: refusals.collect(),
            withheld: state.withheld.clone(),
            proxies: state.proxies.clone(),
        })
    }

    /// The relay `relay` carries it from now on.
    pub(crate) fn is_carried_by(&self, relay: &Arc<str>) {
        self.lock().relay = Some(Arc::clone(relay));
    }

    /// Whether the zone calls it so.
    pub(crate) fn is_called(&self, key: &str) -> bool {
        self.key() == key
    }

    /// Nothing is refused or withheld on the way down, as far as is known.
    pub(crate) fn forget_troubles(&self) {
        let mut state = self.lock();
        state.refusals.retain(|(stream, _), _| *stream != StreamKind::GlobalToZone);
        state.withheld.clear();
    }
}
