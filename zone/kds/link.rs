//! What a zone knows about its link to global, for its status page and for an operator's word.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::{
    kds::{
        clock::ClockSkew,
        features::{DIGESTS, Features},
        headers::Upstream,
        insight::{Outcome, SubscriptionRecord},
        metadata::Peer,
        order,
        signature::TrustedFile,
        watch::{Position, Watch},
    },
    model::{Kind, Origin, Resource, labels},
    offers::{OfferWishes, OffersDoor, RefusedSelection},
    runtime::Env,
    store::{Revision, index::Index},
    xds::Refusals,
};
use serde::Serialize;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::credentials::ShownCredential;

/// How often the way up is reported at most, and where global stands is remembered.
pub(super) const REPORT: Duration = Duration::from_secs(1);

/// The link. Cheap to clone.
#[derive(Clone)]
pub struct Link(Arc<LinkInner>);

struct LinkInner {
    env: Env,
    state: Mutex<LinkState>,
    /// Woken when an operator gave his word.
    approved: Notify,
    /// Woken when the way up has moved.
    moved: Notify,
    /// Woken when something of what came down was taken.
    taken: Notify,
    /// Woken when all of a history that is new here was taken.
    settled: Notify,
    /// Changes with what people see of the link.
    seen: watch::Sender<()>,
    /// Where the way up takes wishes of operators.
    offers: OffersDoor,
}

#[derive(Default)]
struct LinkState {
    status: LinkStatus,
    approved: bool,
    /// Everything of the history global shows was taken.
    settled: bool,
    /// What global can do, as it says.
    features: Features,
    /// The revision of global up to which something was taken on this connection.
    taken: Revision,
    /// The one up to which global said that it knows.
    known: Revision,
    subscription: Option<SubscriptionRecord>,
    /// The keys of which one must have signed what comes down.
    trusted: Option<Arc<TrustedFile>>,
    /// When an operator was last warned that something shown runs out.
    warned: Option<Instant>,
}

/// The link at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkStatus {
    /// Both sync streams run.
    pub connected: bool,
    /// Another replica of the zone follows global; this one takes over when that one is gone.
    pub standby: bool,
    /// Since when it is so.
    pub since: Option<DateTime<Utc>>,
    /// The protocol they speak, unless it is the usual one.
    pub protocol: Option<&'static str>,
    /// Where global stands, when it says so.
    pub upstream: Option<Upstream>,
    /// How far this zone is with what global sends.
    pub down: Position,
    /// How far global is with what this zone sends.
    pub up: Position,
    /// The clock here, compared with that of global, when it tells its time.
    pub clock: Option<ClockSkew>,
    /// What it shows global and workloads, and until when that is good.
    pub credentials: Vec<ShownCredential>,
    /// What of it runs out soon, or did.
    pub warnings: Vec<String>,
    /// Why the last connection ended or failed.
    pub last_error: Option<String>,
    /// What is held back until an operator approves: a foreign store, a mass deletion.
    pub held_back: Option<String>,
    /// What was refused, by type.
    pub refusals: BTreeMap<String, String>,
    /// What cannot be sent to global, by type.
    pub withheld: BTreeMap<String, String>,
    /// What this zone sent on this connection, by type.
    pub sent: BTreeMap<String, ResponseCounts>,
    /// What it was sent.
    pub received: BTreeMap<String, ResponseCounts>,
}

/// Responses of one type in one direction, named as in insights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResponseCounts {
    responses_sent: u64,
    responses_acknowledged: u64,
    responses_rejected: u64,
}

impl ResponseCounts {
    fn count(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Sent => &mut self.responses_sent,
            Outcome::Acknowledged => &mut self.responses_acknowledged,
            Outcome::Rejected => &mut self.responses_rejected,
        } += 1;
    }
}

/// How it stands with signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignatureStatus {
    /// Ids of the keys of which one must have signed what global sends.
    pub trusted: Vec<String>,
    /// What this zone holds of global and none of them signed: it is from before they were asked for, or from when
    /// other keys were.
    pub unsigned: usize,
}

