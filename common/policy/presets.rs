//! The form in which specs are merged.

use serde_json::{Map, Value};

use super::Duration;
use crate::model::{Kind, Presets};

/// Brings a spec into the form in which it is merged: defaults filled in, durations canonical, no nulls.
/// Specs of other kinds are left alone.
pub(super) fn fill(kind: &Kind, spec: &mut Value) {
    fill_value(&kind.presets, spec);
}

fn fill_value(presets: &Presets, spec: &mut Value) {
    match spec {
        Value::Object(object) => fill_object(presets, object),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_value(presets, item)),
        _ => {}
    }
}

fn fill_object(presets: &Presets, object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for (name, value) in object.iter_mut() {
        let text = value.as_str().filter(|_| presets.durations.contains(&name.as_str()));
        if let Some(duration) = text.and_then(|t| t.parse::<Duration>().ok()) {
            *value = duration.to_string().into();
        }
        let members =
            presets.objects.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, members)| members);
        for inner in objects(value) {
            for (member, preset) in members {
                inner.entry(*member).or_insert_with(|| (*preset).into());
            }
        }
        fill_value(presets, value);
    }
}

/// The object a member holds, or those in its list.
fn objects(value: &mut Value) -> Vec<&mut Map<String, Value>> {
    match value {
        Value::Object(object) => vec![object],
        Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::mesh_load_balancing_strategy;

    #[test]
    fn durations_have_one_form() {
        let check = |mut spec: Value, expected: Value| {
            fill(&mesh_load_balancing_strategy::KIND, &mut spec);
            assert_eq!(spec, expected);
        };
        check(json!({"ttl": "60s", "path": "60s", "none": null}), json!({"ttl": "1m0s", "path": "60s"}));
        check(json!([{"ttl": "1500ms"}]), json!([{"ttl": "1.5s"}]));
        check(json!({"ttl": "soon"}), json!({"ttl": "soon"}));
    }
}
