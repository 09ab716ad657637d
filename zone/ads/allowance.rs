//! How much proxies with one token bring along at a time. A token may be good for any number of names, and each resource
//! takes memory and work here, on global and in other zones.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::time::Instant;

use super::{
    node::{ProxyId, ProxyKind},
    size::{BYTES_OF_INBOUND, TAGS_OF_INBOUND},
};

/// Ingresses and egresses with one token: each has a catalogue of the whole zone.
const EDGES: usize = 128;
/// How often it is looked who is not there any more, while somebody has all there is for one.
const LOOK: Duration = Duration::from_secs(1);

/// Proxies with one token bring along all that they may.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "proxies with this token bring along as many inbounds as one token may have, which are {0} of {bytes} bytes and {tags} \
     tags each; give each a token of its own",
    bytes = BYTES_OF_INBOUND,
    tags = TAGS_OF_INBOUND
)]
pub struct AllowanceSpent(usize);

/// What each token has brought along.
pub(super) struct Allowances {
    most: usize,
    taken: Mutex<TakenAllowances>,
}

#[derive(Default)]
struct TakenAllowances {
    by_proxy: BTreeMap<ProxyId, SharesOfProxy>,
    by_token: HashMap<Arc<str>, usize>,
    next: u64,
    looked: Option<Instant>,
}

/// What one proxy has of it: what is stored, and what may be about to be, each with its number.
#[derive(Debug, Default)]
struct SharesOfProxy {
    stored: Option<(u64, BroughtShare)>,
    pending: BTreeMap<u64, BroughtShare>,
}

/// What it brought along at one time.
#[derive(Clone, Debug)]
struct BroughtShare {
    token: Arc<str>,
    weight: usize,
}

/// Something is about to be stored, for which there is room.
#[must_use]
pub(super) struct PendingShare(u64);

impl Allowances {
    /// So many inbounds for each token.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, TakenAllowances> {
        // Nothing below panics between two related changes.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for what `proxy` brings along, which counts as so many inbounds, by the token with this fingerprint.
    /// `is_there` says of a proxy whether what it brought is still stored.
    ///
    /// # Errors
    /// [`AllowanceSpent`].
    pub(super) fn take(
        &self,
        proxy: &ProxyId,
        token: &str,
        weight: usize,
        is_there: impl Fn(&ProxyId) -> bool,
    ) -> Result<PendingShare, AllowanceSpent> {
        let weight = match proxy.kind {
            ProxyKind::Dataplane => weight.max(1),
            ProxyKind::Ingress | ProxyKind::Egress => self.most.div_ceil(EDGES),
        };
        let mut taken = self.lock();
        // What it has goes when this is stored, so the larger of the two counts.
        let exceeds = |taken: &TakenAllowances| {
            let own = taken.by_proxy.get(proxy).map_or(0, |shares| shares.weight_of(token));
            let all = taken.by_token.get(token).copied().unwrap_or_default();
            weight > own && all - own + weight > self.most
        };
        if exceeds(&taken) {
            taken.forget_gone(is_there);
        }
        if exceeds(&taken) {
            return Err(AllowanceSpent(self.most));
        }
        taken.next += 1;
        let number = taken.next;
        let share = BroughtShare { token: token.into(), weight };
        taken.change(proxy, |shares| _ = shares.pending.insert(number, share));
        Ok(PendingShare(number))
    }

    /// What there was room for is stored; or not, and what was there before is what counts.
    pub(super) fn settle(&self, proxy: &ProxyId, pending: PendingShare, is_stored: bool) {
        let PendingShare(number) = pending;
        self.lock().change(proxy, |shares| {
            let Some(share) = shares.pending.remove(&number).filter(|_| is_stored) else { return };
            // Each that is stored saw the one before it.
            if shares.stored.as_ref().is_none_or(|(stored, _)| *stored < number) {
                shares.stored = Some((number, share));
            }
        });
    }

    /// Which share of `proxy` is stored at the moment.
    pub(super) fn share_of(&self, proxy: &ProxyId) -> Option<u64> {
        self.lock().by_proxy.get(proxy)?.stored.as_ref().map(|(number, _)| *number)
    }

    /// What `proxy` brought along and had this share is deleted. It may have come back meanwhile.
    pub(super) fn release(&self, proxy: &ProxyId, share: Option<u64>) {
        self.lock().change(proxy, |shares| _ = shares.stored.take_if(|(number, _)| Some(*number) == share));
    }
}

