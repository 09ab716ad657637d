//! Who is connected to a listener, and who makes way for whom.
//!
//! A client is unknown until its handler vouches for it. Unknown clients share a part of the listener, and a
//! part of that per address; when it is taken, a newcomer displaces the one that keeps us waiting for longest.
//! So those who only hold connections open displace each other, and nobody else.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    Limits,
    answers::{Held, Ready},
    completion::WorkInProgress,
    guest::Guest,
    refusal::{Line, ListenerRefusals, Reason},
    turns::{Crowded, FairTurn, FairTurns, network},
};

/// Displaced connections that have not closed yet; before more are displaced, these close.
const LEAVING: usize = 64;

/// A client that has asked nothing for this long was not about to, and one that took nothing will not soon.
const SILENT: Duration = Duration::from_secs(1);

/// An address is crowded that has more than this part of the places for unknown clients.
const CROWD: usize = 8;

/// Large answers made at once: while one is handed over the next is made.
const ANSWERS_AT_ONCE: usize = 2;

/// Longest time a client waits until a large answer for it is begun.
const TURN: Duration = Duration::from_secs(10);

/// The connections of one listener.
pub(super) struct Connections {
    limits: Limits,
    ready: Ready,
    turns: Arc<FairTurns>,
    work: Arc<WorkInProgress>,
    inner: Mutex<ConnectionTable>,
    left: Notify,
}

struct ConnectionTable {
    listener: &'static str,
    next: u64,
    /// Open ones, the displaced included.
    total: usize,
    leaving: usize,
    /// In the order in which they came.
    unknown: BTreeMap<u64, Arc<Guest>>,
    unknown_at: HashMap<IpAddr, BTreeSet<u64>>,
    known: HashMap<QuotaKey, usize>,
    refusals: ListenerRefusals,
}

/// The place of one connection, free again when it is dropped.
pub(super) struct Seat {
    pub(super) guest: Arc<Guest>,
    /// Long exchanges it began while it was unknown.
    pub(super) knocks: Arc<AtomicUsize>,
    connections: Arc<Connections>,
    number: u64,
    /// As what it counts, once its client is known.
    shares: Mutex<Vec<QuotaKey>>,
}

/// What the connection of a known client counts against.
#[derive(Clone, PartialEq, Eq, Hash)]
enum QuotaKey {
    /// The client itself.
    Client(Arc<str>),
    /// What it showed, and others may show as well.
    Credential(Arc<str>),
    /// Where it is.
    Address(IpAddr),
}

impl Connections {
    /// Of a listener that does its work in these tasks.
    pub(super) fn new(listener: &'static str, limits: Limits, tasks: TaskTracker) -> Arc<Self> {
        let inner = ConnectionTable {
            listener,
            next: 0,
            total: 0,
            leaving: 0,
            unknown: BTreeMap::new(),
            unknown_at: HashMap::new(),
            known: HashMap::new(),
            refusals: ListenerRefusals::new(listener),
        };
        let (ready, turns, left) =
            (Ready::new(listener), Arc::new(FairTurns::new(ANSWERS_AT_ONCE)), Notify::new());
        let work = Arc::new(WorkInProgress::new(tasks));
        Arc::new(Self { limits, ready, turns, work, inner: Mutex::new(inner), left })
    }

