//! What makes a `MeshTLS` valid.

use super::{MeshTls, TlsConf};
use crate::{
    model::{FieldPath, Violations},
    policy::{Allowed, TargetKind, TargetKind::*},
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, Dataplane];

pub(super) fn check(spec: &MeshTls) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if !spec.rules.is_empty() && !spec.from.is_empty() {
        violations.add(path.clone(), "field 'from' must be empty when 'rules' is defined");
    }
    if let Some(target) = &spec.target_ref {
        let inbound = !spec.from.is_empty() || !spec.rules.is_empty();
        let allowed = Allowed { inbound, ..Allowed::kinds(TOP) };
        violations.extend(allowed.check(&path.field("targetRef"), target));
    }
    let top = spec.target_ref.as_ref().map_or(Mesh, |target| target.kind);
    for (i, rule) in spec.rules.iter().enumerate() {
        let at = path.field("rules").index(i);
        violations.extend(check_conf(&at.field("default"), top, &rule.default));
    }
    for (i, item) in spec.from.iter().enumerate() {
        let at = path.field("from").index(i);
        violations.extend(Allowed::kinds(&[Mesh]).check(&at.field("targetRef"), &item.target_ref));
        violations.extend(check_conf(&at.field("default"), top, &item.default));
    }
    violations
}

/// Versions and ciphers are the same in the whole mesh, as both sides of a connection need them.
fn check_conf(path: &FieldPath, top: TargetKind, conf: &TlsConf) -> Violations {
    let mut violations = Violations::none();
    let ciphers = conf.tls_ciphers.as_ref().is_some_and(|ciphers| !ciphers.is_empty());
    violations.check(
        ciphers && top != Mesh,
        path.field("tlsCiphers"),
        "tlsCiphers can only be defined with top level targetRef kind: Mesh",
    );
    let Some(versions) = conf.tls_version else { return violations };
    let at = path.field("tlsVersion");
    if top != Mesh {
        violations.add(at, "tlsVersion can only be defined with top level targetRef kind: Mesh");
        return violations;
    }
    violations.check(versions.are_turned(), at.field("min"), "min version must be lower than max");
    violations
}
