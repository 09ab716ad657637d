//! JSON patches, with what their authors rely on beyond RFC 6902: places that are not there yet are made for what is
//! added, what is not there is not removed, and indexes may count from the end.

use common::{
    clip::clip,
    policy::mesh_proxy_patch::{JsonPatch, JsonPatchOp},
};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation,
    jsonptr::PointerBuf,
};
use serde_json::{Map, Value};

/// Bytes that steps of one patch may copy: a few of them would make any document longer than memory otherwise.
const COPIED: usize = 1 << 20;
/// How deep what is put somewhere may end: what is deeper nobody could read or drop.
const DEPTH: usize = 128;

/// Does `steps` to `document`, one after the other.
///
/// # Errors
/// Which of them cannot be done.
pub(super) fn apply(document: &mut Value, steps: &[JsonPatch]) -> Result<(), String> {
    let mut room = COPIED;
    for step in steps {
        let JsonPatch { op, path, from, value } = step;
        for path in [path, from].into_iter().flatten() {
            within_depth(path, None)?;
        }
        let adds = matches!(op, JsonPatchOp::Add | JsonPatchOp::Move | JsonPatchOp::Copy);
        let path = counted(document, path.as_deref().unwrap_or_default(), adds);
        let from = counted(document, from.as_deref().unwrap_or_default(), false);
        let value = || value.clone().unwrap_or_default();
        if *op == JsonPatchOp::Remove && document.pointer(&path).is_none() {
            continue;
        }
        if matches!(op, JsonPatchOp::Copy | JsonPatchOp::Move) {
            within_depth(&path, document.pointer(&from))?;
        }
        if *op == JsonPatchOp::Copy {
            let bytes = document.pointer(&from).map_or(0, weight);
            room = room.checked_sub(bytes).ok_or_else(|| format!("it copies more than {COPIED} bytes"))?;
        }
        if *op == JsonPatchOp::Add {
            make_way(document, &path);
        }
        let pointer = |text: &str| {
            PointerBuf::parse(text.to_owned()).map_err(|_| format!("{text:?} is not a path in JSON"))
        };
        let to = pointer(&path)?;
        let operation = match op {
            JsonPatchOp::Add => PatchOperation::Add(AddOperation { path: to, value: value() }),
            JsonPatchOp::Remove => PatchOperation::Remove(RemoveOperation { path: to }),
            JsonPatchOp::Replace => PatchOperation::Replace(ReplaceOperation { path: to, value: value() }),
            JsonPatchOp::Move => PatchOperation::Move(MoveOperation { from: pointer(&from)?, path: to }),
            JsonPatchOp::Copy => PatchOperation::Copy(CopyOperation { from: pointer(&from)?, path: to }),
        };
        json_patch::patch(document, &[operation]).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Whether `value` at `path` is not too deep.
fn within_depth(path: &str, value: Option<&Value>) -> Result<(), String> {
    let depth = path.matches('/').count() + value.map_or(0, depth);
    if depth > DEPTH {
        return Err(format!("at {:?} it becomes more than {DEPTH} levels deep", clip(path, 80)));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Object(members) => members.values().map(depth).max(),
        Value::Array(items) => items.iter().map(depth).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

/// Bytes of a value in memory, about.
fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::Object(members) => members.iter().map(|(name, member)| 24 + name.len() + weight(member)).sum(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::String(text) => text.len(),
        _ => 0,
    };
    size_of::<Value>() + inner
}

/// `path` with indexes that count from the end resolved; behind the last item when something is to be added there.
fn counted(document: &Value, path: &str, adds: bool) -> String {
    if !path.starts_with('/') {
        return path.to_owned();
    }
    let mut resolved = String::new();
    let tokens: Vec<&str> = path.split('/').skip(1).collect();
    for (i, token) in tokens.iter().enumerate() {
        let length = document.pointer(&resolved).and_then(Value::as_array).map(Vec::len);
        let behind = usize::from(adds && i + 1 == tokens.len());
        let from_end = token.strip_prefix('-').and_then(|back| back.parse::<usize>().ok());
        let index = length.zip(from_end).and_then(|(length, back)| (length + behind).checked_sub(back));
        match index {
            Some(index) => resolved.push_str(&format!("/{index}")),
            None => resolved.push_str(&format!("/{token}")),
        }
    }
    resolved
}

/// Makes the objects and lists above `path` that are not there.
fn make_way(document: &mut Value, path: &str) {
    let tokens: Vec<String> =
        path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let mut at = document;
    for pair in tokens.windows(2) {
        let empty = match pair[1].as_str() {
            "-" | "0" => Value::Array(Vec::new()),
            _ => Value::Object(Map::new()),
        };
        at = match at {
            Value::Object(members) => members.entry(pair[0].clone()).or_insert(empty),
            Value::Array(items) => match pair[0].parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                Some(item) => item,
                None => return,
            },
            _ => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut document: Value, steps: Value) -> Result<Value, String> {
        let steps: Vec<JsonPatch> = serde_json::from_value(steps).unwrap_or_default();
        apply(&mut document, &steps).map(|()| document)
    }

    #[test]
    fn places_are_made_and_counted_from_the_end() {
        assert_eq!(
            patched(json!({}), json!([{"op": "add", "path": "/a/b/0/c", "value": 1}])),
            Err("operation '/0' failed at path '/a/b/0/c': path is invalid".to_owned()),
            "a list does not come with items"
        );
        let steps = json!([
            {"op": "add", "path": "/a/b", "value": [1, 2]},
            {"op": "add", "path": "/a/b/-", "value": 3},
            {"op": "replace", "path": "/a/b/-1", "value": 4},
            {"op": "remove", "path": "/nothing/here"},
            {"op": "copy", "from": "/a/b/0", "path": "/c"},
            {"op": "add", "path": "/d/-", "value": null}
        ]);
        assert_eq!(patched(json!({}), steps), Ok(json!({"a": {"b": [1, 2, 4]}, "c": 1, "d": [null]})));
        assert!(patched(json!({}), json!([{"op": "replace", "path": "/a", "value": 1}])).is_err());
    }

    #[test]
    fn a_document_grows_and_deepens_within_limits() {
        let copies = |from: &str, to: &str| -> Value {
            (0..40)
                .map(|n| json!({"op": "copy", "from": from, "path": to.replace('N', &n.to_string())}))
                .collect()
        };
        let document = || json!({"a": {"b": ["x".repeat(100)]}});
        for (from, to) in [("", "/a/xN"), ("/a", "/a/xN"), ("/a/b", "/a/b/-")] {
            let refused = patched(document(), copies(from, to)).unwrap_err();
            assert!(refused.contains("it copies more than") || refused.contains("levels deep"), "{refused}");
        }
        let once =
            json!([{"op": "copy", "from": "", "path": "/c"}, {"op": "move", "from": "/c", "path": "/a/c"}]);
        assert_eq!(patched(document(), once).unwrap().pointer("/a/c"), Some(&document()));
        for path in ["/a".repeat(100_000), format!("/a{}", "/-".repeat(200))] {
            for op in ["add", "replace", "remove"] {
                let refused = patched(document(), json!([{"op": op, "path": path, "value": 1}])).unwrap_err();
                assert!(refused.contains("levels deep"), "{op}: {refused}");
            }
            let from = json!([{"op": "move", "from": path, "path": "/x"}]);
            assert!(patched(document(), from).is_err());
        }
    }
}
