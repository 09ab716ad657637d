//! What a zone sent in the name of another one, and was taken as its own: for as long as it goes on saying so.

use std::collections::{BTreeMap, BTreeSet};

use common::{kds::follow::BatchReport, redact};

/// Bytes of what is noted of a claim that was not true.
const LONGEST: usize = 1024;
/// Names of one type that are kept; who claims more than that is not helped by a list.
const KEPT: usize = 1000;

/// The claims of one session.
#[derive(Debug, Default)]
pub(super) struct ForeignClaims {
    by_type: BTreeMap<&'static str, BTreeMap<String, NumberedClaim>>,
    /// How many there were.
    number: u64,
}

#[derive(Debug)]
struct NumberedClaim {
    number: u64,
    words: String,
}

impl ForeignClaims {
    /// Takes over what became of a response: what it mentions claims what it claims there, and nothing it claimed before.
    /// The newest claim of it, in words.
    pub(super) fn take(&mut self, report: &BatchReport<'_>) -> Option<&str> {
        let kind = report.kind.name;
        let of_type = self.by_type.entry(kind).or_default();
        if report.batch.full {
            of_type.clear();
        } else if !of_type.is_empty() {
            report.mentioned().for_each(|name| {
                of_type.remove(name);
            });
        }
        // A response may say the same name as often as it likes.
        let mut said = BTreeSet::new();
        for (name, claim) in report.misattributed.iter().filter(|(name, _)| said.insert(name.as_str())) {
            if of_type.len() < KEPT || of_type.contains_key(name) {
                self.number += 1;
                let words = redact::words(&format!("{kind} {name}: {claim}"), LONGEST);
                of_type.insert(name.clone(), NumberedClaim { number: self.number, words });
            }
        }
        let (newest, is_new) = (self.newest()?, !report.misattributed.is_empty());
        is_new.then_some(newest)
    }

    /// What to tell an operator; nothing when there is none.
    pub(super) fn note(&self, zone: &str) -> Option<String> {
        let (newest, items) = (self.newest()?, self.by_type.values().map(BTreeMap::len).sum::<usize>());
        Some(format!(
            "{items} resources claimed another zone and were attributed to this one, last {newest}: name {zone:?} there"
        ))
    }

    fn newest(&self) -> Option<&str> {
        let claims = self.by_type.values().flat_map(BTreeMap::values);
        claims.max_by_key(|claim| claim.number).map(|claim| claim.words.as_str())
    }
}
