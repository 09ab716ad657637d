//! The session of a zone: both of its sync streams and those of reverse calls, under one epoch.
//!
//! If one half of the sync ends, the session ends; streams of reverse calls come and go. A newer session of the same zone takes the next epoch of the lease
//! `kds/<zone>`; whatever the older one still tries to write is refused inside the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::{
    events::{Event, EventBus, StreamKind},
    kds::{
        clock::ClockSkew,
        features::{Features, ZONE_PING_HEALTH},
        follow::BatchReport,
        headers::KdsCaller,
        insight::{Outcome, SubscriptionRecord},
        metadata::Peer,
        multiplex,
        proxies::ProxyProgress,
        watch::{Position, Watch},
    },
    offers::OffersDoor,
    rest::{RefusedType, RefusingSide, ZoneCredential},
    runtime::{Env, http::PeerCertificate},
    store::Fence,
    xds::{Name, Refusals},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    auth::{ShownCredentials, ZoneCaller},
    claims::ForeignClaims,
    door::HoldingsDoor,
    ending::{End, EndCause},
    questions::{FormerSender, QuestionSender},
};

/// Clocks that differ by more are noted: tokens and certificates are valid from a few seconds before they are made.
const TOLERATED_SKEW: Duration = Duration::from_secs(4);

/// What a zone says with a ping, as far as it says anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tidings {
    /// How far its way up is.
    pub(crate) up: Option<Position>,
    /// How far its proxies are.
    pub(crate) proxies: Option<ProxyProgress>,
    /// How far its clock is from that of global.
    pub(crate) clock: Option<ClockSkew>,
}

/// How often somebody is warned that a credential runs out.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// A zone's session on this instance.
pub(crate) struct Session {
    /// Name from the authenticated caller.
    pub(crate) zone: Arc<str>,
    /// Refuses writes of an older session.
    pub(crate) fence: Fence,
    /// Ends every stream of the session.
    pub(crate) stop: CancellationToken,
    /// When its zone was made here. One that was deleted and made again is another zone.
    pub(crate) made: DateTime<Utc>,
    /// Whether this is a relay, which has to tell global about it.
    is_relayed: bool,
    /// Where its zone is asked for what it holds.
    pub(crate) holdings: HoldingsDoor,
    /// Where its way down takes wishes of operators.
    pub(super) offers: OffersDoor,
    /// Sent by zones that tie their streams together themselves.
    key: Option<String>,
    /// What its calls are let in with.
    token: Option<String>,
    /// What its connection showed.
    certificate: Option<Arc<PeerCertificate>>,
    /// What of these proved who it is.
    credential: Option<ZoneCredential>,
    /// From the headers of its first call.
    features: Features,
    env: Env,
    bus: EventBus,
    progress: watch::Sender<()>,
    state: Mutex<SessionState>,
}

pub(super) struct SessionState {
    streams: BTreeSet<StreamKind>,
    /// Where questions for the streams of reverse calls go in.
    questions: BTreeMap<StreamKind, QuestionSender>,
    opened: DateTime<Utc>,
    /// The relay its zone is below.
    pub(super) relay: Option<Arc<str>>,
    /// On a relay: what the zone said of itself.
    pub(super) peer: Option<Arc<Peer>>,
    /// On a relay: its way up has reached global.
    pub(super) is_passed: bool,
    heard: (Instant, DateTime<Utc>),
    pub(super) ended: Option<End>,
    /// Another replica of the zone takes over.
    handed_over: bool,
    /// When somebody was last warned that its credential runs out.
    warned: Option<Instant>,
    /// Everyone was told that the zone is offline.
    announced: bool,
    /// Both directions go over one stream, as whole states.
    is_multiplexed: bool,
    subscription: SubscriptionRecord,
    /// What it said in the first request of its way down that it can do.
    introduced: Features,
    pub(super) down: Position,
    pub(super) up: Position,
    /// Since when each has been behind.
    down_since: Option<DateTime<Utc>>,
    up_since: Option<DateTime<Utc>>,
    /// How far its proxies are, as it last told.
    pub(super) proxies: Option<ProxyProgress>,
    /// Its clock, as it last measured it.
    clock: Option<ClockSkew>,
    pub(super) refusals: BTreeMap<(StreamKind, String), TypeRefusals>,
    /// What cannot be sent to the zone, by type.
    pub(super) withheld: BTreeMap<String, String>,
    /// Items that claim another zone and were attributed to this one.
    claims: ForeignClaims,
}

