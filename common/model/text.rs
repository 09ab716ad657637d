//! Documents from outside, in the text they came in: JSON and YAML, read in linear time and within limits,
//! so that a document can take neither the process nor its memory away from others.
//!
//! A key that stands twice in one object is an error: which of the two holds would depend on who reads.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer, Serialize,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Options, options::DuplicateKeyPolicy};
use thiserror::Error;

/// How deep objects and lists of what people and programs write may nest. The deepest resource there is needs about
/// twenty.
const DEPTH: usize = 48;
/// Objects with fewer members are kept without room for more.
const SMALL: usize = 64;
/// Anchors and aliases in one YAML text. Nothing here needs them; files of people have a few.
const ALIASES: usize = 64;
/// Nodes that aliases of one YAML text may stand for.
const REPLAYED: usize = 10_000;
/// What is said of JSON with too much in it.
const TOO_MANY: &str = "too many values";
const TOO_DEEP: &str = "nested deeper than";
/// Bytes of an error of a parser; it may repeat what it stumbled over.
const REASON: usize = 512;

/// How much one text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimits {
    /// Bytes of text.
    pub bytes: usize,
    /// Keys and values in it. One takes up to some 120 bytes of memory, and no less than two bytes of text.
    pub values: usize,
    /// How deep objects and lists nest.
    pub depth: usize,
}

impl TextLimits {
    /// The body of a request that brings one resource.
    pub const BODY: Self = Self { bytes: 4 << 20, values: 250_000, depth: DEPTH };
    /// The resource a proxy brings along; thousands of outbounds fit.
    pub const INLINE: Self = Self { bytes: 512 << 10, values: 64_000, depth: DEPTH };
    /// A file on the machine of a person, of any number of documents.
    pub const FILE: Self = Self { bytes: 64 << 20, values: 4_000_000, depth: DEPTH };
    /// What an Envoy says about itself. One that calls 10 000 services has a cluster and a listener for each, together
    /// of some 200 values in 4 KB; its matchers nest deeper than what they are made of.
    pub const DUMP: Self = Self { bytes: 40 << 20, values: 2_500_000, depth: 100 };
}

/// Why a text is not read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TextError {
    /// Too long.
    #[error("it is {length} bytes long, at most {limit} are read")]
    TooLong {
        /// Its bytes.
        length: usize,
        /// The most.
        limit: usize,
    },
    /// Not JSON or YAML, or too much of it.
    #[error("{0}")]
    Syntax(String),
}

impl TextError {
    /// Whether a key stands twice: some readers would take it.
    pub fn is_of_repetition(&self) -> bool {
        matches!(self, Self::Syntax(reason) if reason.contains("duplicate"))
    }

    /// Whether JSON is refused because there is more of it than is read.
    pub fn is_of_amount(&self) -> bool {
        match self {
            Self::TooLong { .. } => true,
            Self::Syntax(reason) => [TOO_MANY, TOO_DEEP].iter().any(|words| reason.starts_with(words)),
        }
    }

    fn syntax(error: impl fmt::Display) -> Self {
        Self::Syntax(crate::clip::clipped(error.to_string(), REASON))
    }
}

/// Reads JSON.
///
/// # Errors
/// [`TextError`].
pub fn json(text: &[u8], limits: TextLimits) -> Result<Value, TextError> {
    within(text.len(), limits)?;
    let left = Cell::new(limits.values);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict { left: &left, depth: 0, deepest: limits.depth }.deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    value.map_err(TextError::syntax)
}

/// Reads one document of YAML, which contains JSON. No document at all is `null`.
///
/// # Errors
/// [`TextError`]; more than one document is one.
pub fn yaml(text: &str, limits: TextLimits) -> Result<Value, TextError> {
    within(text.len(), limits)?;
    serde_saphyr::from_str_with_options(text, options(limits)).map_err(TextError::syntax)
}

/// Reads all documents of a YAML text that are not empty, each within the limits of values.
///
/// # Errors
/// [`TextError`] of the first that is wrong, with its number; what follows it is not read.
pub fn yaml_documents(text: &str, limits: TextLimits) -> Result<Vec<Value>, TextError> {
    within(text.len(), limits)?;
    let mut text = text.as_bytes();
    let documents = serde_saphyr::read_with_options(&mut text, options(limits)).enumerate();
    let numbered = |(i, read): (usize, Result<Value, serde_saphyr::Error>)| {
        read.map_err(|e| TextError::syntax(format_args!("document {}: {e}", i + 1)))
    };
    documents.map(numbered).collect()
}

fn within(length: usize, limits: TextLimits) -> Result<(), TextError> {
    if length > limits.bytes {
        return Err(TextError::TooLong { length, limit: limits.bytes });
    }
    Ok(())
}

/// The budget of the YAML parser, and the words it takes for booleans and numbers: those of JSON, so that
/// `no`, `0755` and `1_000` stay text.
fn options(limits: TextLimits) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: limits.depth,
            flow_nesting_limit: limits.depth,
            max_nodes: limits.values,
            max_events: limits.values.saturating_mul(2),
            max_anchors: ALIASES,
            max_aliases: ALIASES,
            max_merge_keys: ALIASES,
            max_recorded_anchor_events: REPLAYED,
            max_recorded_anchor_bytes: limits.bytes,
            max_total_scalar_bytes: limits.bytes,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: REPLAYED,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// Reads one value, counting down what is left of the limits.
struct Strict<'a> {
    left: &'a Cell<usize>,
    depth: usize,
    deepest: usize,
}

impl Strict<'_> {
    fn spend<E: Error>(&self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| E::custom(TOO_MANY))?;
        self.left.set(left);
        Ok(())
    }

    fn below<E: Error>(&self) -> Result<Self, E> {
        if self.depth == self.deepest {
            return Err(E::custom(format_args!("{TOO_DEEP} {} levels", self.deepest)));
        }
        Ok(Self { depth: self.depth + 1, ..*self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.spend()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self.below()?)? {
            values.push(value);
        }
        // A list of one is given room for four.
        values.shrink_to_fit();
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            self.spend()?;
            if members.contains_key(&key) {
                let key = crate::clip::clip(&key, 64);
                return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
            }
            members.insert(key, object.next_value_seed(self.below()?)?);
        }
        if members.is_empty() || members.len() >= SMALL {
            return Ok(Value::Object(members));
        }
        let mut fitting = Map::with_capacity(members.len());
        fitting.extend(members);
        Ok(Value::Object(fitting))
    }
}

/// What ends a line in YAML 1.1, which the writer follows, and no more in YAML 1.2, which we read.
const OLD_BREAKS: [(char, &str); 3] =
    [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

/// `value` as YAML that readers of either version understand alike: as JSON, which is YAML too, where they would
/// not.
///
/// # Errors
/// [`serde_norway::Error`] when it has no such form.
pub fn to_yaml(value: &impl Serialize) -> Result<String, serde_norway::Error> {
    let text = serde_norway::to_string(value)?;
    // Of a key the writer does not know that readers take it for a merge.
    if !text.contains(OLD_BREAKS.map(|(char, _)| char)) && !text.contains("<<:") {
        return Ok(text);
    }
    // By way of a document, which no key of ours fails to be part of.
    let document: Value =
        serde_json::to_value(value).map_err(<serde_norway::Error as serde::ser::Error>::custom)?;
    // They stand in texts and keys only, where they may be written like this.
    let json =
        OLD_BREAKS.iter().fold(format!("{document:#}"), |json, (char, escape)| json.replace(*char, escape));
    Ok(json + "\n")
}

#[cfg(test)]
mod tests;
