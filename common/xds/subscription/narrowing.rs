//! Who refuses a response and names nothing in it may have meant any item. Halves of it are offered again, one after
//! the other, until the bad items stand alone: with one of two thousand the others have arrived after some twenty
//! responses.
//!
//! Whoever is under suspicion counts as refused meanwhile, so whatever else happens to it happens as it does to what
//! is refused.

use std::{collections::VecDeque, mem};

use super::{Name, Offer, Subscription, Want, find};

/// Halves that are offered for one refusal. Where nearly everything is bad, narrowing would take twice as many responses
/// as there are items; the rest waits until what was refused is reconsidered.
const TRIALS: usize = 512;

/// The search for what was meant.
#[derive(Debug, Default)]
pub(super) struct Narrowing {
    /// What is offered together next.
    groups: VecDeque<Vec<Name>>,
    /// How many more are offered.
    left: usize,
    /// The last response was one of these, so that something else may come first now.
    tried_last: bool,
}

impl Narrowing {
    /// Something among `names` was refused, nobody knows what.
    pub(super) fn suspect(&mut self, mut names: Vec<Name>) {
        if names.len() < 2 {
            return;
        }
        if self.groups.is_empty() && !self.tried_last {
            self.left = TRIALS;
        }
        let second = names.split_off(names.len().div_ceil(2));
        self.groups.push_front(second);
        self.groups.push_front(names);
    }

    /// Something else was sent.
    pub(super) fn pause(&mut self) {
        self.tried_last = false;
    }

    fn next(&mut self) -> Option<Vec<Name>> {
        let Some(left) = self.left.checked_sub(1) else {
            self.groups.clear();
            return None;
        };
        let group = self.groups.pop_front()?;
        self.left = left;
        Some(group)
    }
}

impl Subscription {
    /// From now on a refusal that names nothing is narrowed.
    pub fn narrow(&mut self) {
        self.narrowing.get_or_insert_default();
    }

    /// Whether some of what counts as refused is under suspicion only.
    pub fn is_narrowing(&self) -> bool {
        self.narrowing.as_ref().is_some_and(|narrowing| !narrowing.groups.is_empty())
    }

    /// Whether it is the turn of what is under suspicion, when there may be something else to say as well.
    pub(super) fn must_try(&self) -> bool {
        self.is_narrowing() && self.narrowing.as_ref().is_some_and(|narrowing| !narrowing.tried_last)
    }

    /// Offers the next group, as far as it is still under suspicion; says whether there was one.
    pub(super) fn offer_suspects(&mut self, want: &dyn Want, offer: &mut Offer) -> bool {
        let Some(mut narrowing) = mem::take(&mut self.narrowing) else { return false };
        narrowing.tried_last = false;
        while !narrowing.tried_last
            && let Some(group) = narrowing.next()
        {
            let wanted = group.iter().filter_map(|name| {
                let refused = self.refused.versions().get(name)?;
                find(want, self.type_url, name).filter(|wanted| wanted.version == *refused)
            });
            offer.updated.extend(wanted);
            narrowing.tried_last = !offer.updated.is_empty();
        }
        let tries = narrowing.tried_last;
        self.narrowing = Some(narrowing);
        tries
    }

    /// A response with these was refused, and nothing in it named.
    pub(super) fn suspect(&mut self, names: Vec<Name>) {
        if let Some(narrowing) = &mut self.narrowing {
            narrowing.suspect(names);
        }
    }
}

#[cfg(test)]
mod tests;
