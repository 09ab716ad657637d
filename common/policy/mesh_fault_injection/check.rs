//! What makes a `MeshFaultInjection` valid.

use super::{Bandwidth, FaultInjectionConf, MeshFaultInjection};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, IntOrString, PeerItem, TargetKind,
        TargetKind::*,
        TargetRef,
        check::{Checks, DEFINED, NOT_DEFINED},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];
const FROM: &[TargetKind] = &[Mesh, MeshSubset, MeshServiceSubset, MeshService];

pub(super) fn check(spec: &MeshFaultInjection) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if !spec.rules.is_empty() && (!spec.to.is_empty() || !spec.from.is_empty()) {
        violations.add(path.clone(), "fields 'to' and 'from' must be empty when 'rules' is defined");
    }
    if let Some(target) = &spec.target_ref {
        let inbound = !spec.from.is_empty() || !spec.rules.is_empty();
        violations.extend(Allowed::top(TOP, inbound).check(&path.field("targetRef"), target));
    }
    let gateways = spec.target_ref.as_ref().unwrap_or(&TargetRef::mesh()).includes_gateways();
    if !spec.from.is_empty() && gateways {
        violations.add(path.field("from"), NOT_DEFINED);
    } else {
        violations.extend(check_items(&path.field("from"), FROM, &spec.from));
    }
    if !spec.to.is_empty() && !gateways {
        violations.add(path.field("to"), NOT_DEFINED);
    } else {
        violations.extend(check_items(&path.field("to"), &[Mesh], &spec.to));
    }
    for (i, rule) in spec.rules.iter().enumerate() {
        let at = path.field("rules").index(i);
        violations.extend(rule.check_matches(&at));
        violations.extend(check_conf(&at.field("default"), &rule.default));
    }
    violations
}

fn check_items(path: &FieldPath, kinds: &[TargetKind], items: &[PeerItem<FaultInjectionConf>]) -> Violations {
    let mut violations = Violations::none();
    for (i, item) in items.iter().enumerate() {
        let at = path.index(i);
        violations.extend(Allowed::kinds(kinds).check(&at.field("targetRef"), &item.target_ref));
        violations.extend(check_conf(&at.field("default"), &item.default));
    }
    violations
}

/// The number of a fault stands behind what is wrong with it, where clients of the API look for it.
fn check_conf(path: &FieldPath, conf: &FaultInjectionConf) -> Violations {
    let path = path.field("http");
    let mut violations = Violations::none();
    let percentage = |violations: &mut Violations, at: &FieldPath, value: &IntOrString| {
        violations.decimal_percent(at.field("percentage"), Some(value));
    };
    for (i, fault) in conf.http.iter().flatten().enumerate() {
        if let Some(abort) = &fault.abort {
            let at = path.field("abort").index(i);
            violations.status(at.field("httpStatus"), abort.http_status.into());
            percentage(&mut violations, &at, &abort.percentage);
        }
        if let Some(delay) = &fault.delay {
            let at = path.field("delay").index(i);
            violations.not_negative(at.field("value"), Some(delay.value));
            percentage(&mut violations, &at, &delay.percentage);
        }
        if let Some(slow) = &fault.response_bandwidth {
            let at = path.field("responseBandwidth").index(i);
            let limit = at.field("responseBandwidth");
            if slow.limit.is_empty() {
                violations.add(limit, DEFINED);
            } else if let Err(error) = slow.limit.parse::<Bandwidth>() {
                violations.add(limit, error.to_string());
            }
            percentage(&mut violations, &at, &slow.percentage);
        }
    }
    violations
}
