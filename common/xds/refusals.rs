//! What is refused at the moment, and why, for the people who can end it. A later answer of the same type
//! says nothing about what was refused before, so reasons are kept by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Name;
use crate::clip::clip;

/// Reasons shown at once.
const SHOWN: usize = 10;
/// Bytes kept of a name, and of a reason.
const LONGEST_NAME: usize = 1024;
const LONGEST_REASON: usize = 1024;

/// The refusals of one stream.
#[derive(Clone, Debug, Default)]
pub struct Refusals(BTreeMap<String, BTreeMap<Name, Arc<str>>>);

impl Refusals {
    /// Names of one type that are kept: who refuses, or is refused, more than that is not helped by a list.
    pub const KEPT: usize = 1000;

    /// Whether a refusal of this name would be kept.
    pub fn has_room(&self, type_url: &str, name: &str) -> bool {
        let is_kept =
            |of_type: &BTreeMap<Name, Arc<str>>| of_type.len() < Self::KEPT || of_type.contains_key(name);
        name.len() <= LONGEST_NAME && self.0.get(type_url).is_none_or(is_kept)
    }

    /// Notes that these names were refused with these words, which may name each on a line of its own.
    pub fn add<'a>(&mut self, type_url: &str, names: impl IntoIterator<Item = &'a Name>, words: &str) {
        let of_type = self.0.entry(type_url.to_owned()).or_default();
        let lines: BTreeMap<&str, &str> =
            words.lines().filter_map(|line| Some((line.split_once(": ")?.0, line))).collect();
        // A peer that names nothing refuses everything in the same words; they are kept once.
        let whole: Arc<str> = clip(words.trim(), LONGEST_REASON).into();
        let brief = |line: &str| Arc::from(clip(line, LONGEST_REASON));
        for name in names.into_iter().filter(|name| name.len() <= LONGEST_NAME) {
            if of_type.len() == Self::KEPT && !of_type.contains_key(name) {
                break;
            }
            let reason = lines.get(&**name).map_or_else(|| Arc::clone(&whole), |line| brief(line));
            of_type.insert(Arc::clone(name), reason);
        }
    }

    /// Forgets the names that are not refused any more.
    pub fn retain(&mut self, type_url: &str, is_refused: impl Fn(&str) -> bool) {
        if let Some(of_type) = self.0.get_mut(type_url) {
            of_type.retain(|name, _| is_refused(name));
        }
    }

    /// What is refused of this type, and why.
    pub fn of(&self, type_url: &str) -> BTreeMap<Name, Arc<str>> {
        self.0.get(type_url).cloned().unwrap_or_default()
    }

    /// Why this name is refused, if it is.
    pub fn reason(&self, type_url: &str, name: &str) -> Option<&Arc<str>> {
        self.0.get(type_url)?.get(name)
    }

    /// Why something of this type is refused; `None` when nothing is.
    pub fn text(&self, type_url: &str) -> Option<String> {
        let reasons: BTreeSet<&Arc<str>> = self.0.get(type_url)?.values().collect();
        let mut shown: Vec<String> = reasons.iter().take(SHOWN).map(ToString::to_string).collect();
        if reasons.len() > SHOWN {
            shown.push(format!("and {} more", reasons.len() - SHOWN));
        }
        (!shown.is_empty()).then(|| shown.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_stays_with_its_own_reason_until_it_is_over() {
        let names: Vec<Name> = ["a", "b"].map(Name::from).to_vec();
        let mut refusals = Refusals::default();
        refusals.add("T", &names, "user error\na: why\nb: because");
        assert_eq!(refusals.text("T").as_deref(), Some("a: why\nb: because"));
        refusals.retain("T", |name| name == "b");
        assert_eq!(refusals.text("T").as_deref(), Some("b: because"));
        assert_eq!(refusals.reason("T", "b").map(|reason| &**reason), Some("b: because"));
        assert_eq!(refusals.reason("T", "a"), None);
        refusals.add("T", &names, "no\n");
        assert_eq!(refusals.text("T").as_deref(), Some("no"), "the same words are told once");
        assert_eq!(refusals.text("U"), None);
        refusals.retain("T", |_| false);
        assert_eq!(refusals.text("T"), None);
        for n in 0..12 {
            refusals.add("T", &[Name::from(n.to_string())], &format!("reason {n}"));
        }
        assert!(refusals.text("T").is_some_and(|text| text.ends_with("and 2 more")));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut refusals = Refusals::default();
        let long = "x".repeat(10 * LONGEST_REASON);
        for n in 0..2 * Refusals::KEPT {
            assert_eq!(refusals.has_room("T", &n.to_string()), n < Refusals::KEPT);
            refusals.add(
                "T",
                &[Name::from(n.to_string()), Name::from(long.as_str())],
                &format!("{n}: {long}"),
            );
        }
        let kept = &refusals.0["T"];
        assert_eq!(kept.len(), Refusals::KEPT);
        assert!(refusals.has_room("T", "0") && !refusals.has_room("T", &long) && refusals.has_room("U", "0"));
        assert!(kept.iter().all(|(name, reason)| name.len() + reason.len() <= LONGEST_NAME + LONGEST_REASON));
    }
}
