//! One type on one stream, in server role: what the peer asked for, holds and refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use super::{Collection, Name, NamePool, NameSet, Version, Want, Wanted, virtual_host::HostDirectory};

mod alive;
mod flight;
mod holdings;
mod narrowing;
mod resumed;
mod standing;
mod whole;
mod wide;
pub use alive::StillGood;
pub use flight::{Confirmation, Settled};
use flight::{Flight, Updated};
use holdings::{Holding, Holdings};
use narrowing::Narrowing;
pub use standing::Standing;
use wide::WideNames;
pub(super) use wide::find;
#[cfg(test)]
mod tests;

/// Bytes of the longest version that the author of a resource can have given it.
const LONGEST_FOREIGN: usize = 128;

/// The name that stands for every resource of a type.
pub(super) const WILDCARD: &str = "*";

/// The state of one (stream, type) pair. What it costs follows what was [touched](Self::touch); only a
/// new wildcard or a [rescan](Self::rescan) looks at everything.
#[derive(Debug)]
pub struct Subscription {
    type_url: &'static str,
    interest: Interest,
    held: Holdings,
    /// It came with something that it did not name.
    has_unnamed: bool,
    /// Versions the peer refused, not to be offered again before they are [reconsidered](Self::reconsider).
    refused: BTreeMap<Name, Version>,
    /// Names of what was refused of which the peer has no older version.
    lacking: BTreeSet<Name>,
    /// Removals the peer refused, not to be tried again before they are [reconsidered](Self::reconsider).
    kept: BTreeSet<Name>,
    /// Names whose wanted version may differ from what the peer holds.
    dirty: BTreeSet<Name>,
    /// Names that were found held but no longer wanted, waiting for their turn to be removed.
    gone: BTreeSet<Name>,
    /// Names the peer asked for on this stream and was not answered yet: it holds nothing under them, so that
    /// one does not exist can be said at any time.
    asked: BTreeSet<Name>,
    /// Not all was sent yet, so that the same holds of every name it asked for, does not claim to hold and was not
    /// sent.
    is_new: bool,
    rescan: bool,
    /// The peer was promised an answer, even if there is nothing to say.
    owed: bool,
    /// Bytes of the names the peer said it holds when it came. What is not there any more is forgotten once
    /// it was told, but nobody comes back to take that into account.
    came_with: usize,
    /// What it says it holds at versions that are none of ours: perhaps those the author of a resource gave them.
    foreign: BTreeMap<Name, Box<str>>,
    /// What was read of virtual hosts for the response that is being made.
    hosts: HostDirectory,
    flight: Option<Flight>,
    /// Where a refusal that names nothing is narrowed.
    narrowing: Option<Box<Narrowing>>,
}

/// Which resources of the type the peer asked for.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// All of them.
    pub wildcard: bool,
    /// These by name, besides.
    names: NameSet,
    /// Of these names what is more than the name of a resource.
    wide: Option<Box<WideNames>>,
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
pub enum DeltaPart {
    /// Both, in one response.
    All,
    /// Additions and changes.
    Updates,
    /// Removals.
    Removals,
}

