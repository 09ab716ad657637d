//! The brake on mass deletion: absence from a full state is not an order to empty a zone.

use serde::{Deserialize, Serialize};

/// How much of a type one full state may remove without an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Fuse {
    /// This many may always go.
    pub resources: usize,
    /// Or this part of what is held, in percent, when that is more.
    pub percent: usize,
}

impl Default for Fuse {
    fn default() -> Self {
        Self { resources: 20, percent: 10 }
    }
}

impl Fuse {
    /// A fuse that never blows: after an operator's word, or where the sender owns what it removes.
    pub const OPEN: Self = Self { resources: usize::MAX, percent: 100 };

    /// Whether `removed` of `held` resources of one type may go.
    pub fn allows(&self, removed: usize, held: usize) -> bool {
        removed <= self.resources.max(held.saturating_mul(self.percent) / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::Fuse;

    #[test]
    fn twenty_or_a_tenth() {
        let fuse = Fuse::default();
        assert!(fuse.allows(20, 20));
        assert!(!fuse.allows(21, 100));
        assert!(fuse.allows(100, 1_000));
        assert!(!fuse.allows(101, 1_000));
        assert!(Fuse::OPEN.allows(1_000, 1_000));
    }
}
