//! Who is connected to a listener, and who makes way for whom.
//!
//! A client is unknown until its handler vouches for it. Unknown clients share a part of the listener, and a
//! part of that per address; when it is taken, a newcomer displaces the one that keeps us waiting for longest.
//! So those who only hold connections open displace each other, and nobody else.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Limits,
    progress::{Over, Progress},
    refusal::{Reason, Refusals},
};

/// Displaced connections that have not closed yet; before more are displaced, these close.
const LEAVING: usize = 64;

/// The connections of one listener.
pub(super) struct Connections {
    listener: &'static str,
    limits: Limits,
    inner: Mutex<Inner>,
    left: Notify,
}

struct Inner {
    next: u64,
    /// Open ones, the displaced included.
    total: usize,
    leaving: usize,
    /// In the order in which they came.
    unknown: BTreeMap<u64, Arc<Guest>>,
    unknown_at: HashMap<IpAddr, BTreeSet<u64>>,
    known: HashMap<Held, usize>,
    refusals: Refusals,
}

/// What the connection, its requests and the listener know of one client.
pub(super) struct Guest {
    peer: SocketAddr,
    progress: Mutex<Progress>,
    /// Its deadline moved closer.
    sooner: Notify,
    displaced: CancellationToken,
}

/// The place of one connection, free again when it is dropped.
pub(super) struct Seat {
    pub(super) guest: Arc<Guest>,
    /// Long exchanges it began while it was unknown.
    pub(super) knocks: Arc<AtomicUsize>,
    connections: Arc<Connections>,
    number: u64,
    /// As what it counts, once its client is known.
    held: Mutex<Vec<Held>>,
}

/// What the connection of a known client counts against.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Held {
    /// The client itself.
    Client(Arc<str>),
    /// What it showed, and others may show as well.
    Credential(Arc<str>),
    /// Where it is.
    Address(IpAddr),
}

impl Connections {
    pub(super) fn new(listener: &'static str, limits: Limits) -> Arc<Self> {
        let inner = Inner {
            next: 0,
            total: 0,
            leaving: 0,
            unknown: BTreeMap::new(),
            unknown_at: HashMap::new(),
            known: HashMap::new(),
            refusals: Refusals::new(listener),
        };
        Arc::new(Self { listener, limits, inner: Mutex::new(inner), left: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection that is cut off, or not let in.
    pub(super) fn note(&self, reason: Reason, peer: Option<SocketAddr>, detail: &str) {
        self.lock().refusals.note(reason, peer, detail, Instant::now());
    }

    /// Waits while too many that were displaced are still closing.
    pub(super) async fn settled(&self) {
        while self.lock().leaving >= LEAVING {
            self.left.notified().await;
        }
    }

    /// Makes room for `peer`, or says why there is none.
    pub(super) fn enter(self: &Arc<Self>, peer: SocketAddr, now: Instant) -> Result<Seat, Reason> {
        let mut inner = self.lock();
        let at = network(peer.ip());
        let here = inner.unknown_at.get(&at);
        if here.is_some_and(|here| here.len() >= self.limits.unknown_per_address) {
            let oldest = here.and_then(|here| inner.longest_waiting(here.iter(), now));
            inner.displace(oldest, Reason::AddressShed, now).map_err(|()| Reason::Address)?;
        }
        let taken = inner.total - inner.leaving;
        if inner.unknown.len() >= self.limits.unknown || taken >= self.limits.connections {
            let oldest = inner.longest_waiting(inner.unknown.keys(), now);
            inner.displace(oldest, Reason::Shed, now).map_err(|()| Reason::Full)?;
        }
        let number = inner.next;
        inner.next += 1;
        inner.total += 1;
        let guest = Arc::new(Guest {
            peer,
            progress: Mutex::new(Progress::new(now)),
            sooner: Notify::new(),
            displaced: CancellationToken::new(),
        });
        inner.unknown.insert(number, Arc::clone(&guest));
        inner.unknown_at.entry(at).or_default().insert(number);
        inner.show(self.listener);
        drop(inner);
        let (connections, held) = (Arc::clone(self), Mutex::default());
        Ok(Seat { guest, knocks: Arc::default(), connections, number, held })
    }

    /// The system has no file left: displaces one that waits, so that the next one gets its file.
    pub(super) fn out_of_files(&self, detail: &str) {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.refusals.note(Reason::Files, None, detail, now);
        let oldest = inner.longest_waiting(inner.unknown.keys(), now);
        let _nobody_waits = inner.displace(oldest, Reason::Shed, now);
    }
}

impl Inner {
    /// Of these the oldest that keeps us waiting; one that never asked anything, if there is one.
    fn longest_waiting<'a>(&self, of: impl Iterator<Item = &'a u64> + Clone, now: Instant) -> Option<u64> {
        let waiting = |asked: bool| {
            of.clone().copied().find(|number| {
                self.unknown.get(number).is_some_and(|guest| {
                    let progress = guest.progress();
                    progress.has_asked() == asked && progress.is_waiting(now)
                })
            })
        };
        waiting(false).or_else(|| waiting(true))
    }

    fn displace(&mut self, number: Option<u64>, reason: Reason, now: Instant) -> Result<(), ()> {
        let number = number.ok_or(())?;
        let guest = self.forget(number).ok_or(())?;
        self.leaving += 1;
        self.refusals.note(reason, Some(guest.peer), "", now);
        guest.displaced.cancel();
        Ok(())
    }

    /// Takes it out of the unknown ones.
    fn forget(&mut self, number: u64) -> Option<Arc<Guest>> {
        let guest = self.unknown.remove(&number)?;
        let at = network(guest.peer.ip());
        if let Some(here) = self.unknown_at.get_mut(&at) {
            here.remove(&number);
            if here.is_empty() {
                self.unknown_at.remove(&at);
            }
        }
        Some(guest)
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 connections")]
    fn show(&self, listener: &'static str) {
        let unknown = self.unknown.len();
        let known = self.total - self.leaving - unknown;
        metrics::gauge!("connections_open", "listener" => listener, "client" => "unknown")
            .set(unknown as f64);
        metrics::gauge!("connections_open", "listener" => listener, "client" => "known").set(known as f64);
    }
}

/// What counts as one address: with IPv6 a customer has at least 64 bits to choose from.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        ip @ IpAddr::V4(_) => ip,
    }
}

impl Guest {
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when it made way for somebody else.
    pub(super) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }

    /// The deadline moved closer.
    pub(super) fn hurry(&self) {
        self.sooner.notify_one();
    }

    /// Resolves when the connection is over, with the reason; `None` when it was displaced, which is
    /// counted already.
    pub(super) async fn over(&self, limits: &Limits) -> Option<Over> {
        loop {
            let deadline = self.progress().deadline(limits);
            if let Some((_, over)) = deadline.filter(|(at, _)| *at <= Instant::now()) {
                return Some(over);
            }
            let overdue = async {
                match deadline {
                    Some((at, _)) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.displaced.cancelled() => return None,
                () = self.sooner.notified() => {}
                // It may have moved away meanwhile.
                () = overdue => {}
            }
        }
    }
}

impl Seat {
    pub(super) fn limits(&self) -> &Limits {
        &self.connections.limits
    }

    /// Whether the client has shown who it is.
    pub(super) fn is_known(&self) -> bool {
        !self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The client has shown that it is `name`, by a credential others may share. Beyond the connections one
    /// client, one credential or one address may have it stays unknown.
    pub(super) fn vouch(&self, name: &str, credential: Option<&str>) {
        let mut own = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.is_empty() {
            return;
        }
        let client = [Held::Client(name.into()), Held::Address(network(self.guest.peer.ip()))];
        let held: Vec<Held> =
            client.into_iter().chain(credential.map(|shown| Held::Credential(shown.into()))).collect();
        let mut inner = self.connections.lock();
        let limits = &self.connections.limits;
        let is_full = |held: &Held| {
            let most = if matches!(held, Held::Client(_)) { limits.per_peer } else { limits.per_share };
            inner.known.get(held).is_some_and(|count| *count >= most)
        };
        if held.iter().any(is_full) || inner.forget(self.number).is_none() {
            return;
        }
        for held in &held {
            *inner.known.entry(held.clone()).or_default() += 1;
        }
        inner.show(self.connections.listener);
        *own = held;
        drop(inner);
        self.guest.progress().vouched();
        self.guest.hurry();
    }

    pub(super) fn note(&self, reason: Reason, detail: &str) {
        self.connections.note(reason, Some(self.guest.peer), detail);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inner = self.connections.lock();
        inner.total -= 1;
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(PoisonError::into_inner));
        // An unknown one that is not there any more was displaced.
        if held.is_empty() && inner.forget(self.number).is_none() {
            inner.leaving -= 1;
        }
        for held in held {
            if let Entry::Occupied(mut count) = inner.known.entry(held) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        inner.show(self.connections.listener);
        drop(inner);
        self.connections.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn peer(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], port))
    }

    fn connections(limits: Limits) -> Arc<Connections> {
        Connections::new("test", limits)
    }

    fn small() -> Limits {
        Limits {
            connections: 8,
            unknown: 4,
            unknown_per_address: 2,
            per_peer: 3,
            per_share: 4,
            ..Limits::default()
        }
    }

    fn displaced(seat: &Seat) -> bool {
        seat.guest.displaced.is_cancelled()
    }

    #[test]
    fn an_address_displaces_its_own_first() {
        let connections = connections(small());
        let now = Instant::now();
        let healthy = connections.enter(peer(1, 1), now).unwrap();
        let silent: Vec<_> = (0..20).map(|port| connections.enter(peer(2, port), now).unwrap()).collect();
        assert!(!displaced(&healthy));
        assert_eq!(silent.iter().filter(|seat| !displaced(seat)).count(), 2);
        assert!(!displaced(silent.last().unwrap()), "the newest stays");
    }