/// What is refused of one type in one direction.
pub(super) struct TypeRefusals {
    /// A few of the reasons, for a person.
    text: String,
    /// By name on the wire.
    pub(super) items: BTreeMap<Name, Arc<str>>,
}

/// What others need to know about a session at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) opened: DateTime<Utc>,
    /// The relay its zone is below.
    pub(crate) relay: Option<Arc<str>>,
    pub(crate) heard: (Instant, DateTime<Utc>),
    pub(crate) ended: Option<End>,
    /// Whether silence means something.
    pub(crate) pings: bool,
    pub(crate) version: String,
    /// The protocol it syncs by, unless it is the usual one.
    pub(crate) protocol: Option<&'static str>,
    pub(crate) down: Position,
    pub(crate) up: Position,
    pub(crate) down_since: Option<DateTime<Utc>>,
    pub(crate) up_since: Option<DateTime<Utc>>,
    /// How far its proxies are, if it tells.
    pub(crate) proxies: Option<ProxyProgress>,
    /// Its clock, if it measures.
    pub(crate) clock: Option<ClockSkew>,
    /// Why the zone does not follow this global.
    pub(crate) held_back: Option<String>,
    pub(crate) refused: Vec<RefusedType>,
    pub(crate) notes: Vec<String>,
}

impl Session {
    pub(crate) fn new(
        caller: &ZoneCaller,
        made: DateTime<Utc>,
        fence: Fence,
        env: Env,
        bus: EventBus,
        progress: watch::Sender<()>,
        is_relayed: bool,
    ) -> Self {
        let now = env.now();
        let id = env.entropy.uuid().to_string();
        let subscription = SubscriptionRecord::open(id, &env.instance_id, caller.token.is_some(), now);
        let state = SessionState {
            streams: BTreeSet::new(),
            questions: BTreeMap::new(),
            opened: now,
            relay: None,
            peer: None,
            is_passed: false,
            heard: (Instant::now(), now),
            ended: None,
            handed_over: false,
            warned: None,
            announced: false,
            is_multiplexed: false,
            subscription,
            introduced: Features::default(),
            down: Position::default(),
            up: Position::default(),
            down_since: None,
            up_since: None,
            proxies: None,
            clock: None,
            refusals: BTreeMap::new(),
            withheld: BTreeMap::new(),
            claims: ForeignClaims::default(),
        };
        Self {
            zone: caller.zone.as_str().into(),
            fence,
            stop: CancellationToken::new(),
            made,
            is_relayed,
            holdings: HoldingsDoor::default(),
            offers: OffersDoor::default(),
            key: caller.session.clone(),
            token: caller.token.clone(),
            certificate: caller.certificate.clone(),
            credential: caller.credential.clone(),
            features: caller.features.clone(),
            env,
            bus,
            progress,
            state: Mutex::new(state),
        }
    }

    /// What the zone calls it; nothing when it calls it nothing.
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// Something is known anew of the zone.
    pub(super) fn tell_progress(&self) {
        self.progress.send_replace(());
    }

    /// Epoch of the session.
    pub(crate) fn epoch(&self) -> u64 {
        self.fence.epoch
    }

    /// What the zone announced in its headers.
    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    /// What it can do with what global sends, as far as it has said by now.
    pub(crate) fn receiver_features(&self) -> Features {
        let mut features = self.lock().introduced.clone();
        features.extend(&self.features);
        features
    }

