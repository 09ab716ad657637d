//! How a response in flight ends, and what the peer holds after that.

use std::sync::Arc;

use super::{Confirmation, Holding, Name, Settled, Subscription, Version};

impl Subscription {
    /// Settles the response in flight. `None`: the nonce is not that of the response in flight, and
    /// nothing happened.
    pub fn settle(&mut self, nonce: u64, verdict: &Confirmation) -> Option<Settled> {
        let mut flight = *self.flight.take_if(|flight| flight.nonce == nonce)?;
        let accused = flight.accused(verdict);
        // Who refuses all of several may have meant one, and have taken the others.
        if accused.len() == 1 || accused.len() < flight.len() {
            // Before it is forgotten what it held when this was sent.
            let lacked = accused.iter().filter(|name| self.holding(name) == Holding::Nothing).cloned();
            let lacked: Vec<Name> = lacked.collect();
            self.refused.lack(lacked);
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
        let is_told = completed && accused.is_empty() && self.refused.has_no_versions() && self.is_plain();
        if is_told {
            self.refused.lack_nothing();
            let news = self.held.exceptions(&self.interest).filter_map(|name| flight.updated.get(name));
            let news: Vec<(Name, Version)> = news.collect();
            news.into_iter()
                .for_each(|(name, version)| self.held.set(name, Holding::At(version), &self.interest));
        } else {
            flight.updated.each(&mut |name, version| {
                if accused.contains(name) {
                    // It may keep the older one or have taken this one in part.
                    self.held.set(Arc::clone(name), Holding::Something, &self.interest);
                    self.refused.refuse(Arc::clone(name), version);
                } else {
                    self.refused.set_aside(name);
                    self.held.set(Arc::clone(name), Holding::At(version), &self.interest);
                }
            });
        }
        for name in flight.removed {
            self.refused.forget(&name);
            if !accused.contains(&name) {
                self.held.set(name, Holding::Nothing, &self.interest);
                continue;
            }
            // It may have dropped the resource all the same.
            self.held.set(Arc::clone(&name), Holding::Something, &self.interest);
            if flight.retry_removals {
                self.gone.insert(name);
            } else {
                self.refused.keep(name);
            }
        }
        Some(Settled { nonce, accepted: items - accused.len(), refused: accused.into_iter().collect() })
    }
}