impl Link {
    pub(super) fn new(env: Env) -> Self {
        let (approved, moved, taken, settled) = <(Notify, Notify, Notify, Notify)>::default();
        Self(Arc::new(LinkInner {
            env,
            state: Mutex::default(),
            approved,
            moved,
            taken,
            settled,
            seen: watch::Sender::new(()),
            offers: OffersDoor::default(),
        }))
    }

    /// The link now.
    pub fn status(&self) -> LinkStatus {
        self.lock().status.clone()
    }

    /// Changes whenever the link does, as far as people look at it.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.0.seen.subscribe()
    }

    /// An operator's word: take what global shows, whatever its history and however much it removes. It
    /// holds for the next connection, which is made at once.
    pub fn approve(&self) {
        self.lock().approved = true;
        self.0.approved.notify_one();
    }

    /// Offers again what global refused, as far as it is meant. How many resources that is; `None` where nothing goes up.
    pub async fn offer_again(&self, meant: RefusedSelection) -> Option<usize> {
        self.0.offers.ask(meant).await
    }

    /// The way up takes wishes from here on.
    pub(super) fn takes_wishes(&self) -> OfferWishes {
        self.0.offers.open()
    }

    /// Resolves when an operator gave his word.
    pub(super) async fn approval(&self) {
        self.0.approved.notified().await;
    }

    /// Takes the operator's word; it counts once.
    pub(super) fn take_approval(&self) -> bool {
        std::mem::take(&mut self.lock().approved)
    }

    /// Resolves when the way up has moved since the last call.
    pub(super) async fn moved_up(&self) {
        self.0.moved.notified().await;
    }

    /// Resolves when something of what came down was taken since the last call.
    pub(super) async fn took_more(&self) {
        self.0.taken.notified().await;
    }

    /// Whether global has not yet said that it knows of all that was taken.
    pub(super) fn awaits_word(&self) -> bool {
        let state = self.lock();
        state.known < state.taken
    }

    /// Says by which protocol it is, unless by the usual one.
    pub(super) fn speaks(&self, protocol: Option<&'static str>) {
        self.lock().status.protocol = protocol;
    }

    /// A connection stands. `settled`: the history global shows is the one followed so far.
    pub(super) fn connected(&self, upstream: Option<Upstream>, settled: bool) {
        let now = self.0.env.now();
        let mut state = self.change();
        state.settled = settled;
        (state.taken, state.known) = (0, 0);
        let history = |at: Option<Upstream>| at.map(|at| (at.store_id, at.epoch));
        if history(state.status.upstream) != history(upstream) {
            // Revisions of one history say nothing about another.
            state.status.down = Position::default();
        }
        state.status.connected = true;
        state.status.standby = false;
        state.status.since = Some(now);
        state.status.upstream = upstream;
        state.status.clock = state.status.clock.filter(|_| upstream.is_some());
        state.status.last_error = None;
        state.status.held_back = None;
        state.status.refusals.clear();
        state.status.withheld.clear();
        state.status.sent.clear();
        state.status.received.clear();
    }

    /// Takes over whose signatures are asked for.
    pub(super) fn trusts(&self, keys: Option<Arc<TrustedFile>>) {
        self.lock().trusted = keys;
    }

    /// Whose signatures are asked for, and how much in `index` has none of them; `None` where none are.
    pub fn signatures(&self, index: &Index) -> Option<SignatureStatus> {
        let trusted = self.lock().trusted.clone()?.current();
        let kinds = order::served_to_zones().into_iter();
        let of_global = kinds.flat_map(|kind| index.list(kind)).filter(|r| r.origin == Origin::Global);
        let is_signed = |resource: &Resource| {
            let signer = resource.label(labels::SIGNATURE).and_then(|text| text.split_once('.'));
            signer.is_some_and(|(id, _)| trusted.ids().any(|known| known == id))
        };
        let unsigned = of_global.filter(|resource| !is_signed(resource)).count();
        Some(SignatureStatus { trusted: trusted.ids().map(str::to_owned).collect(), unsigned })
    }

    /// Takes over what global says it can do.
    pub(super) fn note_features(&self, features: Features) {
        self.lock().features = features;
    }

    /// Whether global takes a digest of what is held here for a list of it.
    pub(super) fn takes_digests(&self) -> bool {
        self.lock().features.has(DIGESTS)
    }

    /// What is asked of global besides what every global has.
    pub(super) fn asks_besides(&self) -> Vec<&'static Kind> {
        let state = self.lock();
        let has = |kind: &&Kind| kind.known_by.is_some_and(|feature| state.features.has(feature));
        order::requested_among_ours().into_iter().filter(has).collect()
    }

    pub(super) fn disconnected(&self, reason: Option<String>) {
        let now = self.0.env.now();
        let mut state = self.change();
        if std::mem::take(&mut state.status.connected) || state.status.since.is_none() {
            state.status.since = Some(now);
        }
        state.status.standby = false;
        state.status.last_error = reason;
    }

    /// Another replica of the zone follows global.
    pub(super) fn stands_by(&self) {
        let now = self.0.env.now();
        let mut state = self.change();
        if !state.status.standby {
            // An approval was meant for what this replica held back.
            state.approved = false;
            state.status = LinkStatus { standby: true, since: Some(now), ..LinkStatus::default() };
        }
    }

    pub(super) fn held_back(&self, what: String) {
        self.change().status.held_back = Some(what);
    }

    /// Takes over where global stands in the history this connection follows. Whether it is another one: that is judged
    /// when the zone connects again, and nothing of it counts before.
    pub(super) fn saw(&self, upstream: Upstream) -> bool {
        let mut state = self.lock();
        let known = state.status.upstream;
        if known.is_some_and(|known| (known.store_id, known.epoch) != (upstream.store_id, upstream.epoch)) {
            return true;
        }
        let newest = known.filter(|seen| seen.revision > upstream.revision);
        state.status.upstream = Some(newest.unwrap_or(upstream));
        false
    }

    /// Everything of the history global shows was taken.
    pub(super) fn settled(&self) {
        if !std::mem::replace(&mut self.lock().settled, true) {
            self.0.settled.notify_one();
        }
    }

    /// Resolves when all of a history that is new here was taken.
    pub(super) async fn settlement(&self) {
        self.0.settled.notified().await;
    }

    /// How far global's history was followed; `None` while some of it waits to be taken.
    pub(super) fn followed(&self) -> Option<Upstream> {
        let state = self.lock();
        state.status.upstream.filter(|_| state.settled)
    }

    /// How far global's history was taken, after `before`; pings tell of more than that.
    pub(super) fn taken_after(&self, before: Option<Upstream>) -> Option<Upstream> {
        let state = self.lock();
        let acked = state.status.down.acked;
        let now =
            state.status.upstream.filter(|_| state.settled).map(|at| Upstream { revision: acked, ..at });
        let goes_on = |now: &Upstream| {
            before.filter(|before| (before.store_id, before.epoch) == (now.store_id, now.epoch))
        };
        match now {
            // Nothing was said yet in this session, and it is no less than before.
            Some(now) => Some(goes_on(&now).filter(|before| before.revision > now.revision).unwrap_or(now)),
            None => before,
        }
    }

    /// Takes over how far global says this zone is.
    pub(super) fn is_down_at(&self, position: Position) {
        let mut state = self.change();
        state.status.down = position;
        state.known = position.acked;
    }

    /// What the clock here shows.
    pub(super) fn time(&self) -> DateTime<Utc> {
        self.0.env.now()
    }

    /// Takes over how far the clock here is from that of global.
    pub(super) fn is_ahead(&self, clock: ClockSkew) {
        self.lock().status.clock = Some(clock);
    }

    /// Takes over what is shown, and what of it runs out.
    pub(super) fn shows(&self, credentials: Vec<ShownCredential>, warnings: &[String]) {
        let status = &mut self.change().status;
        (status.credentials, status.warnings) = (credentials, warnings.to_vec());
    }

    /// Whether an operator is to be warned now, who is every so often.
    pub(super) fn warns(&self, every: Duration) -> bool {
        let (now, warned) = (Instant::now(), &mut self.lock().warned);
        let is_due = warned.is_none_or(|before| now - before >= every);
        if is_due {
            *warned = Some(now);
        }
        is_due
    }

    /// Begins to keep the mirrored subscription of a session.
    pub(super) fn subscribe(&self, subscription: SubscriptionRecord) {
        self.lock().subscription = Some(subscription);
    }

    /// The mirrored subscription as it stands.
    pub(super) fn subscription(&self) -> Option<SubscriptionRecord> {
        self.lock().subscription.clone()
    }

    /// The state, to be changed so that people should look again. They wait until it is done.
    fn change(&self) -> MutexGuard<'_, LinkState> {
        let state = self.lock();
        self.0.seen.send_replace(());
        state
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way down, as its stream sees it.
pub(super) struct Down(pub(super) Link);

