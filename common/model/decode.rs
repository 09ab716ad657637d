//! Decoding of JSON specs, with errors that name the member and say what belongs there.

mod misfits;
mod strict;

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, json};
use serde_path_to_error::{Segment, Track};

use self::strict::StrictValue;
use super::{FieldPath, SpecError, shape::json_type};

/// Decodes the stored form of a spec.
///
/// # Errors
/// [`SpecError::Shape`] with everything that does not fit, at paths that start at `spec`.
pub fn spec<T: DeserializeOwned>(spec: &[u8]) -> Result<T, SpecError> {
    let value: Value = serde_json::from_slice(spec)
        .map_err(|e| SpecError::Json { path: "spec".to_owned(), reason: e.to_string() })?;
    misfits::read(&FieldPath::new("spec"), &value)
}

/// Decodes a JSON value found at `root`.
///
/// # Errors
/// [`SpecError::Json`] with a path that starts at `root`.
pub fn value_at<T: DeserializeOwned>(root: &FieldPath, value: &Value) -> Result<T, SpecError> {
    attempt(value).map_err(|misfit: Misfit| SpecError::Json {
        path: misfit.field(root).to_string(),
        reason: misfit.reason,
    })
}

/// A step from a JSON value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathStep {
    Member(String),
    Item(usize),
}

/// What stopped a decoder.
#[derive(Debug)]
struct Misfit {
    /// Where, or where something is missing.
    place: Vec<PathStep>,
    reason: String,
    /// Something that fits there better, where that can be said.
    fit: Option<Value>,
}

impl Misfit {
    fn field(&self, root: &FieldPath) -> FieldPath {
        self.place.iter().fold(root.clone(), |path, step| match step {
            PathStep::Member(name) => path.field(name),
            PathStep::Item(index) => path.index(*index),
        })
    }
}

fn attempt<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    let mut track = Track::new();
    let result = T::deserialize(serde_path_to_error::Deserializer::new(StrictValue(value), &mut track));
    result.map_err(|error| {
        let path = track.path();
        let place = path.iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(PathStep::Item(*index)),
            Segment::Map { key } | Segment::Enum { variant: key } => Some(PathStep::Member(key.clone())),
            Segment::Unknown => None,
        });
        let place: Vec<PathStep> = place.collect();
        let found = place.iter().try_fold(value, |value, step| match step {
            PathStep::Member(name) => value.get(name),
            PathStep::Item(index) => value.get(index),
        });
        explain(place, found, &error.to_string())
    })
}

/// The stored form of a typed spec.
pub(crate) fn encode<T: Serialize>(spec: &T) -> Vec<u8> {
    serde_json::to_vec(spec).expect("specs have string keys and no failing serializers")
}

/// A list that may be absent or `null`.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// A value that may be absent or `null`.
pub(crate) fn value_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A configuration that may be absent or `null`.
pub(crate) fn conf<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    deserializer.deserialize_any(ObjectOrNull(PhantomData))
}

/// Left to itself a struct may also be read from a list, member after member.
struct ObjectOrNull<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for ObjectOrNull<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}

/// Turns the decoder's words into those of a JSON schema, which clients of the API know.
fn explain(mut place: Vec<PathStep>, found: Option<&Value>, message: &str) -> Misfit {
    if let Some(member) = message.strip_prefix("missing field `").and_then(|m| m.split('`').next()) {
        place.push(PathStep::Member(member.to_owned()));
        return Misfit { place, reason: "in body is required".to_owned(), fit: None };
    }
    let misfit = |reason: String, fit: Option<Value>| Misfit { place: place.clone(), reason, fit };
    if let Some((_, allowed)) =
        message.strip_prefix("unknown variant ").and_then(|m| m.split_once(", expected "))
    {
        let names: Vec<&str> = allowed.split('`').skip(1).step_by(2).collect();
        let fit = names.first().map(|name| Value::from(*name));
        return misfit(format!("in body should be one of [{}]", names.join(" ")), fit);
    }
    let mismatch = |expected: &str| {
        let actual = found.map_or("null", json_type);
        misfit(format!("in body must be of type {expected}: {actual:?}"), some_of_type(expected))
    };
    if message.starts_with("invalid type") || message.starts_with("invalid length") {
        return mismatch(schema_type(message.rsplit_once("expected ").map_or("", |(_, e)| e)));
    }
    if message.starts_with("data did not match any variant") {
        return mismatch("integer,string");
    }
    if message.starts_with("invalid value: integer `-") {
        return misfit("in body should be greater than or equal to 0".to_owned(), Some(json!(0)));
    }
    let fit = message.starts_with("invalid value: integer").then(|| json!(0));
    misfit(message.to_owned(), fit)
}

