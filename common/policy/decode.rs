//! Decoding of JSON specs, with errors that name the member and say what belongs there.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::{Path, Segment, Track};

use crate::model::{FieldPath, SpecError, shape::json_type};

/// Decodes the stored form of a spec.
///
/// # Errors
/// [`SpecError::Json`] with a path that starts at `spec`.
pub fn spec<T: DeserializeOwned>(spec: &[u8]) -> Result<T, SpecError> {
    let value: Value = serde_json::from_slice(spec)
        .map_err(|e| SpecError::Json { path: "spec".to_owned(), reason: e.to_string() })?;
    value_at(&FieldPath::new("spec"), &value)
}

/// Decodes a JSON value found at `root`.
///
/// # Errors
/// [`SpecError::Json`] with a path that starts at `root`.
pub fn value_at<T: DeserializeOwned>(root: &FieldPath, value: &Value) -> Result<T, SpecError> {
    let mut track = Track::new();
    let result = T::deserialize(serde_path_to_error::Deserializer::new(value, &mut track));
    result.map_err(|error| {
        let (path, found) = locate(root, value, &track.path());
        explain(path, found, &error.to_string())
    })
}

/// The stored form of a typed spec.
pub(super) fn encode<T: Serialize>(spec: &T) -> Vec<u8> {
    serde_json::to_vec(spec).expect("specs have string keys and no failing serializers")
}

/// A list that may be absent or `null`.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// A configuration that may be absent or `null`.
pub(super) fn conf<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The field path of a tracked path, and the JSON found there.
fn locate<'v>(root: &FieldPath, value: &'v Value, path: &Path) -> (FieldPath, Option<&'v Value>) {
    let mut field = root.clone();
    let mut found = Some(value);
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                field = field.index(*index);
                found = found.and_then(|v| v.get(*index));
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                field = field.field(key);
                found = found.and_then(|v| v.get(key));
            }
            Segment::Unknown => {}
        }
    }
    (field, found)
}

/// Turns the decoder's words into those of a JSON schema, which clients of the API know.
fn explain(path: FieldPath, found: Option<&Value>, message: &str) -> SpecError {
    let error = |path: FieldPath, reason: String| SpecError::Json { path: path.to_string(), reason };
    if let Some(member) = message.strip_prefix("missing field `").and_then(|m| m.split('`').next()) {
        return error(path.field(member), "in body is required".to_owned());
    }
    if let Some((_, allowed)) =
        message.strip_prefix("unknown variant ").and_then(|m| m.split_once(", expected "))
    {
        let names: Vec<&str> = allowed.split('`').skip(1).step_by(2).collect();
        return error(path, format!("in body should be one of [{}]", names.join(" ")));
    }
    if message.starts_with("invalid type") || message.starts_with("invalid length") {
        let expected = message.rsplit_once("expected ").map_or("", |(_, e)| e);
        let actual = found.map_or("null", json_type);
        return error(path, format!("in body must be of type {}: {actual:?}", schema_type(expected)));
    }
    if message.starts_with("invalid value: integer `-") {
        return error(path, "in body should be greater than or equal to 0".to_owned());
    }
    if message.starts_with("data did not match any variant") {
        let actual = found.map_or("null", json_type);
        return error(path, format!("in body must be of type integer,string: {actual:?}"));
    }
    error(path, message.to_owned())
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
}