    /// What its streams were opened with.
    pub(crate) fn shown(&self) -> ShownCredentials<'_> {
        ShownCredentials { token: self.token.as_deref(), certificate: self.certificate.as_deref() }
    }

    /// What of that proved who it is, and until when that does.
    pub(crate) fn credential(&self) -> Option<&ZoneCredential> {
        self.credential.as_ref()
    }

    /// Whether somebody is to be warned now that the credential runs out; asked as often as anybody looks.
    pub(crate) fn warns(&self, now: Instant) -> bool {
        let warned = &mut self.lock().warned;
        let is_due = warned.is_none_or(|before| now - before >= WARN_EVERY);
        if is_due {
            *warned = Some(now);
        }
        is_due
    }

    /// Whether a stream of `caller` belongs to this session, which takes it in if so. A stream it already
    /// has means that the zone started over, and so does another credential: a session has one. Only of
    /// reverse calls may a zone that names its session open a stream again.
    pub(crate) fn admit(&self, caller: &ZoneCaller, stream: StreamKind) -> bool {
        let mut state = self.lock();
        state.ended.is_none()
            && !self.stop.is_cancelled()
            && self.key == caller.session
            && self.token == caller.token
            && self.certificate == caller.certificate
            && (state.streams.insert(stream) || (stream.is_reverse() && self.key.is_some()))
    }

    /// A stream of reverse calls takes what is sent to `questions`; so does an older one of its kind no more.
    pub(crate) fn connect(&self, stream: StreamKind, questions: QuestionSender) {
        let mut state = self.lock();
        state.questions.insert(stream, questions);
        // The insight names it.
        state.subscription.rewrite();
    }

    /// The stream that took what was sent to `questions` ended.
    pub(crate) fn disconnect(&self, stream: StreamKind, questions: &FormerSender) {
        let Some(questions) = questions.upgrade() else { return };
        let mut state = self.lock();
        if state.questions.get(&stream).is_some_and(|current| current.same_channel(&questions)) {
            state.questions.remove(&stream);
            state.streams.remove(&stream);
        }
    }

    /// Where questions for a stream of reverse calls go in, when it is open.
    pub(crate) fn questions(&self, stream: StreamKind) -> Option<QuestionSender> {
        self.lock().questions.get(&stream).cloned()
    }

    /// The streams it has taken in.
    pub(crate) fn streams(&self) -> Vec<StreamKind> {
        self.lock().streams.iter().copied().collect()
    }

    /// Its zone syncs by KDS v1.
    pub(super) fn is_multiplexed(&self) {
        self.lock().is_multiplexed = true;
    }

    /// Notes that something arrived from the zone.
    pub(crate) fn hear(&self) {
        self.lock().heard = (Instant::now(), self.env.now());
    }

    /// The replica of the zone that opened the session says that another one takes over.
    pub(crate) fn hands_over(&self, caller: &KdsCaller) {
        if self.key == caller.session {
            self.lock().handed_over = true;
        }
    }

    /// Whether it said so.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.lock().handed_over
    }

    /// Ends the session; true for the caller that was first.
    pub(crate) fn end(&self, cause: EndCause) -> bool {
        let mut state = self.lock();
        let first = state.ended.is_none();
        if first {
            let now = self.env.now();
            let cause = match cause {
                EndCause::Goodbye | EndCause::Broken(_) if state.handed_over => EndCause::HandedOver,
                cause => cause,
            };
            // Who fell silent was gone before anyone noticed.
            let since = if matches!(cause, EndCause::Silent(_)) { state.heard.1 } else { now };
            state.ended = Some(End { at: Instant::now(), since, cause });
            state.subscription.close(now);
        }
        drop(state);
        self.stop.cancel();
        first
    }

    /// Why it ended, if it did.
    pub(crate) fn cause(&self) -> Option<EndCause> {
        self.lock().ended.as_ref().map(|end| end.cause.clone())
    }

    /// Whether everyone is yet to be told that the zone is offline; asked once.
    pub(crate) fn announce(&self) -> bool {
        !std::mem::replace(&mut self.lock().announced, true)
    }

    /// Takes over a ping of the zone with what it says; what global knows about its way down, or `None` when the ping
    /// belongs to another session.
    pub(crate) fn ping(&self, caller: &KdsCaller, tidings: Tidings) -> Option<Position> {
        if self.key != caller.session {
            return None;
        }
        self.hear();
        let Tidings { up, proxies, clock } = tidings;
        if let Some(up) = up {
            self.is_up_at(up);
        }
        let mut state = self.lock();
        if let Some(clock) = clock {
            state.clock = Some(clock);
        }
        let down = state.down;
        drop(state);
        if let Some(proxies) = proxies {
            self.has_proxies_at(proxies);
        }
        Some(down)
    }

    /// Takes over how far the zone says that global is with its way up.
    pub(super) fn is_up_at(&self, up: Position) {
        let mut state = self.lock();
        state.up_since = behind_since(up, state.up_since, self.env.now());
        let before = std::mem::replace(&mut state.up, up);
        drop(state);
        if before != up {
            self.tell_progress();
        }
    }

    /// Takes over how far the zone says that its proxies are.
    pub(super) fn has_proxies_at(&self, told: ProxyProgress) {
        let mut state = self.lock();
        let is_known = state.proxies.as_ref() == Some(&told);
        state.proxies = Some(told);
        drop(state);
        if !is_known {
            self.tell_progress();
        }
    }

    /// Notes items that claim another zone and were attributed to this one; the newest of them.
    pub(super) fn attributed(&self, report: &BatchReport<'_>) -> Option<String> {
        self.lock().claims.take(report).map(str::to_owned)
    }

    /// The insight entry when it must be written. It counts as written from now on, in the same breath:
    /// what happens while it is being written is for the next time.
    pub(crate) fn take_unwritten(&self) -> Option<(SubscriptionRecord, Facts)> {
        let mut state = self.lock();
        let entry = state.subscription.take_unwritten()?;
        Some((entry, self.facts_of(&state)))
    }

    /// The entry could not be written.
    pub(crate) fn rewrite(&self) {
        self.lock().subscription.rewrite();
    }

    /// Why the zone does not take what is called `name` on the wire, if it refused that.
    pub(crate) fn refusal(&self, type_name: &str, name: &str) -> Option<Arc<str>> {
        let of_type = (StreamKind::GlobalToZone, type_name.to_owned());
        self.lock().refusals.get(&of_type)?.items.get(name).cloned()
    }

    /// What others need to know.
    pub(crate) fn facts(&self) -> Facts {
        self.facts_of(&self.lock())
    }

    fn facts_of(&self, state: &SessionState) -> Facts {
        let refused: Vec<RefusedType> = state
            .refusals
            .iter()
            .map(|((stream, type_name), refused)| RefusedType {
                by: match stream {
                    StreamKind::GlobalToZone => RefusingSide::Zone,
                    _ => RefusingSide::Global,
                },
                r#type: type_name.clone(),
                reason: refused.text.clone(),
            })
            .collect();
        let refusals: Vec<String> = refused.iter().map(note).collect();
        let withheld = state.withheld.iter().map(|(type_name, reason)| {
            format!("the zone does not get some {type_name}, which cannot be sent: {reason}")
        });
        let clock = state.clock.filter(|clock| clock.exceeds(TOLERATED_SKEW)).map(|clock| {
            let (seconds, way) = (clock.seconds().abs(), if clock.ahead_ms > 0 { "ahead of" } else { "behind" });
            format!(
                "its clock is {seconds:.1} s {way} that of global: tokens and certificates may count as not valid yet, \
                 or not any more; keep both by NTP"
            )
        });
        Facts {
            opened: state.opened,
            relay: state.relay.clone(),
            heard: state.heard,
            ended: state.ended.clone(),
            pings: self.features.has(ZONE_PING_HEALTH),
            version: state.subscription.peer_version().to_owned(),
            protocol: state.is_multiplexed.then_some(multiplex::PROTOCOL),
            down: state.down,
            up: state.up,
            down_since: state.down_since,
            up_since: state.up_since,
            proxies: state.proxies.clone().map(|told| capped(told, state.down)),
            clock: state.clock,
            held_back: self.holdings.held_back(),
            refused,
            notes: refusals
                .into_iter()
                .chain(withheld)
                .chain(state.claims.note(&self.zone))
                .chain(clock)
                .collect(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SessionState> {
        // Every change of the state is one assignment, so a panic elsewhere cannot tear it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when a direction has been behind that is at `position` now.
fn behind_since(
    position: Position,
    before: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    (position.acked < position.head).then(|| before.unwrap_or(now))
}

/// Proxies cannot be further than their zone.
fn capped(told: ProxyProgress, down: Position) -> ProxyProgress {
    ProxyProgress { acked: told.acked.min(down.acked), ..told }
}

/// What was refused, and what to do. It stays as it was at the receiver.
fn note(refused: &RefusedType) -> String {
    let RefusedType { by, r#type: type_name, reason } = refused;
    let (receiver, sender) = match by {
        RefusingSide::Zone => ("the zone", "on global"),
        RefusingSide::Global => ("global", "in the zone"),
    };
    format!("{receiver} refused {type_name} and keeps what it had; correct it {sender}: {reason}")
}

/// One sync stream of a session, as the task of the stream sees it.
pub(crate) struct SyncStream {
    pub(crate) session: Arc<Session>,
    pub(crate) stream: StreamKind,
    /// Version of this program.
    pub(crate) version: String,
}

impl Watch for SyncStream {
    fn introduced(&self, peer: &Peer) {
        let ours = &self.session.env.instance_id;
        tracing::info!(
            zone = &*self.session.zone,
            instance = peer.instance,
            ours = &**ours,
            "zone introduced itself"
        );
        let mut state = self.session.lock();
        state.subscription.introduce(peer, &self.version);
        if self.stream == StreamKind::GlobalToZone {
            state.introduced = peer.features.clone();
            state.peer = self.session.is_relayed.then(|| Arc::new(peer.clone()));
        }
        drop(state);
        let (zone, epoch) = (Arc::clone(&self.session.zone), self.session.epoch());
        self.session.bus.publish(Event::ZoneIntroduced { zone, epoch });
    }

    fn heard(&self) {
        self.session.hear();
    }

    fn counted(&self, type_name: &str, outcome: Outcome) {
        // Insights describe what goes to a zone.
        if self.stream == StreamKind::GlobalToZone {
            self.session.lock().subscription.count(type_name, outcome, self.session.env.now());
        }
    }

    fn reached(&self, position: Position) {
        let mut state = self.session.lock();
        match self.stream {
            StreamKind::GlobalToZone if state.down == position => {}
            StreamKind::GlobalToZone => {
                state.down_since = behind_since(position, state.down_since, self.session.env.now());
                state.down = position;
                drop(state);
                self.session.progress.send_replace(());
            }
            // How far the zone is with all of it, only the zone knows; it tells with its pings.
            _ => state.up.head = state.up.head.max(position.head),
        }
    }

    fn refused(&self, type_name: &str, refusals: &Refusals) {
        let refused =
            refusals.text(type_name).map(|text| TypeRefusals { text, items: refusals.of(type_name) });
        let mut state = self.session.lock();
        let key = (self.stream, type_name.to_owned());
        match refused {
            Some(refused) => drop(state.refusals.insert(key, refused)),
            None => drop(state.refusals.remove(&key)),
        }
    }

    fn withheld(&self, type_name: &str, reason: Option<String>) {
        let withheld = &mut self.session.lock().withheld;
        match reason {
            Some(reason) => drop(withheld.insert(type_name.to_owned(), reason)),
            None => drop(withheld.remove(type_name)),
        }
    }
}