    #[test]
    fn a_full_listener_displaces_who_waits_longest_and_never_the_known() {
        let connections = connections(small());
        let now = Instant::now();
        let zone = connections.enter(peer(1, 1), now).unwrap();
        zone.vouch("zone-1", None);
        let asked = connections.enter(peer(2, 1), now).unwrap();
        let request = asked.guest.progress().asked(false, now);
        asked.guest.progress().arrived(request);
        let kept = connections.enter(peer(3, 1), now).unwrap();
        let before = kept.guest.progress().asked(false, now);
        kept.guest.progress().answered(before, true, now);
        let silent: Vec<_> = (10..30).map(|last| connections.enter(peer(last, 1), now).unwrap()).collect();
        assert!(!displaced(&zone) && !displaced(&asked) && !displaced(&kept));
        assert_eq!(silent.iter().filter(|seat| !displaced(seat)).count(), 2);
        drop(silent);
        let inner = connections.lock();
        assert_eq!((inner.total, inner.leaving, inner.unknown.len()), (3, 0, 2));
    }

    #[test]
    fn who_works_is_not_displaced_and_the_newcomer_is_refused() {
        let connections = connections(small());
        let now = Instant::now();
        let working: Vec<_> = (0..2)
            .map(|port| {
                let seat = connections.enter(peer(1, port), now).unwrap();
                let request = seat.guest.progress().asked(false, now);
                seat.guest.progress().arrived(request);
                seat
            })
            .collect();
        assert_eq!(connections.enter(peer(1, 9), now).err(), Some(Reason::Address));
        assert!(connections.enter(peer(2, 1), now).is_ok(), "another address has room");
        drop(working);
        assert!(connections.enter(peer(1, 9), now).is_ok());
    }

    #[test]
    fn known_clients_may_take_everything_but_no_single_one() {
        let connections = connections(small());
        let now = Instant::now();
        let mut seats = Vec::new();
        for (number, zone) in ["a", "b", "c"].iter().enumerate() {
            for port in 0..3_u16 {
                let Ok(seat) = connections.enter(peer(u8::try_from(number).unwrap(), port), now) else {
                    continue;
                };
                seat.vouch(zone, None);
                seats.push(seat);
            }
        }
        assert_eq!(seats.len(), 8);
        assert_eq!(connections.enter(peer(9, 1), now).err(), Some(Reason::Full));
        seats.truncate(3);
        let fourth = connections.enter(peer(9, 1), now).unwrap();
        fourth.vouch("a", None);
        assert!(connections.lock().unknown.contains_key(&fourth.number), "its fourth counts as unknown");
    }

    #[test]
    fn names_that_a_token_makes_up_fill_no_more_than_its_share() {
        let (connections, now) = (connections(small()), Instant::now());
        let known = |last: u8, n: u16, token: &str| {
            let seat = connections.enter(peer(last, n), now).unwrap();
            seat.vouch(&format!("proxy-{last}-{n}"), Some(token));
            seat
        };
        // From many addresses with one token, and from one address with many tokens.
        let stolen: Vec<_> = (0..7).map(|n| known(n, 1, "stolen")).collect();
        assert_eq!(stolen.iter().filter(|seat| seat.is_known()).count(), 4);
        drop(stolen);
        let tokens: Vec<_> = (0..7).map(|n| known(1, n, &format!("token-{n}"))).collect();
        assert_eq!(tokens.iter().filter(|seat| seat.is_known()).count(), 4);
        assert!(known(2, 1, "honest").is_known());
        drop(tokens);
        assert!(connections.lock().known.is_empty(), "who left counts no more");
    }

    #[test]
    fn five_hundred_zones_may_sit_behind_one_address() {
        let limits = Limits::default().for_connections(10_000).keeping_room_for_the_known();
        let (connections, now) = (connections(limits), Instant::now());
        // All of them come at once, with two connections each, and only then show who they are.
        let zones: Vec<_> = (0..1000).map(|port| connections.enter(peer(1, port), now).unwrap()).collect();
        for (n, seat) in zones.iter().enumerate() {
            seat.vouch(&format!("zone-{}", n / 2), None);
        }
        // Whoever else is at that address waits at its own expense.
        let strangers: Vec<_> =
            (0..5000).map(|port| connections.enter(peer(1, port), now).unwrap()).collect();
        assert!(!zones.iter().any(displaced));
        assert_eq!(strangers.iter().filter(|seat| !displaced(seat)).count(), 1024);
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::2"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_connection() {
        let connections = connections(small());
        let start = Instant::now();
        let seat = connections.enter(peer(1, 1), start).unwrap();
        let over = seat.guest.over(&connections.limits).await;
        assert_eq!(over, Some(Over::Refused(Reason::NoRequest)));
        assert_eq!(start.elapsed(), connections.limits.first_request / 2);
    }
}
