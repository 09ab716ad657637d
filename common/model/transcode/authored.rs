//! What people write where canonical protobuf JSON is stricter: durations in the notation of Go (`20ms`,
//! `1h`), and members no field has. A misspelt value of an enum is an error: ignoring it could mean the
//! opposite of what was asked for.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;

use crate::model::{Duration, FieldPath, SpecError};

pub(super) const WELL_KNOWN: &str = "google.protobuf.";
pub(super) const DURATION: &str = "google.protobuf.Duration";

/// A document on its way to canonical protobuf JSON.
pub(super) struct Authored {
    /// The document with canonical durations.
    pub(super) json: Value,
    /// Members that are no field, and are ignored.
    pub(super) unknown: Vec<FieldPath>,
}

impl Authored {
    /// Reads `json` as the author of a `message` meant it.
    ///
    /// # Errors
    /// [`SpecError::Json`] naming a member that holds no value of its enum, or no duration.
    pub(super) fn read(message: &MessageDescriptor, json: &Value) -> Result<Self, SpecError> {
        let mut authored = Self { json: json.clone(), unknown: Vec::new() };
        let mut json = authored.json.take();
        authored.message(message, &mut json, &FieldPath::root())?;
        authored.json = json;
        Ok(authored)
    }

    fn message(
        &mut self,
        message: &MessageDescriptor,
        json: &mut Value,
        path: &FieldPath,
    ) -> Result<(), SpecError> {
        if message.full_name() == DURATION {
            return canonical_duration(json, path);
        }
        // Their JSON form is not an object of their fields.
        if message.full_name().starts_with(WELL_KNOWN) {
            return Ok(());
        }
        let Value::Object(members) = json else { return Ok(()) };
        for (name, value) in members {
            let path = path.field(name);
            match message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name)) {
                Some(field) => self.field(&field, value, &path)?,
                None => self.unknown.push(path),
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &FieldDescriptor,
        json: &mut Value,
        path: &FieldPath,
    ) -> Result<(), SpecError> {
        match (json, field.kind()) {
            (Value::Object(entries), Kind::Message(entry)) if field.is_map() => {
                let value = entry.map_entry_value_field();
                for (key, json) in entries {
                    self.value(&value.kind(), json, &path.key(key))?;
                }
                Ok(())
            }
            (Value::Array(items), kind) if field.is_list() => {
                for (i, json) in items.iter_mut().enumerate() {
                    self.value(&kind, json, &path.index(i))?;
                }
                Ok(())
            }
            (json, kind) => self.value(&kind, json, path),
        }
    }

    fn value(&mut self, kind: &Kind, json: &mut Value, path: &FieldPath) -> Result<(), SpecError> {
        match (kind, &*json) {
            (Kind::Message(message), _) => self.message(message, json, path),
            (Kind::Enum(values), Value::String(name)) if values.get_value_by_name(name).is_none() => {
                let names: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
                Err(refused(path, format!("in body should be one of [{}]", names.join(" "))))
            }
            _ => Ok(()),
        }
    }
}

/// Rewrites a duration in the notation of Go as seconds.
pub(super) fn canonical_duration(json: &mut Value, path: &FieldPath) -> Result<(), SpecError> {
    let Value::String(text) = json else { return Ok(()) };
    let duration: Duration = text.parse().map_err(|error| refused(path, format!("{error}")))?;
    let (sign, nanos) = (if duration.is_negative() { "-" } else { "" }, duration.nanos().unsigned_abs());
    *text = format!("{sign}{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000);
    Ok(())
}

fn refused(path: &FieldPath, reason: String) -> SpecError {
    SpecError::Json { path: path.to_string(), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use crate::{
        model::{
            SpecError,
            transcode::{from_json, to_json, unknown_members},
        },
        registry,
    };

    #[test]
    fn durations_may_be_written_as_in_go() {
        let retry = registry::by_name("Retry").unwrap();
        let check = |written: &str, shown: &str| {
            let json = json!({ "conf": { "http": { "perTryTimeout": written } } });
            let back = to_json(retry, &from_json(retry, &json).unwrap()).unwrap();
            assert_eq!(back["conf"]["http"]["perTryTimeout"], shown, "{written}");
        };
        check("20ms", "0.020s");
        check("0.010s", "0.010s");
        check("1h30m", "5400s");
        check("-1.5s", "-1.500s");
        let error = from_json(retry, &json!({ "conf": { "http": { "perTryTimeout": "5" } } })).unwrap_err();
        assert!(
            error.to_string().starts_with("spec field conf.http.perTryTimeout: time: missing unit"),
            "{error}"
        );
    }

    #[test]
    fn unknown_values_of_an_enum_are_refused() {
        let mesh = registry::by_name("Mesh").unwrap();
        let of = |mode: &str| json!({ "mtls": { "backends": [{ "name": "a", "type": "builtin", "mode": mode }] } });
        assert!(from_json(mesh, &of("PERMISSIVE")).is_ok());
        let Err(SpecError::Json { path, reason }) = from_json(mesh, &of("PERMISIVE")) else {
            panic!("a misspelt mode would be read as the default one")
        };
        assert_eq!(path, "mtls.backends[0].mode");
        assert_eq!(reason, "in body should be one of [STRICT PERMISSIVE]");
    }

    #[test]
    fn members_that_are_no_field_are_named() {
        let dataplane = registry::by_name("Dataplane").unwrap();
        let json = json!({
            "networking": { "adress": "1", "inbound": [{ "port": 1, "tags": { "a": "b" }, "sevice": 2 }] },
            "metrics": { "conf": { "anything": 1 } },
            "extra": {},
        });
        let unknown: Vec<String> =
            unknown_members(dataplane, &json).iter().map(ToString::to_string).collect();
        assert_eq!(unknown, ["networking.adress", "networking.inbound[0].sevice", "extra"]);
    }
}
