//! How many streams there are, and of whom: nobody who has shown who he is takes the places of all others, and nobody who
//! says nothing takes the places of those who do.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::runtime::ToldNowAndThen;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::node::ProxyId;

/// Streams of one proxy. One that asks for each type on a stream of its own has a dozen and, while it connects again,
/// twice as many; a gRPC library may have one for each service its application calls.
const PER_PROXY: usize = 128;
/// Streams with one token that have said nothing yet. Who comes says something at once.
const SILENT: usize = 128;
/// All of those are no more than such a part of the others, beside which they are.
const SILENT_PART: usize = 8;

/// Why there is no place for a stream.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// The proxy has enough.
    #[error("this proxy has as many streams as one may have")]
    Proxy,
    /// Who shows the same token has enough.
    #[error(
        "proxies with this token have as many streams as one token may have; give each a token of its own"
    )]
    Credential,
    /// Who comes from there has enough.
    #[error("proxies at this address have as many streams as one address may have")]
    Address,
    /// There is none left.
    #[error("too many streams on this control plane")]
    Full,
    /// It said nothing, and others came.
    #[error("a stream that says nothing makes way for others")]
    Silent,
}

impl NoPlace {
    const ALL: [Self; 5] = [Self::Proxy, Self::Credential, Self::Address, Self::Full, Self::Silent];

    /// Its value of the metric's label.
    fn label(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Credential => "credential",
            Self::Address => "address",
            Self::Full => "full",
            Self::Silent => "silent",
        }
    }
}

impl From<NoPlace> for Status {
    fn from(error: NoPlace) -> Self {
        Self::resource_exhausted(error.to_string())
    }
}

/// The places for streams whose token was found good.
pub(super) struct StreamPlaces {
    all: usize,
    per_proxy: usize,
    /// Of those with one token, and of those from one address: half, as of connections.
    per_share: usize,
    /// Of those that say nothing: all, and with one token.
    silent: (usize, usize),
    taken: Mutex<TakenPlaces>,
}

#[derive(Default)]
struct TakenPlaces {
    all: usize,
    by: HashMap<PlaceShare, usize>,
    silent: SilentPlaces,
    refusals: [ToldNowAndThen; NoPlace::ALL.len()],
}

/// What a place counts against, besides all of them.
#[derive(Clone, PartialEq, Eq, Hash)]
enum PlaceShare {
    Proxy(ProxyId),
    Credential(Arc<str>),
    Address(IpAddr),
}

impl PlaceShare {
    fn refusal(&self) -> NoPlace {
        match self {
            Self::Proxy(_) => NoPlace::Proxy,
            Self::Credential(_) => NoPlace::Credential,
            Self::Address(_) => NoPlace::Address,
        }
    }
}

/// Streams that have said nothing yet.
#[derive(Default)]
struct SilentPlaces {
    all: usize,
    next: u64,
    /// By whose they are, the oldest first; never empty.
    by: HashMap<PlaceShare, BTreeMap<u64, CancellationToken>>,
}

impl SilentPlaces {
    /// One more of `whose`, and its number. The oldest of theirs makes way for it if they have enough; where there is no
    /// room at all, the oldest of whoever has most.
    fn add(&mut self, whose: &PlaceShare, gives_way: &CancellationToken, (all, each): (usize, usize)) -> u64 {
        if self.by.get(whose).is_some_and(|silent| silent.len() >= each) {
            self.end_oldest(whose);
        } else if self.all >= all {
            let rank = |silent: &BTreeMap<u64, CancellationToken>| {
                (silent.len(), Reverse(silent.keys().next().copied()))
            };
            let most = self.by.iter().max_by_key(|(_, silent)| rank(silent));
            if let Some(most) = most.map(|(whose, _)| whose.clone()) {
                self.end_oldest(&most);
            }
        }
        self.next += 1;
        self.all += 1;
        self.by.entry(whose.clone()).or_default().insert(self.next, gives_way.clone());
        self.next
    }

    fn end_oldest(&mut self, whose: &PlaceShare) {
        let oldest = self.by.get(whose).and_then(|silent| silent.keys().next().copied());
        if let Some(gone) = oldest.and_then(|oldest| self.remove(whose, oldest)) {
            gone.cancel();
        }
    }

    fn remove(&mut self, whose: &PlaceShare, number: u64) -> Option<CancellationToken> {
        let silent = self.by.get_mut(whose)?;
        let gone = silent.remove(&number)?;
        self.all -= 1;
        if silent.is_empty() {
            self.by.remove(whose);
        }
        Some(gone)
    }
}

/// The place of one stream, free again when it is dropped.
pub(super) struct StreamPlace {
    places: Arc<StreamPlaces>,
    from: Option<IpAddr>,
    /// What it counts against once it says something.
    shares: Vec<PlaceShare>,
    state: PlaceState,
}

enum PlaceState {
    /// It has said nothing yet. It is counted by this number, and is to make way when this is cancelled.
    Silent { number: u64, gives_way: CancellationToken },
    /// It counts against its shares.
    Counted,
    /// It is counted nowhere, and about to end.
    Refused,
}

/// Whose silent stream it is that will count against these.
fn silent_share(shares: &[PlaceShare]) -> PlaceShare {
    shares.last().cloned().unwrap_or(PlaceShare::Address(Ipv4Addr::UNSPECIFIED.into()))
}

