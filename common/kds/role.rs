//! The role of a policy, computed from where it was written and whom it targets.

use serde_json::Value;

/// Whose traffic a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Written for a whole mesh by its operators; all policies of universal zones are.
    System,
    /// Written by the owner of a service for its consumers, also in other zones.
    Producer,
    /// Written by a consumer about services elsewhere.
    Consumer,
    /// Written by the owner of a workload about that workload.
    WorkloadOwner,
}

/// Value of the role label for [`Role::Producer`].
pub const PRODUCER: &str = "producer";

/// The role of a policy with this spec in this Kubernetes namespace; `None` when the spec mixes roles.
pub fn of(spec: &Value, namespace: Option<&str>, system_namespace: &str) -> Option<Role> {
    let Some(namespace) = namespace.filter(|n| *n != system_namespace) else {
        return Some(Role::System);
    };
    let has = |member: &str| spec.get(member).and_then(Value::as_array).is_some_and(|a| !a.is_empty());
    match (has("from"), has("to")) {
        (true, true) => return None,
        (true, false) | (false, false) => return Some(Role::WorkloadOwner),
        (false, true) => {}
    }
    let items = spec.get("to").and_then(Value::as_array)?;
    let produced = items.iter().filter(|item| is_produced_in(item, namespace)).count();
    match produced {
        0 => Some(Role::Consumer),
        all if all == items.len() => Some(Role::Producer),
        _ => None,
    }
}

/// Whether one `to` item targets a service of the policy's own namespace.
fn is_produced_in(item: &Value, namespace: &str) -> bool {
    let text = |member: &str| {
        item.get("targetRef").and_then(|t| t.get(member)).and_then(Value::as_str).unwrap_or_default()
    };
    let target = text("namespace");
    matches!(text("kind"), "MeshService" | "MeshHTTPRoute")
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
        check(to(&[("MeshService", "")]), None, Some(Role::System));
        check(to(&[("MeshService", "")]), Some("kuma-system"), Some(Role::System));
        check(to(&[("MeshService", "")]), Some("demo"), Some(Role::Producer));
        check(to(&[("MeshHTTPRoute", "demo")]), Some("demo"), Some(Role::Producer));
        check(to(&[("MeshService", "other")]), Some("demo"), Some(Role::Consumer));
        check(to(&[("Mesh", "")]), Some("demo"), Some(Role::Consumer));
        check(to(&[("MeshService", ""), ("Mesh", "")]), Some("demo"), None);
        check(json!({"from": [{}]}), Some("demo"), Some(Role::WorkloadOwner));
        check(json!({}), Some("demo"), Some(Role::WorkloadOwner));
        check(json!({"from": [{}], "to": [{}]}), Some("demo"), None);
    }
}