impl SharesOfProxy {
    fn all(&self) -> impl Iterator<Item = &BroughtShare> {
        self.stored.iter().map(|(_, share)| share).chain(self.pending.values())
    }

    /// One of them is what it has in the end, so the largest counts.
    fn weight_of(&self, token: &str) -> usize {
        self.all().filter(|share| *share.token == *token).map(|share| share.weight).max().unwrap_or_default()
    }

    fn tokens(&self) -> BTreeSet<Arc<str>> {
        self.all().map(|share| Arc::clone(&share.token)).collect()
    }
}

impl TakenAllowances {
    /// Changes what a proxy has, and what its tokens have by that.
    fn change(&mut self, proxy: &ProxyId, change: impl FnOnce(&mut SharesOfProxy)) {
        let mut shares = self.by_proxy.remove(proxy).unwrap_or_default();
        for token in shares.tokens() {
            if let Some(weight) = self.by_token.get_mut(&token) {
                *weight = weight.saturating_sub(shares.weight_of(&token));
                if *weight == 0 {
                    self.by_token.remove(&token);
                }
            }
        }
        change(&mut shares);
        for token in shares.tokens() {
            let weight = shares.weight_of(&token);
            *self.by_token.entry(token).or_default() += weight;
        }
        if shares.all().next().is_some() {
            self.by_proxy.insert(proxy.clone(), shares);
        }
    }

    /// Somebody else may have deleted what was brought along.
    fn forget_gone(&mut self, is_there: impl Fn(&ProxyId) -> bool) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now - looked < LOOK) {
            return;
        }
        self.looked = Some(now);
        let stored = self.by_proxy.iter().filter(|(_, shares)| shares.stored.is_some());
        let gone: Vec<ProxyId> = stored.map(|(proxy, _)| proxy).filter(|p| !is_there(p)).cloned().collect();
        for proxy in &gone {
            self.change(proxy, |shares| shares.stored = None);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        model::Labels,
        proto::kuma::mesh::v1alpha1::{
            Dataplane,
            dataplane::{Networking, networking::TransparentProxying},
        },
    };

    use super::*;
    use crate::ads::size;

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
    fn what_comes_twice_at_once_and_is_not_stored_leaves_nothing() {
        let allowances = Allowances::new(10);
        let a = proxy("a");
        let take = |weight| allowances.take(&a, "t", weight, |_| true).unwrap();
        let has = || allowances.lock().by_token.get("t").copied().unwrap_or_default();
        let (first, second) = (take(4), take(3));
        assert_eq!(has(), 4, "one of them is what it has in the end");
        allowances.settle(&a, first, false);
        assert_eq!(has(), 3);
        allowances.settle(&a, second, false);
        assert_eq!(has(), 0);
        assert!(allowances.lock().by_proxy.is_empty());
        // What was stored before either of them stays, and what was stored last counts, whichever is told first.
        assert!(comes(&allowances, "a", "t", 2));
        let (first, second) = (take(9), take(8));
        allowances.settle(&a, second, false);
        allowances.settle(&a, first, false);
        assert_eq!(has(), 2);
        let (first, second) = (take(9), take(8));
        allowances.settle(&a, second, true);
        allowances.settle(&a, first, true);
        assert_eq!(has(), 8);
        // What is pending is not released with what is stored.
        let (stored, pending) = (allowances.share_of(&a), take(5));
        allowances.release(&a, stored);
        assert_eq!((has(), allowances.share_of(&a)), (5, None));
        allowances.settle(&a, pending, false);
        assert_eq!(has(), 0);
    }

    /// Whatever of it is long: tags, outbounds, names it may reach.
    #[test]
    fn a_token_has_its_part_by_bytes() {
        let allowances = Allowances::new(20_000);
        let reachable_services = vec!["x".repeat(250); 1000];
        let transparent_proxying = Some(TransparentProxying { reachable_services, ..Default::default() });
        let networking = Some(Networking { transparent_proxying, ..Networking::default() });
        let weight = size::weight(&Dataplane { networking, ..Dataplane::default() }, &Labels::default());
        let let_in = (0..1000).filter(|n| comes(&allowances, &format!("p-{n}"), "thief", weight)).count();
        assert!((30..=40).contains(&let_in), "ten megabytes: {let_in}");
        assert!(comes(&allowances, "web", "other", 1));
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
