//! From JSON to the stable encoding of a message in one walk, for what people usually write.
//!
//! What is less usual (a number in a string, a wrong type, a member named twice) is left to reflection, which
//! knows all rules and words all errors. Whatever both can read they encode alike; a property test compares.

use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::{authored, stable};
use crate::model::{FieldPath, field_step::FieldStep};

/// Where to look for what is meant.
struct Unusual;

/// A walk through one document.
#[derive(Default)]
struct Walk {
    out: Vec<u8>,
    /// Members that are no field.
    unknown: Vec<FieldPath>,
    /// Where each field of the messages that are being written begins, innermost last.
    begun: Vec<(u32, usize)>,
}

/// The encoding of the members `wanted` of a document as a `message`, and those of them that are no field;
/// `None` when something unusual stands there.
pub(super) fn encode(
    message: &MessageDescriptor,
    members: &Map<String, Value>,
    wanted: impl Fn(&str) -> bool,
) -> Option<(Vec<u8>, Vec<FieldPath>)> {
    let mut walk = Walk::default();
    let members = members.iter().filter(|(name, _)| wanted(name));
    walk.members(message, members, &FieldStep::Root).ok()?;
    Some((walk.out, walk.unknown))
}

impl Walk {
    fn members<'a>(
        &mut self,
        message: &MessageDescriptor,
        members: impl Iterator<Item = (&'a String, &'a Value)>,
        path: &FieldStep<'_>,
    ) -> Result<(), Unusual> {
        let (base, start) = (self.begun.len(), self.out.len());
        let mut alternatives = 0;
        for (name, value) in members {
            let field = message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name));
            let Some(field) = field else {
                if name.starts_with('[') {
                    return Err(Unusual);
                }
                self.unknown.push(path.field(name).into());
                continue;
            };
            self.begun.push((field.number(), self.out.len()));
            alternatives += usize::from(field.containing_oneof().is_some());
            self.field(&field, value, &path.field(name))?;
        }
        // Two of one choice are an error that has words.
        if alternatives > 1 {
            return Err(Unusual);
        }
        self.in_order(base, start)
    }

    /// Brings the fields of a message into the order of their numbers.
    fn in_order(&mut self, base: usize, start: usize) -> Result<(), Unusual> {
        let begun = &self.begun[base..];
        if begun.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            let ends = begun.iter().skip(1).map(|(_, at)| *at).chain([self.out.len()]);
            let mut parts: Vec<_> =
                begun.iter().zip(ends).map(|((number, from), to)| (*number, *from..to)).collect();
            parts.sort_by_key(|(number, _)| *number);
            if parts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return Err(Unusual);
            }
            let ordered: Vec<u8> =
                parts.into_iter().flat_map(|(_, part)| self.out[part].iter().copied()).collect();
            self.out.truncate(start);
            self.out.extend_from_slice(&ordered);
        }
        self.begun.truncate(base);
        Ok(())
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value, path: &FieldStep<'_>) -> Result<(), Unusual> {
        let kind = field.kind();
        match value {
            Value::Null => match kind {
                Kind::Message(message) if is_well_known(&message) => Err(Unusual),
                Kind::Enum(_) => Err(Unusual),
                _ => Ok(()),
            },
            Value::Object(entries) if field.is_map() => {
                let Kind::Message(entry) = kind else { return Err(Unusual) };
                self.map(field.number(), &entry, entries, path)
            }
            Value::Array(items) if field.is_list() => {
                for (i, item) in items.iter().enumerate() {
                    match &kind {
                        Kind::Message(_) => self.value(field.number(), &kind, item, true, &path.index(i))?,
                        Kind::String if item.is_string() => {
                            self.value(field.number(), &kind, item, true, path)?;
                        }
                        _ => return Err(Unusual),
                    }
                }
                Ok(())
            }
            _ if field.is_map() || field.is_list() => Err(Unusual),
            value => self.value(field.number(), &kind, value, field.supports_presence(), path),
        }
    }

    /// Writes one value; what says no more than its absence is left out unless it is to be `shown`.
    fn value(
        &mut self,
        number: u32,
        kind: &Kind,
        value: &Value,
        shown: bool,
        path: &FieldStep<'_>,
    ) -> Result<(), Unusual> {
        match (kind, value) {
            (Kind::Message(message), value) => self.message(number, message, value, path)?,
            (Kind::String, Value::String(text)) => {
                if shown || !text.is_empty() {
                    encode_key(number, WireType::LengthDelimited, &mut self.out);
                    encode_varint(text.len() as u64, &mut self.out);
                    self.out.extend_from_slice(text.as_bytes());
                }
            }
            (kind, value) => {
                let scalar = scalar(kind, value)?;
                if shown || scalar != 0 {
                    encode_key(number, WireType::Varint, &mut self.out);
                    encode_varint(scalar, &mut self.out);
                }
            }
        }
        Ok(())
    }

    fn message(
        &mut self,
        number: u32,
        message: &MessageDescriptor,
        value: &Value,
        path: &FieldStep<'_>,
    ) -> Result<(), Unusual> {
        encode_key(number, WireType::LengthDelimited, &mut self.out);
        if is_well_known(message) {
            let bytes = well_known(message, value)?;
            encode_varint(bytes.len() as u64, &mut self.out);
            self.out.extend_from_slice(&bytes);
            return Ok(());
        }
        let Value::Object(members) = value else { return Err(Unusual) };
        let at = self.reserve();
        self.members(message, members.iter(), path)?;
        self.measure(at);
        Ok(())
    }

    /// Writes a map in the order of its keys.
    fn map(
        &mut self,
        number: u32,
        entry: &MessageDescriptor,
        entries: &Map<String, Value>,
        path: &FieldStep<'_>,
    ) -> Result<(), Unusual> {
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let kind = value_field.kind();
        if key_field.kind() != Kind::String {
            return Err(Unusual);
        }
        let start = self.out.len();
        let mut begun: Vec<(&str, usize)> = Vec::new();
        for (key, value) in entries {
            if value.is_null() {
                return Err(Unusual);
            }
            begun.push((key, self.out.len()));
            encode_key(number, WireType::LengthDelimited, &mut self.out);
            let at = self.reserve();
            if !key.is_empty() || key_field.supports_presence() {
                encode_key(key_field.number(), WireType::LengthDelimited, &mut self.out);
                encode_varint(key.len() as u64, &mut self.out);
                self.out.extend_from_slice(key.as_bytes());
            }
            let shown = value_field.supports_presence();
            self.value(value_field.number(), &kind, value, shown, &path.key(key))?;
            self.measure(at);
        }
        if !begun.is_sorted() {
            let ends: Vec<usize> = begun.iter().skip(1).map(|(_, at)| *at).chain([self.out.len()]).collect();
            let mut parts: Vec<_> =
                begun.iter().zip(ends).map(|((key, from), to)| (*key, *from..to)).collect();
            parts.sort_unstable_by_key(|(key, _)| *key);
            let ordered: Vec<u8> =
                parts.into_iter().flat_map(|(_, part)| self.out[part].iter().copied()).collect();
            self.out.truncate(start);
            self.out.extend_from_slice(&ordered);
        }
        Ok(())
    }

    /// Leaves room for the length of what follows; most of it needs one byte.
    fn reserve(&mut self) -> usize {
        self.out.push(0);
        self.out.len()
    }

    /// Writes the length of what was written since [`Walk::reserve`].
    fn measure(&mut self, at: usize) {
        let length = self.out.len() - at;
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => self.out[at - 1] = short,
            _ => {
                let mut long = Vec::with_capacity(10);
                encode_varint(length as u64, &mut long);
                self.out.splice(at - 1..at, long);
            }
        }
    }
}

