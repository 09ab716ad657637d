//! How much proxies with one token bring along at a time. A token may be good for any number of names, and each resource
//! takes memory and work here, on global and in other zones.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::time::Instant;

use super::node::{ProxyId, ProxyKind};

/// Ingresses and egresses with one token: each has a catalogue of the whole zone.
const EDGES: usize = 128;
/// How often it is looked who is not there any more, while somebody has all there is for one.
const LOOK: Duration = Duration::from_secs(1);

/// Proxies with one token bring along all that they may.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "proxies with this token bring along as many inbounds as one token may have, which are {0}; give each a token of its \
     own"
)]
pub struct AllowanceSpent(usize);

/// What each token has brought along.
pub(super) struct Allowances {
    most: usize,
    taken: Mutex<TakenAllowances>,
}

#[derive(Default)]
struct TakenAllowances {
    by_proxy: BTreeMap<ProxyId, BroughtShare>,
    by_token: HashMap<Arc<str>, usize>,
    next: u64,
    looked: Option<Instant>,
}

/// What one proxy has of it.
#[derive(Clone, Debug)]
struct BroughtShare {
    token: Arc<str>,
    weight: usize,
    number: u64,
    is_stored: bool,
}

/// Something is about to be stored, for which there is room.
#[must_use]
pub(super) struct PendingShare {
    number: u64,
    before: Option<BroughtShare>,
}

impl Allowances {
    /// So many inbounds for each token.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, TakenAllowances> {
        // Nothing below panics between two related changes.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for what `proxy` brings along, with so many inbounds, by the token with this fingerprint. `is_there` says
    /// of a proxy whether what it brought is still stored.
    ///
    /// # Errors
    /// [`AllowanceSpent`].
    pub(super) fn take(
        &self,
        proxy: &ProxyId,
        token: &str,
        inbounds: usize,
        is_there: impl Fn(&ProxyId) -> bool,
    ) -> Result<PendingShare, AllowanceSpent> {
        let weight = match proxy.kind {
            ProxyKind::Dataplane => inbounds.max(1),
            ProxyKind::Ingress | ProxyKind::Egress => self.most.div_ceil(EDGES),
        };
        let mut taken = self.lock();
        let before = taken.remove(proxy);
        let exceeds = |taken: &TakenAllowances| {
            taken.by_token.get(token).copied().unwrap_or_default() + weight > self.most
        };
        if exceeds(&taken) {
            taken.forget_gone(is_there);
        }
        if exceeds(&taken) {
            if let Some(before) = before {
                taken.put(proxy, before);
            }
            return Err(AllowanceSpent(self.most));
        }
        taken.next += 1;
        let number = taken.next;
        taken.put(proxy, BroughtShare { token: token.into(), weight, number, is_stored: false });
        Ok(PendingShare { number, before })
    }

    /// What there was room for is stored; or not, and what was there before counts again.
    pub(super) fn settle(&self, proxy: &ProxyId, pending: PendingShare, is_stored: bool) {
        let mut taken = self.lock();
        let Some(share) = taken.by_proxy.get_mut(proxy).filter(|share| share.number == pending.number) else {
            return;
        };
        if is_stored {
            share.is_stored = true;
            return;
        }
        taken.remove(proxy);
        if let Some(before) = pending.before {
            taken.put(proxy, before);
        }
    }

    /// Which share `proxy` has at the moment.
    pub(super) fn share_of(&self, proxy: &ProxyId) -> Option<u64> {
        self.lock().by_proxy.get(proxy).map(|share| share.number)
    }

    /// What `proxy` brought along and had this share is deleted. It may have come back meanwhile.
    pub(super) fn release(&self, proxy: &ProxyId, share: Option<u64>) {
        let mut taken = self.lock();
        if taken.by_proxy.get(proxy).is_some_and(|now| Some(now.number) == share) {
            taken.remove(proxy);
        }
    }
}

impl TakenAllowances {
    fn put(&mut self, proxy: &ProxyId, share: BroughtShare) {
        *self.by_token.entry(Arc::clone(&share.token)).or_default() += share.weight;
        self.by_proxy.insert(proxy.clone(), share);
    }