/// The way up, as its stream sees it.
pub(super) struct Up(pub(super) Link);

impl Watch for Down {
    fn introduced(&self, _peer: &Peer) {}

    fn heard(&self) {}

    fn counted(&self, type_name: &str, outcome: Outcome) {
        self.0.lock().status.received.entry(type_name.to_owned()).or_default().count(outcome);
    }

    fn reached(&self, position: Position) {
        let mut state = self.0.change();
        state.status.down.head = state.status.down.head.max(position.head);
        state.status.down.acked = state.status.down.acked.max(position.acked);
        if state.taken < position.head {
            state.taken = position.head;
            self.0.0.taken.notify_one();
        }
    }

    fn refused(&self, type_name: &str, refusals: &Refusals) {
        let mut state = self.0.change();
        match refusals.text(type_name) {
            Some(reason) => drop(state.status.refusals.insert(type_name.to_owned(), reason)),
            None => drop(state.status.refusals.remove(type_name)),
        }
    }

    fn withheld(&self, _type_name: &str, _reason: Option<String>) {}
}

impl Watch for Up {
    fn introduced(&self, peer: &Peer) {
        if let Some(subscription) = &mut self.0.lock().subscription {
            subscription.introduce(peer, env!("CARGO_PKG_VERSION"));
        }
    }

