//! How far one connection has come, and until when it must come further. Sans-IO: it takes times and events,
//! and says by when what must have happened.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{Limits, refusal::Reason};

/// Bytes beyond bodies that a connection may send for ever: pings, window updates, headers.
const NOISE_PER_SECOND: u64 = 64 << 10;
/// Forgiven for each exchange that came to its end: its headers, and what the protocol needs around it.
const NOISE_PER_EXCHANGE: u64 = 32 << 10;
/// Forgiven for each piece of a body: the frame and the TLS record around it.
const NOISE_PER_PIECE: u64 = 64;
/// More bytes than this in one write are an answer.
const PINGS: usize = 1024;
/// A response that lies for this long marks its client as one that can be displaced.
const LYING: Duration = Duration::from_secs(5);

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Nobody asks anything: said goodbye to.
    Idle,
    /// It is cut off.
    Refused(Reason),
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Progress {
    stage: Stage,
    /// Requests without a complete answer, by number.
    open: BTreeMap<u64, HttpExchange>,
    /// How many of them wait for something that is not done for them, and since when the last one does.
    parked: usize,
    parked_since: Instant,
    next: u64,
    known: bool,
    noise: u64,
    noise_at: Instant,
    /// Requests that were answered before their bodies were whole, since the last bytes came.
    cut_short: u64,
    /// Bytes that may still come of bodies nobody waits for any more.
    late: u64,
    flooded: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Connected; not a byte came.
    Silent(Instant),
    /// On its way to the first request.
    Greeting(Instant),
    /// Had a request; when the last one is over, since when, and when the next one began to arrive.
    Asking { since: Instant, head: Option<Instant>, multiplexed: bool },
}

