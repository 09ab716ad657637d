//! The response in flight and how it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Collection, Interest, Name, NameSet, Offer, Version};
use crate::xds::variant;

/// What the peer said about the response in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// All of it is in use.
    Accepted,
    /// It was refused: these items of it, or, when none is named, something in it.
    Refused {
        /// The refused names, if the peer told them.
        items: Vec<String>,
    },
    /// The peer could not look after it at that moment, whatever it was.
    Postponed,
    /// These words name each refused item, followed by a colon and the reason; the rest is in use.
    RefusedInWords(String),
}

/// How a response ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// Which response.
    pub nonce: u64,
    /// How many of its items stand.
    pub accepted: usize,
    /// Names that were refused, or that nobody can tell from a refused one.
    pub refused: Vec<Name>,
}

/// A response that waits for its verdict.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) nonce: u64,
    pub(super) updated: Updated,
    pub(super) removed: BTreeSet<Name>,
    /// Whether removals deserve another try on their own if this is refused: the fault may lie in the
    /// updates they travel with.
    pub(super) retry_removals: bool,
    /// The byte limit left something for the next response.
    pub(super) is_cut_short: bool,
    /// With this response the peer has what there is in here, but for what is known to be pending.
    pub(super) completes: Option<Arc<dyn Collection>>,
}

/// What was added or changed.
#[derive(Debug)]
pub(super) enum Updated {
    /// These.
    Some(BTreeMap<Name, Version>),
    /// Everything there was of interest then, but for what was set aside since.
    All { of: Arc<dyn Collection>, interest: Interest, aside: BTreeSet<Name>, count: usize },
}

impl Default for Updated {
    fn default() -> Self {
        Self::Some(BTreeMap::new())
    }
}

impl Updated {
    /// What `offer` adds or changes.
    pub(super) fn of(offer: &Offer) -> Self {
        Self::Some(offer.updated.iter().map(|w| (Name::clone(&w.name), w.version)).collect())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Some(updated) => updated.len(),
            Self::All { aside, count, .. } => count - aside.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Self::Some(updated) => updated.contains_key(name),
            Self::All { of, interest, aside, .. } => {
                interest.covers(name) && !aside.contains(name) && of.version(name).is_some()
            }
        }
    }

    /// The resource of this name, if it was added or changed.
    pub(super) fn get(&self, name: &str) -> Option<(Name, Version)> {
        match self {
            Self::Some(updated) => {
                updated.get_key_value(name).map(|(name, version)| (Arc::clone(name), *version))
            }
            Self::All { of, .. } => {
                let wanted = self.contains(name).then(|| of.get(name))??;
                Some((wanted.name, wanted.version))
            }
        }
    }

    /// Whether it has something under each of `names`, as far as these are in order.
    pub(super) fn has_all(&self, names: &NameSet) -> bool {
        match (self, names.in_order()) {
            (Self::Some(updated), Some(mut names)) => {
                let mut updated = updated.keys();
                names.all(|name| updated.any(|known| **known == *name))
            }
            (Self::All { .. }, Some(mut names)) => names.all(|name| self.contains(name)),
            (_, None) => false,
        }
    }

    pub(super) fn each(&self, visit: &mut dyn FnMut(&Name, Version)) {
        match self {
            Self::Some(updated) => updated.iter().for_each(|(name, version)| visit(name, *version)),
            Self::All { of, interest, aside, .. } => of.each(&mut |wanted| {
                if interest.covers(&wanted.name) && !aside.contains(&wanted.name) {
                    visit(&wanted.name, wanted.version);
                }
            }),
        }
    }

    /// What was refused before goes along, too.
    pub(super) fn add(&mut self, name: &Name, version: Version) {
        if let Self::Some(updated) = self {
            updated.insert(Arc::clone(name), version);
        }
    }

    fn remove(&mut self, name: &str) {
        let was_there = self.contains(name);
        match self {
            Self::Some(updated) => drop(updated.remove(name)),
            Self::All { aside, .. } if was_there => drop(aside.insert(name.into())),
            Self::All { .. } => {}
        }
    }

    fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        if let Self::Some(updated) = self {
            updated.retain(|name, _| keep(name));
            return;
        }
        let mut gone = Vec::new();
        self.each(&mut |name, _| gone.extend((!keep(name)).then(|| Arc::clone(name))));
        gone.iter().for_each(|name| self.remove(name));
    }
}

impl Flight {
    pub(super) fn new(
        nonce: u64,
        offer: &Offer,
        updated: Updated,
        completes: Option<Arc<dyn Collection>>,
    ) -> Self {
        Self {
            nonce,
            removed: offer.removed.iter().cloned().collect(),
            retry_removals: !updated.is_empty(),
            is_cut_short: offer.more,
            updated,
            completes,
        }
    }

    /// Whether the peer has to say something about this name.
    pub(super) fn is_about(&self, name: &str) -> bool {
        self.updated.contains(name) || self.removed.contains(name)
    }

    /// Items that were sent.
    pub(super) fn len(&self) -> usize {
        self.updated.len() + self.removed.len()
    }

    /// Lets a name go: its fate is no longer that of this response.
    pub(super) fn set_aside(&mut self, name: &str) {
        self.updated.remove(name);
        self.removed.remove(name);
    }

    /// Lets go of the names that do not match.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.updated.retain(&keep);
        self.removed.retain(|name| keep(name));
    }

    /// Whether the peer refused something and nobody knows what.
    pub(super) fn is_vague(&self, verdict: &Confirmation) -> bool {
        match verdict {
            Confirmation::Refused { items } => !items.iter().any(|name| self.is_about(name)),
            Confirmation::Accepted | Confirmation::Postponed | Confirmation::RefusedInWords(_) => false,
        }
    }

    /// The names to treat as refused. A peer that refuses without naming anything that was sent may have
    /// meant any of it.
    pub(super) fn accused(&self, verdict: &Confirmation) -> BTreeSet<Name> {
        let sent = |is_named: &dyn Fn(&str) -> bool| {
            let mut named = BTreeSet::new();
            self.updated.each(&mut |name, _| named.extend(is_named(name).then(|| Arc::clone(name))));
            named.extend(self.removed.iter().filter(|name| is_named(name)).cloned());
            named
        };
        let named = match verdict {
            Confirmation::Accepted => return BTreeSet::new(),
            Confirmation::Postponed => BTreeSet::new(),
            Confirmation::Refused { items } => {
                let items: BTreeSet<&str> = items.iter().map(String::as_str).collect();
                sent(&|name| items.contains(variant::plain_name(name)))
            }
            Confirmation::RefusedInWords(words) => sent(&|name| accuses(words, variant::plain_name(name))),
        };
        if named.is_empty() { sent(&|_| true) } else { named }
    }
}

/// Whether the name stands where one can stand: at the start or after a separator, before a colon.
fn accuses(words: &str, name: &str) -> bool {
    let accusation = format!("{name}: ");
    words.match_indices(&accusation).any(|(at, _)| {
        let before = words.get(..at).unwrap_or_default();
        before.is_empty() || [" ", "\n"].iter().any(|separator| before.ends_with(separator))
    })
}
