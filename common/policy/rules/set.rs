//! All policies of a kind in a mesh, kept up to date.

use std::sync::Arc;

use imbl::{OrdMap, ordmap};

use super::{
    Policy, Reach, ReachIndex, SelectableProxy,
    memo::{ClientMemo, Memo},
};
use crate::model::{Kind, Resource, ResourceKey, SpecError};

/// All policies of one kind in one mesh. Cloning is cheap, and a change costs what changes.
#[derive(Clone, Debug)]
pub struct PolicySet {
    /// The kind.
    pub kind: &'static Kind,
    /// Those that can be used.
    pub policies: Policies,
    /// Those whose spec does not decode, or says what it may not; they select nothing, and someone should be told.
    pub broken: OrdMap<ResourceKey, Arc<SpecError>>,
    /// Rules that come of them as they are now.
    pub(super) memo: Arc<Memo>,
    /// Rules for clients that come of any of them.
    pub(super) clients: Arc<ClientMemo>,
}

/// Policies by key, and by whom they may be for.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    by_key: OrdMap<ResourceKey, Arc<Policy>>,
    by_reach: ReachIndex<ResourceKey, Arc<Policy>>,
    /// Of these, those that say something of inbounds.
    of_inbounds: ReachIndex<ResourceKey, Arc<Policy>>,
}

/// What a change of one resource did to a set.
#[derive(Clone, Debug, Default)]
pub struct PolicyChange {
    /// The policy that is there no more.
    pub before: Option<Arc<Policy>>,
    /// The policy that is there now.
    pub after: Option<Arc<Policy>>,
}

impl PolicyChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (before, after) => before.is_none() && after.is_none(),
        }
    }
}

impl PolicySet {
    /// No policies of `kind` (yet).
    pub fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            policies: Policies::default(),
            broken: OrdMap::new(),
            memo: Arc::default(),
            clients: Arc::default(),
        }
    }

    /// Parses all `resources` of `kind`; others are passed over.
    pub fn parse<'a>(kind: &'static Kind, resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Self {
        let mut set = Self::new(kind);
        for resource in resources {
            set.insert(resource);
        }
        set
    }

    /// Parses `resource`, in place of what has its key. A resource of another kind is passed over, and one
    /// that is here already is not parsed again.
    pub fn insert(&mut self, resource: &Arc<Resource>) -> PolicyChange {
        if resource.kind() != self.kind {
            return PolicyChange::default();
        }
        if let Some(known) = self.policies.get(&resource.key)
            && Arc::ptr_eq(&known.resource, resource)
        {
            return PolicyChange { before: Some(Arc::clone(known)), after: Some(Arc::clone(known)) };
        }
        let PolicyChange { before, .. } = self.remove(&resource.key);
        let after = match Policy::parse(Arc::clone(resource)).and_then(Policy::within_its_zone) {
            Ok(policy) => Some(Arc::new(policy)),
            Err(error) => {
                self.broken.insert(resource.key.clone(), Arc::new(error));
                None
            }
        };
        if let Some(policy) = &after {
            self.policies.insert(policy);
        }
        PolicyChange { before, after }
    }

    /// Takes out the policy with this key.
    pub fn remove(&mut self, key: &ResourceKey) -> PolicyChange {
        // What was computed for the policies as they were ends with the last copy of that set.
        self.memo = Arc::default();
        self.clients.forget();
        self.broken.remove(key);
        PolicyChange { before: self.policies.remove(key), after: None }
    }
}

impl Policies {
    /// The one with this key.
    pub fn get(&self, key: &ResourceKey) -> Option<&Arc<Policy>> {
        self.by_key.get(key)
    }

    /// In order of their keys.
    pub fn iter(&self) -> ordmap::Values<'_, ResourceKey, Arc<Policy>, imbl::shared_ptr::DefaultSharedPtr> {
        self.by_key.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Those with this reach, in order of their keys.
    pub fn reaching(&self, reach: &Reach) -> impl Iterator<Item = &Arc<Policy>> {
        self.by_reach.at(reach)
    }

    /// Those that may be for `proxy`, in order of their keys: of all others it is certain that they are not.
    pub fn candidates(&self, proxy: &SelectableProxy) -> Vec<&Arc<Policy>> {
        in_order(proxy.reaches().iter().flat_map(|reach| self.by_reach.at(reach)))
    }

    /// Of these, those that are not for everybody alike.
    pub fn particular(&self, proxy: &SelectableProxy) -> Vec<&Arc<Policy>> {
        let reaches = proxy.reaches();
        let particular = reaches.iter().filter(|reach| **reach != Reach::Alike);
        in_order(particular.flat_map(|reach| self.by_reach.at(reach)))
    }

    /// Of the [candidates](Self::candidates), those that say something of inbounds or are for a route, which
    /// may not say what it is for.
    pub fn about_inbounds(&self, proxy: &SelectableProxy) -> Vec<&Arc<Policy>> {
        let reaches = proxy.reaches();
        let of_inbounds = reaches.iter().filter(|reach| **reach != Reach::Route);
        let of_inbounds = of_inbounds.flat_map(|reach| self.of_inbounds.at(reach));
        in_order(of_inbounds.chain(self.reaching(&Reach::Route)))
    }

    fn insert(&mut self, policy: &Arc<Policy>) {
        let key = policy.resource.key.clone();
        self.by_reach.insert(policy.reach(), key.clone(), Arc::clone(policy));
        if policy.speaks_of_inbounds() {
            self.of_inbounds.insert(policy.reach(), key.clone(), Arc::clone(policy));
        }
        self.by_key.insert(key, Arc::clone(policy));
    }

    fn remove(&mut self, key: &ResourceKey) -> Option<Arc<Policy>> {
        let policy = self.by_key.remove(key)?;
        self.by_reach.remove(policy.reach(), key.clone());
        self.of_inbounds.remove(policy.reach(), key.clone());
        Some(policy)
    }
}

fn in_order<'a>(policies: impl Iterator<Item = &'a Arc<Policy>>) -> Vec<&'a Arc<Policy>> {
    let mut policies: Vec<&Arc<Policy>> = policies.collect();
    policies.sort_by(|a, b| a.resource.key.cmp(&b.resource.key));
    policies
}

impl<'a> IntoIterator for &'a Policies {
    type Item = &'a Arc<Policy>;
    type IntoIter = ordmap::Values<'a, ResourceKey, Arc<Policy>, imbl::shared_ptr::DefaultSharedPtr>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
