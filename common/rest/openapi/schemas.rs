//! What answers and requests look like.

use serde_json::{Map, Value, json};

use crate::{
    model::{Kind, transcode::SchemaCollection},
    rest::routes::RouteAnswer,
};

/// What is referred to from everywhere.
pub(super) fn common(schemas: &mut SchemaCollection) {
    let parameter = |reason: &str| {
        json!({ "type": "array", "items": {
            "type": "object",
            "required": ["field", reason],
            "properties": { "field": { "type": "string" }, reason: { "type": "string" } },
        } })
    };
    schemas.add(
        "Error",
        json!({
            "type": "object",
            "required": ["type", "status", "title", "detail"],
            "properties": {
                "type": { "type": "string" },
                "status": { "type": "integer" },
                "title": { "type": "string" },
                "detail": { "type": "string" },
                "details": { "type": "string" },
                "invalid_parameters": parameter("reason"),
                "causes": parameter("message"),
            },
        }),
    );
    schemas.add("Page", page(&json!({ "type": "object" })));
    schemas.add(
        "Written",
        json!({
            "type": "object",
            "properties": { "warnings": { "type": "array", "items": { "type": "string" } } },
        }),
    );
}

/// The schema of an answer.
pub(super) fn of(answer: RouteAnswer, kind: Option<&'static Kind>, schemas: &mut SchemaCollection) -> Value {
    match (answer, kind) {
        (RouteAnswer::Object(members), _) => json!({ "type": "object", "required": members }),
        (RouteAnswer::Resource, Some(kind)) => resource(kind, schemas),
        (RouteAnswer::Resources, Some(kind)) => {
            let name = format!("{}List", kind.name);
            let list = page(&resource(kind, schemas));
            schemas.add(&name, list);
            SchemaCollection::reference(&name)
        }
        (RouteAnswer::Page, _) => SchemaCollection::reference("Page"),
        (RouteAnswer::Written, _) => SchemaCollection::reference("Written"),
        (RouteAnswer::List, _) => json!({ "type": "array" }),
        (RouteAnswer::Resource | RouteAnswer::Resources | RouteAnswer::Json | RouteAnswer::Text(_), _) => {
            json!({})
        }
    }
}

fn page(item: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["total", "items", "next"],
        "properties": {
            "total": { "type": "integer" },
            "items": { "type": "array", "items": item },
            "next": { "type": ["string", "null"] },
        },
    })
}

/// A document of `kind`: who it is, and its spec below `spec` or, of older kinds, beside that.
fn resource(kind: &'static Kind, schemas: &mut SchemaCollection) -> Value {
    let time = json!({ "type": "string", "format": "date-time", "readOnly": true });
    let mut properties = Map::from_iter([
        ("type".to_owned(), json!({ "type": "string", "const": kind.name })),
        ("name".to_owned(), json!({ "type": "string" })),
        ("creationTime".to_owned(), time.clone()),
        ("modificationTime".to_owned(), time),
        ("labels".to_owned(), json!({ "type": "object", "additionalProperties": { "type": "string" } })),
        ("kri".to_owned(), json!({ "type": "string", "readOnly": true })),
    ]);
    let mut required = vec!["type", "name"];
    if kind.is_mesh_scoped() {
        properties.insert("mesh".to_owned(), json!({ "type": "string" }));
        required.push("mesh");
    }
    let spec = schemas.of_spec(kind);
    let mut schema = json!({ "type": "object" });
    if kind.is_json() {
        properties.insert("spec".to_owned(), spec);
        required.push("spec");
        if kind.has_status() {
            properties.insert("status".to_owned(), json!({ "type": "object", "readOnly": true }));
        }
    } else if !kind.is_insight {
        schema["allOf"] = json!([spec]);
    }
    schema["required"] = json!(required);
    schema["properties"] = Value::Object(properties);
    schemas.add(kind.name, schema);
    SchemaCollection::reference(kind.name)
}
