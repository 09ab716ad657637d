//! What differs between two documents, as a JSON patch (RFC 6902) that can be read backwards as well: what goes is
//! tested first and said again.

use serde_json::{Map, Value, json};

/// Lists longer than this, multiplied, are compared place by place: what they have in common is not looked for.
const COMPARED: usize = 1 << 20;

/// What leads from `old` to `new`, applied in order.
pub(crate) fn diff(old: &Value, new: &Value) -> Vec<Value> {
    let mut patch = Vec::new();
    values("", old, new, &mut patch);
    patch
}

fn values(path: &str, old: &Value, new: &Value, patch: &mut Vec<Value>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(old), Value::Object(new)) => objects(path, old, new, patch),
        (Value::Array(old), Value::Array(new)) => lists(path, old, new, patch),
        _ => {
            remove(path, old, patch);
            add(path, new, patch);
        }
    }
}

fn objects(path: &str, old: &Map<String, Value>, new: &Map<String, Value>, patch: &mut Vec<Value>) {
    let mut names: Vec<&String> =
        old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))).collect();
    names.sort();
    for name in names {
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => values(&path, old, new, patch),
            (Some(old), None) => remove(&path, old, patch),
            (None, Some(new)) => add(&path, new, patch),
            (None, None) => {}
        }
    }
}

/// Between what both have, places are compared one by one, and what is left over goes or comes.
fn lists(path: &str, old: &[Value], new: &[Value], patch: &mut Vec<Value>) {
    let (mut from, mut to) = (0, 0);
    for (i, j) in in_common(old, new).into_iter().chain([(old.len(), new.len())]) {
        gap(path, to, &old[from..i], &new[to..j], patch);
        (from, to) = (i + 1, j + 1);
    }
}

/// `start` is where the first of them is once everything before is as it should be.
fn gap(path: &str, start: usize, old: &[Value], new: &[Value], patch: &mut Vec<Value>) {
    let both = old.len().min(new.len());
    for (i, (old, new)) in old.iter().zip(new).enumerate() {
        values(&format!("{path}/{}", start + i), old, new, patch);
    }
    let end = format!("{path}/{}", start + both);
    old[both..].iter().for_each(|gone| remove(&end, gone, patch));
    // Each is put before the one that was put there last.
    new[both..].iter().rev().for_each(|come| add(&end, come, patch));
}

/// The positions of the longest sequence that two lists have in common.
fn in_common(old: &[Value], new: &[Value]) -> Vec<(usize, usize)> {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (rest, other) = (&old[front..], &new[front..]);
    let back = rest.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (middle, other) = (&rest[..rest.len() - back], &other[..other.len() - back]);
    let mut found: Vec<(usize, usize)> = (0..front).map(|i| (i, i)).collect();
    if middle.len().saturating_mul(other.len()) <= COMPARED {
        found.extend(longest(middle, other).into_iter().map(|(i, j)| (front + i, front + j)));
    }
    found.extend((0..back).map(|i| (old.len() - back + i, new.len() - back + i)));
    found
}

fn longest(old: &[Value], new: &[Value]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    // At [i][j]: how many the ends from i and j have in common.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}

fn remove(path: &str, value: &Value, patch: &mut Vec<Value>) {
    patch.extend(["test", "remove"].map(|op| json!({"op": op, "path": path, "value": value})));
}

fn add(path: &str, value: &Value, patch: &mut Vec<Value>) {
    patch.push(json!({"op": "add", "path": path, "value": value}));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// Does what a patch says; panics where it does not fit.
    fn apply(document: &mut Value, patch: &[Value]) {
        for step in patch {
            let (path, value) = (step["path"].as_str().unwrap(), &step["value"]);
            if step["op"] == "test" {
                assert_eq!(document.pointer(path), Some(value), "{step}");
                continue;
            }
            if path.is_empty() {
                *document = value.clone();
                continue;
            }
            let (parent, last) = path.rsplit_once('/').unwrap();
            let last = last.replace("~1", "/").replace("~0", "~");
            match (document.pointer_mut(parent).unwrap(), step["op"] == "add") {
                (Value::Object(object), true) => assert!(object.insert(last, value.clone()).is_none()),
                (Value::Object(object), false) => assert!(object.remove(&last).is_some()),
                (Value::Array(list), true) => list.insert(last.parse().unwrap(), value.clone()),
                (Value::Array(list), false) => drop(list.remove(last.parse().unwrap())),
                _ => panic!("{step}"),
            }
        }
    }

    #[test]
    fn what_changes_is_said_as_narrowly_as_can_be() {
        let check = |old: Value, new: Value, expected: &[(&str, &str)]| {
            let patch = diff(&old, &new);
            let steps: Vec<(&str, &str)> =
                patch.iter().map(|s| (s["op"].as_str().unwrap(), s["path"].as_str().unwrap())).collect();
            assert_eq!(steps, expected, "{old} {new}");
        };
        let replaced = [("test", "/a~1b/t"), ("remove", "/a~1b/t"), ("add", "/a~1b/t")];
        check(json!({"a/b": {"t": 1}}), json!({"a/b": {"t": 2}}), &replaced);
        check(json!({"a": 1}), json!({"a": 1}), &[]);
        check(json!({}), json!({"x": {"y": 1}}), &[("add", "/x")]);
        check(json!(["r"]), json!(["p", "q", "r"]), &[("add", "/0"), ("add", "/0")]);
        check(json!([1, 2, 3]), json!([1, 3]), &[("test", "/1"), ("remove", "/1")]);
        let inside = [("test", "/0/t"), ("remove", "/0/t"), ("add", "/0/t"), ("add", "/1")];
        check(json!([{"t": 1}]), json!([{"t": 2}, {"t": 3}]), &inside);
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![(0..4).prop_map(Value::from), "[a~/]{0,2}".prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_leads_from_one_to_the_other(old in documents(), new in documents()) {
            let mut patched = old.clone();
            apply(&mut patched, &diff(&old, &new));
            prop_assert_eq!(patched, new);
        }
    }
}
