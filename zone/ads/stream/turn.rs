//! Who is told much takes turns, so that whoever is told little need not wait for them: of a change that
//! concerns everybody as much is under way as the machine can work on, and the rest has not been begun.

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Names of resources that are told without a turn.
pub(super) const FEW: usize = 32;
/// Streams that are told much at a time, for each core: some of them wait for their proxies.
const STREAMS: usize = 2;
/// A proxy that neither takes nor answers anything for so long does not hold up the next.
const IDLE: Duration = Duration::from_millis(20);

/// The turns of all streams.
#[derive(Clone)]
pub(in crate::ads) struct Turns(Arc<Semaphore>);

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// Where one stream is.
pub(super) struct Turn {
    turns: Turns,
    state: TurnState,
}

enum TurnState {
    /// It needs none.
    Idle,
    /// It is one of those who wait.
    Waiting(Waiting),
    /// It may send all there is. Others wait for that while there is a permit.
    Taken { permit: Option<OwnedSemaphorePermit>, active: Instant },
}

impl Turns {
    /// As many at a time as keep the cores of the machine busy.
    pub(in crate::ads) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(STREAMS * cores)))
    }
}

impl Turn {
    pub(super) fn new(turns: &Turns) -> Self {
        Self { turns: turns.clone(), state: TurnState::Idle }
    }

    /// Whether it is its turn; it waits for one from now on if it is not.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        if let TurnState::Idle = self.state {
            let turns = Arc::clone(&self.turns.0);
            self.state = match Arc::clone(&turns).try_acquire_owned() {
                Ok(permit) => TurnState::Taken { permit: Some(permit), active: now },
                Err(_) => TurnState::Waiting(Box::pin(turns.acquire_owned())),
            };
        }
        matches!(self.state, TurnState::Taken { .. })
    }

    /// Waits until it is its turn; for ever when it does not wait for one.
    pub(super) async fn come(&mut self) {
        let TurnState::Waiting(waiting) = &mut self.state else { return std::future::pending().await };
        let permit = waiting.await.expect("the semaphore is never closed");
        self.state = TurnState::Taken { permit: Some(permit), active: Instant::now() };
    }

    /// The proxy took or answered something.
    pub(super) fn moved(&mut self, now: Instant) {
        if let TurnState::Taken { active, .. } = &mut self.state {
            *active = now;
        }
    }

    /// Everything was told and answered.
    pub(super) fn end(&mut self) {
        self.state = TurnState::Idle;
    }

    /// When others are to go on without waiting for this proxy.
    pub(super) fn idle_at(&self) -> Option<Instant> {
        match &self.state {
            TurnState::Taken { permit: Some(_), active } => Some(*active + IDLE),
            TurnState::Idle | TurnState::Waiting(_) | TurnState::Taken { permit: None, .. } => None,
        }
    }

    /// Lets others go on if this proxy has been idle for too long.
    pub(super) fn check(&mut self, now: Instant) {
        if let TurnState::Taken { permit, active } = &mut self.state
            && now >= *active + IDLE
        {
            *permit = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(permits: usize) -> Turns {
        Turns(Arc::new(Semaphore::new(permits)))
    }

    #[tokio::test]
    async fn who_waits_goes_when_another_is_done() {
        let turns = turns(1);
        let (mut first, mut second) = (Turn::new(&turns), Turn::new(&turns));
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
        let turns = turns(1);
        let (mut slow, mut next) = (Turn::new(&turns), Turn::new(&turns));
        let now = Instant::now();
        assert!(slow.ask(now) && !next.ask(now));
        slow.moved(now + IDLE / 2);
        slow.check(now + IDLE);
        assert_eq!(slow.idle_at(), Some(now + IDLE / 2 + IDLE));
        slow.check(now + IDLE / 2 + IDLE);
        assert_eq!(slow.idle_at(), None);
        next.come().await;
        assert!(slow.ask(now), "what was begun goes on");
    }
}
