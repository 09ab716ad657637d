//! Services whose names differ in case only. They are reached by server names, which Envoys compare without regard to case:
//! of all that are offered or outside, one is reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::mesh::provenance::Provenance;

/// How many of those that are not reached are told by name.
const TOLD: usize = 8;

/// Who wants a name, in the order in which they come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CaseTwin {
    provenance: Provenance,
    /// What is written in lower case comes first.
    has_upper: bool,
    service: Arc<str>,
}

impl CaseTwin {
    fn new(service: &Arc<str>, provenance: Provenance) -> Self {
        let has_upper = service.bytes().any(|byte| byte.is_ascii_uppercase());
        Self { provenance, has_upper, service: Arc::clone(service) }
    }
}

/// All that are offered or outside.
#[derive(Debug, Default)]
pub(super) struct CaseTwins {
    /// By their names in lower case.
    all: BTreeMap<String, BTreeSet<CaseTwin>>,
    known: BTreeMap<Arc<str>, Provenance>,
    /// Those that are not the first.
    yielding: BTreeSet<Arc<str>>,
}

impl CaseTwins {
    /// `service` is there by this word, or not any more; gives those that are reached from now on, or not any more, by that.
    pub(super) fn set(&mut self, service: &Arc<str>, provenance: Option<Provenance>) -> BTreeSet<Arc<str>> {
        if self.known.get(service).copied() == provenance {
            return BTreeSet::new();
        }
        let key = service.to_ascii_lowercase();
        let twins = self.all.entry(key.clone()).or_default();
        let before = twins.first().map(|twin| Arc::clone(&twin.service));
        if let Some(known) = self.known.remove(service) {
            twins.remove(&CaseTwin::new(service, known));
        }
        if let Some(provenance) = provenance {
            twins.insert(CaseTwin::new(service, provenance));
            self.known.insert(Arc::clone(service), provenance);
        }
        let after = twins.first().map(|twin| Arc::clone(&twin.service));
        if twins.is_empty() {
            self.all.remove(&key);
        }
        for service in [Some(service), before.as_ref()].into_iter().flatten() {
            if self.known.contains_key(service) && after.as_ref() != Some(service) {
                self.yielding.insert(Arc::clone(service));
            } else {
                self.yielding.remove(service);
            }
        }
        if let Some(after) = &after {
            self.yielding.remove(after);
        }
        if before == after { BTreeSet::new() } else { before.into_iter().chain(after).collect() }
    }

    /// Whether another one of its name comes before `service`.
    pub(super) fn yields(&self, service: &str) -> bool {
        self.yielding.contains(service)
    }

    /// What is told of those that are not reached: each of some with the one that comes before it.
    pub(super) fn told(&self) -> Vec<String> {
        let some = self.yielding.iter().take(TOLD).map(|service| {
            let twins = self.all.get(&service.to_ascii_lowercase());
            let first = twins.and_then(|twins| twins.first()).map_or("", |twin| &*twin.service);
            format!(
                "what other zones offer as service {service:?} is left out: {first:?} differs from it in case only, and comes \
                 first"
            )
        });
        let beyond = self.yielding.len().saturating_sub(TOLD);
        let beyond =
            (beyond > 0).then(|| format!("and {beyond} more whose names differ from others in case only"));
        some.chain(beyond).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(twins: &mut CaseTwins, service: &str, provenance: Option<Provenance>) -> Vec<String> {
        twins.set(&service.into(), provenance).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn of_names_that_differ_in_case_one_is_reached() {
        use Provenance::{Elsewhere, Global, Here};
        let mut twins = CaseTwins::default();
        assert_eq!(moved(&mut twins, "BANK", Some(Elsewhere)), ["BANK"]);
        // Whatever sorts first: what is in lower case, and before that who is here.
        assert_eq!(moved(&mut twins, "bank", Some(Elsewhere)), ["BANK", "bank"]);
        assert!(twins.yields("BANK") && !twins.yields("bank"));
        assert!(moved(&mut twins, "bAnk", Some(Elsewhere)).is_empty(), "it never was the first");
        assert_eq!(moved(&mut twins, "bAnk", Some(Here)), ["bAnk", "bank"]);
        assert_eq!(moved(&mut twins, "Bank", Some(Global)), Vec::<String>::new());
        assert_eq!(moved(&mut twins, "bAnk", None), ["Bank", "bAnk"]);
        assert!(!twins.yields("bAnk") && !twins.yields("Bank") && twins.yields("bank"));
        assert_eq!(twins.told().len(), 2);
        assert!(twins.told()[0].contains("\"BANK\" is left out: \"Bank\""), "{:?}", twins.told());
        for service in ["Bank", "bank", "BANK"] {
            twins.set(&service.into(), None);
        }
        assert!(twins.all.is_empty() && twins.known.is_empty() && twins.yielding.is_empty());
    }
}
