//! One type on one stream, in server role: what the peer asked for, holds and refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use super::{Name, Version, Want, Wanted};

mod flight;
use flight::Flight;
pub use flight::{Settled, Verdict};
#[cfg(test)]
mod tests;

/// The name that stands for every resource of a type.
pub(super) const WILDCARD: &str = "*";

/// The state of one (stream, type) pair. What it costs follows what was [touched](Self::touch); only a
/// new wildcard or a [rescan](Self::rescan) looks at everything.
#[derive(Debug)]
pub struct Subscription {
    type_url: &'static str,
    interest: Interest,
    /// What the peer holds. No version: it may hold something, nobody can say what.
    held: BTreeMap<Name, Option<Version>>,
    /// Versions the peer refused, not to be offered again before they are [reconsidered](Self::reconsider).
    refused: BTreeMap<Name, Version>,
    /// Names whose wanted version may differ from what the peer holds.
    dirty: BTreeSet<Name>,
    /// Names that were found held but no longer wanted, waiting for their turn to be removed.
    gone: BTreeSet<Name>,
    rescan: bool,
    /// The peer was promised an answer, even if there is nothing to say.
    owed: bool,
    /// Bytes of the names the peer said it holds when it came. What is not there any more is forgotten once
    /// it was told, but nobody comes back to take that into account.
    came_with: usize,
    flight: Option<Flight>,
}

/// Which resources of the type the peer asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// All of them.
    pub wildcard: bool,
    /// These by name, besides.
    names: BTreeSet<Name>,
    bytes: usize,
}

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
pub enum Part {
    /// Both, in one response.
    All,
    /// Additions and changes.
    Updates,
    /// Removals.
    Removals,
}

