//! What a peer is told next.

use std::{collections::BTreeSet, mem, sync::Arc};

use super::{Flight, Holding, Name, Subscription, Updated, Version, Want, Wanted, find};

/// What to send next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// New or changed resources.
    pub updated: Vec<Wanted>,
    /// Names the peer shall drop.
    pub removed: Vec<Name>,
    /// The byte limit cut this short; the rest follows once this one is settled.
    pub more: bool,
}

/// Which half of a difference to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaPart {
    /// Both, in one response.
    All,
    /// Additions and changes.
    Updates,
    /// Removals.
    Removals,
}

impl Subscription {
    /// The next response, numbered `nonce`: `None` when the peer is up to date, still owes an answer, or
    /// the state of the type is not known yet. `limit` bounds its bytes, but one item always goes.
    pub fn next(
        &mut self,
        want: &dyn Want,
        part: DeltaPart,
        limit: Option<usize>,
        nonce: u64,
    ) -> Option<Offer> {
        if self.flight.is_some() || !want.ready(self.type_url) {
            return None;
        }
        self.believe_foreign(want);
        let offer = self.offer(want, part, limit, nonce);
        self.hosts.clear();
        offer
    }

    fn offer(&mut self, want: &dyn Want, part: DeltaPart, limit: Option<usize>, nonce: u64) -> Option<Offer> {
        let collection = want.collection(self.type_url);
        let mut offer = Offer::default();
        let mut room = ResponseBudget { limit, used: 0 };
        let mut everything = None;
        if part != DeltaPart::Removals && self.must_try() && self.offer_suspects(want, &mut offer) {
            self.flight = Some(Box::new(Flight::new(nonce, &offer, Updated::of(&offer), None)));
            return Some(offer);
        }
        if part != DeltaPart::Removals && self.is_fresh() {
            everything = collection.clone().filter(|all| self.offer_all(&**all, limit, &mut offer));
        }
        if everything.is_none() {
            if mem::take(&mut self.rescan) {
                self.scan(want);
            }
            if part != DeltaPart::Removals {
                self.offer_updates(want, &mut room, &mut offer);
            }
        }
        if !offer.more {
            self.offer_removals(want, part, &mut room, &mut offer);
        }
        // What nobody said has changed is what the peer holds.
        let completes = collection.filter(|_| self.dirty.is_empty());
        let promised = part != DeltaPart::Removals && mem::take(&mut self.owed);
        if offer.updated.is_empty() && offer.removed.is_empty() && !promised {
            if part != DeltaPart::Removals && self.offer_suspects(want, &mut offer) {
                self.flight = Some(Box::new(Flight::new(nonce, &offer, Updated::of(&offer), None)));
                return Some(offer);
            }
            if let Some(newest) = completes.filter(|newest| !self.held.is_from(newest)) {
                self.rebase(newest, &Updated::default());
            }
            return None;
        }
        // Who was told that more follows waits for it, even if by then there is nothing left to say.
        self.owed |= offer.more;
        let updated = match everything {
            Some(of) => Updated::All {
                of,
                interest: self.interest.clone(),
                aside: BTreeSet::new(),
                count: offer.updated.len(),
            },
            None => Updated::of(&offer),
        };
        self.is_new &= offer.more;
        if let Some(narrowing) = &mut self.narrowing {
            narrowing.pause();
        }
        self.flight = Some(Box::new(Flight::new(nonce, &offer, updated, completes)));
        Some(offer)
    }

    fn offer_updates(&mut self, want: &dyn Want, room: &mut ResponseBudget, offer: &mut Offer) {
        while let Some(name) = self.dirty.pop_first() {
            if self.expand(want, &name).is_some() && want.get(self.type_url, &name).is_none() {
                continue;
            }
            match find(want, self.type_url, &name) {
                Some(wanted) if !self.is_settled(&name, wanted.version) => {
                    if !room.admit(wanted.size()) {
                        offer.more = true;
                        self.dirty.insert(name);
                        return;
                    }
                    self.asked.remove(&name);
                    offer.updated.push(wanted);
                }
                None if self.may_hold(&name) => {
                    self.gone.insert(name);
                }
                _ => {}
            }
        }
    }

    /// Offers what is gone; beside updates only what the peer asked for and never had.
    fn offer_removals(
        &mut self,
        want: &dyn Want,
        part: DeltaPart,
        room: &mut ResponseBudget,
        offer: &mut Offer,
    ) {
        if part == DeltaPart::Updates {
            if self.asked.is_empty() && !self.is_new {
                return;
            }
            let held = mem::take(&mut self.gone);
            let (absent, held) = held.into_iter().partition(|name| self.was_only_asked(name));
            self.gone = absent;
            self.offer_gone(want, room, offer);
            self.gone.extend::<BTreeSet<Name>>(held);
        } else {
            self.offer_gone(want, room, offer);
        }
    }

    fn offer_gone(&mut self, want: &dyn Want, room: &mut ResponseBudget, offer: &mut Offer) {
        while let Some(name) = self.gone.pop_first() {
            // It may have come back, or been forgotten, while it waited.
            if !self.may_hold(&name) || !self.is_vacant(want, &name) {
                continue;
            }
            if !room.admit(name.len()) {
                offer.more = true;
                self.gone.insert(name);
                return;
            }
            self.asked.remove(&name);
            offer.removed.push(name);
        }
    }

    /// Whether the peer asked for this name and cannot hold anything under it.
    pub(super) fn was_only_asked(&self, name: &str) -> bool {
        self.asked.contains(name) || (self.is_new && self.held.was_only_asked(name, &self.interest))
    }

    pub(super) fn is_settled(&self, name: &str, version: Version) -> bool {
        self.holding(name) == Holding::At(version) || self.refused.is_refused(name, version)
    }

    /// Compares everything. Takes over the shared names on the way, so that what a resuming peer listed
    /// is not kept once per peer.
    fn scan(&mut self, want: &dyn Want) {
        if !self.interest.wildcard {
            self.dirty.extend(self.interest.names.iter().map(Name::from));
            self.scan_wide();
            return;
        }
        let (mut there, mut dirty) = (0, mem::take(&mut self.dirty));
        want.each(self.type_url, &mut |name, version| {
            there += usize::from(self.may_hold(name));
            self.held.adopt(name);
            if self.interest.covers(name) && !self.is_settled(name, version) {
                dirty.insert(Arc::clone(name));
            }
        });
        self.dirty = dirty;
        let mut held = Vec::new();
        self.held.each(&self.interest, &mut |name| held.push(Arc::clone(name)));
        if held.len() > there {
            held.retain(|name| self.is_vacant(want, name));
            self.gone.extend(held);
        }
        self.scan_wide();
    }

    /// What the peer says it holds at the version that the author of a resource gave it, it holds as it is.
    fn believe_foreign(&mut self, want: &dyn Want) {
        for (name, text) in mem::take(&mut self.foreign) {
            let Some(wanted) = find(want, self.type_url, &name) else { continue };
            if wanted.own_version.is_some_and(|own| *own.text == *text) {
                self.held.set(name, Holding::At(wanted.version), &self.interest);
            }
        }
    }
}

/// What still fits into a response.
pub(super) struct ResponseBudget {
    pub(super) limit: Option<usize>,
    pub(super) used: usize,
}

impl ResponseBudget {
    /// Takes `size` bytes if they fit. The first item always does, or nothing would ever move.
    pub(super) fn admit(&mut self, size: usize) -> bool {
        let fits = self.used == 0 || self.limit.is_none_or(|limit| self.used + size <= limit);
        if fits {
            self.used += size.max(1);
        }
        fits
    }
}
