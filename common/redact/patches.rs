//! What people write in Envoy's own terms: messages of filters, code among them, whose members nobody here knows. Secrets
//! stand there as they like, so who may not write it does not read it.

use serde_json::{Map, Value};

use super::REDACTED;

/// Lists of changes, of [`MeshProxyPatch`](crate::policy::mesh_proxy_patch) and of the older policy.
const CHANGES: [&str; 2] = ["appendModifications", "modifications"];

/// Takes out what patches bring along, wherever in a document they stand; what they are for and what they do stays.
pub fn patches(document: &mut Value) {
    match document {
        Value::Array(items) => items.iter_mut().for_each(patches),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    Value::Array(changes) if CHANGES.contains(&name.as_str()) => {
                        changes.iter_mut().filter_map(Value::as_object_mut).for_each(change);
                    }
                    Value::Array(resources) if name == "resources" => {
                        resources.iter_mut().filter_map(Value::as_object_mut).for_each(resource);
                    }
                    _ => patches(member),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One change: of what, and how.
fn change(change: &mut Map<String, Value>) {
    for of in change.values_mut().filter_map(Value::as_object_mut) {
        withhold(of, "value");
        let steps = of.get_mut("jsonPatches").and_then(Value::as_array_mut).into_iter().flatten();
        steps.filter_map(Value::as_object_mut).for_each(|step| withhold(step, "value"));
    }
}

/// A resource of the older policy, whose message is a text.
fn resource(resource: &mut Map<String, Value>) {
    if resource.get("resource").is_some_and(Value::is_string) {
        withhold(resource, "resource");
    }
    resource.values_mut().for_each(patches);
}

fn withhold(members: &mut Map<String, Value>, name: &str) {
    if let Some(value) = members.get_mut(name).filter(|value| !value.is_null()) {
        *value = REDACTED.into();
    }
}
