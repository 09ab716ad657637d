//! What an operator may ask about a zone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use common::{
    issuing,
    kds::{
        features::Features,
        filter::{Audience, Receiver},
        order,
        shelf::is_enabled,
        watch::Position,
    },
    model::{Origin, kinds},
    rest::{Health, Progress, ZoneStatus, ZoneStatusSource},
    store::{Revision, StoreIdentity, index::Index},
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
        status.dataplanes = self.inner.census.dataplanes(zone, index);
        // What the zone has is compared with what there is now, also while it is away.
        status.down.head = status.down.head.max(index.revision);
        if status.status != Health::Online && status.down.acked > 0 {
            status.down.lag = status.down.lag.max(missed(zone, status.down.acked, index));
        }
        if self.inner.authenticator.is_open() {
            status.notes.push("zones are not authenticated: multizone.global.kds.auth is none".to_owned());
        }
        if status.status == Health::Online && signs_for_meshes(zone, index) {
            let note = "it has no issuing key of its own and got the keys of whole meshes, as Kuma's zones do: stolen, \
                        it could speak for every zone (README, Who may sign)";
            status.notes.push(note.to_owned());
        }
        Some(status)
    }
}

/// Whether the zone was given a key of a mesh in which zones have their own.
fn signs_for_meshes(zone: &str, index: &Index) -> bool {
    let request = issuing::request_secret(zone);
    index.find(&kinds::secret::GLOBAL_SECRET, "", &request).is_none()
        && index.list(&kinds::secret::SECRET).any(|secret| issuing::is_by_zone(secret))
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

/// How many resources a zone that is away has missed: those meant for it that changed since it answered
/// for revision `acked`. What was deleted leaves nothing to count.
fn missed(zone: &str, acked: Revision, index: &Index) -> u64 {
    let features = Features::ours();
    let receiver = Receiver { zone, features: &features, issues: true };
    let is_enabled =
        |owner: &str| index.find(&kinds::zone::KIND, "", owner).is_none_or(|zone| is_enabled(zone));
    let newer = order::requested_by_zone().into_iter().flat_map(|kind| index.list(kind));
    let newer = newer.filter(|resource| resource.revision > acked);
    let meant = |audience: Audience| audience.includes(receiver, is_enabled);
    newer.filter(|resource| Audience::of(resource).into_iter().any(meant)).count() as u64
}

/// The dataplanes of every zone, counted once per index however many zones are asked about.
#[derive(Default)]
pub(crate) struct Census(Mutex<Option<Count>>);

struct Count {
    at: (StoreIdentity, Revision),
    dataplanes: BTreeMap<Arc<str>, u64>,
}

impl Census {
    fn dataplanes(&self, zone: &str, index: &Index) -> u64 {
        let at = (index.store, index.revision);
        // The count is replaced whole, so a panic while holding the lock leaves the last one intact.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match last.take() {
            Some(count) if count.at == at => count,
            _ => Count { at, dataplanes: count(index) },
        };
        let dataplanes = count.dataplanes.get(zone).copied().unwrap_or(0);
        *last = Some(count);
        dataplanes
    }
}

fn count(index: &Index) -> BTreeMap<Arc<str>, u64> {
    let mut counted = BTreeMap::new();
    for dataplane in index.list(&kinds::dataplane::KIND) {
        if let Origin::Zone(owner) = &dataplane.origin {
            *counted.entry(Arc::clone(owner)).or_default() += 1;
        }
    }
    counted
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