#[derive(Clone, Copy, Debug)]
struct HttpExchange {
    since: Instant,
    /// Whether the whole request is here.
    arrived: bool,
    /// Since when something waits for the client to take it.
    lying: Option<Instant>,
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Silent(now),
            open: BTreeMap::new(),
            parked: 0,
            parked_since: now,
            next: 0,
            known: false,
            noise: 0,
            noise_at: now,
            cut_short: 0,
            late: 0,
            flooded: false,
        }
    }

    /// Bytes came. Whether the deadline moved closer.
    pub(super) fn heard(&mut self, bytes: usize, limits: &Limits, now: Instant) -> bool {
        let passed = u64::try_from((now - self.noise_at).as_millis()).unwrap_or(u64::MAX);
        self.noise_at = now;
        self.noise = self.noise.saturating_sub(passed.saturating_mul(NOISE_PER_SECOND) / 1000);
        self.forgive(limits);
        let late = self.late.min(bytes as u64);
        self.late -= late;
        self.noise = self.noise.saturating_add(bytes as u64 - late);
        let body = self.open.values().any(|exchange| !exchange.arrived);
        if self.noise > limits.noise(body) {
            self.flooded = true;
            return true;
        }
        match &mut self.stage {
            Stage::Silent(since) => {
                self.stage = Stage::Greeting(*since);
                true
            }
            // With HTTP/2 these may be pings.
            Stage::Asking { head: head @ None, multiplexed: false, .. } if self.open.is_empty() => {
                *head = Some(now);
                true
            }
            _ => false,
        }
    }

    /// What a client sends of a body after it was answered without it, until it hears of that, is no flood: as
    /// much of each body as its window lets it send, of all of them as much as that of the connection.
    fn forgive(&mut self, limits: &Limits) {
        let cut_short = std::mem::take(&mut self.cut_short);
        let allowed = cut_short.saturating_mul(u64::from(limits.window)).min(limits.in_flight());
        // Nobody took what came after its reader was gone.
        let here = self.noise.min(allowed);
        self.noise -= here;
        self.late = (self.late + allowed - here).min(limits.in_flight());
    }

    /// Whether it sent too much that belongs to no request.
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// Bytes went: somebody takes them. A handful of bytes with HTTP/2 answers pings.
    pub(super) fn told(&mut self, bytes: usize, now: Instant) {
        match &mut self.stage {
            Stage::Asking { since, multiplexed, .. } if !*multiplexed || bytes > PINGS => *since = now,
            _ => {}
        }
    }

    /// A request was read up to its body. Gives its number.
    pub(super) fn asked(&mut self, multiplexed: bool, now: Instant) -> u64 {
        self.stage = Stage::Asking { since: now, head: None, multiplexed };
        let number = self.next;
        self.next += 1;
        self.open.insert(number, HttpExchange { since: now, arrived: false, lying: None });
        number
    }

    /// A piece of a body of a request was taken by its handler.
    pub(super) fn took(&mut self, bytes: usize) {
        self.noise = self.noise.saturating_sub(bytes as u64 + NOISE_PER_PIECE);
    }

    /// A piece of a body was left over when its reader went away. Its frame is not forgiven: nobody wanted it.
    pub(super) fn left_over(&mut self, bytes: usize) {
        self.noise = self.noise.saturating_sub(bytes as u64);
    }

    /// The body of a request is complete.
    pub(super) fn arrived(&mut self, number: u64) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.arrived = true;
        }
    }

    /// Something is ready for the client (`Some`), or the client took it (`None`). Whether the deadline may
    /// have moved closer.
    pub(super) fn offered(&mut self, number: u64, lying: Option<Instant>) -> bool {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.lying = lying;
        }
        lying.is_some() && !self.known
    }

    /// An exchange is over, by a whole answer or not.
    pub(super) fn answered(&mut self, number: u64, whole: bool, now: Instant) {
        let exchange = self.open.remove(&number);
        if whole {
            self.noise = self.noise.saturating_sub(NOISE_PER_EXCHANGE);
            self.cut_short += u64::from(exchange.is_some_and(|exchange| !exchange.arrived));
        }
        if let (true, Stage::Asking { since, .. }) = (self.open.is_empty(), &mut self.stage) {
            *since = now;
        }
    }

    /// One of its exchanges waits for what others do, and costs nothing but its place.
    pub(super) fn parked(&mut self, now: Instant) {
        self.parked += 1;
        self.parked_since = now;
    }

    /// It goes on.
    pub(super) fn unparked(&mut self) {
        self.parked -= 1;
    }

    /// Since when nothing is done for any of its exchanges, as all of them wait for what others do.
    fn is_parked_since(&self) -> Option<Instant> {
        (!self.open.is_empty() && self.parked >= self.open.len()).then_some(self.parked_since)
    }

    /// The client has shown who it is.
    pub(super) fn vouched(&mut self) {
        self.known = true;
    }

    /// Whether it can go for somebody else: it is not known, and keeps this side waiting or waits itself.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        let lies = |exchange: &HttpExchange| exchange.lying.is_some_and(|since| now - since >= LYING);
        let works = |exchange: &&HttpExchange| exchange.arrived && !lies(exchange);
        !self.known && self.open.values().filter(works).count() <= self.parked
    }

    /// For how long it is connected without having asked anything; `None` once it has.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        match self.stage {
            Stage::Silent(since) | Stage::Greeting(since) => Some(now - since),
            Stage::Asking { .. } => None,
        }
    }

    /// Since when it has asked nothing, with nothing done for it; `None` while something is.
    pub(super) fn asks_nothing_since(&self) -> Option<Instant> {
        match self.stage {
            Stage::Silent(since) | Stage::Greeting(since) => Some(since),
            Stage::Asking { since, .. } if self.open.is_empty() => Some(since),
            Stage::Asking { .. } => self.is_parked_since(),
        }
    }

    /// Whether it has ever asked something.
    pub(super) fn has_asked(&self) -> bool {
        matches!(self.stage, Stage::Asking { .. })
    }

    /// When it is over unless something happens, and why; `None` for never.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<(Instant, Over)> {
        if self.flooded {
            return Some((self.noise_at, Over::Refused(Reason::Flood)));
        }
        let late = Over::Refused(Reason::NoRequest);
        match self.stage {
            Stage::Silent(since) => Some((since + limits.first_request / 2, late)),
            Stage::Greeting(since) => Some((since + limits.first_request, late)),
            Stage::Asking { since, head, .. } if self.open.is_empty() => {
                let idle = (since + limits.idle, Over::Idle);
                let head = head.map(|head| (head + limits.first_request, late));
                Some(head.filter(|head| head.0 < idle.0).unwrap_or(idle))
            }
            Stage::Asking { .. } if self.known => None,
            Stage::Asking { .. } => {
                let slow = Over::Refused(Reason::SlowRequest);
                let ends = self.open.values().flat_map(|exchange| {
                    let unread = exchange.lying.map(|lying| lying + limits.unread);
                    [Some(exchange.since + limits.request), unread].into_iter().flatten()
                });
                ends.min().map(|at| (at, slow))
            }
        }
    }
}

#[cfg(test)]
mod tests;