    /// What goes on whether clients are there or not.
    pub(super) fn work(&self) -> &Arc<WorkInProgress> {
        &self.work
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection that is cut off, or not let in.
    pub(super) fn note(&self, reason: Reason, peer: Option<SocketAddr>, detail: &str) {
        let line = self.lock().refusals.note(reason, peer, Instant::now());
        line.into_iter().for_each(|line| line.tell(detail));
    }

    /// Waits while too many that were displaced are still closing.
    pub(super) async fn settled(&self) {
        while self.lock().leaving >= LEAVING {
            self.left.notified().await;
        }
    }

    /// Makes room for `peer`, or says why there is none.
    pub(super) fn enter(self: &Arc<Self>, peer: SocketAddr, now: Instant) -> Result<Seat, Reason> {
        let mut lines = Vec::new();
        let entered = self.lock().enter(peer, &self.limits, self.ready.clone(), now, &mut lines);
        lines.into_iter().for_each(|line| line.tell(""));
        let (number, guest) = entered?;
        let (connections, shares) = (Arc::clone(self), Mutex::default());
        Ok(Seat { guest, knocks: Arc::default(), connections, number, shares })
    }

    /// Waits for leave to make a large answer for this client, and for the memory of those who made way.
    pub(super) async fn turn(&self, guest: &Arc<Guest>) -> Result<FairTurn, Crowded> {
        let _parked = guest.park();
        let turn = async {
            let turn = self.turns.take(guest.peer().ip()).await?;
            self.ready.settled(self.limits.answers).await;
            Ok(turn)
        };
        tokio::select! {
            biased;
            () = guest.displaced() => Err(Crowded),
            turn = timeout(TURN, turn) => turn.unwrap_or(Err(Crowded)),
        }
    }

    /// Counts so many bytes of an answer until what is returned is dropped; `None` where they do not count.
    /// When too much lies ready, whoever leaves most of it lying is cut off.
    pub(super) fn hold(&self, guest: &Guest, bytes: usize, now: Instant) -> Option<Held> {
        let held = guest.lying().hold(bytes, now)?;
        let mut lines = Vec::new();
        let is_too_much = |ready: usize| ready > self.limits.answers && ready > held.bytes();
        if is_too_much(self.ready.bytes()) {
            let mut inner = self.lock();
            while is_too_much(self.ready.bytes()) {
                let most = inner.lies_most();
                if inner.displace(most, Reason::Answers, now, &mut lines).is_err() {
                    break;
                }
            }
        }
        lines.into_iter().for_each(|line| line.tell(""));
        Some(held)
    }

    /// The system has no file left: displaces one that waits, so that the next one gets its file.
    pub(super) fn out_of_files(&self, detail: &str) {
        let now = Instant::now();
        let mut shed = Vec::new();
        let mut inner = self.lock();
        let line = inner.refusals.note(Reason::Files, None, now);
        let least_missed = inner.least_missed(&self.limits, now);
        let _nobody_waits = inner.displace(least_missed, Reason::Shed, now, &mut shed);
        drop(inner);
        line.into_iter().for_each(|line| line.tell(detail));
        shed.into_iter().for_each(|line| line.tell(""));
    }
}

impl ConnectionTable {
    fn enter(
        &mut self,
        peer: SocketAddr,
        limits: &Limits,
        ready: Ready,
        now: Instant,
        lines: &mut Vec<Line>,
    ) -> Result<(u64, Arc<Guest>), Reason> {
        let at = network(peer.ip());
        let here = self.unknown_at.get(&at);
        if here.is_some_and(|here| here.len() >= limits.unknown_per_address) {
            let oldest = here.and_then(|here| self.longest_waiting(here.iter(), now));
            self.displace(oldest, Reason::AddressShed, now, lines).map_err(|()| Reason::Address)?;
        }
        let taken = self.total - self.leaving;
        if self.unknown.len() >= limits.unknown || taken >= limits.connections {
            let least_missed = self.least_missed(limits, now);
            self.displace(least_missed, Reason::Shed, now, lines).map_err(|()| Reason::Full)?;
        }
        let number = self.next;
        self.next += 1;
        self.total += 1;
        let guest = Arc::new(Guest::new(peer, ready, now));
        self.unknown.insert(number, Arc::clone(&guest));
        self.unknown_at.entry(at).or_default().insert(number);
        self.show();
        Ok((number, guest))
    }

    /// Who makes way for a newcomer when everything is taken. First whoever keeps us waiting at an address that
    /// has a large part of everything, then one that is silent for a while wherever it is, then anybody at the
    /// address that has most, and last whoever keeps us waiting for longest. So those who hold places make way for
    /// each other; and on a machine so busy that requests lie unread, nobody who is alone at his address makes way
    /// for them.
    fn least_missed(&self, limits: &Limits, now: Instant) -> Option<u64> {
        let most = self.unknown_at.values().max_by_key(|here| here.len()).filter(|most| most.len() > 1);
        let crowd = most.filter(|most| most.len() > (limits.unknown / CROWD).max(1));
        let is_silent = |guest: &Guest| guest.progress().silence(now) >= Some(SILENT);
        let silent = || self.unknown.iter().find(|(_, guest)| is_silent(guest));
        crowd
            .and_then(|here| self.least_missed_of(here, SILENT, now))
            .or_else(|| silent().map(|(number, _)| *number))
            .or_else(|| most.and_then(|here| self.least_missed_of(here, Duration::ZERO, now)))
            .or_else(|| self.longest_waiting(self.unknown.keys(), now))
    }

    /// Of the connections of an address one that never asked anything, else the one that has asked nothing more,
    /// taken nothing of its answer or waited for longest; none that did so for less than `patience`.
    fn least_missed_of(&self, here: &BTreeSet<u64>, patience: Duration, now: Instant) -> Option<u64> {
        let waits = |number: &u64| {
            let guest = self.unknown.get(number)?;
            let (since, has_asked) = guest.keeps_waiting_since()?;
            (now - since >= patience).then_some((has_asked, since, *number))
        };
        here.iter().filter_map(waits).min().map(|(.., number)| number)
    }

