//! What it may cost to tell overlapping groups apart: whoever writes a policy decides how many there are.

use std::collections::HashMap;

use serde_json::Value;

use super::{RulesError, Subset};

/// More groups than this are refused: their number grows exponentially with the tags.
pub(super) const LIMIT: usize = 1 << 14;
/// Steps of work on the items of one list of policies, such as to hold two tags against each other: a few nanoseconds
/// each. A thousand groups that all overlap each other fit.
const WORK: usize = 1 << 25;
/// Steps for a value that is merged, and how many bytes of a text are one.
const MERGED: usize = 32;
const MERGED_BYTES: usize = 2;

/// What is left of the work.
#[derive(Debug)]
pub(super) struct OverlapBudget(usize);

impl Default for OverlapBudget {
    fn default() -> Self {
        Self(WORK)
    }
}

impl OverlapBudget {
    /// So many steps.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when they are used up.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), RulesError> {
        self.0 = self.0.checked_sub(steps).ok_or(RulesError::TooManySubsets { limit: LIMIT })?;
        Ok(())
    }

    /// Two groups are held against each other.
    ///
    /// # Errors
    /// As [`OverlapBudget::spend`].
    pub(super) fn compare(&mut self, a: &Subset, b: &Subset) -> Result<(), RulesError> {
        self.spend(1 + a.0.len().saturating_mul(b.0.len()))
    }
}

/// Steps it takes to merge a configuration.
pub(super) fn weight(conf: &Value) -> usize {
    let inside = match conf {
        Value::Object(members) => members.iter().map(|(name, v)| name.len() / MERGED_BYTES + weight(v)).sum(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::String(text) => text.len() / MERGED_BYTES,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    MERGED + inside
}

/// Groups without repetition, each with the positions of the items that are for it.
#[derive(Debug, Default)]
pub(super) struct DistinctGroups<'a> {
    pub(super) subsets: Vec<&'a Subset>,
    pub(super) positions: Vec<Vec<usize>>,
}

impl<'a> DistinctGroups<'a> {
    /// Of what items are for. A group that no proxy can be in overlaps nothing, its like included, and is not told
    /// from its like.
    pub(super) fn of(subsets: impl Iterator<Item = &'a Subset>) -> Self {
        let mut groups = Self::default();
        let mut known: HashMap<&Subset, usize> = HashMap::new();
        for (position, subset) in subsets.enumerate() {
            match known.get(subset) {
                Some(group) => groups.positions[*group].push(position),
                None => {
                    if subset.is_possible() {
                        known.insert(subset, groups.subsets.len());
                    }
                    groups.subsets.push(subset);
                    groups.positions.push(vec![position]);
                }
            }
        }
        groups
    }
}
