//! What must be read before a group of batches can be judged.

use std::collections::BTreeSet;

use super::{Batch, Write};
use crate::model::ResourceKey;

/// Keys and names to load, each once.
pub(super) struct WantedKeys<'a> {
    /// Everything that is written by name.
    pub(super) keys: BTreeSet<&'a ResourceKey>,
    /// Whatever these own, directly or not, may fall: what is deleted, and, because a later batch of the
    /// group may delete its owner, what is put below an owner.
    pub(super) owners: BTreeSet<&'a ResourceKey>,
    /// Leases that fences name.
    pub(super) leases: BTreeSet<&'a str>,
}

impl<'a> WantedKeys<'a> {
    pub(super) fn of(group: &'a [Batch]) -> Self {
        let writes = || group.iter().flat_map(|batch| &batch.writes);
        let deletes = writes().any(|write| matches!(write, Write::Delete { .. }));
        let may_fall = |write: &&Write| match write {
            Write::Delete { .. } => true,
            Write::Put { resource, .. } => resource.owner.is_some(),
            Write::PutStatus { .. } => false,
        };
        let owners =
            if deletes { writes().filter(may_fall).map(Write::key).collect() } else { BTreeSet::new() };
        Self {
            keys: writes().map(Write::key).collect(),
            owners,
            leases: group.iter().filter_map(|batch| batch.fence.as_ref()).map(|f| f.name.as_str()).collect(),
        }
    }
}
