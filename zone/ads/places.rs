//! How many streams there are, and of whom: nobody who has shown who he is takes the places of all others.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::runtime::ToldNowAndThen;
use thiserror::Error;
use tokio::time::Instant;
use tonic::Status;

use super::node::ProxyId;

/// Streams of one proxy. One that asks for each type on a stream of its own has a dozen and, while it connects again,
/// twice as many; a gRPC library may have one for each service its application calls.
const PER_PROXY: usize = 128;

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
}

impl NoPlace {
    const ALL: [Self; 4] = [Self::Proxy, Self::Credential, Self::Address, Self::Full];

    /// Its value of the metric's label.
    fn label(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Credential => "credential",
            Self::Address => "address",
            Self::Full => "full",
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
    taken: Mutex<TakenPlaces>,
}

#[derive(Default)]
struct TakenPlaces {
    all: usize,
    by: HashMap<PlaceShare, usize>,
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

/// The place of one stream, free again when it is dropped.
pub(super) struct StreamPlace {
    places: Arc<StreamPlaces>,
    shares: Vec<PlaceShare>,
}

impl StreamPlaces {
    /// So many.
    pub(super) fn new(all: usize) -> Arc<Self> {
        for reason in NoPlace::ALL {
            metrics::counter!("xds_streams_refused_total", "reason" => reason.label()).absolute(0);
        }
        let per_share = all.div_ceil(2);
        let per_proxy = PER_PROXY.min(per_share);
        Arc::new(Self { all, per_proxy, per_share, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, TakenPlaces> {
        // Nothing in between can panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn most(&self, share: &PlaceShare) -> usize {
        if matches!(share, PlaceShare::Proxy(_)) { self.per_proxy } else { self.per_share }
    }

    /// A place for who comes from there and shows a token with this fingerprint. Which proxy that is shows later.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub(super) fn take(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        credential: Option<&str>,
    ) -> Result<StreamPlace, NoPlace> {
        let credential = credential.map(|shown| PlaceShare::Credential(shown.into()));
        let shares: Vec<_> = from.map(PlaceShare::Address).into_iter().chain(credential).collect();
        let mut taken = self.lock();
        let is_full =
            |share: &&PlaceShare| taken.by.get(*share).is_some_and(|count| *count >= self.most(share));
        let refusal = match shares.iter().rev().find(is_full) {
            Some(full) => Some(full.refusal()),
            None => (taken.all >= self.all).then_some(NoPlace::Full),
        };
        if let Some(refusal) = refusal {
            return Err(refuse(taken, refusal, from, None));
        }
        taken.all += 1;
        for share in &shares {
            *taken.by.entry(share.clone()).or_default() += 1;
        }
        Ok(StreamPlace { places: Arc::clone(self), shares })
    }
}

impl StreamPlace {
    /// It is the place of this proxy, as which its bearer was let in.
    ///
    /// # Errors
    /// [`NoPlace`] when that has enough.
    pub(super) fn of(&mut self, proxy: &ProxyId) -> Result<(), NoPlace> {
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use super::*;
    use crate::ads::node::ProxyKind;

    fn at(last: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(10, 0, 0, last).into())
    }

    fn proxy(name: &str) -> ProxyId {
        ProxyId::new(ProxyKind::Dataplane, "default", name)
    }

    #[test]
    fn half_of_all_is_the_most_for_one_token_or_one_address() {
        let places = StreamPlaces::new(8);
        let of_thief: Vec<_> = (0..4).map(|n| places.take(at(n), Some("thief")).unwrap()).collect();
        assert_eq!(places.take(at(9), Some("thief")).err(), Some(NoPlace::Credential), "from anywhere");
        let here: Vec<_> = (0..3).map(|n| places.take(at(0), Some(&n.to_string())).unwrap()).collect();
        assert_eq!(places.take(at(0), Some("4")).err(), Some(NoPlace::Address), "with any token");
        let last = places.take(at(5), None).unwrap();
        assert_eq!(places.take(at(6), Some("other")).err(), Some(NoPlace::Full));
        drop(last);
        drop(places.take(at(6), Some("other")).unwrap());
        drop((of_thief, here));
        let taken = places.lock();
        assert_eq!((taken.all, taken.by.len()), (0, 0), "nothing is kept");
    }

    #[test]
    fn a_proxy_has_some_and_others_get_in() {
        let places = StreamPlaces::new(1000);
        let open = |name: &str| {
            let mut place = places.take(at(1), Some(name)).unwrap();
            place.of(&proxy(name)).map(|()| place)
        };
        let held: Vec<_> = (0..PER_PROXY).map(|_| open("thief").ok().unwrap()).collect();
        assert_eq!(open("thief").err(), Some(NoPlace::Proxy));
        assert_eq!(places.lock().all, PER_PROXY, "who is refused gives his place back");
        let other = open("other").ok().unwrap();
        drop(held);
        assert!(open("thief").is_ok());
        drop(other);
        assert!(places.lock().by.is_empty());
    }

    #[test]
    fn the_number_of_a_reason_is_its_place() {
        for (place, reason) in NoPlace::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
        }
    }
}
