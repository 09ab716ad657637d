//! The newest outgoing resources, made once for all receivers.
//!
//! Most receivers get them as they are. Whoever is kept waiting by rollouts gets those of an index in which these
//! changed nothing; all who wait for the same share them. They are made of the newest by what the rollouts change, so
//! two of them have in common whatever else there is, and going from one to the other costs what differs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{OutgoingForm, OutgoingResources};
use crate::{
    rollouts::{HoldSet, Holds},
    store::index::Index,
};

/// The newest outgoing resources of one form, made by whoever asks first and shared by the others.
pub struct SharedOutgoing<F> {
    form: F,
    newest: Mutex<Option<NewestOutgoing>>,
}

struct NewestOutgoing {
    /// As they are.
    all: Arc<OutgoingResources>,
    holds: Holds,
    /// For those who wait, by what for.
    kept: BTreeMap<HoldSet, KeptOutgoing>,
}

struct KeptOutgoing {
    /// What it was made of.
    of: Arc<OutgoingResources>,
    holds: Holds,
    outgoing: Arc<OutgoingResources>,
}

impl<F: OutgoingForm> SharedOutgoing<F> {
    /// Those of `form`, made when they are asked for.
    pub fn new(form: F) -> Self {
        Self { form, newest: Mutex::new(None) }
    }

    /// Their form.
    pub fn form(&self) -> &F {
        &self.form
    }

    /// Those at least as new as `index`, as they are.
    pub fn at(&self, index: &Arc<Index>) -> Arc<OutgoingResources> {
        let mut place = self.lock();
        Arc::clone(&self.moved_to(&mut place, index).all)
    }

    /// The same for `zone`, which rollouts may keep waiting.
    pub fn for_zone(&self, zone: &str, index: &Arc<Index>) -> Arc<OutgoingResources> {
        let mut place = self.lock();
        let newest = self.moved_to(&mut place, index);
        let names = newest.holds.on(zone);
        newest.without(names, &self.form)
    }

    /// The same for whoever is no zone, and is kept waiting by every rollout until everybody may have it.
    pub fn for_last(&self, index: &Arc<Index>) -> Arc<OutgoingResources> {
        let mut place = self.lock();
        let newest = self.moved_to(&mut place, index);
        let names = newest.holds.all();
        newest.without(names, &self.form)
    }

    fn lock(&self) -> MutexGuard<'_, Option<NewestOutgoing>> {
        // They are replaced whole, so a panic while holding the lock leaves the last one intact.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved_to<'a>(
        &self,
        place: &'a mut Option<NewestOutgoing>,
        index: &Arc<Index>,
    ) -> &'a mut NewestOutgoing {
        let next = match place.take() {
            Some(newest)
                if newest.all.index.store == index.store && newest.all.index.revision >= index.revision =>
            {
                newest
            }
            Some(newest) => newest.followed_to(index, &self.form),
            None => {
                let all = Arc::new(OutgoingResources::of(index, &self.form));
                NewestOutgoing { all, holds: Holds::of(index), kept: BTreeMap::new() }
            }
        };
        place.insert(next)
    }
}

impl NewestOutgoing {
    fn followed_to(self, index: &Arc<Index>, form: &impl OutgoingForm) -> Self {
        let all = Arc::new(self.all.moved_to(index, form));
        let is_same_store = index.store == self.all.index.store;
        let holds = if is_same_store { self.holds.moved_to(index) } else { Holds::of(index) };
        let mut kept = self.kept;
        // Nobody asks any more for what a rollout kept back that is over.
        let held = holds.all();
        kept.retain(|names, _| is_same_store && names.is_subset(&held));
        Self { all, holds, kept }
    }

    fn without(&mut self, names: HoldSet, form: &impl OutgoingForm) -> Arc<OutgoingResources> {
        if names.is_empty() {
            return Arc::clone(&self.all);
        }
        let former = self.kept.get(&names).filter(|kept| kept.holds.keep_the_same(&self.holds, &names));
        let outgoing = match former {
            Some(kept) if Arc::ptr_eq(&kept.of, &self.all) => return Arc::clone(&kept.outgoing),
            // What changed meanwhile leaves in no form.
            Some(kept) if kept.of.is_same(&self.all) => {
                kept.outgoing.shown_at(Arc::new(self.holds.without(&self.all.index, &names)))
            }
            _ => self.all.moved_to(&Arc::new(self.holds.without(&self.all.index, &names)), form),
        };
        let outgoing = Arc::new(outgoing);
        let kept = KeptOutgoing {
            of: Arc::clone(&self.all),
            holds: self.holds.clone(),
            outgoing: Arc::clone(&outgoing),
        };
        self.kept.insert(names, kept);
        outgoing
    }
}
