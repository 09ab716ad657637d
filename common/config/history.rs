//! How much of the history of resources is kept: `store.history`.

use serde::{Deserialize, Serialize};

use super::Interval;
use crate::store::history::HistoryLimits;

/// Help for the settings of this file, by path.
pub(super) const HELP: &[(&str, &str)] = &[
    ("store.history.maxAge", "How long it is kept who changed what, and what was there before"),
    ("store.history.maxChanges", "So many changes are kept at most; 0: none"),
    ("store.history.maxBytes", "So many bytes of what was there before are kept at most"),
];

/// `store.history`: what is kept of changes, whichever of these is reached first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HistorySection {
    /// No longer than this.
    pub max_age: Interval,
    /// No more than so many.
    pub max_changes: u64,
    /// No more than so many bytes of what they replaced.
    pub max_bytes: u64,
}

impl Default for HistorySection {
    fn default() -> Self {
        Self { max_age: Interval::seconds(30 * 24 * 3600), max_changes: 100_000, max_bytes: 256 << 20 }
    }
}

impl HistorySection {
    /// As a store takes them.
    pub fn limits(&self) -> HistoryLimits {
        HistoryLimits { age: self.max_age.0, changes: self.max_changes, bytes: self.max_bytes }
    }
}
