//! From least to most specific: what comes later wins.

use std::cmp::{Ordering, Reverse};

use super::Policy;
use crate::{
    model::{Resource, labels},
    policy::{PolicyRole, TargetKind, TargetRef},
};

/// What decides between policies, looked up once. Members are declared in the order they are compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PolicyRank {
    /// Kind, and of dataplanes by what they are selected and whether a section of them is meant.
    target: (TargetKind, u8, bool),
    origin: u8,
    listener_tags: usize,
    role: PolicyRole,
    name: Reverse<Box<str>>,
}

impl PolicyRank {
    pub(super) fn of(resource: &Resource, top: &TargetRef) -> Self {
        let dataplane = top.kind == TargetKind::Dataplane;
        let narrower = if dataplane { (selector(top), !top.section().is_empty()) } else { (0, false) };
        Self {
            target: (top.kind, narrower.0, narrower.1),
            origin: origin(resource),
            listener_tags: listener_tags(top),
            role: PolicyRole::of(resource),
            name: Reverse(resource.display_name().into()),
        }
    }
}

/// Orders policies by what they are for, who owns them and in which role: the part of the order that
/// comes before any comparison of items and names.
pub fn by_attributes(a: &Policy, b: &Policy) -> Ordering {
    let attributes = |p: &Policy| (p.rank.target, p.rank.origin, p.rank.role);
    attributes(a).cmp(&attributes(b))
}

/// Of two policies that are equal otherwise, the one with the smaller name wins.
pub fn by_name(a: &Policy, b: &Policy) -> Ordering {
    a.rank.name.cmp(&b.rank.name)
}

/// The whole order of policies.
pub fn by_policy(a: &Policy, b: &Policy) -> Ordering {
    a.rank.cmp(&b.rank)
}

/// The same with an end to it: no two policies of a mesh are equal.
pub(super) fn by_policy_and_key(a: &Policy, b: &Policy) -> Ordering {
    by_policy(a, b).then_with(|| a.resource.key.cmp(&b.resource.key))
}

/// Orders items of `to` lists, given by policy and index, as they are merged for resources.
pub(super) fn by_item((a, i): (&Policy, usize), (b, j): (&Policy, usize)) -> Ordering {
    by_attributes(a, b)
        .then_with(|| by_destination(&a.to[i].target, &b.to[j].target))
        .then_with(|| by_name(a, b))
        .then_with(|| by_policy_and_key(a, b))
        .then_with(|| i.cmp(&j))
}

/// Orders the targets of `to` items.
pub fn by_destination(a: &TargetRef, b: &TargetRef) -> Ordering {
    let section = |t: &TargetRef| t.kind == TargetKind::MeshService && !t.section().is_empty();
    a.kind.cmp(&b.kind).then_with(|| section(a).cmp(&section(b)))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::DateTime;
    use serde_json::{Value, json};

    use super::*;
    use crate::{model::ResourceKey, registry};

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
