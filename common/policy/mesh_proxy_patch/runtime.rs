//! What proxies are told while they run: values by which Envoy decides anew each time, without another listener.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{FieldPath, Violations};

/// Values for a layer of the runtime, over those of less specific policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeModification {
    /// By key, as Envoy's admin endpoint shows them; `null` takes back what other policies say.
    #[serde(default)]
    pub layer: Map<String, Value>,
}

/// Keys of one layer, and bytes of one of them.
const KEYS: usize = 1000;
const LONGEST_KEY: usize = 256;
/// How deep groups of keys may nest.
const DEPTH: usize = 8;

impl RuntimeModification {
    /// What is wrong with it.
    pub(super) fn check(&self, path: &FieldPath) -> Violations {
        let mut violations = Violations::none();
        let at = path.field("layer");
        violations.check(self.layer.is_empty(), at.clone(), "must have at least one key");
        let mut left = KEYS;
        check_layer(&at, &self.layer, DEPTH, &mut left, &mut violations);
        violations.check(left == 0, at, format!("must not have more than {KEYS} keys"));
        violations
    }

    /// Puts it over `layer`.
    pub fn put_over(&self, layer: &mut Map<String, Value>) {
        for (key, value) in &self.layer {
            match value {
                Value::Null => layer.remove(key),
                value => layer.insert(key.clone(), value.clone()),
            };
        }
    }
}

fn check_layer(
    path: &FieldPath,
    layer: &Map<String, Value>,
    depth: usize,
    left: &mut usize,
    violations: &mut Violations,
) {
    for (key, value) in layer {
        let Some(fewer) = left.checked_sub(1) else { return };
        *left = fewer;
        if key.is_empty() || key.len() > LONGEST_KEY || key.contains(char::is_control) {
            let reason = format!("must have keys of 1 to {LONGEST_KEY} bytes in one line");
            violations.add(path.clone(), reason);
            continue;
        }
        let at = path.key(key);
        match value {
            Value::Null if depth == DEPTH => {}
            Value::Null => violations.add(at, "null takes back a key of the layer itself"),
            Value::Array(_) => violations.add(at, "must be a number, a text, true, false or a group of keys"),
            Value::Object(_) if depth == 0 => violations.add(at, "is nested too deep"),
            // A fraction, or keys that begin with this one and a dot.
            Value::Object(group) => check_layer(&at, group, depth - 1, left, violations),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::{KEYS, RuntimeModification};
    use crate::policy::mesh_proxy_patch::KIND;

    fn told(layer: &Value) -> Vec<String> {
        let spec = json!({"default": {"appendModifications": [{"runtime": {"layer": layer}}]}});
        let violations = KIND.validate(spec.to_string().as_bytes()).unwrap();
        violations.iter().map(|one| format!("{}: {}", one.field, one.reason)).collect()
    }

    #[test]
    fn a_layer_has_values_that_envoy_takes() {
        let good = json!({
            "upstream.healthy_panic_threshold": 0, "a.b": "text", "on": true, "taken.back": null,
            "fraction": {"numerator": 5, "denominator": "HUNDRED"}, "group": {"of": {"keys": 1.5}},
        });
        assert_eq!(told(&good), [""; 0]);
        let at = "spec.default.appendModifications[0].runtime.layer";
        for (layer, reason) in [
            (json!({}), "must have at least one key"),
            (json!({"a": [1]}), "must be a number, a text"),
            (json!({"a": {"b": null}}), "null takes back a key of the layer itself"),
            (json!({"": 1}), "must have keys of 1 to 256 bytes"),
            (json!({"x".repeat(257): 1}), "must have keys of 1 to 256 bytes"),
        ] {
            let told = told(&layer);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with(at) && told[0].contains(reason), "{told:?}");
        }
        let many: serde_json::Map<String, Value> = (0..=KEYS).map(|i| (i.to_string(), json!(1))).collect();
        assert!(told(&many.into()).iter().any(|told| told.contains("more than 1000 keys")));
        let deep = (0..20).fold(json!(1), |inner, _| json!({"a": inner}));
        assert!(told(&deep).iter().any(|told| told.contains("nested too deep")));
    }

    #[test]
    fn later_values_are_over_earlier_ones() {
        let of = |layer: Value| RuntimeModification { layer: layer.as_object().unwrap().clone() };
        let mut layer = serde_json::Map::new();
        of(json!({"a": 1, "b": 1, "c": 1})).put_over(&mut layer);
        of(json!({"a": 2, "b": null, "d": null})).put_over(&mut layer);
        assert_eq!(Value::from(layer), json!({"a": 2, "c": 1}));
    }
}
