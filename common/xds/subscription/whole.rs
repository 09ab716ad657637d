//! Where a subscription deals with all there is at once, and not name by name.

use std::sync::Arc;

use super::{Collection, Holdings, Interest, Name, NameSet, Offer, Subscription, Updated, Version, Wanted};
use crate::xds::variant;

impl Subscription {
    /// Whether nothing was said on this stream yet, so that the peer is to get all there is.
    pub(super) fn is_fresh(&self) -> bool {
        let idle = self.dirty.is_empty() && self.gone.is_empty() && self.is_accepted() && self.is_plain();
        self.rescan && idle && self.held.is_fresh()
    }

    /// Offers everything of interest at once, without comparing it name by name. Says whether it did: what does not
    /// fit into one response is offered piece by piece.
    pub(super) fn offer_all(
        &mut self,
        collection: &dyn Collection,
        limit: Option<usize>,
        offer: &mut Offer,
    ) -> bool {
        let Offer { updated, .. } = offer;
        self.list_all(collection, updated);
        let mut sizes = updated.iter().map(Wanted::size).chain(self.gone.iter().map(|name| name.len()));
        let fits = limit.is_none_or(|limit| {
            let mut left = limit;
            sizes.all(|size| left.checked_sub(size).inspect(|rest| left = *rest).is_some())
        });
        if !fits {
            updated.clear();
            self.gone.clear();
        }
        self.rescan = !fits;
        fits
    }

    /// Lists what there is of interest, and notes which names there are not.
    fn list_all(&mut self, collection: &dyn Collection, updated: &mut Vec<Wanted>) {
        let Self { interest: Interest { wildcard, names, .. }, gone, .. } = self;
        if *wildcard {
            updated.reserve_exact(collection.len());
            collection.each(&mut |wanted| {
                if !variant::is_variant(&wanted.name) {
                    updated.push(wanted);
                }
            });
            gone.extend(names.iter().filter(|name| collection.version(name).is_none()).map(Name::from));
            return;
        }
        updated.reserve_exact(names.len());
        let most = names.len() * 2 > collection.len();
        if let Some(names) = names.in_order().filter(|_| most) {
            // Both are in order, so that each name is compared with its neighbours only.
            let mut names = names.peekable();
            collection.each(&mut |wanted| {
                while let Some(missing) = names.next_if(|name| **name < *wanted.name) {
                    gone.insert(missing.into());
                }
                if names.next_if(|name| **name == *wanted.name).is_some() {
                    updated.push(wanted);
                }
            });
            gone.extend(names.map(Name::from));
            return;
        }
        for name in names.iter() {
            match collection.get(name) {
                Some(wanted) => updated.push(wanted),
                None => drop(gone.insert(name.into())),
            }
        }
        updated.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Whether the response in flight has something under each of `names`. For many that are not in order it
    /// does not know.
    pub(in crate::xds) fn sends_all(&self, names: &NameSet) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.updated.has_all(names))
    }

    /// Tells everything again that was asked for by name, although the peer holds it, when `other` just did of its
    /// type. Says whether it did.
    pub(in crate::xds) fn renew_everything(&mut self, other: &Self) -> bool {
        let is_simple = !self.interest.wildcard && self.is_plain() && self.flight.is_none();
        if !is_simple || !self.is_accepted() || !other.sends_all(&self.interest.names) {
            return false;
        }
        self.held = Holdings::claimed(std::iter::empty());
        self.dirty.clear();
        self.gone.clear();
        self.rescan = true;
        true
    }

    /// The peer holds what there is in `collection`, but for what waits to be removed, was refused, or got
    /// into doubt since; what came of `sent` is still to be told.
    pub(super) fn rebase(&mut self, collection: Arc<dyn Collection>, sent: &Updated) {
        let since = self.dirty.iter().filter(|name| !sent.contains(name));
        let pending = self.gone.iter().chain(self.refused.names()).chain(since);
        self.held.rebase(collection, pending, &self.interest);
    }

    /// Says that the response in flight is all the peer is to have: it offers the refused versions in it
    /// again, and whatever is not in it goes with it. `version` tells what is in it.
    pub(in crate::xds) fn sent_whole(&mut self, version: impl Fn(&str) -> Option<Version>) {
        let missing: Vec<Name> = self
            .unsettled()
            .filter(|name| version(name).is_none() && self.may_hold(name))
            .map(Name::from)
            .collect();
        let Some(flight) = &mut self.flight else { return };
        for (name, refused) in self.refused.versions() {
            if version(name) == Some(*refused) {
                flight.updated.add(name, *refused);
            }
        }
        flight.removed.extend(missing);
        flight.retry_removals = false;
    }

    /// The names under which the peer may hold something else than what there is now.
    pub(in crate::xds) fn unsettled(&self) -> impl Iterator<Item = &str> {
        let removed = self.flight.iter().flat_map(|flight| &flight.removed);
        let waiting = self.gone.iter().chain(&self.dirty).chain(removed);
        waiting.map(|name| &**name).chain(self.held.exceptions(&self.interest))
    }
}
