//! The line to one relay: which sessions it carries, what it says about them, and what their zones are asked.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use common::{
    envoy_admin::{Ask, AskError},
    events::StreamKind,
    kds::{
        carrier::Carrier,
        reverse::{Answer, Call},
        watch::{Position, Watch},
    },
    proto::strait::relay::v1alpha1::{RelayDetails, RelayPosition, RelayQuestion},
    redact,
    xds::{Name, Refusals},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::report::{HeardReport, HeardZone, known};
use crate::kds::{
    ending::EndCause,
    questions::{OWED, Question, QuestionSender},
    session::{Session, SyncStream},
    sessions::Sessions,
};

/// Bytes of the reason a zone gives for having no answer.
const REASON: usize = 4096;

/// A connected relay.
pub(crate) struct RelayLine {
    pub(super) relay: Arc<str>,
    /// As the relay calls this connection.
    session: String,
    pub(super) stop: CancellationToken,
    /// Ends the one who follows.
    following: Mutex<CancellationToken>,
    /// Whose turn it is to follow.
    turn: tokio::sync::Mutex<()>,
    questions: QuestionSender,
    carried: Mutex<BTreeMap<Arc<str>, CarriedSession>>,
}

struct CarriedSession {
    session: Arc<Session>,
    /// The relay has told how far it is; until then what is said of all zones is not said of this one.
    is_told: bool,
}

impl RelayLine {
    pub(super) fn new(carrier: &Carrier, questions: QuestionSender) -> Self {
        Self {
            relay: carrier.relay.as_str().into(),
            session: carrier.session.clone(),
            stop: CancellationToken::new(),
            following: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            questions,
            carried: Mutex::default(),
        }
    }

    pub(super) fn is_of(&self, carrier: &Carrier) -> bool {
        self.session == carrier.session
    }

