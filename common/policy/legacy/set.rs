//! All policies of one of the older kinds in a mesh, kept up to date.

use std::{collections::BTreeMap, sync::Arc};

use imbl::OrdMap;

use super::LegacyPolicy;
use crate::{
    model::{Kind, Resource, SpecError},
    policy::rules::{ReachIndex, SelectableProxy},
};

/// Policies by name, and by whom they may be for. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct LegacySet {
    /// The kind.
    pub kind: &'static Kind,
    by_name: OrdMap<Arc<str>, Arc<LegacyPolicy>>,
    by_reach: ReachIndex<Arc<str>, Arc<LegacyPolicy>>,
}

/// What a change of one resource did to a set.
#[derive(Clone, Debug, Default)]
pub struct LegacyChange {
    /// The policy that is there no more.
    pub before: Option<Arc<LegacyPolicy>>,
    /// The policy that is there now.
    pub after: Option<Arc<LegacyPolicy>>,
}

impl LegacyChange {
    /// Both versions.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<LegacyPolicy>> {
        [&self.before, &self.after].into_iter().flatten()
    }

    /// Whether what the policy says is all that may differ.
    pub fn keeps_choice(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.competes_like(after),
            (before, after) => before.is_none() && after.is_none(),
        }
    }
}

impl LegacySet {
    /// None of `kind` (yet).
    pub fn new(kind: &'static Kind) -> Self {
        Self { kind, by_name: OrdMap::new(), by_reach: ReachIndex::default() }
    }

    /// Takes in what became of the policy of this name. One that does not decode selects nothing.
    ///
    /// # Errors
    /// [`SpecError`] beside the change, for one that does not decode.
    pub fn set(
        &mut self,
        name: &Arc<str>,
        resource: Option<&Arc<Resource>>,
    ) -> (LegacyChange, Option<SpecError>) {
        let before = self.by_name.remove(name);
        for reach in before.iter().flat_map(|policy| policy.reaches()) {
            self.by_reach.remove(reach, Arc::clone(name));
        }
        let (after, error) = match resource.map(|resource| LegacyPolicy::parse(Arc::clone(resource))) {
            Some(Ok(policy)) => (Some(Arc::new(policy)), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        if let Some(policy) = &after {
            for reach in policy.reaches() {
                self.by_reach.insert(reach, Arc::clone(name), Arc::clone(policy));
            }
            self.by_name.insert(Arc::clone(name), Arc::clone(policy));
        }
        (LegacyChange { before, after }, error)
    }

    /// In order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<LegacyPolicy>> {
        self.by_name.values()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Those that may be for `proxy`, in order of their names: of all others it is certain that they are not.
    pub fn candidates(&self, proxy: &SelectableProxy) -> Vec<&Arc<LegacyPolicy>> {
        if self.is_empty() {
            return Vec::new();
        }
        let reaches = proxy.reaches();
        let found = reaches.iter().flat_map(|reach| self.by_reach.at(reach));
        let by_name: BTreeMap<&Arc<str>, &Arc<LegacyPolicy>> =
            found.map(|policy| (policy.name(), policy)).collect();
        by_name.into_values().collect()
    }
}
