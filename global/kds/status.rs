//! What an operator may ask about a zone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use chrono::{DateTime, SecondsFormat, Utc};
use common::{
    issuing,
    kds::{
        features::{Features, ISSUING},
        filter::{self, Receiver},
        outgoing::{OutgoingResource, exports},
        watch::Position,
    },
    model::{Origin, Resource, kinds, labels},
    rest::{Sending, SyncProgress, ZoneCredential, ZoneHealth, ZoneProof, ZoneStatus, ZoneStatusSource},
    store::{Revision, StoreIdentity, index::Index},
};
use tokio::{sync::watch, time::Instant};

use super::{
    Kds,
    health::{Patience, judge},
    session::Session,
};

impl ZoneStatusSource for Kds {
    fn zone_status(&self, zone: &str, index: &Index) -> Option<ZoneStatus> {
        let mut status = self.zone_progress(zone);
        status.dataplanes = self.inner.dataplane_counts.dataplanes(zone, index);
        // What the zone has is compared with what there is now, also while it is away.
        status.down.head = status.down.head.max(index.revision);
        let holds = self.inner.holds.at(index);
        if status.status != ZoneHealth::Online && status.down.acked > 0 {
            let missed = self.inner.missed.count(zone, status.down.acked, &holds, index);
            status.down.lag = status.down.lag.max(missed);
        }
        // Who was up to date when it went has been behind for as long as it is away, at most.
        if status.down.lag > 0 && status.down.behind_since.is_none() {
            status.down.behind_since = status.since;
        }
        if self.inner.authenticator.is_open() {
            status.notes.push("zones are not authenticated: multizone.global.kds.auth is none".to_owned());
        }
        status.notes.extend(running_out(status.credential.as_ref(), self.inner.env.now()));
        if status.status == ZoneHealth::Online && signs_for_meshes(zone, index) {
            let note = "it has no issuing key of its own and got the keys of whole meshes, as Kuma's zones do: stolen, \
                        it could speak for every zone (README, Who may sign)";
            status.notes.push(note.to_owned());
        }
        let resource = index.find(&kinds::zone::KIND, "", zone);
        if resource.and_then(|zone| zone.label(labels::EXPORTS)) == Some(labels::EXPORTS_WITHDRAWN) {
            let note = "it is lost, and what it exports is withdrawn from the other zones until it is back";
            status.notes.push(note.to_owned());
        }
        status.kept = holds.iter().filter_map(|hold| hold.reason(zone, status.relay.as_deref())).collect();
        let kept = self.inner.kept_exports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = kept.get(zone) {
            let note = "it is lost, and what it exports stays with the other zones: nobody else exports";
            status.notes.push(format!("{note} {service}"));
        }
        drop(kept);
        Some(status)
    }

    fn zone_progress(&self, zone: &str) -> ZoneStatus {
        let now = Instant::now();
        let here = self.inner.sessions.of(zone);
        let elsewhere = self.inner.replicas.epoch(zone);
        let is_newest = |session: &Arc<Session>| elsewhere.is_none_or(|epoch| session.epoch() >= epoch);
        match here.filter(is_newest) {
            Some(session) => of_session(&session, now, self.patience(), self.inner.replicas.shut_until(now)),
            None => self.of_others(zone, now),
        }
    }

    fn has_missed(&self, zone: &str, acked: Revision, revision: Revision, index: &Index) -> bool {
        self.inner.missed.any(zone, (acked, revision), &self.inner.holds.at(index), index)
    }

    fn shows(&self, revision: Revision, index: &Index) -> bool {
        self.inner.missed.shows(revision, index)
    }

    fn sending(&self, zone: &str, resource: &Resource, index: &Index) -> Sending {
        let session = self.inner.sessions.of(zone);
        let features = session.as_ref().map_or_else(Features::ours, |session| session.receiver_features());
        let request = issuing::request_secret(zone);
        let issues =
            features.has(ISSUING) || index.find(&kinds::secret::GLOBAL_SECRET, "", &request).is_some();
        let receiver = Receiver { zone, features: &features, issues };
        let is_enabled = |owner: &str| is_zone_enabled(owner, index);
        if let Some(reason) = filter::why_not_sent(resource, receiver, is_enabled) {
            return Sending::NotMeant(reason);
        }
        if let Some(running) = &self.inner.running
            && !running.of(zone, &self.inner.index.current()).need(resource)
        {
            return Sending::NotMeant(
                "no proxy of its mesh is in the zone (multizone.global.kds.secretsTo is running)".to_owned(),
            );
        }
        let holds = self.inner.holds.at(index);
        let relay = session.as_ref().and_then(|session| session.facts().relay);
        let kept = holds.iter().filter(|hold| hold.is_of(&resource.key));
        if let Some(reason) = kept.filter_map(|hold| hold.reason(zone, relay.as_deref())).next() {
            return Sending::Kept(reason);
        }
        let shared = self.inner.outgoing_for(&features);
        let outgoing = shared.at(&self.inner.index.current());
        let mut withheld = outgoing.withheld_of(&resource.key);
        if let Some(withheld) = withheld.find(|withheld| withheld.audience.includes(receiver, is_enabled)) {
            return Sending::Withheld(withheld.reason.clone());
        }
        let mut meant = outgoing
            .of_resource(resource, shared.form())
            .filter(|item| item.audience.includes(receiver, is_enabled));
        let hidden = |item: &Arc<OutgoingResource>| {
            outgoing.hidden(item, |audience| audience.includes(receiver, is_enabled))
        };
        if let Some(reason) = meant.find_map(hidden) {
            return Sending::Withheld(reason);
        }
        let kind = resource.kind().name;
        let mut forms = outgoing.of_resource(resource, shared.form());
        let refusal = forms.find_map(|item| session.as_ref()?.refusal(kind, &item.wanted.name));
        refusal.map_or(Sending::Sent, |reason| Sending::Refused(reason.to_string()))
    }

