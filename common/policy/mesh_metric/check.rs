//! What makes a `MeshMetric` valid.

use regex::Regex;

use super::{
    MeshMetric, MetricBackend, MetricBackendType, MetricConf, MetricProfiles, MetricSelector, SelectorType,
};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::DEFINED,
        telemetry::{check_collector, is_host_and_port},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];

pub(super) fn check(spec: &MeshMetric) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::top(TOP, false).check(&path.field("targetRef"), target));
    }
    violations.extend(check_conf(&path.field("default"), &spec.default));
    violations
}

fn check_conf(path: &FieldPath, conf: &MetricConf) -> Violations {
    let mut violations = Violations::none();
    let profiles = conf.sidecar.as_ref().and_then(|sidecar| sidecar.profiles.as_ref());
    if let Some(MetricProfiles { exclude, include, .. }) = profiles {
        let at = path.field("sidecar").field("profiles");
        violations.extend(check_selectors(&at.field("exclude"), exclude.as_deref().unwrap_or_default()));
        violations.extend(check_selectors(&at.field("include"), include.as_deref().unwrap_or_default()));
    }
    // Clients know these paths, in which the list stands once more in the singular.
    let at = path.field("applications").field("application");
    for (i, application) in conf.applications.iter().flatten().enumerate() {
        violations.extend(check_port(at.index(i), application.port));
    }
    let at = path.field("backends").field("backend");
    for (i, backend) in conf.backends.iter().flatten().enumerate() {
        violations.extend(check_backend(&at.index(i), backend));
    }
    violations
}

fn check_selectors(path: &FieldPath, selectors: &[MetricSelector]) -> Violations {
    let mut violations = Violations::none();
    for (i, MetricSelector { kind, value }) in selectors.iter().enumerate() {
        let broken = *kind == SelectorType::Regex && Regex::new(value).is_err();
        violations.check(broken, path.index(i).field("match"), "invalid regex");
    }
    violations
}

fn check_port(path: FieldPath, port: u32) -> Violations {
    let mut violations = Violations::none();
    violations.check(!(1..=65535).contains(&port), path, "port must be a valid (1-65535)");
    violations
}

fn check_backend(path: &FieldPath, backend: &MetricBackend) -> Violations {
    match (backend.kind, backend) {
        (MetricBackendType::Prometheus, MetricBackend { prometheus: Some(prometheus), .. }) => {
            check_port(path.field("port"), prometheus.port)
        }
        (MetricBackendType::OpenTelemetry, MetricBackend { open_telemetry: Some(otel), .. }) => {
            let at = path.field("openTelemetry");
            let problem =
                |endpoint: &str| (!is_host_and_port(endpoint)).then_some("must be in host:port format");
            check_collector(&at, otel.endpoint.as_deref(), otel.backend_ref.as_ref(), problem)
        }
        (MetricBackendType::Prometheus, _) => Violations::one(path.field("prometheus"), DEFINED),
        (MetricBackendType::OpenTelemetry, _) => Violations::one(path.field("openTelemetry"), DEFINED),
    }
}
