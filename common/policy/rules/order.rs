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
