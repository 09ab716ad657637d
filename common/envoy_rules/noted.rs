//! What was found wrong with a resource.

use super::{BrokenRule, TOLD};
use crate::model::{FieldPath, FieldStep};

/// Broken rules, as many as are told.
#[derive(Default)]
pub(super) struct Noted(pub(super) Vec<BrokenRule>);

/// Looks at more of a message than at one member alone. `None` when it is no such message.
pub(super) type Look = fn(&mut Noted, &[u8], &FieldStep<'_>) -> Option<()>;

impl Noted {
    /// What is at this place breaks a rule.
    pub(super) fn note(&mut self, at: &FieldStep<'_>, reason: impl Into<String>) {
        if self.0.len() < TOLD {
            self.0.push(BrokenRule { field: FieldPath::from(at), reason: reason.into() });
        }
    }
}
