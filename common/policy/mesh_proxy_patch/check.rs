//! What makes a `MeshProxyPatch` valid.

use super::{
    FilterMatch, FilterOperation, JsonPatch, JsonPatchOp, MeshProxyPatch, Modification, Operation,
    ResourceModification,
    native::{self, Native},
};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::{DEFINED, NOT_EMPTY},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];
const NOT_DEFINED: &str = "must not be defined";

pub(super) fn check(spec: &MeshProxyPatch) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        let allowed = Allowed { listener_tags: false, ..Allowed::top(TOP, false) };
        violations.extend(allowed.check(&path.field("targetRef"), target));
    }
    let path = path.field("default").field("appendModifications");
    violations.check(spec.default.append_modifications.is_empty(), path.clone(), NOT_EMPTY);
    for (i, modification) in spec.default.append_modifications.iter().enumerate() {
        violations.extend(check_modification(&path.index(i), modification));
    }
    violations
}

fn check_modification(path: &FieldPath, modification: &Modification) -> Violations {
    let Modification { cluster, listener, network_filter, http_filter, virtual_host, runtime } = modification;
    let set = [
        cluster.is_some(),
        listener.is_some(),
        virtual_host.is_some(),
        network_filter.is_some(),
        http_filter.is_some(),
        runtime.is_some(),
    ];
    let count = set.into_iter().filter(|set| *set).count();
    if count != 1 {
        let reason = format!(
            "exactly one modification can be defined at a time. Currently, {count} modifications are defined"
        );
        return Violations::one(path.clone(), reason);
    }
    let mut violations = Violations::none();
    if let Some(change) = cluster {
        let at = path.field("cluster");
        violations.check(adds(change) && change.r#match.is_some(), at.field("match"), NOT_DEFINED);
        violations.extend(check_change(&at, change, Native::Cluster));
    }
    if let Some(change) = listener {
        let at = path.field("listener");
        violations.check(adds(change) && change.r#match.is_some(), at.field("match"), NOT_DEFINED);
        violations.extend(check_change(&at, change, Native::Listener));
    }
    if let Some(change) = virtual_host {
        let at = path.field("virtualHost");
        let named = change.r#match.as_ref().is_some_and(|m| m.name.is_some());
        violations.check(adds(change) && named, at.field("match").field("name"), NOT_DEFINED);
        violations.extend(check_change(&at, change, Native::VirtualHost));
    }
    if let Some(change) = network_filter {
        violations.extend(check_filter(&path.field("networkFilter"), change, Native::NetworkFilter));
    }
    if let Some(change) = http_filter {
        violations.extend(check_filter(&path.field("httpFilter"), change, Native::HttpFilter));
    }
    if let Some(change) = runtime {
        violations.extend(change.check(&path.field("runtime")));
    }
    violations
}

fn adds<M>(change: &ResourceModification<M, Operation>) -> bool {
    change.operation == Operation::Add
}

fn check_change<M>(
    path: &FieldPath,
    change: &ResourceModification<M, Operation>,
    native: Native,
) -> Violations {
    match change.operation {
        Operation::Add => check_value(&path.field("value"), change.value.as_deref(), native),
        Operation::Patch => check_patch(path, change.value.as_deref(), &change.json_patches, native),
        Operation::Remove => check_removal(path, change.value.as_deref()),
    }
}

fn check_filter(
    path: &FieldPath,
    change: &ResourceModification<FilterMatch, FilterOperation>,
    native: Native,
) -> Violations {
    let mut violations = Violations::none();
    let unnamed = change.r#match.as_ref().is_none_or(|m| m.name.is_none());
    let mut named = |reason: &str| violations.check(unnamed, path.field("match").field("name"), reason);
    let value = change.value.as_deref();
    match change.operation {
        FilterOperation::AddBefore => {
            named("must be defined. You need to pick a filter before which this one will be added");
        }
        FilterOperation::AddAfter => {
            named("must be defined. You need to pick a filter after which this one will be added");
        }
        FilterOperation::Patch => named(DEFINED),
        FilterOperation::AddFirst | FilterOperation::AddLast | FilterOperation::Remove => {}
    }
    violations.extend(match change.operation {
        FilterOperation::Remove => check_removal(path, value),
        FilterOperation::Patch => check_patch(path, value, &change.json_patches, native),
        _ => check_value(&path.field("value"), value, native),
    });
    violations
}

fn check_removal(path: &FieldPath, value: Option<&str>) -> Violations {
    let mut violations = Violations::none();
    violations.check(value.is_some(), path.field("value"), NOT_DEFINED);
    violations
}

fn check_value(path: &FieldPath, value: Option<&str>, native: Native) -> Violations {
    let Some(value) = value else { return Violations::one(path.clone(), DEFINED) };
    let invalid = match native.parse(value) {
        Err(error) => error.to_string(),
        Ok(message) if native::name(&message).is_empty() => "name must not be empty".to_owned(),
        Ok(_) => return Violations::none(),
    };
    Violations::one(path.clone(), format!("native Envoy resource is not valid: {invalid}"))
}

fn check_patch(path: &FieldPath, value: Option<&str>, patches: &[JsonPatch], native: Native) -> Violations {
    match (value, patches) {
        (None, []) => {
            let reason = format!("{path} must have exactly one defined: value, jsonPatches");
            Violations::one(path.clone(), reason)
        }
        (Some(_), [_, ..]) => {
            let reason = format!("{path} must have only one type defined: value, jsonPatches");
            Violations::one(path.clone(), reason)
        }
        (Some(value), []) => match native.parse(value) {
            Ok(_) => Violations::none(),
            Err(error) => {
                let reason = format!("native Envoy resource is not valid: {error}");
                Violations::one(path.field("value"), reason)
            }
        },
        (None, patches) => check_steps(&path.field("jsonPatches"), patches),
    }
}

/// Steps of a path into a resource; what is deeper nobody could read.
const DEEPEST: usize = 128;

fn check_steps(path: &FieldPath, patches: &[JsonPatch]) -> Violations {
    let mut violations = Violations::none();
    let either =
        |what: &str, ops: [&str; 2]| format!(r#"{what} when op is one of ["{}", "{}"]"#, ops[0], ops[1]);
    let (from_ops, value_ops) = (["move", "copy"], ["add", "replace"]);
    for (i, patch) in patches.iter().enumerate() {
        let at = path.index(i);
        let moves = matches!(patch.op, JsonPatchOp::Move | JsonPatchOp::Copy);
        let brings = matches!(patch.op, JsonPatchOp::Add | JsonPatchOp::Replace);
        violations.check(moves && patch.from.is_none(), at.field("from"), either(NOT_EMPTY, from_ops));
        let reason = either("is allowed only", from_ops);
        violations.check(!moves && patch.from.is_some(), at.field("from"), reason);
        violations.check(brings && patch.value.is_none(), at.field("value"), either(NOT_EMPTY, value_ops));
        let reason = either("is allowed only", value_ops);
        violations.check(!brings && patch.value.is_some(), at.field("value"), reason);
        for (field, path) in [("path", &patch.path), ("from", &patch.from)] {
            let steps = path.as_deref().map_or(0, |path| path.matches('/').count());
            let reason = format!("must have at most {DEEPEST} steps");
            violations.check(steps > DEEPEST, at.field(field), reason);
        }
        match patch.path.as_deref() {
            None => violations.add(at.field("path"), DEFINED),
            Some("" | "/") if patch.op == JsonPatchOp::Remove => {
                violations.add(at.field("path"), "root path cannot be removed");
            }
            Some(_) => {}
        }
    }
    violations
}
