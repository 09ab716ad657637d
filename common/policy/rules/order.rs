//! From least to most specific: what comes later wins.

use std::cmp::{Ordering, Reverse};

use super::Policy;
use crate::{
    model::{Resource, labels},
    policy::{TargetKind, TargetRef},
};

/// Orders policies by what they are for, who owns them and in which role: the part of the order that
/// comes before any comparison of items and names.
pub fn by_attributes(a: &Policy, b: &Policy) -> Ordering {
    by_target(&a.top, &b.top)
        .then_with(|| origin(&a.resource).cmp(&origin(&b.resource)))
        .then_with(|| role(&a.resource).cmp(&role(&b.resource)))
}

/// Of two policies that are equal otherwise, the one with the smaller name wins.
pub fn by_name(a: &Policy, b: &Policy) -> Ordering {
    Reverse(a.resource.display_name()).cmp(&Reverse(b.resource.display_name()))
}

/// The whole order of policies.
pub fn by_policy(a: &Policy, b: &Policy) -> Ordering {
    by_target(&a.top, &b.top)
        .then_with(|| origin(&a.resource).cmp(&origin(&b.resource)))
        .then_with(|| listener_tags(&a.top).cmp(&listener_tags(&b.top)))
        .then_with(|| role(&a.resource).cmp(&role(&b.resource)))
        .then_with(|| by_name(a, b))
}

/// Orders the targets of `to` items.
pub fn by_destination(a: &TargetRef, b: &TargetRef) -> Ordering {
    let section = |t: &TargetRef| t.kind == TargetKind::MeshService && !t.section().is_empty();
    a.kind.cmp(&b.kind).then_with(|| section(a).cmp(&section(b)))
}

fn by_target(a: &TargetRef, b: &TargetRef) -> Ordering {
    a.kind.cmp(&b.kind).then_with(|| {
        if a.kind != TargetKind::Dataplane {
            return Ordering::Equal;
        }
        selector(a)
            .cmp(&selector(b))
            .then_with(|| a.section().is_empty().cmp(&b.section().is_empty()).reverse())
    })
}

/// All dataplanes, by labels, by name.
fn selector(target: &TargetRef) -> u8 {
    if !target.name().is_empty() { 2 } else { u8::from(target.labels.is_some()) }
}

fn listener_tags(target: &TargetRef) -> usize {
    if target.kind == TargetKind::MeshGateway { target.tags().count() } else { 0 }
}

fn origin(resource: &Resource) -> u8 {
    match resource.label(labels::ORIGIN) {
        Some(labels::ORIGIN_GLOBAL) => 0,
        Some(labels::ORIGIN_ZONE) => 2,
        _ => 1,
    }
}

/// On whose behalf a policy was written. Outside Kubernetes it is always the operator of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The operator of the mesh.
    System,
    /// Who runs the destination; valid for clients everywhere.
    Producer,
    /// Who runs the client.
    Consumer,
    /// Who runs the workload itself.
    WorkloadOwner,
}

/// The role of a policy.
pub fn role(resource: &Resource) -> Role {
    match resource.label(labels::POLICY_ROLE) {
        Some("producer") => Role::Producer,
        Some("consumer") => Role::Consumer,
        Some("workload-owner") => Role::WorkloadOwner,
        _ => Role::System,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::DateTime;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{ResourceKey, registry};

    fn policy(name: &str, target: &Value, labelled: &[(&str, &str)]) -> Policy {
        let kind = registry::by_name("MeshTimeout").unwrap();
        let spec = json!({"targetRef": target, "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}]});
        let resource = Resource::new(ResourceKey::new(kind, "default", name), DateTime::UNIX_EPOCH);
        let resource = labelled.iter().fold(resource, |r, (key, value)| r.with_label(key, value));
        Policy::parse(Arc::new(resource.with_spec(spec.to_string()))).unwrap()
    }

    /// Each of these loses to the next, whatever the names say.
    fn assert_ascending(policies: &[Policy]) {
        for (i, a) in policies.iter().enumerate() {
            for (j, b) in policies.iter().enumerate() {
                assert_eq!(by_policy(a, b), i.cmp(&j), "{i} against {j}: {:?}, {:?}", a.top, b.top);
            }
        }
    }

    #[test]
    fn the_narrower_target_wins() {
        let dataplane = |rest: Value| {
            let mut target = json!({"kind": "Dataplane"});
            target.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            target
        };
        let targets = [
            json!({"kind": "Mesh"}),
            dataplane(json!({})),
            dataplane(json!({"labels": {"app": "a"}})),
            dataplane(json!({"labels": {"app": "a"}, "sectionName": "http"})),
            dataplane(json!({"name": "a"})),
            dataplane(json!({"name": "a", "sectionName": "http"})),
            json!({"kind": "MeshSubset", "tags": {"a": "b"}}),
            json!({"kind": "MeshGateway", "name": "edge"}),
            json!({"kind": "MeshGateway", "name": "edge", "tags": {"port": "http"}}),
            json!({"kind": "MeshService", "name": "a"}),
            json!({"kind": "MeshServiceSubset", "name": "a", "tags": {"a": "b"}}),
            json!({"kind": "MeshHTTPRoute", "name": "a"}),
        ];
        // Names fall, so that none of them decides: between equals the smaller one wins.
        let named = |(i, target): (usize, &Value)| policy(&format!("p{i:02}"), target, &[]);
        assert_ascending(&targets.iter().enumerate().map(named).collect::<Vec<_>>());
    }

    #[test]
    fn between_equal_targets_owner_role_and_name_decide() {
        let of = |name: &str, origin: &str, role: &str| {
            policy(name, &json!({"kind": "Mesh"}), &[(labels::ORIGIN, origin), (labels::POLICY_ROLE, role)])
        };
        assert_ascending(&[
            of("b", "global", "system"),
            of("a", "global", "system"),
            of("a", "global", "workload-owner"),
            of("a", "", "system"),
            of("c", "zone", "system"),
            of("c", "zone", "producer"),
            of("c", "zone", "consumer"),
            of("d", "zone", "workload-owner"),
            of("c", "zone", "workload-owner"),
        ]);
        // What people call it counts, not the name it got on the way.
        let synced = |name: &str, display: &str| {
            policy(name, &json!({"kind": "Mesh"}), &[(labels::DISPLAY_NAME, display)])
        };
        assert_ascending(&[synced("a", "second"), synced("b", "first")]);
    }

    #[test]
    fn the_narrower_destination_wins() {
        let target = |spec: Value| serde_json::from_value::<TargetRef>(spec).unwrap();
        let targets = [
            target(json!({"kind": "Mesh"})),
            target(json!({"kind": "MeshSubset", "tags": {"a": "b"}})),
            target(json!({"kind": "MeshService", "name": "z"})),
            target(json!({"kind": "MeshService", "name": "a", "sectionName": "http"})),
            target(json!({"kind": "MeshExternalService", "name": "z"})),
            target(json!({"kind": "MeshMultiZoneService", "name": "a"})),
            target(json!({"kind": "MeshHTTPRoute", "name": "a"})),
        ];
        for (i, a) in targets.iter().enumerate() {
            for (j, b) in targets.iter().enumerate() {
                assert_eq!(by_destination(a, b), i.cmp(&j), "{a:?} against {b:?}");
            }
        }
    }
}
