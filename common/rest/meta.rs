//! Rules for name, mesh and labels of what is written through the API.

use super::{ApiConfig, read::ResourcePath};
use crate::{
    mode::Mode,
    model::{
        FieldPath, Kind, Labels, Violations,
        kinds::{dataplane, mesh_service},
        labels, names,
    },
};

/// What the body of a put says about itself.
pub(super) struct BodyClaims<'a> {
    pub(super) type_name: &'a str,
    /// `None` when absent, which means `default`.
    pub(super) mesh: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) labels: &'a Labels,
}

/// The field of one label.
pub(super) fn label(key: &str) -> FieldPath {
    FieldPath::new("labels").key(key)
}

impl BodyClaims<'_> {
    /// Everything that is wrong with it, at this URL of this control plane.
    pub(super) fn check(
        &self,
        config: &ApiConfig,
        kind: &Kind,
        target: &ResourcePath,
        create: bool,
    ) -> Violations {
        let mut violations = Violations::none();
        let same = "from the URL has to be the same as in body";
        violations.check(self.name != target.name, "name".into(), format!("name {same}"));
        violations.check(self.type_name != kind.name, "type".into(), format!("type {same}"));
        let mesh = self.mesh.filter(|m| !m.is_empty()).unwrap_or("default");
        let other_mesh = kind.is_mesh_scoped() && mesh != target.mesh;
        violations.check(other_mesh, "mesh".into(), format!("mesh {same}"));
        self.check_label_syntax(&mut violations);
        self.check_label_meaning(config, kind, &target.mesh, &mut violations);
        if create {
            self.check_workload(config, kind, &mut violations);
            self.check_name(config, kind, &mut violations);
            if kind.is_mesh_scoped() {
                check_mesh(mesh, &mut violations);
            }
        }
        violations
    }

    fn check_label_syntax(&self, violations: &mut Violations) {
        for (key, value) in self.labels {
            for reason in labels::key_problems(key) {
                violations.add(label(key), reason);
            }
            if let Some(reason) = labels::value_problem(value) {
                violations.add(label(key), reason);
            }
        }
    }

    fn check_label_meaning(&self, config: &ApiConfig, kind: &Kind, mesh: &str, violations: &mut Violations) {
        let origin = self.labels.get(labels::ORIGIN);
        if let Some(other) = origin.filter(|o| !matches!(*o, labels::ORIGIN_GLOBAL | labels::ORIGIN_ZONE)) {
            violations.add(label(labels::ORIGIN), format!("unknown resource origin {other:?}"));
        }
        let expected = match &config.mode {
            Mode::Global => origin.is_some().then_some(labels::ORIGIN_GLOBAL),
            Mode::Zone { federated: true, .. } if kind.is_json() && config.require_origin_label => {
                Some(labels::ORIGIN_ZONE)
            }
            Mode::Zone { .. } => None,
        };
        if let Some(expected) = expected.filter(|e| origin != Some(*e)) {
            violations.add(label(labels::ORIGIN), format!("the origin label must be set to '{expected}'"));
            return;
        }
        // Global takes nothing of a zone under another.
        let namespace = self.labels.get(labels::NAMESPACE).filter(|name| !name.is_empty());
        let namespace = namespace.filter(|_| config.mode.is_federated_zone());
        if let Some(problem) = namespace.and_then(labels::dns_1123_problem) {
            violations.add(label(labels::NAMESPACE), problem);
        }
        let Some(zone) = config.mode.zone().filter(|_| origin != Some(labels::ORIGIN_GLOBAL)) else { return };
        let other = |key, expected: &str| self.labels.get(key).is_some_and(|v| v != expected);
        violations.check(
            other(labels::ZONE, zone),
            label(labels::ZONE),
            format!("{} label should have {zone} value", labels::ZONE),
        );
        violations.check(
            kind.is_mesh_scoped() && other(labels::MESH, mesh),
            label(labels::MESH),
            format!("{} label must not differ from mesh set on resource", labels::MESH),
        );
    }

    /// A workload becomes part of the identity of its dataplanes.
    fn check_workload(&self, config: &ApiConfig, kind: &Kind, violations: &mut Violations) {
        let Some(workload) = self.labels.get(labels::WORKLOAD).filter(|_| kind == &dataplane::KIND) else {
            return;
        };
        let field = label(labels::WORKLOAD);
        violations.check(config.mode == Mode::Global, field.clone(), "cannot be set on global");
        if let Some(problem) = labels::dns_1035_problem(workload) {
            violations.add(field, problem);
        }
    }

    fn check_name(&self, config: &ApiConfig, kind: &Kind, violations: &mut Violations) {
        if self.name.is_empty() {
            return violations.add("name".into(), "cannot be empty");
        }
        if let Some(reason) = labels::subdomain_problem(self.name) {
            violations.add("name".into(), reason);
        }
        violations.check(
            kind == &mesh_service::KIND && self.name.len() > MAX_SERVICE_NAME,
            "name".into(),
            format!("must not be longer than {MAX_SERVICE_NAME} characters"),
        );
        if let Some(zone) = config.mode.zone().filter(|_| config.mode.is_federated_zone()) {
            let full = zone.len() + 1 + self.name.len();
            violations.check(
                full >= names::MAX_NAME,
                "name".into(),
                format!("must be shorter than {} characters together with the zone name", names::MAX_NAME),
            );
        }
    }
}

/// The name of a service becomes a label of host names.
const MAX_SERVICE_NAME: usize = 63;

fn check_mesh(mesh: &str, violations: &mut Violations) {
    let allowed = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || matches!(c, '-' | '_' | '.');
    violations.check(
        mesh.len() > names::MAX_NAME,
        "mesh".into(),
        format!("cannot be longer than {} characters", names::MAX_NAME),
    );
    violations.check(
        !mesh.chars().all(allowed),
        "mesh".into(),
        "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'",
    );
}

/// What an update may not change about the labels.
pub(super) fn immutable(old: &Labels, new: &Labels) -> Violations {
    let mut violations = Violations::none();
    for key in [labels::DISPLAY_NAME, labels::ORIGIN, labels::ZONE] {
        let Some(was) = old.get(key).filter(|v| !v.is_empty()) else { continue };
        match new.get(key) {
            Some(is) if is == was => {}
            Some(is) => {
                violations.add(label(key), format!("is immutable, cannot be changed from {was:?} to {is:?}"))
            }
            None => violations.add(label(key), format!("is immutable, cannot be removed (was {was:?})")),
        }
    }
    violations
}
