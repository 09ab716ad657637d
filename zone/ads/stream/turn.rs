//! Who is told much takes turns, so that whoever is told little need not wait for them: of a change that
//! concerns everybody as much is under way as the machine can work on, and the rest has not been begun.
//!
//! Turns go round between credentials: one that is stolen is good for many streams that want a turn and do nothing with it.

use std::{net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use common::runtime::http::{Crowded, FairTurn, FairTurns};
use tokio::time::Instant;

use super::EnvoyPeer;
use crate::ads::{auth::Authenticator, node::ProxyId};

/// Names of resources that are told without a turn.
pub(super) const FEW: usize = 32;
/// Streams of one credential that are told much at a time, for each core: some of them wait for their proxies. All together
/// are twice as many.
const STREAMS: usize = 2;
/// A proxy that neither takes nor answers anything for so long does not hold up the next.
const IDLE: Duration = Duration::from_millis(20);
/// Nor does one hold it up for longer than this, whatever it takes and answers.
const LONGEST: Duration = Duration::from_secs(1);

/// The turns of all streams.
#[derive(Clone)]
pub(in crate::ads) struct Turns(Arc<FairTurns<TurnShare>>);

/// Between whom they go round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TurnShare {
    /// Those who show this token.
    Credential(Arc<str>),
    /// Those who come from there, where no token is demanded.
    Address(Option<IpAddr>),
}

impl TurnShare {
    /// That of the stream of `proxy`.
    pub(super) fn of(peer: &EnvoyPeer, proxy: &ProxyId, authenticator: &Authenticator) -> Self {
        let credential = authenticator.credential(proxy, peer.token.as_deref());
        credential.map_or(Self::Address(peer.network), |shown| Self::Credential(shown.into()))
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<FairTurn<TurnShare>, Crowded>> + Send>>;

/// Where one stream is.
pub(super) struct Turn {
    turns: Turns,
    share: TurnShare,
    state: TurnState,
}

enum TurnState {
    /// It needs none.
    Idle,
    /// It is one of those who wait.
    Waiting(Waiting),
    /// It may send all there is. Others wait for that while there is a permit.
    Taken(Option<Permit>),
}

/// What others wait for.
struct Permit {
    _turn: FairTurn<TurnShare>,
    /// When the proxy last took or answered something.
    active: Instant,
    /// Something was told since then.
    is_told: bool,
    /// When it is over in any case.
    end: Instant,
}

impl Permit {
    fn new(turn: FairTurn<TurnShare>, now: Instant) -> Self {
        Self { _turn: turn, active: now, is_told: false, end: now + LONGEST }
    }

    fn lapses_at(&self) -> Instant {
        self.end.min(self.active + IDLE)
    }
}

impl Turns {
    /// As many at a time as keep the cores of the machine busy, also where all proxies show one token.
    pub(in crate::ads) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let each = STREAMS * cores;
        Self(Arc::new(FairTurns::shared_out(2 * each, each)))
    }
}

impl Turn {
    pub(super) fn new(turns: &Turns, share: TurnShare) -> Self {
        Self { turns: turns.clone(), share, state: TurnState::Idle }
    }

