//! JSON that everyone reads alike.
//!
//! Of a member that stands twice one reader takes the first, another the last, a third both; and Kuma's do not
//! tell upper from lower case. Who decides about a policy must read what its receivers will read.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};

use crate::clip::clip;

/// How much of the name of a member an error shows, in bytes.
const SHOWN: usize = 80;

/// An object, at any depth of which no two members have names that differ in case only.
pub(super) struct Object;

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(MembersVisitor).map(|()| Self)
    }
}

/// A value of any type in such an object.
struct Any;

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Anything).map(|()| Self)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if !seen.insert(folded(&name)) {
                let name = clip(&name, SHOWN);
                return Err(de::Error::custom(format_args!(
                    "member {name:?} stands there twice, or in two cases"
                )));
            }
            members.next_value::<Any>()?;
        }
        Ok(())
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        MembersVisitor.visit_map(members)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<Any>()?.is_some() {}
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
    use super::Object;

    #[test]
    fn what_two_readers_would_read_differently_is_refused() {
        let check = |json: &str, reason: Option<&str>| {
            let refused = serde_json::from_str::<Object>(json).err().map(|e| e.to_string());
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
    }
}
