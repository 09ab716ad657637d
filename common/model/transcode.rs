//! Between the stored form of a spec and its JSON form.
//!
//! Protobuf specs go through reflection over our own descriptors rather than through generated serde
//! code: one path for every kind, and fields a newer peer added survive being edited.

mod authored;
mod bounded;
mod direct;
mod schema;
mod stable;

use std::sync::LazyLock;

use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::{Map, Value};

use self::{authored::Authored, bounded::bounded};
pub use self::{schema::SchemaCollection, stable::stable};
use super::{FieldPath, Format, Kind, SpecError};
use crate::proto;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(proto::RESOURCE_DESCRIPTORS).expect("the build script wrote valid descriptors")
});

fn descriptor(message: &str) -> MessageDescriptor {
    POOL.get_message_by_name(message).expect("a kind names a message of our own descriptors")
}

/// The message of a protobuf spec, with its unknown fields.
///
/// # Errors
/// [`SpecError::Proto`] when the bytes are broken.
pub fn reflect(message: &str, spec: &[u8]) -> Result<DynamicMessage, SpecError> {
    Ok(DynamicMessage::decode(descriptor(message), spec)?)
}

/// The JSON form of a spec: for protobuf kinds the members that stand beside the meta, for JSON kinds
/// the object below `spec`.
///
/// # Errors
/// [`SpecError`] when the stored bytes do not decode.
pub fn to_json(kind: &Kind, spec: &[u8]) -> Result<Value, SpecError> {
    match kind.format {
        Format::Proto { message } => message_to_json(reflect(message, spec)?),
        Format::Json { .. } => serde_json::from_slice(spec).map_err(|e| json_error("spec", &e)),
    }
}

/// The stored form of a spec given as JSON. Members that no field has are ignored in protobuf specs and
/// kept in JSON specs ([`Kind::normalize`] prunes them where the kind is typed).
///
/// # Errors
/// [`SpecError::Json`] naming the member that does not fit.
pub fn from_json(kind: &Kind, json: &Value) -> Result<Vec<u8>, SpecError> {
    match (kind.format, json) {
        (Format::Proto { message }, Value::Object(members)) => {
            members_from_json(message, members, |_| true).map(|(spec, _)| spec)
        }
        (Format::Proto { message }, json) => reflected(&descriptor(message), json).map(|(spec, _)| spec),
        (Format::Json { .. }, Value::Object(_)) => Ok(json.to_string().into_bytes()),
        (Format::Json { .. }, _) => {
            Err(SpecError::Json { path: "spec".to_owned(), reason: "must be an object".to_owned() })
        }
    }
}

/// The stored form of a protobuf spec whose members are those of a document that are `wanted`, and which of
/// them no field is called.
///
/// # Errors
/// [`SpecError::Json`] naming the member that does not fit.
pub fn members_from_json(
    message: &str,
    document: &Map<String, Value>,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<u8>, Vec<FieldPath>), SpecError> {
    let message = descriptor(message);
    if let Some(encoded) = direct::encode(&message, document, &wanted) {
        return Ok(encoded);
    }
    let members = document.iter().filter(|(name, _)| wanted(name));
    let members = members.map(|(name, value)| (name.clone(), value.clone())).collect();
    reflected(&message, &Value::Object(members))
}

/// The same by reflection, which knows all of JSON that a `message` may be written in.
fn reflected(message: &MessageDescriptor, json: &Value) -> Result<(Vec<u8>, Vec<FieldPath>), SpecError> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let Authored { json, unknown } = Authored::read(message, json)?;
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&json, &mut track);
    match DynamicMessage::deserialize_with_options(message.clone(), tracked, &options) {
        Ok(message) => Ok((stable(&message), unknown)),
        Err(e) => Err(SpecError::Json { path: track.path().to_string(), reason: e.to_string() }),
    }
}

/// Members of `json` that no field of the spec is called, most likely misspelt; they are ignored.
pub fn unknown_members(kind: &Kind, json: &Value) -> Vec<FieldPath> {
    match kind.format {
        Format::Proto { message } => {
            Authored::read(&descriptor(message), json).map(|a| a.unknown).unwrap_or_default()
        }
        Format::Json { .. } => {
            let normal = kind.normalize(json.to_string().as_bytes()).ok();
            let normal = normal.and_then(|spec| serde_json::from_slice::<Value>(&spec).ok());
            let mut lost = Vec::new();
            normal.iter().for_each(|normal| collect_lost(&FieldPath::new("spec"), json, normal, &mut lost));
            lost
        }
    }
}

/// Members that say something in `before` and are not in `after`.
fn collect_lost(path: &FieldPath, before: &Value, after: &Value, lost: &mut Vec<FieldPath>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                match after.get(name) {
                    Some(after) => collect_lost(&path.field(name), value, after, lost),
                    None if says_nothing(value) => {}
                    None => lost.push(path.field(name)),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (i, (before, after)) in before.iter().zip(after).enumerate() {
                collect_lost(&path.index(i), before, after, lost);
            }
        }
        _ => {}
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn message_to_json(mut message: DynamicMessage) -> Result<Value, SpecError> {
    let options = SerializeOptions::new().stringify_64_bit_integers(true).skip_default_fields(true);
    let shown =
        |message: &DynamicMessage| message.serialize_with_options(serde_json::value::Serializer, &options);
    let json = shown(&message).or_else(|_| {
        bounded(&mut message);
        shown(&message)
    });
    json.map(whole_numbers).map_err(|e| json_error("", &e))
}

/// Shows floating point fields that hold a whole number without a fraction, as other control planes do.
fn whole_numbers(json: Value) -> Value {
    match json {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 1e15);
            // Below the bound above every whole number is exact in both types.
            #[allow(clippy::cast_possible_truncation)]
            whole.map_or(Value::Number(number), |f| Value::from(f as i64))
        }
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(k, v)| (k, whole_numbers(v))).collect())
        }
        other => other,
    }
}

fn json_error(path: &str, error: &serde_json::Error) -> SpecError {
    SpecError::Json { path: path.to_owned(), reason: error.to_string() }
}

/// An empty JSON object.
pub fn empty_object() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests;