    /// Of these the oldest that keeps us waiting; one that never asked anything, if there is one.
    fn longest_waiting<'a>(&self, of: impl Iterator<Item = &'a u64>, now: Instant) -> Option<u64> {
        let mut asked = None;
        for number in of {
            let Some(guest) = self.unknown.get(number) else { continue };
            let progress = guest.progress();
            match (progress.is_waiting(now), progress.has_asked()) {
                (true, false) => return Some(*number),
                (true, true) => asked = asked.or(Some(*number)),
                (false, _) => {}
            }
        }
        asked
    }

    /// Of the address for which most lies ready, the client that has taken nothing for longest: many
    /// connections of one address are one client, and who takes his answer is not cut off for who does not.
    fn lies_most(&self) -> Option<u64> {
        let of = |here: &BTreeSet<u64>| {
            let guests = here.iter().filter_map(|number| Some((*number, self.unknown.get(number)?)));
            let lying = guests.map(|(number, guest)| (number, guest.lying().now()));
            let lying = lying.filter(|(_, (bytes, _))| *bytes > 0);
            let sum = lying.clone().map(|(_, (bytes, _))| bytes).sum::<usize>();
            Some((sum, lying.min_by_key(|(_, (_, since))| *since)?.0))
        };
        self.unknown_at.values().filter_map(of).max().map(|(_, number)| number)
    }

    fn displace(
        &mut self,
        number: Option<u64>,
        reason: Reason,
        now: Instant,
        lines: &mut Vec<Line>,
    ) -> Result<(), ()> {
        let number = number.ok_or(())?;
        let guest = self.forget(number).ok_or(())?;
        self.leaving += 1;
        lines.extend(self.refusals.note(reason, Some(guest.peer()), now));
        guest.make_way();
        Ok(())
    }

    /// Takes it out of the unknown ones.
    fn forget(&mut self, number: u64) -> Option<Arc<Guest>> {
        let guest = self.unknown.remove(&number)?;
        let at = network(guest.peer().ip());
        if let Some(here) = self.unknown_at.get_mut(&at) {
            here.remove(&number);
            if here.is_empty() {
                self.unknown_at.remove(&at);
            }
        }
        Some(guest)
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 connections")]
    fn show(&self) {
        let listener = self.listener;
        let unknown = self.unknown.len();
        let known = self.total - self.leaving - unknown;
        metrics::gauge!("connections_open", "listener" => listener, "client" => "unknown")
            .set(unknown as f64);
        metrics::gauge!("connections_open", "listener" => listener, "client" => "known").set(known as f64);
    }
}

impl Seat {
    pub(super) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.connections.limits
    }

    /// Whether the client has shown who it is.
    pub(super) fn is_known(&self) -> bool {
        !self.shares.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The client has shown that it is `name`, by a credential others may share. Beyond the connections one
    /// client, one credential or one address may have it stays unknown.
    pub(super) fn vouch(&self, name: &str, credential: Option<&str>) {
        let mut own = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.is_empty() {
            return;
        }
        let client = [QuotaKey::Client(name.into()), QuotaKey::Address(network(self.guest.peer().ip()))];
        let shares: Vec<QuotaKey> =
            client.into_iter().chain(credential.map(|shown| QuotaKey::Credential(shown.into()))).collect();
        let mut inner = self.connections.lock();
        let limits = &self.connections.limits;
        let is_full = |share: &QuotaKey| {
            let most = if matches!(share, QuotaKey::Client(_)) { limits.per_peer } else { limits.per_share };
            inner.known.get(share).is_some_and(|count| *count >= most)
        };
        if shares.iter().any(is_full) || inner.forget(self.number).is_none() {
            return;
        }
        for share in &shares {
            *inner.known.entry(share.clone()).or_default() += 1;
        }
        inner.show();
        *own = shares;
        drop(inner);
        self.guest.lying().forget();
        self.guest.progress().vouched();
        self.guest.hurry();
    }

    pub(super) fn note(&self, reason: Reason, detail: &str) {
        self.connections.note(reason, Some(self.guest.peer()), detail);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inner = self.connections.lock();
        inner.total -= 1;
        let shares = std::mem::take(self.shares.get_mut().unwrap_or_else(PoisonError::into_inner));
        // An unknown one that is not there any more was displaced.
        if shares.is_empty() && inner.forget(self.number).is_none() {
            inner.leaving -= 1;
        }
        self.guest.make_way();
        for share in shares {
            if let Entry::Occupied(mut count) = inner.known.entry(share) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        inner.show();
        drop(inner);
        self.connections.left.notify_one();
    }
}

#[cfg(test)]
mod tests;
