//! What a peer holds: what it was sent, by reference, and what differs from that.

use std::{collections::BTreeMap, sync::Arc};

use super::{Collection, Interest, Name, Version};

/// What a peer holds under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// Nothing.
    Nothing,
    /// It may hold something, nobody can say what.
    Something,
    /// This.
    At(Version),
}

impl Holding {
    fn of(version: Option<Version>) -> Self {
        version.map_or(Self::Nothing, Self::At)
    }
}

/// What a peer holds of one type.
#[derive(Debug)]
pub(super) struct Holdings {
    base: Base,
    /// Names of interest of which `base` does not tell the truth.
    exceptions: BTreeMap<Name, Holding>,
}

#[derive(Debug)]
enum Base {
    /// A peer that just came may hold something under each name it asks for, and under no other.
    Asked,
    /// It holds what it is interested in of these.
    Sent(Arc<dyn Collection>),
}

impl Base {
    fn get(&self, name: &str, interest: &Interest) -> Holding {
        match self {
            Self::Asked if interest.names().contains(name) => Holding::Something,
            Self::Sent(collection) if interest.covers(name) => Holding::of(collection.version(name)),
            Self::Asked | Self::Sent(_) => Holding::Nothing,
        }
    }
}

impl Holdings {
    /// What a peer that just came says it holds.
    pub(super) fn claimed(claims: impl Iterator<Item = (Name, Option<Version>)>) -> Self {
        let holding = |version: Option<Version>| version.map_or(Holding::Something, Holding::At);
        Self { base: Base::Asked, exceptions: claims.map(|(name, v)| (name, holding(v))).collect() }
    }

    /// What a peer holds that has what there is in `collection`, but for `exceptions`.
    pub(super) fn resumed(collection: Arc<dyn Collection>, exceptions: BTreeMap<Name, Holding>) -> Self {
        Self { base: Base::Sent(collection), exceptions }
    }

    pub(super) fn get(&self, name: &str, interest: &Interest) -> Holding {
        self.exceptions.get(name).copied().unwrap_or_else(|| self.base.get(name, interest))
    }

    pub(super) fn set(&mut self, name: Name, holding: Holding, interest: &Interest) {
        if self.base.get(&name, interest) == holding {
            self.exceptions.remove(&name);
        } else {
            self.exceptions.insert(name, holding);
        }
    }

    /// Whether nothing is known but which names it asked for.
    pub(super) fn is_fresh(&self) -> bool {
        matches!(self.base, Base::Asked) && self.exceptions.is_empty()
    }

    /// Whether all that a peer which just came says of this name is that it asks for it.
    pub(super) fn was_only_asked(&self, name: &str, interest: &Interest) -> bool {
        interest.names().contains(name) && !self.exceptions.contains_key(name)
    }

    /// Whether the peer is thought to hold what there is in here, but for exceptions.
    pub(super) fn is_from(&self, collection: &Arc<dyn Collection>) -> bool {
        // Two of them at one place are one, whatever the pointers say about what they can do.
        let place = |collection: &Arc<dyn Collection>| Arc::as_ptr(collection).cast::<()>();
        matches!(&self.base, Base::Sent(base) if place(base) == place(collection))
    }

    /// The names of which something else is known than that the peer holds what it was sent at last.
    pub(super) fn exceptions<'a>(&'a self, interest: &'a Interest) -> impl Iterator<Item = &'a str> {
        let asked = matches!(self.base, Base::Asked).then(|| interest.names().iter());
        let asked = asked.into_iter().flatten().filter(|name| !self.exceptions.contains_key(*name));
        self.exceptions.keys().map(|name| &**name).chain(asked)
    }

    /// What a peer that just came says it holds.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Name> {
        self.exceptions.keys()
    }

    /// Bytes of the names of exceptions.
    pub(super) fn bytes(&self) -> usize {
        self.exceptions.keys().map(|name| name.len()).sum()
    }

    /// The interest turned away from this name.
    pub(super) fn forget(&mut self, name: &str) {
        self.exceptions.remove(name);
    }

    /// The interest got narrower.
    pub(super) fn narrow(&mut self, interest: &Interest) {
        self.exceptions.retain(|name, _| interest.covers(name));
    }

    /// The interest is about to get wider than `interest`, by more than names.
    pub(super) fn widen(&mut self, interest: &Interest) {
        let Base::Sent(collection) = std::mem::replace(&mut self.base, Base::Asked) else { return };
        // Where it asked by name and holds nothing, that is an exception now.
        for name in interest.names().iter().filter(|name| collection.version(name).is_none()) {
            self.exceptions.entry(name.into()).or_insert(Holding::Nothing);
        }
        collection.each(&mut |wanted| {
            if interest.covers(&wanted.name) {
                self.exceptions.entry(wanted.name).or_insert(Holding::At(wanted.version));
            }
        });
        let base = &self.base;
        self.exceptions.retain(|name, holding| base.get(name, interest) != *holding);
    }

    /// The peer holds what there is in `collection`, but for what is an exception and for `pending`.
    pub(super) fn rebase<'a>(
        &mut self,
        collection: Arc<dyn Collection>,
        pending: impl Iterator<Item = &'a Name>,
        interest: &Interest,
    ) {
        for name in pending {
            let holding = self.get(name, interest);
            self.exceptions.insert(Arc::clone(name), holding);
        }
        self.base = Base::Sent(collection);
        let base = &self.base;
        self.exceptions.retain(|name, holding| base.get(name, interest) != *holding);
    }

    /// Takes over this copy of a name, which others share, if it is one of the exceptions.
    pub(super) fn adopt(&mut self, name: &Name) {
        if let Some((own, holding)) = self.exceptions.remove_entry(&**name) {
            drop(own);
            self.exceptions.insert(Arc::clone(name), holding);
        }
    }

    /// Visits the names under which the peer may hold something.
    pub(super) fn each(&self, interest: &Interest, visit: &mut dyn FnMut(&Name)) {
        match &self.base {
            Base::Asked => {
                let others = interest.names().iter().filter(|name| !self.exceptions.contains_key(*name));
                others.for_each(|name| visit(&name.into()));
            }
            Base::Sent(collection) => collection.each(&mut |wanted| {
                if interest.covers(&wanted.name) && !self.exceptions.contains_key(&wanted.name) {
                    visit(&wanted.name);
                }
            }),
        }
        let held = self.exceptions.iter().filter(|(_, holding)| **holding != Holding::Nothing);
        held.for_each(|(name, _)| visit(name));
    }
}
