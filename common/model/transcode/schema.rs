//! Protobuf messages as JSON schemas of their JSON form.

use prost_reflect::{FieldDescriptor, Kind as FieldKind, MessageDescriptor};
use serde_json::{Map, Value, json};

use super::descriptor;
use crate::model::{Format, Kind};

/// Schemas of messages, by name.
#[derive(Debug, Default)]
pub struct SchemaCollection {
    schemas: Map<String, Value>,
}

impl SchemaCollection {
    /// All of them.
    pub fn into_schemas(self) -> Map<String, Value> {
        self.schemas
    }

    /// Adds one, by the name under which others refer to it.
    pub fn add(&mut self, name: &str, schema: Value) {
        self.schemas.insert(name.to_owned(), schema);
    }

    /// Refers to one.
    pub fn reference(name: &str) -> Value {
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// What specs of `kind` look like, as far as it is known. What that refers to is added.
    pub fn of_spec(&mut self, kind: &Kind) -> Value {
        let shape = match kind.format {
            Format::Proto { message } => return self.message(&descriptor(message)),
            Format::Json { .. } => kind.shape().schema(),
        };
        let Some(traits) = kind.policy.filter(|traits| traits.target_ref && shape == json!({})) else {
            return match shape {
                Value::Object(known) if known.is_empty() => json!({ "type": "object" }),
                shape => shape,
            };
        };
        let mut members = Map::from_iter([("targetRef".to_owned(), json!({ "type": "object" }))]);
        for (name, is_there) in [("to", traits.to), ("from", traits.from), ("rules", traits.rules)] {
            if is_there {
                members.insert(name.to_owned(), json!({ "type": "array", "items": { "type": "object" } }));
            }
        }
        json!({ "type": "object", "properties": members })
    }

    fn message(&mut self, message: &MessageDescriptor) -> Value {
        if let Some(schema) = well_known(message.full_name()) {
            return schema;
        }
        let name = message.full_name();
        if !self.schemas.contains_key(name) {
            // It may contain itself.
            self.add(name, Value::Null);
            let fields = message.fields().map(|field| (field.json_name().to_owned(), self.field(&field)));
            let schema = json!({ "type": "object", "properties": fields.collect::<Map<_, _>>() });
            self.add(name, schema);
        }
        Self::reference(name)
    }

    fn field(&mut self, field: &FieldDescriptor) -> Value {
        let kind = field.kind();
        if let (true, FieldKind::Message(entry)) = (field.is_map(), &kind) {
            let value = self.value(&entry.map_entry_value_field().kind());
            return json!({ "type": "object", "additionalProperties": value });
        }
        let value = self.value(&kind);
        if field.is_list() { json!({ "type": "array", "items": value }) } else { value }
    }

    fn value(&mut self, kind: &FieldKind) -> Value {
        match kind {
            FieldKind::Double | FieldKind::Float => json!({ "type": ["number", "string"] }),
            FieldKind::Bool => json!({ "type": "boolean" }),
            FieldKind::String => json!({ "type": "string" }),
            FieldKind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            FieldKind::Message(message) => self.message(message),
            FieldKind::Enum(values) => {
                let names: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
                json!({ "anyOf": [{ "type": "string", "enum": names }, { "type": "integer" }] })
            }
            // 64 bits do not fit into a number of JSON.
            FieldKind::Int64
            | FieldKind::Sint64
            | FieldKind::Uint64
            | FieldKind::Fixed64
            | FieldKind::Sfixed64 => {
                json!({ "type": ["integer", "string"] })
            }
            FieldKind::Int32
            | FieldKind::Sint32
            | FieldKind::Uint32
            | FieldKind::Fixed32
            | FieldKind::Sfixed32 => {
                json!({ "type": "integer" })
            }
        }
    }
}

/// Messages whose JSON form is not that of their fields.
fn well_known(name: &str) -> Option<Value> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "Duration" | "FieldMask" => json!({ "type": "string" }),
        "Timestamp" => json!({ "type": "string", "format": "date-time" }),
        "Struct" => json!({ "type": "object" }),
        "ListValue" => json!({ "type": "array" }),
        "Value" => json!({}),
        "BoolValue" => json!({ "type": ["boolean", "null"] }),
        "StringValue" | "BytesValue" => json!({ "type": ["string", "null"] }),
        "Int32Value" | "UInt32Value" => json!({ "type": ["integer", "null"] }),
        "Int64Value" | "UInt64Value" => json!({ "type": ["integer", "string", "null"] }),
        "DoubleValue" | "FloatValue" => json!({ "type": ["number", "string", "null"] }),
        "Any" => json!({ "type": "object", "properties": { "@type": { "type": "string" } } }),
        _ => return None,
    })
}
