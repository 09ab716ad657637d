//! Rules for outbound traffic are the same for all proxies that the same policies select, which is most
//! of a mesh. They are computed once.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use super::{Destinations, Policy, ToRules};

/// Rules by the policies they come from. It belongs to a set of policies as it is at one time, and ends with
/// that.
#[derive(Debug, Default)]
pub(crate) struct Memo(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// For which destinations the rules are.
    destinations: Destinations,
    rules: HashMap<Vec<Parsed>, Arc<ToRules>>,
}

/// A policy told from others by where it is kept: it is parsed once and never changes.
#[derive(Clone, Debug)]
pub(super) struct Parsed(pub(super) Arc<Policy>);

impl PartialEq for Parsed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Parsed {}

impl Hash for Parsed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Memo {
    /// What is known for `policies`, else what `compute` says, unless that fails. Two that ask at the same
    /// time may both compute.
    pub(super) fn get<E>(
        &self,
        policies: &[Arc<Policy>],
        destinations: &Destinations,
        compute: impl FnOnce() -> Result<ToRules, E>,
    ) -> Result<Arc<ToRules>, E> {
        let key: Vec<Parsed> = policies.iter().cloned().map(Parsed).collect();
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut known = known();
            if !known.destinations.is_same(destinations) {
                *known = Remembered { destinations: destinations.clone(), rules: HashMap::new() };
            }
            if let Some(rules) = known.rules.get(&key) {
                return Ok(Arc::clone(rules));
            }
        }
        let rules = Arc::new(compute()?);
        let mut known = known();
        if known.destinations.is_same(destinations) {
            known.rules.insert(key, Arc::clone(&rules));
        }
        Ok(rules)
    }
}
