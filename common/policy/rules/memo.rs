//! Rules for outbound traffic are the same for all proxies that the same policies select, which is most
//! of a mesh. They are computed once.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use super::{Policy, ToRules};

/// Rules by the policies they come from, for one set of destinations.
#[derive(Debug, Default)]
pub(super) struct Memo(Mutex<HashMap<Vec<Parsed>, Arc<ToRules>>>);

/// A policy told from others by where it is kept: it is parsed once and never changes.
#[derive(Clone, Debug)]
struct Parsed(Arc<Policy>);

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
        compute: impl FnOnce() -> Result<ToRules, E>,
    ) -> Result<Arc<ToRules>, E> {
        let key: Vec<Parsed> = policies.iter().cloned().map(Parsed).collect();
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = known().get(&key) {
            return Ok(Arc::clone(rules));
        }
        let rules = Arc::new(compute()?);
        known().insert(key, Arc::clone(&rules));
        Ok(rules)
    }
}
