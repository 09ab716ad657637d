//! JSON that everyone reads alike, and of which there is not too much.
//!
//! What is nested more deeply than anybody may write it would be read here and by no client: with one such resource in it,
//! a list is none for all who ask for it.
//!
//! Of a member that stands twice one reader takes the first, another the last, a third both; and Kuma's do not
//! tell upper from lower case. Who decides about a policy must read what its receivers will read. And who reads it takes
//! many times its length of memory for many small values.

use std::{cell::Cell, collections::BTreeSet, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use crate::{clip::clip, model::text::TextLimits};

/// How much of the name of a member an error shows, in bytes.
const SHOWN: usize = 80;
/// Names and values in one object: as many as somebody may write, and what stands in place of what he left out.
const VALUES: usize = 2 * TextLimits::BODY.values;

/// Checks that `json` is an object, at any depth of which no two members have names that differ in case only.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(json: &[u8]) -> Result<(), serde_json::Error> {
    check_within(json, VALUES)
}

fn check_within(json: &[u8], values: usize) -> Result<(), serde_json::Error> {
    let left = Cell::new(values);
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.deserialize_map(MembersVisitor(&left, TextLimits::BODY.depth))?;
    reader.end()
}

fn spend<E: Error>(left: &Cell<usize>) -> Result<(), E> {
    left.set(left.get().checked_sub(1).ok_or_else(|| E::custom("there are too many values in it"))?);
    Ok(())
}

/// How deep what stands within may still be.
fn deeper<E: Error>(deepest: usize) -> Result<usize, E> {
    deepest.checked_sub(1).ok_or_else(|| E::custom("it is nested too deeply"))
}

/// The names and values that are left, and how deep it may be.
struct MembersVisitor<'a>(&'a Cell<usize>, usize);

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let deepest = deeper(self.1)?;
        let mut seen = BTreeSet::new();
        while let Some(name) = members.next_key::<String>()? {
            spend(self.0)?;
            if !seen.insert(folded(&name)) {
                let name = clip(&name, SHOWN);
                return Err(A::Error::custom(format_args!(
                    "member {name:?} stands there twice, or in two cases"
                )));
            }
            members.next_value_seed(Anything(self.0, deepest))?;
        }
        Ok(())
    }
}

/// A value of any type in such an object.
struct Anything<'a>(&'a Cell<usize>, usize);

impl<'de> DeserializeSeed<'de> for Anything<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        spend(self.0)?;
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Anything<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        MembersVisitor(self.0, self.1).visit_map(members)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let deepest = deeper(self.1)?;
        while items.next_element_seed(Anything(self.0, deepest))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The name as readers that ignore case compare it. Some letters meet only in upper case (`ſ` and `s`).
fn folded(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_two_readers_would_read_differently_is_refused() {
        let check = |json: &str, reason: Option<&str>| {
            let refused = super::check(json.as_bytes()).err().map(|e| e.to_string());
            match (reason, &refused) {
                (None, None) => {}
                (Some(reason), Some(refused)) if refused.contains(reason) => {}
                _ => panic!("{json}: {refused:?}"),
            }
        };
        check(r#"{"to":[{"a":1},{"a":2,"b":null}],"from":{"to":1.5,"x":"to","y":true,"z":-1}}"#, None);
        check(r#"{"to":[],"to":[{}]}"#, Some("\"to\" stands there twice"));
        check(r#"{"to":[{"targetRef":{},"TargetRef":{}}]}"#, Some("TargetRef"));
        check(r#"{"selector":{"tags":{"k":1},"tag\u0073":{}}}"#, Some("tags"));
        check(r#"{"tags":1,"tagſ":2}"#, Some("tagſ"));
        check("[1]", Some("an object"));
        check(r#"{"a":"#, Some("EOF"));
        check("{} {}", Some("trailing"));
    }

    #[test]
    fn what_is_deeper_than_anybody_may_write_it_is_refused() {
        let nested = |lists: usize| format!(r#"{{"x":{}{}}}"#, "[".repeat(lists), "]".repeat(lists));
        let deepest = TextLimits::BODY.depth - 1;
        assert!(check(nested(deepest).as_bytes()).is_ok());
        let refused = check(nested(deepest + 1).as_bytes()).unwrap_err().to_string();
        assert!(refused.contains("too deeply"), "{refused}");
        let objects = format!("{}1{}", r#"{"x":"#.repeat(deepest + 2), "}".repeat(deepest + 2));
        assert!(check(objects.as_bytes()).is_err());
    }

    #[test]
    fn what_would_take_much_memory_to_read_is_refused() {
        let within = |values| check_within(br#"{"a":[{"b":1},{}]}"#, values).is_ok();
        assert!(within(6) && !within(5), "two names and four values");
        let objects = format!(r#"{{"to":[{}0]}}"#, "{},".repeat(VALUES));
        assert!(check(objects.as_bytes()).unwrap_err().to_string().contains("too many values"));
    }
}
