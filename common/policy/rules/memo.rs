//! Rules for outbound traffic are the same for all proxies that the same policies select, which is most
//! of a mesh. They are computed once.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use super::{Destinations, Policy, RulesError, TagRules, ToRules};

/// More answers than this are not kept, nor so many rules in them: proxies decide which policies select them.
const MOST_ANSWERS: usize = 1 << 10;
const MOST_RULES: usize = 1 << 16;

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
            if known.rules.len() >= MOST_ANSWERS {
                known.rules.clear();
            }
            known.rules.insert(key, Arc::clone(&rules));
        }
        Ok(rules)
    }
}

/// Which rules for clients are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientView {
    /// Groups of which the first counts.
    Groups,
    /// Permissions.
    Access,
}

/// Rules for clients of inbounds by the policies they come from, on which alone they depend. What cannot be told apart
/// is remembered as well: it takes the longest to find out. Shared by all versions of a set.
#[derive(Debug, Default)]
pub(crate) struct ClientMemo(Mutex<KnownClients>);

#[derive(Debug, Default)]
struct KnownClients {
    answers: HashMap<(ClientView, Vec<Parsed>), Result<Arc<TagRules>, RulesError>>,
    /// Rules in all of them.
    rules: usize,
}

impl ClientMemo {
    /// What is known for `policies`, else what `compute` says. Two that ask at the same time may both compute.
    pub(super) fn get(
        &self,
        view: ClientView,
        policies: &[Arc<Policy>],
        compute: impl FnOnce() -> Result<TagRules, RulesError>,
    ) -> Result<Arc<TagRules>, RulesError> {
        if policies.is_empty() {
            return Ok(Arc::default());
        }
        let key = (view, policies.iter().cloned().map(Parsed).collect::<Vec<_>>());
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known().answers.get(&key) {
            return answer.clone();
        }
        let answer = compute().map(Arc::new);
        let rules = answer.as_ref().map_or(1, |rules| rules.0.len());
        let mut known = known();
        if known.answers.len() >= MOST_ANSWERS || known.rules + rules > MOST_RULES {
            *known = KnownClients::default();
        }
        known.rules += rules;
        known.answers.insert(key, answer.clone());
        answer
    }

    /// Forgets everything: what is known of policies that are gone keeps these.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = KnownClients::default();
    }
}
