//! Everything in a JSON value that does not fit a type, where a decoder only tells the first.
//!
//! What does not fit is told, replaced by something that does, and the value is decoded again. What the replacement
//! brings about is not told.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Misfit, PathStep, attempt};
use crate::model::{FieldPath, SpecError, Violations};

/// Bytes of JSON that are decoded again for one value, however much of it does not fit.
const AGAIN: usize = 4 << 20;
/// How often a value is decoded again, however short it is.
const ROUNDS: usize = 400;
/// What is tried where a text does not fit: durations and percentages read some of these.
const TEXTS: [&str; 4] = ["", "0s", "0", "1kbps"];

/// Reads `value`, which stands at `root`, or says everything that is in the way, by place.
pub(super) fn read<T: DeserializeOwned>(root: &FieldPath, value: &Value) -> Result<T, SpecError> {
    let first = match attempt::<T>(value) {
        Ok(read) => return Ok(read),
        Err(misfit) => misfit,
    };
    let length = value.to_string().len().max(1);
    let mut repair = Repair { told: vec![], replaced: BTreeMap::new(), value: value.clone() };
    let mut next = Some(first);
    for _ in 0..ROUNDS.min(AGAIN / length) {
        let Some(misfit) = next.take() else { break };
        if !repair.tell_and_replace(misfit) {
            break;
        }
        next = attempt::<T>(&repair.value).err();
    }
    // Not even tried again: then it is told alone.
    repair.told.extend(next.filter(|_| repair.told.is_empty()));
    let mut told: Vec<_> = repair.told.iter().map(|misfit| (misfit.field(root), &misfit.reason)).collect();
    told.sort();
    let mut violations = Violations::none();
    told.into_iter().for_each(|(field, reason)| violations.add(field, reason.as_str()));
    Err(SpecError::Shape(violations))
}

struct Repair {
    told: Vec<Misfit>,
    /// What was replaced, and how often.
    replaced: BTreeMap<Vec<PathStep>, usize>,
    value: Value,
}

impl Repair {
    /// Whether there is anything left to replace.
    fn tell_and_replace(&mut self, misfit: Misfit) -> bool {
        let place = misfit.place.clone();
        let follows = self.replaced.keys().any(|known| place.starts_with(known) || known.starts_with(&place));
        let fit = misfit.fit.clone();
        if !follows {
            self.told.push(misfit);
        }
        self.replace(place, fit.as_ref())
    }

    /// Puts something else at `place`, or above it where nothing helped.
    fn replace(&mut self, mut place: Vec<PathStep>, fit: Option<&Value>) -> bool {
        let mut fit = fit.cloned();
        while !place.is_empty() {
            let tries = self.replaced.entry(place.clone()).or_default();
            *tries += 1;
            let tries = *tries;
            let text = |n: usize| TEXTS.get(n).map(|text| Value::from(*text));
            let other = match fit.take() {
                Some(fit) if tries <= TEXTS.len() => Some(fit),
                _ if tries == 1 => Some(Value::Null),
                _ => text(tries - 2),
            };
            match (other, at(&mut self.value, &place)) {
                (Some(other), Some(slot)) => {
                    *slot = other;
                    return true;
                }
                _ => drop(place.pop()),
            }
        }
        false
    }
}

/// What stands at `place`; a member that is not there yet is made.
fn at<'v>(value: &'v mut Value, place: &[PathStep]) -> Option<&'v mut Value> {
    place.iter().try_fold(value, |value, step| match (step, value) {
        (PathStep::Member(name), Value::Object(members)) => {
            Some(members.entry(name.as_str()).or_insert(Value::Null))
        }
        (PathStep::Item(index), Value::Array(items)) => items.get_mut(*index),
        _ => None,
    })
}