    fn remove(&mut self, proxy: &ProxyId) -> Option<BroughtShare> {
        let share = self.by_proxy.remove(proxy)?;
        if let Some(weight) = self.by_token.get_mut(&share.token) {
            *weight = weight.saturating_sub(share.weight);
            if *weight == 0 {
                self.by_token.remove(&share.token);
            }
        }
        Some(share)
    }

    /// Somebody else may have deleted what was brought along.
    fn forget_gone(&mut self, is_there: impl Fn(&ProxyId) -> bool) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now - looked < LOOK) {
            return;
        }
        self.looked = Some(now);
        let stored = self.by_proxy.iter().filter(|(_, share)| share.is_stored);
        let gone: Vec<ProxyId> = stored.map(|(proxy, _)| proxy).filter(|p| !is_there(p)).cloned().collect();
        for proxy in &gone {
            self.remove(proxy);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn proxy(name: &str) -> ProxyId {
        ProxyId::new(ProxyKind::Dataplane, "default", name)
    }

    /// A proxy comes with so many inbounds; says whether it may.
    fn comes(allowances: &Allowances, name: &str, token: &str, inbounds: usize) -> bool {
        let taken = allowances.take(&proxy(name), token, inbounds, |_| true);
        taken.map(|pending| allowances.settle(&proxy(name), pending, true)).is_ok()
    }

    #[test]
    fn a_token_has_its_part_by_whatever_names() {
        let allowances = Allowances::new(10);
        assert!(comes(&allowances, "a", "thief", 6) && comes(&allowances, "b", "thief", 0));
        assert!(!comes(&allowances, "c", "thief", 4) && comes(&allowances, "c", "thief", 3));
        assert!(!comes(&allowances, "d", "thief", 1), "one without inbounds counts, too");
        assert!(comes(&allowances, "d", "other", 10));
        assert!(!comes(&allowances, "c", "thief", 4), "nor by growing");
        assert!(comes(&allowances, "a", "thief", 1), "what it says now counts");
        assert!(comes(&allowances, "e", "thief", 5));
        let share = allowances.share_of(&proxy("e"));
        assert!(comes(&allowances, "e", "thief", 5));
        allowances.release(&proxy("e"), share);
        assert!(!comes(&allowances, "f", "thief", 5), "it came back");
        allowances.release(&proxy("e"), allowances.share_of(&proxy("e")));
        assert!(comes(&allowances, "f", "thief", 5));
        assert!(comes(&allowances, "f", "new", 5), "with another token it is on that one's account");
        assert_eq!(allowances.lock().by_token["thief"], 5);
    }

    #[test]
    fn what_was_not_stored_does_not_count() {
        let allowances = Allowances::new(10);
        assert!(comes(&allowances, "a", "t", 2));
        let pending = allowances.take(&proxy("a"), "t", 9, |_| true).unwrap();
        assert!(!comes(&allowances, "b", "t", 5), "it may be about to be");
        allowances.settle(&proxy("a"), pending, false);
        assert!(comes(&allowances, "b", "t", 8));
        assert_eq!(allowances.lock().by_token["t"], 10);
    }

    #[test]
    fn what_somebody_else_deleted_makes_room() {
        let allowances = Allowances::new(10);
        assert!(comes(&allowances, "a", "t", 9));
        let pending = allowances.take(&proxy("b"), "t", 1, |_| true).unwrap();
        assert!(allowances.take(&proxy("c"), "t", 9, |_| false).is_ok());
        allowances.settle(&proxy("b"), pending, true);
        assert_eq!(allowances.lock().by_token["t"], 10, "what is on its way is not gone");
    }

    #[test]
    fn edges_are_few() {
        let allowances = Allowances::new(20_000);
        let edge = |n: usize| ProxyId::new(ProxyKind::Ingress, "", &format!("in-{n}"));
        let let_in = (0..1000).filter(|n| allowances.take(&edge(*n), "t", 0, |_| true).is_ok()).count();
        assert!(let_in <= EDGES && let_in > EDGES - 2, "{let_in}");
    }
}
