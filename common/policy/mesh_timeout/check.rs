//! What makes a `MeshTimeout` valid.

use super::{HttpTimeouts, MeshTimeout, TimeoutConf};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, InboundItem, TargetKind,
        TargetKind::*,
        TargetRef,
        check::{Checks, OF_CLIENT},
    },
};

const TOP: &[TargetKind] =
    &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, MeshHttpRoute, Dataplane];
const TO: &[TargetKind] = &[Mesh, MeshService, MeshExternalService, MeshMultiZoneService, MeshHttpRoute];
const TO_OF_ROUTE_OR_GATEWAY: &[TargetKind] = &[Mesh, MeshExternalService];

pub(super) fn check(spec: &MeshTimeout) -> Violations {
    let path = FieldPath::new("spec");
    let top = spec.target_ref.as_ref().map_or(Mesh, |t| t.kind);
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        let inbound = !spec.from.is_empty() || !spec.rules.is_empty();
        violations.extend(Allowed::top(TOP, inbound).check(&path.field("targetRef"), target));
    }
    let peers = !spec.to.is_empty() || !spec.from.is_empty();
    if !spec.rules.is_empty() && peers {
        violations.add(path.clone(), "fields 'to' and 'from' must be empty when 'rules' is defined");
    }
    if spec.rules.is_empty() && !peers {
        violations.add(path.clone(), "at least one of 'from', 'to' or 'rules' has to be defined");
    }
    violations.extend(check_from(spec, top, &path.field("from")));
    for (i, item) in spec.to.iter().enumerate() {
        let at = path.field("to").index(i);
        violations.extend(check_to_target(top, &at.field("targetRef"), &item.target_ref));
        violations.extend(check_conf(top, &at.field("default"), &item.default));
    }
    for (i, item) in spec.rules.iter().enumerate() {
        violations.extend(check_rule(top, &path.field("rules").index(i), item));
    }
    violations
}

fn check_from(spec: &MeshTimeout, top: TargetKind, path: &FieldPath) -> Violations {
    if matches!(top, MeshHttpRoute | MeshGateway) {
        let mut violations = Violations::none();
        violations.check(!spec.from.is_empty(), path.clone(), "must not be defined");
        return violations;
    }
    let mut violations = Violations::none();
    for (i, item) in spec.from.iter().enumerate() {
        let at = path.index(i);
        violations.extend(Allowed::kinds(&[Mesh]).check(&at.field("targetRef"), &item.target_ref));
        violations.extend(check_conf(top, &at.field("default"), &item.default));
    }
    violations
}

fn check_to_target(top: TargetKind, path: &FieldPath, target: &TargetRef) -> Violations {
    let kinds = if matches!(top, MeshHttpRoute | MeshGateway) { TO_OF_ROUTE_OR_GATEWAY } else { TO };
    Allowed::kinds(kinds).check(path, target)
}

fn check_rule(top: TargetKind, path: &FieldPath, item: &InboundItem<TimeoutConf>) -> Violations {
    let mut violations = item.check_matches(path);
    let conf = path.field("default");
    if item.matches.iter().any(|m| m.spiffe_id.is_some()) {
        // These are properties of the connection or the listener, which exist before a client is known.
        let reason = OF_CLIENT;
        violations.absent(conf.field("connectionTimeout"), item.default.connection_timeout.as_ref(), reason);
        violations.absent(conf.field("idleTimeout"), item.default.idle_timeout.as_ref(), reason);
        if let Some(http) = &item.default.http {
            let at = conf.field("http");
            violations.absent(
                at.field("requestHeadersTimeout"),
                http.request_headers_timeout.as_ref(),
                reason,
            );
            violations.absent(at.field("maxStreamDuration"), http.max_stream_duration.as_ref(), reason);
            violations.absent(
                at.field("maxConnectionDuration"),
                http.max_connection_duration.as_ref(),
                reason,
            );
        }
    }
    violations.extend(check_conf(top, &conf, &item.default));
    violations
}

fn check_conf(top: TargetKind, path: &FieldPath, conf: &TimeoutConf) -> Violations {
    if *conf == TimeoutConf::default() {
        return Violations::one(path.clone(), "at least one timeout should be configured");
    }
    let mut violations = Violations::none();
    if top == MeshHttpRoute {
        let reason = "can't be specified when top-level TargetRef is referencing MeshHTTPRoute";
        violations.absent(path.field("connectionTimeout"), conf.connection_timeout.as_ref(), reason);
        violations.absent(path.field("idleTimeout"), conf.idle_timeout.as_ref(), reason);
        if let Some(http) = &conf.http {
            let at = path.field("http");
            violations.absent(at.field("maxStreamDuration"), http.max_stream_duration.as_ref(), reason);
            violations.absent(
                at.field("maxConnectionDuration"),
                http.max_connection_duration.as_ref(),
                reason,
            );
        }
    }
    violations.positive(path.field("connectionTimeout"), conf.connection_timeout);
    violations.not_negative(path.field("idleTimeout"), conf.idle_timeout);
    if let Some(http) = &conf.http {
        violations.extend(check_http(&path.field("http"), http));
    }
    violations
}

fn check_http(path: &FieldPath, http: &HttpTimeouts) -> Violations {
    let mut violations = Violations::none();
    let other = HttpTimeouts { request_headers_timeout: None, ..http.clone() };
    let none = other == HttpTimeouts::default();
    violations.check(none, path.clone(), "at least one timeout in this section should be configured");
    violations.not_negative(path.field("requestTimeout"), http.request_timeout);
    violations.not_negative(path.field("streamIdleTimeout"), http.stream_idle_timeout);
    violations.not_negative(path.field("maxStreamDuration"), http.max_stream_duration);
    violations.not_negative(path.field("maxConnectionDuration"), http.max_connection_duration);
    violations.not_negative(path.field("requestHeadersTimeout"), http.request_headers_timeout);
    violations
}
