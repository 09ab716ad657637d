//! What a peer refused, what of that it does without, and what it keeps although it was told to drop it.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{Name, Version};

/// Where a peer does not do as it was told.
#[derive(Debug, Default)]
pub(super) struct RefusedItems {
    /// Versions it refused, not to be offered again before they are [reconsidered](Self::reconsider).
    versions: BTreeMap<Name, Version>,
    /// Of these the names under which it has no older version.
    lacking: BTreeSet<Name>,
    /// Removals it refused, not to be tried again before they are reconsidered.
    kept: BTreeSet<Name>,
    /// It came with something that it did not name, so that it may have an older version of anything.
    has_unnamed: bool,
}

impl RefusedItems {
    /// What was refused, with its version.
    pub(super) fn versions(&self) -> &BTreeMap<Name, Version> {
        &self.versions
    }

    /// Whether this very version was refused.
    pub(super) fn is_refused(&self, name: &str, version: Version) -> bool {
        self.versions.get(name) == Some(&version)
    }

    /// Whether the peer refused to drop this.
    pub(super) fn is_kept(&self, name: &str) -> bool {
        self.kept.contains(name)
    }

    /// Whether no version is refused.
    pub(super) fn has_no_versions(&self) -> bool {
        self.versions.is_empty()
    }

    /// Whether the peer does all that it was told.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.kept.is_empty()
    }

    /// Whether the peer goes on with an older version of something.
    pub(super) fn keeps_older(&self) -> bool {
        self.versions.keys().any(|name| self.has_unnamed || !self.lacking.contains(name))
    }

    /// The names about which the peer disagrees, those it keeps first.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.kept.iter().chain(self.versions.keys())
    }

    /// Notes whether the peer came with something that it did not name.
    pub(super) fn note_unnamed(&mut self, has_unnamed: bool) {
        self.has_unnamed = has_unnamed;
    }

    /// Notes that the peer had nothing under these names when it refused what it was sent.
    pub(super) fn lack(&mut self, names: impl IntoIterator<Item = Name>) {
        self.lacking.extend(names);
    }

    /// The peer refused this version.
    pub(super) fn refuse(&mut self, name: Name, version: Version) {
        self.versions.insert(name, version);
    }

    /// The peer refused to drop this.
    pub(super) fn keep(&mut self, name: Name) {
        self.kept.insert(name);
    }

    /// Nothing is lacking: what was sent was taken, and nothing is refused any more.
    pub(super) fn lack_nothing(&mut self) {
        self.lacking.clear();
    }

    /// Nobody says any more that a version of this was refused.
    pub(super) fn set_aside(&mut self, name: &str) {
        self.versions.remove(name);
        self.lacking.remove(name);
    }

    /// The peer dropped this, or turned away from it.
    pub(super) fn forget(&mut self, name: &str) {
        self.set_aside(name);
        self.kept.remove(name);
    }

    /// The interest got narrower.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.versions.retain(|name, _| is_wanted(name));
        self.lacking.retain(|name| is_wanted(name));
        self.kept.retain(|name| is_wanted(name));
    }

    /// The same of what `is_meant`.
    pub(super) fn reconsider_some(
        &mut self,
        is_meant: impl Fn(&str) -> bool,
    ) -> (BTreeMap<Name, Version>, BTreeSet<Name>) {
        let (versions, kept) = self.reconsider();
        let (versions, left): (BTreeMap<_, _>, _) =
            versions.into_iter().partition(|(name, _)| is_meant(name));
        let (kept, stays): (BTreeSet<_>, _) = kept.into_iter().partition(|name| is_meant(name));
        (self.versions, self.kept) = (left, stays);
        (versions, kept)
    }

    /// What is to be offered again as it is, and what is to be removed once more.
    pub(super) fn reconsider(&mut self) -> (BTreeMap<Name, Version>, BTreeSet<Name>) {
        (mem::take(&mut self.versions), mem::take(&mut self.kept))
    }
}
