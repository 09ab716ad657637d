//! One type on one stream, in server role: what the peer asked for, holds and refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Collection, Name, NamePool, NameSet, Version, Want, Wanted, variant, virtual_host::HostDirectory,
};

mod alive;
mod flight;
mod holdings;
mod interest;
mod narrowing;
mod offer;
mod on_demand;
mod refused;
mod resumed;
mod settle;
mod standing;
mod whole;
mod wide;
pub use alive::StillGood;
pub use flight::{Confirmation, Settled};
use flight::{Flight, Updated};
use holdings::{Holding, Holdings};
pub use interest::Interest;
use narrowing::Narrowing;
use offer::ResponseBudget;
pub use offer::{DeltaPart, Offer};
use refused::RefusedItems;
pub use standing::Standing;
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
    /// What it refused, not to be offered again before it is [reconsidered](Self::reconsider).
    refused: RefusedItems,
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
    /// Hosts that may be asked for before some are forgotten.
    most_hosts: usize,
    /// Of most types nothing is on its way.
    flight: Option<Box<Flight>>,
    /// Where a refusal that names nothing is narrowed.
    narrowing: Option<Box<Narrowing>>,
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
            most_hosts: on_demand::HOSTS,
            interest,
            held,
            refused: RefusedItems::default(),
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
        self.forget_hosts();
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
            // No wildcard covers what is asked for by parameters.
            match self.interest.wildcard && !variant::is_locator(name) {
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
        self.reconsider_some(|_| true);
    }

    /// The same of what `is_meant`. How many names that is.
    pub fn reconsider_some(&mut self, is_meant: impl Fn(&str) -> bool) -> usize {
        if self.is_narrowing() {
            // It is being offered again already.
            return self.refused.names().filter(|name| is_meant(name)).count();
        }
        let (refused, mut kept) = self.refused.reconsider_some(is_meant);
        let count = refused.len() + kept.len();
        refused.into_keys().for_each(|name| self.doubt(name));
        self.gone.append(&mut kept);
        count
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
        self.refused.versions()
    }

    /// Whether the peer goes on with an older version of something it refused. What it never had it does without.
    pub fn keeps_older(&self) -> bool {
        self.refused.keeps_older()
    }

    /// Notes whether the peer came with something from an earlier stream that it did not name.
    pub(super) fn note_unnamed(&mut self, has_unnamed: bool) {
        self.refused.note_unnamed(has_unnamed);
    }

    /// Whether the peer refused to drop this.
    pub fn is_kept(&self, name: &str) -> bool {
        self.refused.is_kept(name)
    }

    /// Whether the peer refused nothing of what it was told.
    pub fn is_accepted(&self) -> bool {
        self.refused.is_empty()
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
        self.refused.forget(name);
        self.dirty.remove(name);
        self.gone.remove(name);
        self.asked.remove(name);
    }

    fn set_aside(&mut self, name: &str) {
        self.foreign.remove(name);
        self.refused.set_aside(name);
        if let Some(flight) = &mut self.flight {
            flight.set_aside(name);
        }
    }

    fn drop_uninteresting(&mut self) {
        let interest = &self.interest;
        self.held.narrow(interest);
        self.foreign.retain(|name, _| interest.covers(name));
        self.refused.retain(|name| interest.covers(name));
        self.dirty.retain(|name| interest.covers(name));
        self.gone.retain(|name| interest.covers(name));
        self.asked.retain(|name| interest.covers(name));
        if let Some(flight) = &mut self.flight {
            flight.retain(|name| interest.covers(name));
        }
    }
}
