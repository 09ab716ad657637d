//! All resources of one kind, to be compared with those of another index.

use std::sync::Arc;

use imbl::{OrdMap, ordmap::DiffItem};

use super::ListKey;
use crate::model::Resource;

/// All resources of one kind, as one index shows them. Cheap to keep: it shares with the index.
#[derive(Clone, Debug, Default)]
pub struct OfKind(pub(super) OrdMap<ListKey, Arc<Resource>>);

impl OfKind {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` is known to show the same, which costs nothing to find out. It is of indexes between which none of
    /// the kind was written.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// What is otherwise in `newer`: each resource as it was, if it was there, and as it is, if it is. Costs the size of the
    /// difference.
    pub fn changes_to<'a>(
        &'a self,
        newer: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Arc<Resource>>, Option<&'a Arc<Resource>>)> {
        self.0.diff(&newer.0).map(|item| match item {
            DiffItem::Add(_, is) => (None, Some(is)),
            DiffItem::Remove(_, was) => (Some(was), None),
            DiffItem::Update { old: (_, was), new: (_, is) } => (Some(was), Some(is)),
        })
    }
}