    fn progressed(&self) -> watch::Receiver<()> {
        self.inner.progress.subscribe()
    }
}

/// That what the zone proves itself by runs out, when it is time to say so.
fn running_out(credential: Option<&ZoneCredential>, now: DateTime<Utc>) -> Option<String> {
    let credential =
        credential.filter(|credential| credential.warns_from().is_some_and(|from| from <= now))?;
    let until = credential.until?.to_rfc3339_opts(SecondsFormat::Secs, true);
    let (what, remedy) = match credential.kind {
        ZoneProof::Token => {
            ("zone token", "put a new one where multizone.zone.kds.tokenFile of the zone says")
        }
        ZoneProof::Certificate => {
            ("certificate", "put a new one where multizone.zone.kds.clientCertFile of the zone says")
        }
    };
    Some(format!("the {what} it proves itself by runs out at {until}: {remedy}"))
}

/// Whether the zone was given a key of a mesh in which zones have their own.
fn signs_for_meshes(zone: &str, index: &Index) -> bool {
    let request = issuing::request_secret(zone);
    index.find(&kinds::secret::GLOBAL_SECRET, "", &request).is_none()
        && index
            .list(&kinds::secret::SECRET)
            .any(|secret| issuing::is_by_zone(secret) && !issuing::is_by_zone_only(secret))
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
            status: if is_early { ZoneHealth::Unknown } else { ZoneHealth::Offline },
            ..ZoneStatus::default()
        }
    }
}

/// Whether what zone `name` shares may be used by others; one that nobody knows counts as enabled.
pub(super) fn is_zone_enabled(name: &str, index: &Index) -> bool {
    index.find(&kinds::zone::KIND, "", name).is_none_or(|zone| exports(zone))
}

/// The dataplanes of every zone, counted once per index however many zones are asked about.
#[derive(Default)]
pub(crate) struct DataplaneCounts(Mutex<Option<CountedDataplanes>>);

struct CountedDataplanes {
    at: (StoreIdentity, Revision),
    dataplanes: BTreeMap<Arc<str>, u64>,
}

impl DataplaneCounts {
    fn dataplanes(&self, zone: &str, index: &Index) -> u64 {
        let at = (index.store, index.revision);
        // The count is replaced whole, so a panic while holding the lock leaves the last one intact.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match last.take() {
            Some(count) if count.at == at => count,
            _ => CountedDataplanes { at, dataplanes: count(index) },
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
pub(super) fn of_session(
    session: &Session,
    now: Instant,
    patience: Patience,
    shut_until: Option<Instant>,
) -> ZoneStatus {
    let mut facts = session.facts();
    // Who goes on elsewhere or comes back in a moment has that moment once there is a door to come through.
    if let (Some(end), Some(until)) = (facts.ended.as_mut(), shut_until)
        && end.cause.leaves_zone_there()
    {
        end.at = end.at.max(until);
    }
    let (health, since) = judge(now, &facts, patience);
    ZoneStatus {
        status: health,
        since: Some(since),
        version: facts.version,
        protocol: facts.protocol.map(str::to_owned),
        credential: session.credential().cloned(),
        down: progress(facts.down, facts.down_since),
        up: progress(facts.up, facts.up_since),
        proxies: facts.proxies,
        clock: facts.clock,
        held_back: facts.held_back,
        refused: facts.refused,
        notes: facts.notes,
        relay: facts.relay.map(|relay| relay.to_string()),
        ..ZoneStatus::default()
    }
}

fn progress(position: Position, behind_since: Option<DateTime<Utc>>) -> SyncProgress {
    SyncProgress { head: position.head, acked: position.acked, lag: position.lag, behind_since }
}
