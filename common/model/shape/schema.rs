//! Shapes as JSON schemas, for those who read the API from its description.

use serde_json::{Map, Value, json};

use super::{Member, Shape};

impl Shape {
    /// As a JSON schema. Members that are not listed are left alone, as everywhere.
    pub fn schema(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Text | Self::Duration => json!({ "type": "string" }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::Integer => json!({ "type": "integer" }),
            Self::IntOrText => json!({ "type": ["integer", "string"] }),
            Self::Port => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
            Self::OneOf(names) => json!({ "type": "string", "enum": names }),
            Self::List(item) => json!({ "type": "array", "items": item.schema() }),
            Self::OneOrMore(item) => json!({ "type": "array", "items": item.schema(), "minItems": 1 }),
            Self::UpTo(most) => json!({ "type": "string", "maxLength": most }),
            Self::Map(item) => json!({ "type": "object", "additionalProperties": item.schema() }),
            Self::Object(members) => of_members(members),
            Self::Tagged { by, members } => {
                let mut schema = of_members(members);
                let names: Vec<&str> = by.iter().map(|(name, _)| *name).collect();
                schema["properties"]["type"] = json!({ "type": "string", "enum": names });
                schema["required"] = json!(["type"]);
                schema
            }
        }
    }
}

fn of_members(members: &[Member]) -> Value {
    let properties = members.iter().map(|member| {
        let schema = member.shape.schema();
        // What may be absent may be null.
        let schema = if member.required { schema } else { json!({ "anyOf": [schema, { "type": "null" }] }) };
        (member.name.to_owned(), schema)
    });
    let required: Vec<&str> =
        members.iter().filter(|member| member.required).map(|member| member.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties.collect::<Map<_, _>>() });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
