//! What strangers can make a process do that is dear, such as large answers: a few at once, in turn between the
//! addresses that ask for them. So it has a bound, and whoever asks for much waits behind himself.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::Response;
use thiserror::Error;
use tokio::sync::{OnceCell, oneshot};

/// Requests of one address that may wait for that: more than one connection may have.
const WAITING_PER_ADDRESS: usize = 128;
/// And of all: each holds its headers and what it found.
const WAITING: usize = 1024;

/// Too many ask for a turn at the moment.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("too many long answers are asked for at the moment; try again in a few seconds")]
pub struct Crowded;

/// Turns to do something of which only so much is done at once.
#[derive(Debug)]
pub struct FairTurns {
    at_once: usize,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    taken: usize,
    waiting: usize,
    /// Those who wait, by address; never empty.
    at: HashMap<IpAddr, VecDeque<oneshot::Sender<Taken>>>,
    /// The addresses at which somebody waits, the next one first.
    order: VecDeque<IpAddr>,
}

/// Leave to do it once, until the last copy is dropped: the one to make a large answer goes with that.
#[derive(Clone, Debug, Default)]
pub struct FairTurn {
    _taken: Option<Arc<Taken>>,
}

impl FairTurn {
    /// What was made in this turn, which goes along with it.
    #[must_use]
    pub fn made<B>(self, mut answer: Response<B>) -> Response<B> {
        answer.extensions_mut().insert(self);
        answer
    }
}

/// One turn for an answer that is made of several large ones: taken for the first of them, and kept until the answer is
/// counted. What is held between them so has the bound that each of them has.
#[derive(Clone, Debug, Default)]
pub struct SharedTurn(Arc<SharedState>);

#[derive(Debug, Default)]
struct SharedState {
    turn: OnceCell<FairTurn>,
    is_refused: AtomicBool,
}

impl SharedTurn {
    pub(super) async fn get_or_take(
        &self,
        take: impl Future<Output = Result<FairTurn, Crowded>>,
    ) -> Result<FairTurn, Crowded> {
        let turn = self.0.turn.get_or_try_init(|| take).await.cloned();
        self.0.is_refused.fetch_or(turn.is_err(), Ordering::Relaxed);
        turn
    }

    /// Whether a part of the answer is missing, because too many asked.
    pub fn is_refused(&self) -> bool {
        self.0.is_refused.load(Ordering::Relaxed)
    }

    /// What was made in this turn, which goes along with it.
    #[must_use]
    pub fn made<B>(&self, answer: Response<B>) -> Response<B> {
        match self.0.turn.get() {
            Some(turn) => turn.clone().made(answer),
            None => answer,
        }
    }
}

/// One of the few; when it is dropped it is somebody else's.
#[derive(Debug)]
struct Taken(Arc<FairTurns>);

impl FairTurns {
    /// So many at once.
    pub fn new(at_once: usize) -> Self {
        Self { at_once, queues: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, behind those of the same address.
    ///
    /// # Errors
    /// When too many wait already, of that address or of all.
    pub async fn take(self: &Arc<Self>, at: IpAddr) -> Result<FairTurn, Crowded> {
        let waiting = {
            let mut queues = self.lock();
            if queues.taken < self.at_once {
                queues.taken += 1;
                None
            } else {
                Some(queues.wait(network(at))?)
            }
        };
        let taken = match waiting {
            None => Taken(Arc::clone(self)),
            Some(waiting) => waiting.await.map_err(|_| Crowded)?,
        };
        Ok(FairTurn { _taken: Some(Arc::new(taken)) })
    }
}

impl Queues {
    fn wait(&mut self, at: IpAddr) -> Result<oneshot::Receiver<Taken>, Crowded> {
        if self.waiting >= WAITING || self.at.get(&at).is_some_and(|queue| queue.len() >= WAITING_PER_ADDRESS)
        {
            self.forget_the_gone();
        }
        let (sender, receiver) = oneshot::channel();
        let full = self.waiting >= WAITING;
        let queue = self.at.entry(at).or_default();
        if full || queue.len() >= WAITING_PER_ADDRESS {
            if queue.is_empty() {
                self.at.remove(&at);
            }
            return Err(Crowded);
        }
        if queue.is_empty() {
            self.order.push_back(at);
        }
        queue.push_back(sender);
        self.waiting += 1;
        Ok(receiver)
    }

    /// Takes out those who wait no more.
    fn forget_the_gone(&mut self) {
        self.at.retain(|_, queue| {
            queue.retain(|waiting| !waiting.is_closed());
            !queue.is_empty()
        });
        self.order.retain(|at| self.at.contains_key(at));
        self.waiting = self.at.values().map(VecDeque::len).sum();
    }

    /// Whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Taken>> {
        while let Some(at) = self.order.pop_front() {
            let Some(queue) = self.at.get_mut(&at) else { continue };
            let next = queue.pop_front();
            self.waiting -= usize::from(next.is_some());
            if queue.is_empty() {
                self.at.remove(&at);
            } else {
                self.order.push_back(at);
            }
            if let Some(next) = next.filter(|next| !next.is_closed()) {
                return Some(next);
            }
        }
        None
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let next = {
            let mut queues = self.0.lock();
            let next = queues.next();
            queues.taken -= usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // Whoever left meanwhile passes it on.
            let _left = next.send(Self(Arc::clone(&self.0)));
        }
    }
}

/// What counts as one address: with IPv6 a customer has at least 64 bits to choose from.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::pin::Pin;

