//! `google.protobuf.Struct` as JSON and back.

use serde_json::{Map, Number, Value as Json};

use crate::proto::google::protobuf::{ListValue, Struct, Value, value::Kind};

/// As JSON.
pub fn to_json(structure: Struct) -> Map<String, Json> {
    structure.fields.into_iter().map(|(name, value)| (name, value_to_json(value))).collect()
}

fn value_to_json(value: Value) -> Json {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(flag)) => Json::Bool(flag),
        // What JSON cannot say is no number a program could have meant.
        Some(Kind::NumberValue(number)) => Number::from_f64(number).map_or(Json::Null, Json::Number),
        Some(Kind::StringValue(text)) => Json::String(text),
        Some(Kind::StructValue(structure)) => Json::Object(to_json(structure)),
        Some(Kind::ListValue(list)) => Json::Array(list.values.into_iter().map(value_to_json).collect()),
    }
}

/// Back from JSON.
pub fn from_json(members: Map<String, Json>) -> Struct {
    Struct { fields: members.into_iter().map(|(name, value)| (name, value_from_json(value))).collect() }
}

fn value_from_json(value: Json) -> Value {
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(flag),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text),
        Json::Object(members) => Kind::StructValue(from_json(members)),
        Json::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(value_from_json).collect() })
        }
    };
    Value { kind: Some(kind) }
}