    fn heard(&self) {}

    fn counted(&self, type_name: &str, outcome: Outcome) {
        let now = self.0.0.env.now();
        let mut state = self.0.lock();
        state.status.sent.entry(type_name.to_owned()).or_default().count(outcome);
        if let Some(subscription) = &mut state.subscription {
            subscription.count(type_name, outcome, now);
        }
    }

    fn reached(&self, position: Position) {
        let mut state = self.0.change();
        if std::mem::replace(&mut state.status.up, position) != position {
            self.0.0.moved.notify_one();
        }
    }

    fn refused(&self, type_name: &str, refusals: &Refusals) {
        let mut state = self.0.change();
        let key = format!("{type_name} at global");
        match refusals.text(type_name) {
            Some(reason) => drop(state.status.refusals.insert(key, reason)),
            None => drop(state.status.refusals.remove(&key)),
        }
    }

    fn withheld(&self, type_name: &str, reason: Option<String>) {
        let mut state = self.0.change();
        match reason {
            Some(reason) => drop(state.status.withheld.insert(type_name.to_owned(), reason)),
            None => drop(state.status.withheld.remove(type_name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use common::runtime::{Entropy, SystemClock};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_was_taken_of_a_history_never_becomes_less() {
        let clock = Arc::new(SystemClock);
        let env = Env { clock, entropy: Entropy::seeded(1), instance_id: "i".into() };
        let link = Link::new(env);
        let at = |store: u128, epoch, revision| {
            Some(Upstream { store_id: Uuid::from_u128(store), epoch, revision })
        };
        link.connected(at(1, 1, 90), true);
        let down = |acked| Position { head: 90, acked, lag: 0 };
        link.is_down_at(down(40));
        assert_eq!(link.taken_after(None), at(1, 1, 40), "a ping tells of more than was taken");
        assert_eq!(link.taken_after(at(1, 1, 70)), at(1, 1, 70), "nothing was said in this session yet");
        assert_eq!(link.taken_after(at(2, 1, 70)), at(1, 1, 40), "that was another history");
        link.connected(at(1, 2, 5), false);
        assert_eq!(link.taken_after(at(1, 1, 70)), at(1, 1, 70), "of the new one nothing was taken");
        assert_eq!(link.status().down, Position::default());
    }
}