/// Some value of a type, as a JSON schema calls it.
fn some_of_type(name: &str) -> Option<Value> {
    Some(match name {
        "string" => json!(""),
        "boolean" => json!(false),
        "array" => json!([]),
        "object" => json!({}),
        "integer" | "integer,string" => json!(0),
        _ => return None,
    })
}

fn schema_type(expected: &str) -> &str {
    match expected {
        "a string" | "string" | "str" => "string",
        "a boolean" => "boolean",
        "a sequence" => "array",
        "u16" | "u32" | "u64" | "i32" | "i64" => "integer",
        e if e.starts_with("struct") || e.starts_with("a map") => "object",
        e if e.contains("enum") || e.starts_with("variant") => "string",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::{mesh_timeout::MeshTimeout, mesh_traffic_permission::MeshTrafficPermission};

    fn refused<T: DeserializeOwned>(value: &Value) -> String {
        let result: Result<T, SpecError> = value_at(&FieldPath::new("spec"), value);
        result.err().map_or_else(|| "accepted".to_owned(), |e| e.to_string())
    }

    #[test]
    fn errors_name_the_member_and_what_belongs_there() {
        let mtp = refused::<MeshTrafficPermission>;
        let number = json!({"targetRef": {"kind": "MeshService", "name": 2}});
        assert_eq!(
            mtp(&number),
            "spec field spec.targetRef.name: in body must be of type string: \"number\""
        );
        let missing = json!({"from": [{"targetRef": {}}]});
        assert_eq!(mtp(&missing), "spec field spec.from[0].targetRef.kind: in body is required");
        let action = json!({"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Maybe"}}]});
        assert_eq!(
            mtp(&action),
            "spec field spec.from[0].default.action: in body should be one of [Allow Deny AllowWithShadowDeny]"
        );
        let list = json!({"to": "x"});
        assert_eq!(
            refused::<MeshTimeout>(&list),
            "spec field spec.to: in body must be of type array: \"string\""
        );
        let unit = json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "10"}}]});
        assert_eq!(
            refused::<MeshTimeout>(&unit),
            "spec field spec.to[0].default.idleTimeout: time: missing unit in duration \"10\""
        );
    }

    #[test]
    fn a_list_is_no_object() {
        let target = json!({"targetRef": ["Mesh"]});
        let words = "spec field spec.targetRef: in body must be of type object: \"array\"";
        assert_eq!(refused::<MeshTimeout>(&target), words);
    }

    /// Everything that is told of a spec, by place.
    fn told(value: &Value) -> Vec<String> {
        match spec::<MeshTimeout>(value.to_string().as_bytes()) {
            Ok(_) => vec![],
            Err(SpecError::Shape(all)) => all.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect(),
            Err(other) => vec![other.to_string()],
        }
    }

    #[test]
    fn all_of_the_shape_is_told_at_once() {
        let spec = json!({
            "targetRef": {"kind": "Nothing", "name": 1, "proxyTypes": ["Sidecar", "Car"], "labels": {"a": 1}},
            "to": [
                {},
                {"targetRef": {"name": "a"}, "default": {"idleTimeout": "10", "connectionTimeout": 5}},
                7,
            ],
            "from": {},
            "rules": [{"matches": [{"spiffeID": {"type": "Exact"}}], "default": {"http": []}}],
        });
        let kinds = "Mesh Dataplane MeshSubset MeshGateway MeshService MeshExternalService MeshMultiZoneService \
                     MeshServiceSubset MeshHTTPRoute";
        assert_eq!(
            told(&spec),
            [
                "spec.from: in body must be of type array: \"object\"",
                "spec.rules[0].default.http: in body must be of type object: \"array\"",
                "spec.rules[0].matches[0].spiffeID.value: in body is required",
                &format!("spec.targetRef.kind: in body should be one of [{kinds}]"),
                "spec.targetRef.labels.a: in body must be of type string: \"number\"",
                "spec.targetRef.name: in body must be of type string: \"number\"",
                "spec.targetRef.proxyTypes[1]: in body should be one of [Sidecar Gateway]",
                "spec.to[0].targetRef: in body is required",
                "spec.to[1].default.connectionTimeout: in body must be of type string: \"number\"",
                "spec.to[1].default.idleTimeout: time: missing unit in duration \"10\"",
                "spec.to[1].targetRef.kind: in body is required",
                "spec.to[2]: in body must be of type object: \"number\"",
            ]
        );
    }

    #[test]
    fn a_spec_that_is_wrong_in_every_line_costs_a_bounded_time() {
        let items: Vec<Value> = (0..20_000).map(|_| json!({"targetRef": 1})).collect();
        let found = told(&json!({ "to": items }));
        assert!((1..100).contains(&found.len()), "{}", found.len());
        assert_eq!(found[0], "spec.to[0].targetRef: in body must be of type object: \"number\"");
    }
}
