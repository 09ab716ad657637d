//! What strangers can make a process do that is dear, such as large answers: a few at once, in turn between those who
//! ask, by their addresses or by what they show. So it has a bound, and whoever asks for much waits behind himself.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    hash::Hash,
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

/// Between whom turns go round.
pub trait TurnOwner: Clone + Debug + Eq + Hash {}

impl<T: Clone + Debug + Eq + Hash> TurnOwner for T {}

/// Turns to do something of which only so much is done at once.
#[derive(Debug)]
pub struct FairTurns<K: TurnOwner = IpAddr> {
    limits: TurnLimits,
    queues: Mutex<Queues<K>>,
}

#[derive(Clone, Copy, Debug)]
struct TurnLimits {
    at_once: usize,
    /// Of them, those of one owner.
    each: usize,
    waiting: usize,
    /// Of those who wait, those of one owner.
    waiting_each: usize,
}

#[derive(Debug)]
struct Queues<K: TurnOwner> {
    taken: usize,
    waiting: usize,
    /// Of everybody who has a turn or waits for one.
    of: HashMap<K, Queue<K>>,
    /// Those who wait for one, the next one first.
    order: BTreeMap<u64, K>,
    next: u64,
}

#[derive(Debug)]
struct Queue<K: TurnOwner> {
    taken: usize,
    /// Where it is in the order, while somebody waits.
    place: u64,
    /// The oldest first.
    waiting: BTreeMap<u64, oneshot::Sender<Taken<K>>>,
}

impl<K: TurnOwner> Default for Queue<K> {
    fn default() -> Self {
        Self { taken: 0, place: 0, waiting: BTreeMap::new() }
    }
}

/// Leave to do it once, until the last copy is dropped: the one to make a large answer goes with that.
#[derive(Clone, Debug)]
pub struct FairTurn<K: TurnOwner = IpAddr> {
    _taken: Option<Arc<Taken<K>>>,
}

impl<K: TurnOwner> Default for FairTurn<K> {
    fn default() -> Self {
        Self { _taken: None }
    }
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
struct Taken<K: TurnOwner> {
    turns: Arc<FairTurns<K>>,
    owner: K,
}

/// Somebody who waits; when this is dropped he does not wait any more.
struct Waiter<'a, K: TurnOwner> {
    turns: &'a FairTurns<K>,
    owner: &'a K,
    number: u64,
}

impl FairTurns {
    /// So many at once, in turn between addresses.
    pub fn new(at_once: usize) -> Self {
        let (waiting, waiting_each) = (WAITING, WAITING_PER_ADDRESS);
        Self::limited(TurnLimits { at_once, each: at_once, waiting, waiting_each })
    }

    /// Waits for a turn, behind those of the same address.
    ///
    /// # Errors
    /// When too many wait already, of that address or of all.
    pub async fn take(self: &Arc<Self>, at: IpAddr) -> Result<FairTurn, Crowded> {
        self.take_as(network(at)).await
    }
}

impl<K: TurnOwner> FairTurns<K> {
    /// So many at once, and so many of them of `each` owner. Nobody is turned away: those who may ask are counted elsewhere.
    pub fn shared_out(at_once: usize, each: usize) -> Self {
        Self::limited(TurnLimits { at_once, each, waiting: usize::MAX, waiting_each: usize::MAX })
    }

    /// So many at once, and so many that wait, all of them of one owner while nobody else does.
    pub fn queued(at_once: usize, waiting: usize) -> Self {
        Self::limited(TurnLimits { at_once, each: at_once, waiting, waiting_each: waiting })
    }

    fn limited(limits: TurnLimits) -> Self {
        let queues = Queues { taken: 0, waiting: 0, of: HashMap::new(), order: BTreeMap::new(), next: 0 };
        Self { limits, queues: Mutex::new(queues) }
    }

    fn lock(&self) -> MutexGuard<'_, Queues<K>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn of `owner`, if there is one without waiting.
    pub fn try_take(self: &Arc<Self>, owner: &K) -> Option<FairTurn<K>> {
        let is_taken = self.lock().take(owner, &self.limits);
        is_taken.then(|| self.taken(owner.clone()))
    }

    /// Waits for a turn of `owner`, behind those who wait for one of his already.
    ///
    /// # Errors
    /// When too many wait already, of that owner or of all, and when it has to make way for somebody of whom fewer do.
    pub async fn take_as(self: &Arc<Self>, owner: K) -> Result<FairTurn<K>, Crowded> {
        let waiting = {
            let mut queues = self.lock();
            match queues.take(&owner, &self.limits) {
                true => None,
                false => Some(queues.wait(&owner, &self.limits)?),
            }
        };
        let Some((number, turn)) = waiting else { return Ok(self.taken(owner)) };
        let waiter = Waiter { turns: self, owner: &owner, number };
        let taken = turn.await.map_err(|_| Crowded);
        drop(waiter);
        Ok(FairTurn { _taken: Some(Arc::new(taken?)) })
    }