impl StreamPlaces {
    /// So many.
    pub(super) fn new(all: usize) -> Arc<Self> {
        for reason in NoPlace::ALL {
            metrics::counter!("xds_streams_refused_total", "reason" => reason.label()).absolute(0);
        }
        let per_share = all.div_ceil(2);
        let per_proxy = PER_PROXY.min(per_share);
        let silent = all.div_ceil(SILENT_PART);
        let silent = (silent, SILENT.min(silent));
        Arc::new(Self { all, per_proxy, per_share, silent, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, TakenPlaces> {
        // Nothing in between can panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn most(&self, share: &PlaceShare) -> usize {
        if matches!(share, PlaceShare::Proxy(_)) { self.per_proxy } else { self.per_share }
    }

    /// Why there is no place for one more that counts against these.
    fn refusal(&self, taken: &TakenPlaces, shares: &[PlaceShare]) -> Option<NoPlace> {
        let is_full =
            |share: &&PlaceShare| taken.by.get(*share).is_some_and(|count| *count >= self.most(share));
        match shares.iter().rev().find(is_full) {
            Some(full) => Some(full.refusal()),
            None => (taken.all >= self.all).then_some(NoPlace::Full),
        }
    }

    /// A place for who comes from there and shows a token with this fingerprint, among those that have said nothing yet.
    ///
    /// # Errors
    /// [`NoPlace`] when there would be none for it once it says something.
    pub(super) fn take(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        credential: Option<&str>,
    ) -> Result<StreamPlace, NoPlace> {
        let credential = credential.map(|shown| PlaceShare::Credential(shown.into()));
        let shares: Vec<_> = from.map(PlaceShare::Address).into_iter().chain(credential).collect();
        let mut taken = self.lock();
        if let Some(refusal) = self.refusal(&taken, &shares) {
            return Err(refuse(taken, refusal, from, None));
        }
        let gives_way = CancellationToken::new();
        let number = taken.silent.add(&silent_share(&shares), &gives_way, self.silent);
        drop(taken);
        let state = PlaceState::Silent { number, gives_way };
        Ok(StreamPlace { places: Arc::clone(self), from, shares, state })
    }
}

impl StreamPlace {
    /// Whose requests come on it: of who shows this token or, where none is shown, comes from this address.
    pub(super) fn owner(&self) -> String {
        match silent_share(&self.shares) {
            PlaceShare::Proxy(proxy) => format!("proxy {proxy}"),
            PlaceShare::Credential(fingerprint) => format!("token {fingerprint}"),
            PlaceShare::Address(address) => format!("address {address}"),
        }
    }

    /// What it says first, unless it has to make way before that: then it says nothing. Which proxy it is shows later.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub(super) async fn hear<T>(&mut self, first: impl Future<Output = T>) -> Result<T, NoPlace> {
        let PlaceState::Silent { gives_way, .. } = &self.state else { return Ok(first.await) };
        let said = tokio::select! {
            // What lies there already was said in time.
            biased;
            said = first => said,
            () = gives_way.cancelled() => {
                return Err(refuse(self.places.lock(), NoPlace::Silent, self.from, None));
            }
        };
        self.spoke()?;
        Ok(said)
    }

    /// It counts among those that say something.
    fn spoke(&mut self) -> Result<(), NoPlace> {
        let PlaceState::Silent { number, .. } = self.state else { return Ok(()) };
        let mut taken = self.places.lock();
        // If it is not there, it was to make way and said something before it noticed.
        let _silent = taken.silent.remove(&silent_share(&self.shares), number);
        if let Some(refusal) = self.places.refusal(&taken, &self.shares) {
            self.state = PlaceState::Refused;
            return Err(refuse(taken, refusal, self.from, None));
        }
        self.state = PlaceState::Counted;
        taken.all += 1;
        for share in &self.shares {
            *taken.by.entry(share.clone()).or_default() += 1;
        }
        Ok(())
    }

    /// It is the place of this proxy, as which its bearer was let in.
    ///
    /// # Errors
    /// [`NoPlace`] when that has enough.
    pub(super) fn of(&mut self, proxy: &ProxyId) -> Result<(), NoPlace> {
        self.spoke()?;
        let share = PlaceShare::Proxy(proxy.clone());
        let mut taken = self.places.lock();
        let count = taken.by.entry(share.clone()).or_default();
        if *count >= self.places.most(&share) {
            return Err(refuse(taken, NoPlace::Proxy, None, Some(proxy)));
        }
        *count += 1;
        drop(taken);
        self.shares.push(share);
        Ok(())
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match self.state {
            PlaceState::Silent { number, .. } => {
                let _made_way = taken.silent.remove(&silent_share(&self.shares), number);
                return;
            }
            PlaceState::Counted => {}
            PlaceState::Refused => return,
        }
        taken.all -= 1;
        for share in &self.shares {
            if let Some(count) = taken.by.get_mut(share) {
                *count -= 1;
                if *count == 0 {
                    taken.by.remove(share);
                }
            }
        }
    }
}

/// Counts a refusal, and tells it when that is due; nobody waits for the log with the lock in hand.
fn refuse(
    mut taken: MutexGuard<'_, TakenPlaces>,
    refusal: NoPlace,
    from: Option<IpAddr>,
    proxy: Option<&ProxyId>,
) -> NoPlace {
    metrics::counter!("xds_streams_refused_total", "reason" => refusal.label()).increment(1);
    let due = taken.refusals[refusal as usize].due(Instant::now());
    drop(taken);
    if let Some(count) = due {
        let (from, proxy) = (from.map(tracing::field::display), proxy.map(tracing::field::display));
        tracing::warn!(reason = refusal.label(), count, from, proxy, "refused xDS streams: {refusal}");
    }
    refusal
}

#[cfg(test)]
mod tests;
