//! Documents that are almost right: others with one place changed.

use serde_json::{Value, json};

/// Members that say which resource it is; they are left alone.
const META: [&str; 6] = ["type", "name", "mesh", "labels", "creationTime", "modificationTime"];

/// `document` with one place changed. Any numbers do; equal ones give equal documents.
pub fn mutated(document: &Value, place: usize, how: usize) -> Value {
    let mut places = Vec::new();
    for (name, value) in document.as_object().into_iter().flatten() {
        if !META.contains(&name.as_str()) {
            collect(value, &format!("/{}", escaped(name)), &mut places);
        }
    }
    let mut document = document.clone();
    let Some(pointer) = places.get(place % places.len().max(1)) else { return document };
    let other = places.get(how % places.len()).and_then(|other| document.pointer(other)).cloned();
    if how.is_multiple_of(CHANGES) {
        remove(&mut document, pointer);
    } else if let Some(value) = document.pointer_mut(pointer) {
        change(value, how % CHANGES, other.unwrap_or_default());
    }
    document
}

/// How many kinds of changes there are.
const CHANGES: usize = 13;

fn change(value: &mut Value, how: usize, other: Value) {
    *value = match (how, std::mem::take(value)) {
        (1, _) => Value::Null,
        (2, _) => json!(-1),
        (3, _) => json!(4_000_000_000_u64),
        (4, _) => json!(""),
        (5, _) => json!("no such Thing!"),
        (6, _) => json!([]),
        (7, _) => json!({}),
        (8, _) => json!(true),
        (9, _) => json!(0),
        (10, Value::Array(mut items)) => {
            items.extend(items.first().cloned());
            Value::Array(items)
        }
        (11, Value::String(text)) => json!(format!("{text}-{text}")),
        (11, Value::Number(_)) => json!(0.5),
        (12, _) => other,
        (_, value) => json!([value]),
    };
}

fn collect(value: &Value, at: &str, places: &mut Vec<String>) {
    places.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| collect(item, &format!("{at}/{i}"), places));
        }
        Value::Object(members) => {
            members.iter().for_each(|(name, v)| collect(v, &format!("{at}/{}", escaped(name)), places));
        }
        _ => {}
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((above, last)) = pointer.rsplit_once('/') else { return };
    match document.pointer_mut(above) {
        Some(Value::Object(members)) => {
            members.remove(&last.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(items)) => {
            if let Some(at) = last.parse().ok().filter(|at| *at < items.len()) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_changed_but_for_the_name() {
        let document = json!({ "type": "A", "name": "a", "spec": { "to": [{ "x/y": 1 }] } });
        assert_eq!(mutated(&document, 0, CHANGES), json!({ "type": "A", "name": "a" }));
        assert_eq!(mutated(&document, 1, 6)["spec"], json!({ "to": [] }));
        assert_eq!(mutated(&document, 1, 10)["spec"], json!({ "to": [{ "x/y": 1 }, { "x/y": 1 }] }));
        assert_eq!(mutated(&document, 2, CHANGES)["spec"], json!({ "to": [] }));
        assert_eq!(mutated(&document, 3, CHANGES)["spec"], json!({ "to": [{}] }));
        assert_eq!(mutated(&document, 3, 2)["spec"], json!({ "to": [{ "x/y": -1 }] }));
        assert_eq!(mutated(&json!({ "name": "a" }), 5, 7), json!({ "name": "a" }));
    }
}