    /// Somebody follows from now on, until what is returned is cancelled: by the end of the line, or by who comes next.
    pub(super) fn follow(&self) -> CancellationToken {
        let newest = self.stop.child_token();
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *following, newest.clone()).cancel();
        newest
    }

    /// Has `feed` run once the one before is gone, with all that it held.
    pub(super) async fn alone<T>(&self, feed: impl Future<Output = T>) -> T {
        let _turn = self.turn.lock().await;
        feed.await
    }

    /// The relay carries `session` from now on: it is asked what its zone is asked.
    pub(crate) fn carry(&self, session: &Arc<Session>) {
        session.is_carried_by(&self.relay);
        for stream in [StreamKind::ConfigDump, StreamKind::Stats, StreamKind::Clusters] {
            session.connect(stream, self.questions.clone());
        }
        let carried = CarriedSession { session: Arc::clone(session), is_told: false };
        self.lock().insert(Arc::clone(&session.zone), carried);
    }

    /// Takes what the relay says about its zones. `version` is that of this program.
    pub(super) fn heed(&self, heard: &HeardReport, version: &str) {
        let HeardReport { report, zones } = heard;
        let mut carried = self.lock();
        carried.retain(|_, carried| carried.session.cause().is_none());
        let mut elsewhere = BTreeMap::new();
        for zone in zones {
            let told = &zone.told;
            if let Some(carried) = carried.get_mut(told.zone.as_str())
                && carried.session.is_called(&told.session)
                // A report says one thing of each zone.
                && let Entry::Vacant(first) = elsewhere.entry(told.zone.as_str())
            {
                carried.heed(zone, version);
                first.insert(told);
            }
        }
        for (zone, carried) in carried.iter().filter(|(_, carried)| carried.is_told) {
            let own = elsewhere.get(&**zone);
            let down = own.and_then(|zone| zone.down).or(report.watermark);
            if let Some(down) = down {
                carried.half(version).reached(position(down));
            }
            if report.beat && !own.is_some_and(|zone| zone.silent) {
                carried.session.hear();
            }
        }
    }

    /// The relay is gone, and its zones with it unless they are back elsewhere.
    pub(super) fn end_sessions(&self, sessions: &Sessions) {
        let carried = std::mem::take(&mut *self.lock());
        for carried in carried.into_values() {
            let cause = EndCause::Broken(format!("relay {} lost its connection", self.relay));
            sessions.end(&carried.session, cause);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, CarriedSession>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CarriedSession {
    /// The way down of the session, as the task of its stream would see it.
    fn half(&self, version: &str) -> SyncStream {
        let (session, stream) = (Arc::clone(&self.session), StreamKind::GlobalToZone);
        SyncStream { session, stream, version: version.to_owned() }
    }

    fn heed(&mut self, HeardZone { told, peer, proxies }: &HeardZone, version: &str) {
        let half = self.half(version);
        if let Some(peer) = peer {
            half.introduced(peer);
            self.is_told = true;
        }
        if let Some(up) = told.up {
            self.session.is_up_at(position(up));
        }
        if let Some(proxies) = proxies {
            self.session.has_proxies_at(proxies.clone());
        }
        if let Some(details) = &told.details {
            tell(&self.session, &half, details);
        }
    }
}

/// What a zone refuses and cannot get, as far as it is said; what was said before is over.
fn tell(session: &Session, half: &SyncStream, details: &RelayDetails) {
    session.forget_troubles();
    let (mut refusals, mut types) = (Refusals::default(), BTreeSet::new());
    for (type_name, refused) in known(&details.refusals) {
        // A name that is longer than any is not kept.
        refusals.add(type_name, [&Name::from(refused.name.as_str())], &refused.reason);
        types.insert(type_name);
    }
    for type_name in types {
        half.refused(type_name, &refusals);
    }
    for (type_name, withheld) in known(&details.withheld) {
        half.withheld(type_name, Some(withheld.reason.clone()));
    }
}

fn position(of: RelayPosition) -> Position {
    Position { head: of.head, acked: of.acked, lag: of.lag }
}

/// The zone that was asked, and where its answer goes.
type AnswerOfZone = (Arc<str>, oneshot::Sender<Result<Bytes, AskError>>);

/// Who waits for what on the line to a relay.
#[derive(Default)]
pub(super) struct OwedByRelay(BTreeMap<String, AnswerOfZone>);

impl OwedByRelay {
    /// The question to send, unless too many wait already.
    pub(super) fn note(&mut self, Question { zone, call, reply }: Question) -> Option<RelayQuestion> {
        self.0.retain(|_, (_, reply)| !reply.is_closed());
        if self.0.len() >= OWED {
            let _nobody_waits = reply.send(Err(AskError::Busy(OWED)));
            return None;
        }
        self.0.insert(call.id.clone(), (Arc::clone(&zone), reply));
        Some(question(&zone, call))
    }

    /// Hands out an answer; false for one nobody waits for, which came late.
    pub(super) fn settle(&mut self, Answer { id, result }: Answer) -> bool {
        let Some((zone, reply)) = self.0.remove(&id) else { return false };
        let result = result.map_err(|reason| AskError::Zone {
            zone: zone.to_string(),
            reason: redact::words(&reason, REASON),
        });
        let _nobody_waits = reply.send(result);
        true
    }
}

fn question(zone: &str, call: Call) -> RelayQuestion {
    let question = RelayQuestion { zone: zone.to_owned(), ..RelayQuestion::default() };
    match call.ask {
        Ask::ConfigDump { .. } | Ask::Plan(_) => RelayQuestion { config: Some(call.into()), ..question },
        Ask::Stats { .. } => RelayQuestion { stats: Some(call.into()), ..question },
        Ask::Clusters { .. } => RelayQuestion { clusters: Some(call.into()), ..question },
    }
}

/// Where questions to a relay come out.
pub(super) type RelayQuestions = mpsc::Receiver<Question>;

#[cfg(test)]
mod tests;