    fn taken(self: &Arc<Self>, owner: K) -> FairTurn<K> {
        FairTurn { _taken: Some(Arc::new(Taken { turns: Arc::clone(self), owner })) }
    }
}

impl<K: TurnOwner> Queues<K> {
    /// Takes a turn if one is free. Then nobody waits who may have it.
    fn take(&mut self, owner: &K, limits: &TurnLimits) -> bool {
        if self.taken >= limits.at_once || self.of.get(owner).is_some_and(|queue| queue.taken >= limits.each)
        {
            return false;
        }
        self.taken += 1;
        self.of.entry(owner.clone()).or_default().taken += 1;
        true
    }

    fn wait(
        &mut self,
        owner: &K,
        limits: &TurnLimits,
    ) -> Result<(u64, oneshot::Receiver<Taken<K>>), Crowded> {
        let own = self.waiting_of(owner);
        if own >= limits.waiting_each {
            return Err(Crowded);
        }
        if self.waiting >= limits.waiting {
            self.make_room(own)?;
        }
        let (sender, receiver) = oneshot::channel();
        let number = self.number();
        let queue = self.of.entry(owner.clone()).or_default();
        if queue.waiting.is_empty() {
            queue.place = number;
            self.order.insert(number, owner.clone());
        }
        queue.waiting.insert(number, sender);
        self.waiting += 1;
        Ok((number, receiver))
    }

    /// Who came last of those of whom most wait goes, for somebody of whom so many do, if that makes them more equal.
    fn make_room(&mut self, own: usize) -> Result<(), Crowded> {
        let most = self.order.values().max_by_key(|owner| self.waiting_of(owner)).cloned();
        let most = most.filter(|owner| self.waiting_of(owner) > own + 1).ok_or(Crowded)?;
        let last = self.of.get(&most).and_then(|queue| queue.waiting.keys().next_back().copied());
        self.leave(&most, last.ok_or(Crowded)?);
        Ok(())
    }

    fn waiting_of(&self, owner: &K) -> usize {
        self.of.get(owner).map_or(0, |queue| queue.waiting.len())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// This one waits no more.
    fn leave(&mut self, owner: &K, number: u64) {
        let Some(queue) = self.of.get_mut(owner) else { return };
        if queue.waiting.remove(&number).is_none() {
            return;
        }
        self.waiting -= 1;
        if queue.waiting.is_empty() {
            self.order.remove(&queue.place);
        }
        self.forget_idle(owner);
    }

    fn forget_idle(&mut self, owner: &K) {
        if self.of.get(owner).is_some_and(|queue| queue.taken == 0 && queue.waiting.is_empty()) {
            self.of.remove(owner);
        }
    }

    /// A turn of `owner` is over; says whose it is now.
    fn pass_on(&mut self, owner: &K, each: usize) -> Option<(K, oneshot::Sender<Taken<K>>)> {
        self.taken -= 1;
        if let Some(queue) = self.of.get_mut(owner) {
            queue.taken -= 1;
        }
        self.forget_idle(owner);
        // No more are passed over than can have all the turns one may have.
        let may = |owner: &K| self.of.get(owner).is_some_and(|queue| queue.taken < each);
        let place = self.order.iter().find(|(_, owner)| may(owner)).map(|(place, _)| *place)?;
        let (owner, number) = (self.order.remove(&place)?, self.number());
        let queue = self.of.get_mut(&owner)?;
        let (_, next) = queue.waiting.pop_first()?;
        self.waiting -= 1;
        self.taken += 1;
        queue.taken += 1;
        if !queue.waiting.is_empty() {
            queue.place = number;
            self.order.insert(number, owner.clone());
        }
        Some((owner, next))
    }
}

impl<K: TurnOwner> Drop for Waiter<'_, K> {
    fn drop(&mut self) {
        self.turns.lock().leave(self.owner, self.number);
    }
}

impl<K: TurnOwner> Drop for Taken<K> {
    fn drop(&mut self) {
        let next = self.turns.lock().pass_on(&self.owner, self.turns.limits.each);
        if let Some((owner, next)) = next {
            // Whoever left meanwhile passes it on.
            let _left = next.send(Self { turns: Arc::clone(&self.turns), owner });
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
mod tests;
