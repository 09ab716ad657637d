//! What an operator may ask about a zone.

use common::{
    kds::watch::Position,
    model::{Origin, kinds},
    rest::{Health, Progress, ZoneStatus, ZoneStatusSource},
    store::index::Index,
};
use tokio::time::Instant;

use super::{Kds, health::judge};

impl ZoneStatusSource for Kds {
    fn zone_status(&self, zone: &str, index: &Index) -> Option<ZoneStatus> {
        let now = Instant::now();
        let patience = self.patience();
        let mut status = match self.inner.sessions.of(zone) {
            Some(session) => {
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
            // Right after a start nobody has had the time to come back.
            None if now - self.inner.started < patience.offline_after => ZoneStatus::default(),
            None => ZoneStatus { status: Health::Offline, ..ZoneStatus::default() },
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

fn progress(position: Position) -> Progress {
    Progress { head: position.head, acked: position.acked, lag: position.lag }
}
