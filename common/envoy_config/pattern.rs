//! What a selector says about a text or a value of a node.

use serde_json::Value;

/// Whether `text` is like `pattern`, in which each `*` stands for any text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // Of the parts between, taking each as early as it comes leaves the most for those after it.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether `value` is what `expected` asks for: a text like it, an object with at least its members, anything else
/// equal to it.
pub fn fits(expected: &Value, value: &Value) -> bool {
    match (expected, value) {
        (Value::String(pattern), Value::String(text)) => is_like(pattern, text),
        (Value::Object(expected), Value::Object(members)) => {
            expected.iter().all(|(name, expected)| members.get(name).is_some_and(|is| fits(expected, is)))
        }
        (Value::Array(expected), Value::Array(items)) => {
            expected.len() == items.len() && expected.iter().zip(items).all(|(e, item)| fits(e, item))
        }
        // Metadata knows one sort of number.
        (Value::Number(expected), Value::Number(number)) => expected.as_f64() == number.as_f64(),
        (expected, value) => expected == value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{fits, is_like};

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "x", false),
            ("edge", "edge", true),
            ("edge", "edge-1", false),
            ("edge-*", "edge-1", true),
            ("edge-*", "edge-", true),
            ("edge-*", "edge", false),
            ("*-1", "edge-1", true),
            ("e*e-*1", "edge-11", true),
            ("a*ab", "ab", false),
            ("a*b*a", "aba", true),
            ("a*b*ba", "aba", false),
            ("*é*", "café-1", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(is_like(pattern, text), expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn values_fit_with_what_is_listed_of_them() {
        let node =
            json!({"role": "edge-eu", "level": 2.0, "on": true, "a": {"b": {"c": "d"}, "e": 1}, "l": ["x"]});
        for (expected, is) in [
            (json!({}), true),
            (json!({"role": "edge-*"}), true),
            (json!({"role": "core"}), false),
            (json!({"level": 2}), true),
            (json!({"level": "2"}), false),
            (json!({"on": true, "a": {"b": {"c": "*"}}}), true),
            (json!({"a": {"b": {"x": "*"}}}), false),
            (json!({"a": "*"}), false),
            (json!({"l": ["*"]}), true),
            (json!({"l": ["x", "y"]}), false),
            (json!({"missing": null}), false),
        ] {
            assert_eq!(fits(&expected, &node), is, "{expected}");
        }
    }
}
