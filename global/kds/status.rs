//! What an operator may ask about a zone.

use std::sync::Arc;

use common::{
    kds::watch::Position,
    model::{Origin, kinds},
    rest::{Health, Progress, ZoneStatus, ZoneStatusSource},
    store::index::Index,
};
use tokio::time::Instant;

use super::{
    Kds,
    health::{Patience, judge},
    session::Session,
};

impl ZoneStatusSource for Kds {
    fn zone_status(&self, zone: &str, index: &Index) -> Option<ZoneStatus> {
        let now = Instant::now();
        let here = self.inner.sessions.of(zone);
        let elsewhere = self.inner.replicas.epoch(zone);
        let is_newest = |session: &Arc<Session>| elsewhere.is_none_or(|epoch| session.epoch() >= epoch);
        let mut status = match here.filter(is_newest) {
            Some(session) => of_session(&session, now, self.patience()),
            None => self.of_others(zone, now),
        };
        let owned = index.list(&kinds::dataplane::KIND);
        let owned = owned.filter(|d| matches!(&d.origin, Origin::Zone(owner) if **owner == *zone));
        status.dataplanes = owned.count() as u64;
        // What the zone has is compared with what there is now, also while it is away.
        status.down.head = status.down.head.max(index.revision);
        if self.inner.authenticator.is_open() {
            status.notes.push("zones are not authenticated: multizone.global.kds.auth is none".to_owned());
        }
        Some(status)
    }
}

impl Kds {
    /// The state of a zone that has no session here.
    fn of_others(&self, zone: &str, now: Instant) -> ZoneStatus {
        let patience = self.patience();
        if let Some(status) = self.inner.replicas.status(zone, now, patience) {
            return status;
        }
        // Right after a start nobody has had the time to come back.
        let is_early = now - self.inner.started < patience.offline_after;
        ZoneStatus {
            status: if is_early { Health::Unknown } else { Health::Offline },
            ..ZoneStatus::default()
        }
    }
}

/// The state of a zone by its session here.
pub(super) fn of_session(session: &Session, now: Instant, patience: Patience) -> ZoneStatus {
    let facts = session.facts();
    let (health, since) = judge(now, &facts, patience);
    ZoneStatus {
        status: health,
        since: Some(since),
        version: facts.version,
        down: progress(facts.down),
        up: progress(facts.up),
        notes: facts.notes,
        ..ZoneStatus::default()
    }
}

fn progress(position: Position) -> Progress {
    Progress { head: position.head, acked: position.acked, lag: position.lag }
}
