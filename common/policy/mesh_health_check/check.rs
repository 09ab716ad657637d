//! What makes a `MeshHealthCheck` valid.

use super::{HealthCheckConf, HttpCheck, MeshHealthCheck};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::{Checks, DEFINED, is_file},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];
const TO: &[TargetKind] = &[Mesh, MeshService, MeshExternalService, MeshMultiZoneService];

pub(super) fn check(spec: &MeshHealthCheck) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::top(TOP, false).check(&path.field("targetRef"), target));
    }
    let top = spec.target_ref.as_ref().map_or(Mesh, |target| target.kind);
    for (i, item) in spec.to.iter().enumerate() {
        let at = path.field("to").index(i);
        violations.extend(Allowed::kinds(TO).check(&at.field("targetRef"), &item.target_ref));
        let elsewhere = item.target_ref.kind == MeshExternalService && ![Mesh, Dataplane].contains(&top);
        violations.check(
            elsewhere,
            at.field("targetRef").field("kind"),
            "kind MeshExternalService is only allowed with targetRef.kind: Mesh as it is configured on the Zone Egress and shared by all clients in the mesh",
        );
        violations.extend(check_conf(&at.field("default"), &item.default));
    }
    violations
}

fn check_conf(path: &FieldPath, conf: &HealthCheckConf) -> Violations {
    let mut violations = Violations::none();
    violations.positive(path.field("interval"), conf.interval);
    violations.positive(path.field("timeout"), conf.timeout);
    let mut threshold = |member: &str, value: Option<i32>| {
        let reason = "must be greater than zero when defined";
        violations.check(value.is_some_and(|value| value <= 0), path.field(member), reason);
    };
    threshold("unhealthyThreshold", conf.unhealthy_threshold);
    threshold("healthyThreshold", conf.healthy_threshold);
    violations.positive(path.field("initialJitter"), conf.initial_jitter);
    violations.positive(path.field("intervalJitter"), conf.interval_jitter);
    // What is below zero is out of the range as well.
    let share = conf.interval_jitter_percent.map(|share| u32::try_from(share).unwrap_or(u32::MAX));
    violations.percent(path.field("intervalJitterPercent"), share);
    violations.decimal_percent(path.field("healthyPanicThreshold"), conf.healthy_panic_threshold.as_ref());
    violations.positive(path.field("noTrafficInterval"), conf.no_traffic_interval);
    let log = conf.event_log_path.as_deref();
    let broken = log.is_some_and(|log| !is_file(log));
    violations.check(broken, path.field("eventLogPath"), "must be a valid path when defined");
    if let Some(http) = &conf.http {
        violations.extend(check_http(&path.field("http"), http));
    }
    if conf.http.is_none() && conf.tcp.is_none() && conf.grpc.is_none() {
        violations.add(path.clone(), "must have at least one defined: http, tcp, grpc");
    }
    violations
}

fn check_http(path: &FieldPath, http: &HttpCheck) -> Violations {
    let mut violations = Violations::none();
    violations.check(http.path.as_deref() == Some(""), path.field("path"), DEFINED);
    if let Some(headers) = &http.request_headers_to_add {
        violations.extend(headers.check(&path.field("requestHeadersToAdd")));
    }
    for (i, status) in http.expected_statuses.iter().flatten().enumerate() {
        violations.status(path.field("expectedStatuses").index(i), (*status).into());
    }
    violations
}