impl Subscription {
    /// The state after the first request of a type. `held` is what the peer says it kept from an earlier
    /// stream; a version that is not one of ours is unlike every other.
    pub fn open<'a>(
        type_url: &'static str,
        subscribe: impl IntoIterator<Item = &'a str>,
        held: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let held = held.into_iter().map(|(name, version)| (Name::from(name), Version::parse(version)));
        let mut opened = Self {
            type_url,
            interest: Interest::default(),
            held: held.collect(),
            refused: BTreeMap::new(),
            dirty: BTreeSet::new(),
            gone: BTreeSet::new(),
            rescan: true,
            owed: true,
            came_with: 0,
            flight: None,
        };
        opened.came_with = opened.held.keys().map(|name| name.len()).sum();
        for name in subscribe {
            if name == WILDCARD {
                opened.interest.wildcard = true;
            } else {
                opened.held.entry(name.into()).or_insert(None);
                opened.interest.insert(name.into());
            }
        }
        opened.drop_uninteresting();
        opened
    }

    /// Adds to what the peer is interested in. A name is answered even when the peer is thought to hold
    /// it: it may have dropped the resource before it asked again.
    pub fn subscribe<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            if name == WILDCARD {
                self.rescan |= !mem::replace(&mut self.interest.wildcard, true);
            } else {
                self.interest.insert(name.into());
                self.doubt(name.into());
            }
        }
    }

    /// Takes away from what the peer is interested in. A name that the wildcard still covers is sent
    /// again, because the peer drops what it unsubscribed from.
    pub fn unsubscribe<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            if name == WILDCARD {
                self.interest.wildcard = false;
                self.drop_uninteresting();
            } else if !self.interest.wildcard {
                self.interest.remove(name);
                self.forget(name);
            } else if self.interest.remove(name) {
                self.doubt(name.into());
            } else {
                self.renew(&name.into());
            }
        }
    }

    /// Says that the wanted version of a name may have changed.
    pub fn touch(&mut self, name: &Name) {
        if self.interest.covers(name) {
            self.dirty.insert(Arc::clone(name));
        }
    }

    /// Says that anything may have changed.
    pub fn rescan(&mut self) {
        self.rescan = true;
    }

    /// Promises the peer an answer, even if there is nothing to say.
    pub fn owe(&mut self) {
        self.owed = true;
    }

    /// Tells again what there is under a name although the peer holds it or knows that there is nothing.
    pub fn renew(&mut self, name: &Name) {
        let sent = self.flight.as_ref().is_some_and(|flight| flight.updated.contains_key(name));
        if sent || self.held.contains_key(name) || self.interest.names.contains(name) {
            self.doubt(Arc::clone(name));
        }
    }

    /// Offers again what the peer refused, as it is: the reason may have been its surroundings.
    pub fn reconsider(&mut self) {
        for name in mem::take(&mut self.refused).into_keys() {
            self.doubt(name);
        }
    }

    /// The next response, numbered `nonce`: `None` when the peer is up to date, still owes an answer, or
    /// the state of the type is not known yet. `limit` bounds its bytes, but one item always goes.
    pub fn next(&mut self, want: &dyn Want, part: Part, limit: Option<usize>, nonce: u64) -> Option<Offer> {
        if self.flight.is_some() || !want.ready(self.type_url) {
            return None;
        }
        if mem::take(&mut self.rescan) {
            self.scan(want);
        }
        let mut offer = Offer::default();
        let mut room = Room { limit, used: 0 };
        if part != Part::Removals {
            self.offer_updates(want, &mut room, &mut offer);
        }
        if part != Part::Updates && !offer.more {
            self.offer_removals(want, &mut room, &mut offer);
        }
        let promised = part != Part::Removals && mem::take(&mut self.owed);
        if offer.updated.is_empty() && offer.removed.is_empty() && !promised {
            return None;
        }
        // Who was told that more follows waits for it, even if by then there is nothing left to say.
        self.owed |= offer.more;
        self.flight = Some(Flight::new(nonce, &offer));
        Some(offer)
    }

    /// Settles the response in flight. `None`: the nonce is not that of the response in flight, and
    /// nothing happened.
    pub fn settle(&mut self, nonce: u64, verdict: &Verdict) -> Option<Settled> {
        let flight = self.flight.take_if(|flight| flight.nonce == nonce)?;
        let accused = flight.accused(verdict);
        let items = flight.updated.len() + flight.removed.len();
        for (name, version) in flight.updated {
            if accused.contains(&name) {
                // It may keep the older one or have taken this one in part.
                self.held.insert(Arc::clone(&name), None);
                self.refused.insert(name, version);
            } else {
                self.refused.remove(&name);
                self.held.insert(name, Some(version));
            }
        }
        for name in flight.removed {
            self.refused.remove(&name);
            if !accused.contains(&name) {
                self.held.remove(&name);
                continue;
            }
            // It may have dropped the resource all the same.
            self.held.insert(Arc::clone(&name), None);
            if flight.retry_removals {
                self.gone.insert(name);
            }
        }
        Some(Settled { nonce, accepted: items - accused.len(), refused: accused.into_iter().collect() })
    }

    /// Which type this is about.
    pub fn type_url(&self) -> &'static str {
        self.type_url
    }

    /// What the peer asked for.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Bytes of the names the peer made this side remember.
    pub fn bytes(&self) -> usize {
        self.came_with + self.interest.bytes
    }

    /// The names whose current version the peer refused, with that version.
    pub fn refused(&self) -> &BTreeMap<Name, Version> {
        &self.refused
    }

    /// Names in the response in flight that were added or changed.
    pub fn in_flight(&self) -> Option<impl Iterator<Item = &Name>> {
        self.flight.as_ref().map(|flight| flight.updated.keys())
    }

    /// Whether additions or changes may be waiting to be sent.
    pub fn has_updates(&self) -> bool {
        self.rescan || self.owed || !self.dirty.is_empty()
    }

    /// Whether the peer was promised an answer.
    pub fn is_owed(&self) -> bool {
        self.owed
    }

    /// Whether everything known was sent, settled or not.
    pub fn is_drained(&self) -> bool {
        !self.has_updates() && self.gone.is_empty()
    }

    /// How many names are waiting to be looked at.
    pub fn pending(&self) -> usize {
        self.dirty.len() + self.gone.len()
    }

    /// Says that the response in flight is all the peer is to have: it offers the refused versions in it
    /// again, and whatever is not in it goes with it.
    pub(super) fn sent_whole(&mut self, set: &BTreeMap<Name, Wanted>) {
        let Some(flight) = &mut self.flight else { return };
        for (name, version) in &self.refused {
            if set.get(name).is_some_and(|wanted| wanted.version == *version) {
                flight.updated.insert(Arc::clone(name), *version);
            }
        }
        flight.removed.extend(self.held.keys().filter(|name| !set.contains_key(*name)).cloned());
        flight.retry_removals = false;
    }

    /// Whether the peer holds, or may hold, something under this name.
    pub(super) fn may_hold(&self, name: &str) -> bool {
        self.held.contains_key(name)
    }

    /// Whether the peer is known to hold something under this name.
    pub(super) fn surely_holds(&self, name: &str) -> bool {
        self.held.get(name).is_some_and(Option::is_some)
    }

    fn offer_updates(&mut self, want: &dyn Want, room: &mut Room, offer: &mut Offer) {
        while let Some(name) = self.dirty.pop_first() {
            match want.get(self.type_url, &name) {
                Some(wanted) if !self.is_settled(&name, wanted.version) => {
                    if !room.admit(wanted.size()) {
                        offer.more = true;
                        self.dirty.insert(name);
                        return;
                    }
                    offer.updated.push(wanted);
                }
                None if self.held.contains_key(&name) => {
                    self.gone.insert(name);
                }
                _ => {}
            }
        }
    }

    fn offer_removals(&mut self, want: &dyn Want, room: &mut Room, offer: &mut Offer) {
        while let Some(name) = self.gone.pop_first() {
            // It may have come back, or been forgotten, while it waited.
            if !self.held.contains_key(&name) || want.get(self.type_url, &name).is_some() {
                continue;
            }
            if !room.admit(name.len()) {
                offer.more = true;
                self.gone.insert(name);
                return;
            }
            offer.removed.push(name);
        }
    }

    fn is_settled(&self, name: &str, version: Version) -> bool {
        self.held.get(name) == Some(&Some(version)) || self.refused.get(name) == Some(&version)
    }

    /// Compares everything. Takes over the shared names on the way, so that what a resuming peer listed
    /// is not kept once per peer.
    fn scan(&mut self, want: &dyn Want) {
        if !self.interest.wildcard {
            self.dirty.extend(self.interest.names.iter().cloned());
            return;
        }
        let mut before = mem::take(&mut self.held);
        want.each(self.type_url, &mut |name, version| {
            if let Some(held) = before.remove(name) {
                self.held.insert(Arc::clone(name), held);
            }
            if !self.is_settled(name, version) {
                self.dirty.insert(Arc::clone(name));
            }
        });
        self.gone.extend(before.keys().cloned());
        self.held.append(&mut before);
    }

    /// Nobody knows any more what the peer holds under this name; whatever is in flight will not tell.
    fn doubt(&mut self, name: Name) {
        self.set_aside(&name);
        self.held.insert(Arc::clone(&name), None);
        self.dirty.insert(name);
    }

    fn forget(&mut self, name: &str) {
        self.set_aside(name);
        self.held.remove(name);
        self.dirty.remove(name);
        self.gone.remove(name);
    }

    fn set_aside(&mut self, name: &str) {
        self.refused.remove(name);
        if let Some(flight) = &mut self.flight {
            flight.set_aside(name);
        }
    }

    fn drop_uninteresting(&mut self) {
        let interest = &self.interest;
        self.held.retain(|name, _| interest.covers(name));
        self.refused.retain(|name, _| interest.covers(name));
        self.dirty.retain(|name| interest.covers(name));
        self.gone.retain(|name| interest.covers(name));
        if let Some(flight) = &mut self.flight {
            flight.retain(|name| interest.covers(name));
        }
    }
}

impl Interest {
    /// Whether it includes this name.
    pub fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// The names that were asked for one by one.
    pub fn names(&self) -> &BTreeSet<Name> {
        &self.names
    }

    fn insert(&mut self, name: Name) {
        let bytes = name.len();
        if self.names.insert(name) {
            self.bytes += bytes;
        }
    }

    fn remove(&mut self, name: &str) -> bool {
        let removed = self.names.remove(name);
        if removed {
            self.bytes -= name.len();
        }
        removed
    }
}

/// What still fits into a response.
struct Room {
    limit: Option<usize>,
    used: usize,
}

impl Room {
    /// Takes `size` bytes if they fit. The first item always does, or nothing would ever move.
    fn admit(&mut self, size: usize) -> bool {
        let fits = self.used == 0 || self.limit.is_none_or(|limit| self.used + size <= limit);
        if fits {
            self.used += size.max(1);
        }
        fits
    }
}
