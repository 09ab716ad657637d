//! The shape of JSON specs nobody decodes here: which members there are, and what they hold.
//!
//! Members that are not listed are left alone, because a newer control plane may know them. What is said
//! about the listed ones are the words of a JSON schema, which clients of the API know.

mod schema;

use serde_json::Value;

use super::{FieldPath, Violations};
use crate::model::Duration;

/// What a JSON value must look like.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Anything.
    Any,
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// A whole number.
    Integer,
    /// A whole number, or a number in a string.
    IntOrText,
    /// A TCP or UDP port.
    Port,
    /// A duration like `1h30m`.
    Duration,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A list.
    List(&'static Shape),
    /// A list with something in it.
    OneOrMore(&'static Shape),
    /// A string of at most so many characters.
    UpTo(usize),
    /// An object with any keys.
    Map(&'static Shape),
    /// An object with these members, each of which may be absent or null.
    Object(&'static [Member]),
    /// An object whose `type` says which one of the other members is set.
    Tagged {
        /// Values of `type`, with the member that then has to be there; an empty name for none.
        by: &'static [(&'static str, &'static str)],
        /// All members but `type`.
        members: &'static [Member],
    },
}

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    name: &'static str,
    shape: &'static Shape,
    required: bool,
}

impl Member {
    /// One that must be there.
    pub const fn required(name: &'static str, shape: &'static Shape) -> Self {
        Self { name, shape, required: true }
    }

    /// One that may be absent.
    pub const fn optional(name: &'static str, shape: &'static Shape) -> Self {
        Self { name, shape, required: false }
    }
}

impl Shape {
    /// Everything about `value`, which stands at `path`, that does not fit.
    pub fn check(&self, path: &FieldPath, value: &Value) -> Violations {
        let mut violations = Violations::none();
        self.visit(path, value, &mut violations);
        violations
    }

    fn visit(&self, path: &FieldPath, value: &Value, violations: &mut Violations) {
        let expected = match (self, value) {
            (Self::Any, _)
            | (Self::Text, Value::String(_))
            | (Self::Flag, Value::Bool(_))
            | (Self::IntOrText, Value::String(_)) => return,
            (Self::Integer | Self::IntOrText, Value::Number(n)) if n.is_i64() || n.is_u64() => return,
            (Self::Port, Value::Number(n)) if n.is_i64() || n.is_u64() => {
                let bad = !n.as_u64().is_some_and(|port| (1..=65535).contains(&port));
                return violations.check(bad, path.clone(), "port must be in the range [1, 65535]");
            }
            (Self::Duration, Value::String(text)) => {
                return text
                    .parse::<Duration>()
                    .map_or_else(|e| violations.add(path.clone(), e.to_string()), drop);
            }
            (Self::OneOf(allowed), Value::String(text)) => {
                let reason = || format!("in body should be one of [{}]", allowed.join(" "));
                return violations.check(!allowed.contains(&text.as_str()), path.clone(), reason());
            }
            (Self::UpTo(most), Value::String(text)) => {
                let reason = || format!("in body should be at most {most} chars long");
                return violations.check(text.chars().count() > *most, path.clone(), reason());
            }
            (Self::OneOrMore(_), Value::Array(items)) if items.is_empty() => {
                return violations.add(path.clone(), "in body should have at least 1 items");
            }
            (Self::List(item) | Self::OneOrMore(item), Value::Array(items)) => {
                return items.iter().enumerate().for_each(|(i, v)| item.visit(&path.index(i), v, violations));
            }
            (Self::Map(item), Value::Object(entries)) => {
                return entries.iter().for_each(|(key, v)| item.visit(&path.key(key), v, violations));
            }
            (Self::Object(members), Value::Object(object)) => {
                return visit_members(members, path, object, violations);
            }
            (Self::Tagged { by, members }, Value::Object(object)) => {
                visit_members(members, path, object, violations);
                return visit_tag(by, path, object, violations);
            }
            (Self::Text | Self::UpTo(_) | Self::Duration | Self::OneOf(_), _) => "string",
            (Self::Flag, _) => "boolean",
            (Self::Integer | Self::Port, _) => "integer",
            (Self::IntOrText, _) => "integer,string",
            (Self::List(_) | Self::OneOrMore(_), _) => "array",
            (Self::Map(_) | Self::Object(_) | Self::Tagged { .. }, _) => "object",
        };
        violations.add(path.clone(), format!("in body must be of type {expected}: {:?}", json_type(value)));
    }
}

type JsonObject = serde_json::Map<String, Value>;

fn visit_members(members: &[Member], path: &FieldPath, object: &JsonObject, violations: &mut Violations) {
    for member in members {
        match object.get(member.name).filter(|value| !value.is_null()) {
            Some(value) => member.shape.visit(&path.field(member.name), value, violations),
            None => violations.check(member.required, path.field(member.name), "in body is required"),
        }
    }
}

fn visit_tag(
    by: &[(&'static str, &str)],
    path: &FieldPath,
    object: &JsonObject,
    violations: &mut Violations,
) {
    let path_of = |name: &str| path.field(name);
    let Some(tag) = object.get("type").filter(|tag| !tag.is_null()) else {
        return violations.add(path_of("type"), "in body is required");
    };
    let Some((_, member)) = by.iter().find(|(name, _)| tag == name) else {
        let names: Vec<&str> = by.iter().map(|(name, _)| *name).collect();
        return violations.add(path_of("type"), format!("in body should be one of [{}]", names.join(" ")));
    };
    let missing = !member.is_empty() && object.get(*member).is_none_or(Value::is_null);
    violations.check(missing, path_of(member), "must be defined");
}

/// The name a JSON schema has for the type of `value`.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BACKEND: Shape = Shape::Tagged {
        by: &[("File", "file"), ("None", "")],
        members: &[Member::optional("file", &Shape::Object(&[Member::required("path", &Shape::Text)]))],
    };
    const SPEC: Shape = Shape::Object(&[
        Member::required("port", &Shape::Port),
        Member::optional("ratio", &Shape::IntOrText),
        Member::optional("wait", &Shape::Duration),
        Member::optional("mode", &Shape::OneOf(&["A", "B"])),
        Member::optional("tags", &Shape::Map(&Shape::Text)),
        Member::optional("backends", &Shape::List(&BACKEND)),
    ]);

    #[test]
    fn what_does_not_fit_is_named() {
        let check = |value: Value, expected: &[&str]| {
            let violations = SPEC.check(&FieldPath::new("spec"), &value);
            let found: Vec<String> =
                violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect();
            assert_eq!(found, expected, "{value}");
        };
        check(json!({ "port": 1, "ratio": "0.5", "mode": "A", "tags": { "a": "b" }, "new": [] }), &[]);
        check(json!({ "port": 1, "ratio": null, "backends": [{ "type": "None" }] }), &[]);
        check(json!([]), &["spec: in body must be of type object: \"array\""]);
        check(json!({}), &["spec.port: in body is required"]);
        check(json!({ "port": 70_000 }), &["spec.port: port must be in the range [1, 65535]"]);
        check(json!({ "port": "80" }), &["spec.port: in body must be of type integer: \"string\""]);
        check(
            json!({ "port": 1, "ratio": 0.5, "mode": "C" }),
            &[
                "spec.ratio: in body must be of type integer,string: \"number\"",
                "spec.mode: in body should be one of [A B]",
            ],
        );
        check(json!({ "port": 1, "wait": "5" }), &["spec.wait: time: missing unit in duration \"5\""]);
        check(
            json!({ "port": 1, "tags": { "a": 1 } }),
            &["spec.tags[\"a\"]: in body must be of type string: \"number\""],
        );
        check(
            json!({ "port": 1, "backends": [{ "type": "File" }, { "type": "File", "file": {} }, {}, { "type": "X" }] }),
            &[
                "spec.backends[0].file: must be defined",
                "spec.backends[1].file.path: in body is required",
                "spec.backends[2].type: in body is required",
                "spec.backends[3].type: in body should be one of [File None]",
            ],
        );
    }
}
