//! JSON patches, with what their authors rely on beyond RFC 6902: places that are not there yet are made for what is
//! added, what is not there is not removed, and indexes may count from the end.

use common::policy::mesh_proxy_patch::{JsonPatch, JsonPatchOp};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation,
    jsonptr::PointerBuf,
};
use serde_json::{Map, Value};

/// Does `steps` to `document`, one after the other.
///
/// # Errors
/// Which of them cannot be done.
pub(super) fn apply(document: &mut Value, steps: &[JsonPatch]) -> Result<(), String> {
    for step in steps {
        let JsonPatch { op, path, from, value } = step;
        let adds = matches!(op, JsonPatchOp::Add | JsonPatchOp::Move | JsonPatchOp::Copy);
        let path = counted(document, path.as_deref().unwrap_or_default(), adds);
        let from = counted(document, from.as_deref().unwrap_or_default(), false);
        let value = || value.clone().unwrap_or_default();
        if *op == JsonPatchOp::Remove && document.pointer(&path).is_none() {
            continue;
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
}
