//! The response in flight and how it ends.

use std::collections::{BTreeMap, BTreeSet};

use super::{Name, Offer, Version};

/// What the peer said about the response in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is in use.
    Accepted,
    /// It was refused: these items of it, or, when none is named, something in it.
    Refused {
        /// The refused names, if the peer told them.
        items: Vec<String>,
    },
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
    pub(super) updated: BTreeMap<Name, Version>,
    pub(super) removed: BTreeSet<Name>,
    /// Whether removals deserve another try on their own if this is refused: the fault may lie in the
    /// updates they travel with.
    pub(super) retry_removals: bool,
}

impl Flight {
    pub(super) fn new(nonce: u64, offer: &Offer) -> Self {
        Self {
            nonce,
            updated: offer.updated.iter().map(|wanted| (Name::clone(&wanted.name), wanted.version)).collect(),
            removed: offer.removed.iter().cloned().collect(),
            retry_removals: !offer.updated.is_empty(),
        }
    }

    /// Lets a name go: its fate is no longer that of this response.
    pub(super) fn set_aside(&mut self, name: &str) {
        self.updated.remove(name);
        self.removed.remove(name);
    }

    /// Lets go of the names that do not match.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.updated.retain(|name, _| keep(name));
        self.removed.retain(|name| keep(name));
    }

    /// The names to treat as refused. A peer that refuses without naming anything that was sent may have
    /// meant any of it.
    pub(super) fn accused(&self, verdict: &Verdict) -> BTreeSet<Name> {
        let sent = || self.updated.keys().chain(&self.removed);
        let named: BTreeSet<Name> = match verdict {
            Verdict::Accepted => return BTreeSet::new(),
            Verdict::Refused { items } => {
                let items: BTreeSet<&str> = items.iter().map(String::as_str).collect();
                sent().filter(|name| items.contains(&***name)).cloned().collect()
            }
            Verdict::RefusedInWords(words) => sent().filter(|name| accuses(words, name)).cloned().collect(),
        };
        if named.is_empty() { sent().cloned().collect() } else { named }
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