/// What stands for a number, a truth or a name of an enum on the wire.
fn scalar(kind: &Kind, value: &Value) -> Result<u64, Unusual> {
    match (kind, value) {
        (Kind::Bool, Value::Bool(truth)) => Ok((*truth).into()),
        (Kind::Uint32, Value::Number(number)) => {
            number.as_u64().filter(|n| *n <= u32::MAX.into()).ok_or(Unusual)
        }
        (Kind::Uint64, Value::Number(number)) => number.as_u64().ok_or(Unusual),
        (Kind::Int32, Value::Number(number)) => {
            let number = number.as_i64().filter(|n| i32::try_from(*n).is_ok());
            number.map(i64::cast_unsigned).ok_or(Unusual)
        }
        (Kind::Int64, Value::Number(number)) => number.as_i64().map(i64::cast_unsigned).ok_or(Unusual),
        (Kind::Enum(values), Value::String(name)) => member(values, name),
        _ => Err(Unusual),
    }
}

fn member(values: &EnumDescriptor, name: &str) -> Result<u64, Unusual> {
    let value = values.get_value_by_name(name).ok_or(Unusual)?;
    Ok(i64::from(value.number()).cast_unsigned())
}

fn is_well_known(message: &MessageDescriptor) -> bool {
    message.full_name().starts_with(authored::WELL_KNOWN)
}

/// The encoding of a message with a JSON form of its own.
fn well_known(message: &MessageDescriptor, value: &Value) -> Result<Vec<u8>, Unusual> {
    let mut value = value.clone();
    if message.full_name() == authored::DURATION {
        authored::canonical_duration(&mut value, &FieldPath::root()).map_err(|_| Unusual)?;
    }
    DynamicMessage::deserialize(message.clone(), value).map(|m| stable(&m)).map_err(|_| Unusual)
}