impl Subscription {
    /// The state after the first request of a type. `held` is what the peer says it kept from an earlier
    /// stream; a version that is not one of ours is unlike every other, unless the author of the resource gave it.
    pub fn open<'a>(
        type_url: &'static str,
        subscribe: impl IntoIterator<Item = &'a str>,
        held: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut foreign: BTreeMap<Name, Box<str>> = BTreeMap::new();
        let claims = held.into_iter().map(|(name, text)| {
            let (name, version) = (Name::from(name), Version::parse(text));
            if version.is_none() && (1..=LONGEST_FOREIGN).contains(&text.len()) {
                foreign.insert(Name::clone(&name), Box::from(text));
            }
            (name, version)
        });
        let held = Holdings::claimed(claims);
        let mut interest = Interest::default();
        let names = subscribe.into_iter().filter(|name| {
            let all = *name == WILDCARD;
            interest.wildcard |= all;
            // Some clients list one empty name when they want nothing.
            !all && !name.is_empty()
        });
        interest.names = names.collect();
        let wide = interest.names.iter().filter(|name| wide::is_wide(type_url, name));
        let wide: Vec<Name> = wide.map(Name::from).collect();
        let mut opened = Self {
            type_url,
            came_with: held.bytes() + foreign.values().map(|text| text.len()).sum::<usize>(),
            foreign,
            hosts: HostDirectory::default(),
            interest,
            held,
            has_unnamed: false,
            refused: BTreeMap::new(),
            lacking: BTreeSet::new(),
            kept: BTreeSet::new(),
            dirty: BTreeSet::new(),
            gone: BTreeSet::new(),
            asked: BTreeSet::new(),
            is_new: true,
            rescan: true,
            owed: true,
            flight: None,
            narrowing: None,
        };
        wide.iter().for_each(|name| opened.note_asked(name));
        opened.claim_members();
        opened.drop_uninteresting();
        opened
    }

    /// Adds to what the peer is interested in. A name is answered even when the peer is thought to hold
    /// it: it may have dropped the resource before it asked again.
    pub fn subscribe<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            if name == WILDCARD {
                self.widen();
            } else if !name.is_empty() {
                self.interest.names.insert(name);
                self.note_asked(name);
                self.ask(name.into());
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
                continue;
            }
            let was_asked = self.interest.names.remove(name);
            let is_member = self.note_dropped(name);
            match self.interest.wildcard {
                true if was_asked => self.ask(name.into()),
                true => self.renew(&name.into()),
                false if is_member && was_asked => self.ask(name.into()),
                false if is_member => {}
                false => self.forget(name),
            }
        }
    }

    /// Says that the wanted versions of these names may have changed.
    pub fn touch(&mut self, names: &[Name]) {
        let interest = &self.interest;
        // Many that are in order become a set without being compared with more than their neighbours.
        let mut touched = names.iter().filter(|name| interest.covers(name)).cloned().collect();
        self.dirty.append(&mut touched);
        self.touch_wide(names);
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
        self.renew_wide(name);
        let sent = self.flight.as_ref().is_some_and(|flight| flight.updated.contains(name));
        if sent || self.may_hold(name) || self.interest.names.contains(name) {
            self.doubt(Arc::clone(name));
        }
    }

    /// Offers again what the peer refused, as it is: the reason may have been its surroundings.
    pub fn reconsider(&mut self) {
        if self.is_narrowing() {
            // It is being offered again already.
            return;
        }
        for name in mem::take(&mut self.refused).into_keys() {
            self.doubt(name);
        }
        self.gone.append(&mut self.kept);
    }

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
            self.flight = Some(Flight::new(nonce, &offer, Updated::of(&offer), None));
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
                self.flight = Some(Flight::new(nonce, &offer, Updated::of(&offer), None));
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
        self.flight = Some(Flight::new(nonce, &offer, updated, completes));
        Some(offer)
    }

    /// Settles the response in flight. `None`: the nonce is not that of the response in flight, and
    /// nothing happened.
    pub fn settle(&mut self, nonce: u64, verdict: &Confirmation) -> Option<Settled> {
        let mut flight = self.flight.take_if(|flight| flight.nonce == nonce)?;
        let accused = flight.accused(verdict);
        // Who refuses all of several may have meant one, and have taken the others.
        if accused.len() == 1 || accused.len() < flight.len() {
            // Before it is forgotten what it held when this was sent.
            let lacked = accused.iter().filter(|name| self.holding(name) == Holding::Nothing).cloned();
            let lacked: Vec<Name> = lacked.collect();
            self.lacking.extend(lacked);
        }
        if self.narrowing.is_some() && flight.is_vague(verdict) {
            let mut names = Vec::new();
            flight.updated.each(&mut |name, _| names.push(Arc::clone(name)));
            self.suspect(names);
        }
        let items = flight.len();
        let completes = flight.completes.take();
        let completed = completes.map(|collection| self.rebase(collection, &flight.updated)).is_some();
        // What was sent is what there is in the collection; only exceptions say something else.
        let is_told = completed && accused.is_empty() && self.refused.is_empty() && self.is_plain();
        if is_told {
            self.lacking.clear();
            let news = self.held.exceptions(&self.interest).filter_map(|name| flight.updated.get(name));
            let news: Vec<(Name, Version)> = news.collect();
            news.into_iter()
                .for_each(|(name, version)| self.held.set(name, Holding::At(version), &self.interest));
        } else {
            flight.updated.each(&mut |name, version| {
                if accused.contains(name) {
                    // It may keep the older one or have taken this one in part.
                    self.held.set(Arc::clone(name), Holding::Something, &self.interest);
                    self.refused.insert(Arc::clone(name), version);
                } else {
                    self.refused.remove(name);
                    self.lacking.remove(name);
                    self.held.set(Arc::clone(name), Holding::At(version), &self.interest);
                }
            });
        }
        for name in flight.removed {
            self.refused.remove(&name);
            self.lacking.remove(&name);
            self.kept.remove(&name);
            if !accused.contains(&name) {
                self.held.set(name, Holding::Nothing, &self.interest);
                continue;
            }
            // It may have dropped the resource all the same.
            self.held.set(Arc::clone(&name), Holding::Something, &self.interest);
            if flight.retry_removals {
                self.gone.insert(name);
            } else {
                self.kept.insert(name);
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
        self.came_with + self.interest.names.bytes()
    }

    /// Lets the names the peer asked for be kept once for all peers that ask for the same.
    pub fn share_names(&mut self, pool: &NamePool) {
        self.interest.names.share(pool);
    }

    /// The names whose current version the peer refused, with that version.
    pub fn refused(&self) -> &BTreeMap<Name, Version> {
        &self.refused
    }

    /// Whether the peer goes on with an older version of something it refused. What it never had it does without.
    pub fn keeps_older(&self) -> bool {
        self.refused.keys().any(|name| self.has_unnamed || !self.lacking.contains(name))
    }

    /// Notes whether the peer came with something from an earlier stream that it did not name.
    pub(super) fn note_unnamed(&mut self, has_unnamed: bool) {
        self.has_unnamed = has_unnamed;
    }

    /// Whether the peer refused to drop this.
    pub fn is_kept(&self, name: &str) -> bool {
        self.kept.contains(name)
    }

    /// Whether the peer refused nothing of what it was told.
    pub fn is_accepted(&self) -> bool {
        self.refused.is_empty() && self.kept.is_empty()
    }

    /// Whether a response waits for its answer.
    pub fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Names in the response in flight that were added or changed.
    pub fn in_flight(&self) -> Vec<Name> {
        let mut names = Vec::new();
        if let Some(flight) = &self.flight {
            flight.updated.each(&mut |name, _| names.push(Arc::clone(name)));
        }
        names
    }

    /// Whether additions or changes may be waiting to be sent.
    pub fn has_updates(&self) -> bool {
        self.rescan || self.owed || !self.dirty.is_empty() || self.is_narrowing()
    }

    /// Whether the peer was promised an answer.
    pub fn is_owed(&self) -> bool {
        self.owed
    }

    /// Whether the response in flight lacks a part that follows once it is settled.
    pub fn is_cut_short(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.is_cut_short)
    }

    /// Whether everything known was sent, settled or not.
    pub fn is_drained(&self) -> bool {
        !self.has_updates() && self.gone.is_empty()
    }

    /// How many names are waiting to be looked at.
    pub fn pending(&self) -> usize {
        self.dirty.len() + self.gone.len()
    }

    /// About how many names there is something to say; [`usize::MAX`] when everything has to be looked at.
    pub fn burden(&self) -> usize {
        if self.rescan { usize::MAX } else { self.pending() }
    }

    /// Whether the peer holds, or may hold, something under this name.
    pub(super) fn may_hold(&self, name: &str) -> bool {
        self.holding(name) != Holding::Nothing
    }

    /// Whether the peer is known to hold something under this name.
    pub(super) fn surely_holds(&self, name: &str) -> bool {
        matches!(self.holding(name), Holding::At(_))
    }

    fn holding(&self, name: &str) -> Holding {
        self.held.get(name, &self.interest)
    }

    fn widen(&mut self) {
        if self.interest.wildcard {
            return;
        }
        self.held.widen(&self.interest);
        if let Some(flight) = &mut self.flight {
            flight.completes = None;
        }
        self.interest.wildcard = true;
        self.rescan = true;
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
    fn was_only_asked(&self, name: &str) -> bool {
        self.asked.contains(name) || (self.is_new && self.held.was_only_asked(name, &self.interest))
    }

    fn is_settled(&self, name: &str, version: Version) -> bool {
        self.holding(name) == Holding::At(version) || self.refused.get(name) == Some(&version)
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
            if !self.is_settled(name, version) {
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

    /// The peer wants an answer about this name, under which it has nothing now.
    fn ask(&mut self, name: Name) {
        self.doubt(Arc::clone(&name));
        self.asked.insert(name);
    }

    /// Nobody knows any more what the peer holds under this name; whatever is in flight will not tell.
    fn doubt(&mut self, name: Name) {
        self.set_aside(&name);
        self.held.set(Arc::clone(&name), Holding::Something, &self.interest);
        self.dirty.insert(name);
    }

    fn forget(&mut self, name: &str) {
        self.set_aside(name);
        self.held.forget(name);
        self.kept.remove(name);
        self.dirty.remove(name);
        self.gone.remove(name);
        self.asked.remove(name);
    }

    fn set_aside(&mut self, name: &str) {
        self.foreign.remove(name);
        self.refused.remove(name);
        self.lacking.remove(name);
        if let Some(flight) = &mut self.flight {
            flight.set_aside(name);
        }
    }

    fn drop_uninteresting(&mut self) {
        let interest = &self.interest;
        self.held.narrow(interest);
        self.foreign.retain(|name, _| interest.covers(name));
        self.refused.retain(|name, _| interest.covers(name));
        self.lacking.retain(|name| interest.covers(name));
        self.kept.retain(|name| interest.covers(name));
        self.dirty.retain(|name| interest.covers(name));
        self.gone.retain(|name| interest.covers(name));
        self.asked.retain(|name| interest.covers(name));
        if let Some(flight) = &mut self.flight {
            flight.retain(|name| interest.covers(name));
        }
    }
}

impl Interest {
    /// Whether it includes this name.
    pub fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name) || self.wide.as_ref().is_some_and(|wide| wide.covers(name))
    }

    /// The names that were asked for one by one.
    pub fn names(&self) -> &NameSet {
        &self.names
    }
}

/// What still fits into a response.
struct ResponseBudget {
    limit: Option<usize>,
    used: usize,
}

impl ResponseBudget {
    /// Takes `size` bytes if they fit. The first item always does, or nothing would ever move.
    fn admit(&mut self, size: usize) -> bool {
        let fits = self.used == 0 || self.limit.is_none_or(|limit| self.used + size <= limit);
        if fits {
            self.used += size.max(1);
        }
        fits
    }
}