    /// Whether it is its turn; it waits for one from now on if it is not.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        if let TurnState::Idle = self.state {
            let turns = &self.turns.0;
            self.state = match turns.try_take(&self.share) {
                Some(turn) => TurnState::Taken(Some(Permit::new(turn, now))),
                None => {
                    let (turns, share) = (Arc::clone(turns), self.share.clone());
                    TurnState::Waiting(Box::pin(async move { turns.take_as(share).await }))
                }
            };
        }
        matches!(self.state, TurnState::Taken(_))
    }

    /// Waits until it is its turn; for ever when it does not wait for one.
    pub(super) async fn come(&mut self) {
        let TurnState::Waiting(waiting) = &mut self.state else { return std::future::pending().await };
        let turn = waiting.await.expect("nobody who waits is turned away");
        self.state = TurnState::Taken(Some(Permit::new(turn, Instant::now())));
    }

    fn permit(&mut self) -> Option<&mut Permit> {
        match &mut self.state {
            TurnState::Taken(permit) => permit.as_mut(),
            TurnState::Idle | TurnState::Waiting(_) => None,
        }
    }

    /// The proxy took something, or answered what it was sent. What else it says is no reason to wait for it.
    pub(super) fn moved(&mut self, now: Instant) {
        if let Some(permit) = self.permit() {
            (permit.active, permit.is_told) = (now, false);
        }
    }

    /// It was sent something, which may have taken long to make: it has its time from then on, once until it moves.
    pub(super) fn told(&mut self, now: Instant) {
        if let Some(permit) = self.permit().filter(|permit| !permit.is_told) {
            (permit.active, permit.is_told) = (now, true);
        }
    }

    /// Everything was told and answered.
    pub(super) fn end(&mut self) {
        self.state = TurnState::Idle;
    }

    /// When others are to go on without waiting for this proxy.
    pub(super) fn lapses_at(&self) -> Option<Instant> {
        match &self.state {
            TurnState::Taken(permit) => permit.as_ref().map(Permit::lapses_at),
            TurnState::Idle | TurnState::Waiting(_) => None,
        }
    }

    /// Lets others go on if this proxy has been idle for too long, or its turn was long enough.
    pub(super) fn check(&mut self, now: Instant) {
        if let TurnState::Taken(permit) = &mut self.state
            && permit.as_ref().is_some_and(|permit| now >= permit.lapses_at())
        {
            *permit = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    fn turns(at_once: usize, each: usize) -> Turns {
        Turns(Arc::new(FairTurns::shared_out(at_once, each)))
    }

    fn stream(turns: &Turns, credential: &str) -> Turn {
        Turn::new(turns, TurnShare::Credential(credential.into()))
    }

    #[tokio::test]
    async fn who_waits_goes_when_another_is_done() {
        let turns = turns(1, 1);
        let (mut first, mut second) = (stream(&turns, "a"), stream(&turns, "b"));
        let now = Instant::now();
        assert!(first.ask(now) && first.ask(now), "it is asked again for each response");
        assert!(!second.ask(now));
        first.end();
        second.come().await;
        assert!(second.ask(now));
        drop(second);
        assert!(first.ask(now), "who leaves holds up nobody");
    }

    #[tokio::test]
    async fn an_idle_proxy_holds_up_nobody_and_goes_on_when_it_wakes() {
        let turns = turns(1, 1);
        let (mut slow, mut next) = (stream(&turns, "a"), stream(&turns, "a"));
        let now = Instant::now();
        assert!(slow.ask(now) && !next.ask(now));
        slow.moved(now + IDLE / 2);
        slow.check(now + IDLE);
        assert_eq!(slow.lapses_at(), Some(now + IDLE / 2 + IDLE));
        slow.check(now + IDLE / 2 + IDLE);
        assert_eq!(slow.lapses_at(), None);
        next.come().await;
        assert!(slow.ask(now), "what was begun goes on");
    }

    #[tokio::test]
    async fn what_is_told_without_an_answer_prolongs_a_turn_once() {
        let turns = turns(1, 1);
        let mut stream = stream(&turns, "a");
        let now = Instant::now();
        assert!(stream.ask(now));
        for step in 1..8 {
            stream.told(now + IDLE * step / 2);
            assert!(stream.ask(now + IDLE * step / 2));
            assert_eq!(stream.lapses_at(), Some(now + IDLE / 2 + IDLE));
        }
        stream.moved(now + IDLE);
        stream.told(now + IDLE * 2);
        assert_eq!(stream.lapses_at(), Some(now + IDLE * 3));
    }

    #[tokio::test]
    async fn a_turn_has_an_end_however_much_moves() {
        let turns = turns(1, 1);
        let (mut busy, mut next) = (stream(&turns, "a"), stream(&turns, "b"));
        let now = Instant::now();
        assert!(busy.ask(now) && !next.ask(now));
        let mut at = now;
        while at < now + LONGEST {
            busy.check(at);
            busy.moved(at);
            assert!(busy.lapses_at() <= Some(now + LONGEST) && busy.lapses_at().is_some(), "{at:?}");
            at += IDLE / 2;
        }
        busy.check(now + LONGEST);
        busy.moved(now + LONGEST);
        assert_eq!(busy.lapses_at(), None);
        next.come().await;
    }

    #[tokio::test]
    async fn another_credential_is_next_and_half_is_the_most_for_one() {
        let now = Instant::now();
        let one_by_one = turns(1, 1);
        let mut thief: Vec<Turn> = (0..4).map(|_| stream(&one_by_one, "thief")).collect();
        assert!(thief[0].ask(now));
        for waiting in &mut thief[1..] {
            assert!(!waiting.ask(now));
            assert!(poll!(pin!(waiting.come())).is_pending());
        }
        let mut honest = stream(&one_by_one, "honest");
        assert!(!honest.ask(now));
        assert!(poll!(pin!(honest.come())).is_pending());
        thief[0].end();
        assert!(poll!(pin!(thief[1].come())).is_ready(), "it came first");
        thief[1].end();
        assert!(poll!(pin!(thief[2].come())).is_pending());
        assert!(poll!(pin!(honest.come())).is_ready());

        let shared = turns(2, 1);
        let mut thief = [stream(&shared, "thief"), stream(&shared, "thief")];
        assert!(thief[0].ask(now) && !thief[1].ask(now));
        assert!(stream(&shared, "honest").ask(now), "it need not wait");
    }
}