    use futures::poll;

    use super::*;

    const AT_ONCE: usize = 2;

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    type Waiting = Pin<Box<dyn Future<Output = Result<FairTurn, Crowded>>>>;

    fn take(turns: &Arc<FairTurns>, last: u8) -> Waiting {
        let turns = Arc::clone(turns);
        Box::pin(async move { turns.take(at(last)).await })
    }

    /// One that waits already.
    async fn waits(turns: &Arc<FairTurns>, last: u8) -> Waiting {
        let mut waiting = take(turns, last);
        assert!(poll!(&mut waiting).is_pending());
        waiting
    }

    async fn all(turns: &Arc<FairTurns>) -> Vec<FairTurn> {
        futures::future::try_join_all((0..AT_ONCE).map(|_| take(turns, 1))).await.unwrap()
    }

    #[tokio::test]
    async fn addresses_take_turns() {
        let turns = Arc::new(FairTurns::new(AT_ONCE));
        let mut taken = all(&turns).await;
        let (mut first, mut second) = (waits(&turns, 1).await, waits(&turns, 1).await);
        let mut other = waits(&turns, 2).await;
        taken.pop();
        assert!(poll!(&mut first).is_ready());
        assert!(
            poll!(&mut second).is_pending() && poll!(&mut other).is_ready(),
            "one of each, and it goes on"
        );
        assert!(poll!(&mut second).is_ready());
        drop(taken);
        let queues = turns.lock();
        assert_eq!((queues.taken, queues.waiting, queues.order.len(), queues.at.len()), (0, 0, 0, 0));
    }

    #[tokio::test]
    async fn who_left_is_passed_over_and_a_turn_ends_with_its_last_copy() {
        let turns = Arc::new(FairTurns::new(AT_ONCE));
        let mut taken = all(&turns).await;
        let (left, mut stays) = (waits(&turns, 1).await, waits(&turns, 1).await);
        drop(left);
        let copy = taken[0].clone();
        drop(taken.remove(0));
        assert!(poll!(&mut stays).is_pending());
        drop(copy);
        let turn = stays.await.unwrap();
        assert_eq!(turns.lock().taken, AT_ONCE);
        drop((taken, turn));
        assert_eq!(turns.lock().taken, 0);
    }

    #[tokio::test]
    async fn a_turn_that_nobody_came_for_is_passed_on() {
        let turns = Arc::new(FairTurns::new(AT_ONCE));
        let taken = all(&turns).await;
        let given = waits(&turns, 1).await;
        drop(taken);
        drop(given);
        assert_eq!(turns.lock().taken, 0);
    }

    #[tokio::test]
    async fn what_is_made_of_several_large_parts_takes_one_turn_and_keeps_it() {
        let turns = Arc::new(FairTurns::new(AT_ONCE));
        let shared = SharedTurn::default();
        assert!(shared.made(Response::new(())).extensions().get::<FairTurn>().is_none());
        for _ in 0..3 {
            let part = shared.get_or_take(turns.take(at(1))).await.unwrap();
            drop(part.made(Response::new(())));
            assert_eq!(turns.lock().taken, 1, "also between two parts");
        }
        let answer = shared.made(Response::new(()));
        drop(shared);
        assert_eq!(turns.lock().taken, 1, "until it is counted");
        drop(answer);
        assert_eq!(turns.lock().taken, 0);
        let refused = SharedTurn::default();
        assert_eq!(refused.get_or_take(async { Err(Crowded) }).await.unwrap_err(), Crowded);
        assert!(refused.is_refused());
    }

    #[tokio::test]
    async fn who_would_wait_for_too_long_is_told_to_come_again() {
        let turns = Arc::new(FairTurns::new(AT_ONCE));
        let _taken = all(&turns).await;
        let mut waiting = Vec::new();
        for _ in 0..WAITING_PER_ADDRESS {
            waiting.push(waits(&turns, 1).await);
        }
        assert_eq!(take(&turns, 1).await.unwrap_err(), Crowded);
        let _other_address = waits(&turns, 2).await;
        waiting.truncate(1);
        let _room_again = waits(&turns, 1).await;
        assert_eq!(turns.lock().waiting, 3);
    }
}
