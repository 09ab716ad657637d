//! The role of a policy, computed from where it was written and whom it targets.

use serde_json::Value;

use crate::policy::{PolicyRole, TargetKind};

/// The role of a policy with this spec in this Kubernetes namespace; `None` when the spec mixes roles.
pub fn of(spec: &Value, namespace: Option<&str>, system_namespace: &str) -> Option<PolicyRole> {
    let Some(namespace) = namespace.filter(|n| *n != system_namespace) else {
        return Some(PolicyRole::System);
    };
    let has = |member: &str| spec.get(member).and_then(Value::as_array).is_some_and(|a| !a.is_empty());
    match (has("from"), has("to")) {
        (true, true) => return None,
        (true, false) | (false, false) => return Some(PolicyRole::WorkloadOwner),
        (false, true) => {}
    }
    let items = spec.get("to").and_then(Value::as_array)?;
    let produced = items.iter().filter(|item| is_produced_in(item, namespace)).count();
    match produced {
        0 => Some(PolicyRole::Consumer),
        all if all == items.len() => Some(PolicyRole::Producer),
        _ => None,
    }
}

/// Whether one `to` item targets a service of the policy's own namespace.
fn is_produced_in(item: &Value, namespace: &str) -> bool {
    let text = |member: &str| {
        item.get("targetRef").and_then(|t| t.get(member)).and_then(Value::as_str).unwrap_or_default()
    };
    let target = text("namespace");
    [TargetKind::MeshService, TargetKind::MeshHttpRoute].iter().any(|kind| kind.name() == text("kind"))
        && !text("name").is_empty()
        && (target.is_empty() || target == namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_follow_from_the_targets() {
        let to = |items: &[(&str, &str)]| {
            let items: Vec<Value> = items
                .iter()
                .map(|(kind, ns)| json!({"targetRef": {"kind": kind, "name": "x", "namespace": ns}}))
                .collect();
            json!({ "to": items })
        };
        let check = |spec: Value, namespace, expected| {
            assert_eq!(of(&spec, namespace, "kuma-system"), expected, "{spec}");
        };
        check(to(&[("MeshService", "")]), None, Some(PolicyRole::System));
        check(to(&[("MeshService", "")]), Some("kuma-system"), Some(PolicyRole::System));
        check(to(&[("MeshService", "")]), Some("demo"), Some(PolicyRole::Producer));
        check(to(&[("MeshHTTPRoute", "demo")]), Some("demo"), Some(PolicyRole::Producer));
        check(to(&[("MeshService", "other")]), Some("demo"), Some(PolicyRole::Consumer));
        check(to(&[("Mesh", "")]), Some("demo"), Some(PolicyRole::Consumer));
        check(to(&[("MeshService", ""), ("Mesh", "")]), Some("demo"), None);
        check(json!({"from": [{}]}), Some("demo"), Some(PolicyRole::WorkloadOwner));
        check(json!({}), Some("demo"), Some(PolicyRole::WorkloadOwner));
        check(json!({"from": [{}], "to": [{}]}), Some("demo"), None);
    }
}
