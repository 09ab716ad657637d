//! What makes a `MeshRetry` valid.

use super::{
    BackOff, GrpcRetry, HostPredicate, HostPredicateType, HttpRetry, MeshRetry, RateLimitedBackOff, RetryConf,
};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::{Checks, DEFINED, NOT_EMPTY, POSITIVE},
    },
};

const TOP: &[TargetKind] =
    &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, MeshHttpRoute, Dataplane];
const TO: &[TargetKind] = &[Mesh, MeshService, MeshExternalService, MeshMultiZoneService, MeshHttpRoute];
const TO_OF_ROUTE_OR_GATEWAY: &[TargetKind] = &[Mesh, MeshExternalService];

/// Conditions on HTTP requests, beside status codes.
const RETRY_ON: &[&str] = &[
    "5xx",
    "GatewayError",
    "Reset",
    "Retriable4xx",
    "ConnectFailure",
    "EnvoyRatelimited",
    "RefusedStream",
    "Http3PostConnectFailure",
    "HttpMethodConnect",
    "HttpMethodDelete",
    "HttpMethodGet",
    "HttpMethodHead",
    "HttpMethodOptions",
    "HttpMethodPatch",
    "HttpMethodPost",
    "HttpMethodPut",
    "HttpMethodTrace",
];

pub(super) fn check(spec: &MeshRetry) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::top(TOP, false).check(&path.field("targetRef"), target));
    }
    violations.check(spec.to.is_none(), path.field("to"), "needs at least one item");
    let top = spec.target_ref.as_ref().map_or(Mesh, |t| t.kind);
    let kinds = if matches!(top, MeshHttpRoute | MeshGateway) { TO_OF_ROUTE_OR_GATEWAY } else { TO };
    for (i, item) in spec.to.iter().flatten().enumerate() {
        let at = path.field("to").index(i);
        violations.extend(Allowed::kinds(kinds).check(&at.field("targetRef"), &item.target_ref));
        // The extra `conf` is what clients of this API are used to.
        violations.extend(check_conf(&at.field("default").field("conf"), &item.default));
    }
    violations
}

fn check_conf(path: &FieldPath, conf: &RetryConf) -> Violations {
    let mut violations = Violations::none();
    let reason = "at least one of the 'tcp', 'http', 'grpc' must be specified";
    violations.check(*conf == RetryConf::default(), path.clone(), reason);
    if let Some(tcp) = &conf.tcp {
        let at = path.field("tcp");
        violations.check(tcp.max_connect_attempt.is_none(), at.clone(), NOT_EMPTY);
        violations.check(tcp.max_connect_attempt == Some(0), at.field("maxConnectAttempt"), POSITIVE);
    }
    if let Some(http) = &conf.http {
        violations.extend(check_http(&path.field("http"), http));
    }
    if let Some(grpc) = &conf.grpc {
        let at = path.field("grpc");
        violations.check(*grpc == GrpcRetry::default(), at.clone(), NOT_EMPTY);
        violations.extend(check_back_off(&at, grpc.back_off.as_ref()));
        violations.extend(check_rate_limited(&at, grpc.rate_limited_back_off.as_ref()));
    }
    violations
}

fn check_http(path: &FieldPath, http: &HttpRetry) -> Violations {
    let mut violations = Violations::none();
    let other = HttpRetry { host_selection_max_attempts: None, ..http.clone() };
    violations.check(other == HttpRetry::default(), path.clone(), NOT_EMPTY);
    violations.extend(check_back_off(path, http.back_off.as_ref()));
    violations.extend(check_rate_limited(path, http.rate_limited_back_off.as_ref()));
    for (i, condition) in http.retry_on.iter().flatten().enumerate() {
        let known = RETRY_ON.contains(&condition.as_str()) || is_status_code(condition);
        let reason = format!("unknown item '{condition}'");
        violations.check(!known, path.field("retryOn").index(i), reason);
    }
    let conditions = [
        ("retriableResponseHeaders", &http.retriable_response_headers),
        ("retriableRequestHeaders", &http.retriable_request_headers),
    ];
    for (list, headers) in conditions {
        for (i, header) in headers.iter().flatten().enumerate() {
            violations.header_name(path.field(list).index(i).field("name"), &header.name);
        }
    }
    violations.extend(check_hosts(
        &path.field("hostSelection"),
        http.host_selection.as_deref().unwrap_or_default(),
    ));
    violations
}

fn is_status_code(text: &str) -> bool {
    let code = text.parse::<u16>().ok().and_then(|code| http::StatusCode::from_u16(code).ok());
    code.is_some_and(|code| code.canonical_reason().is_some())
}

fn check_back_off(path: &FieldPath, back_off: Option<&BackOff>) -> Violations {
    let mut violations = Violations::none();
    violations.check(back_off == Some(&BackOff::default()), path.field("backOff"), NOT_EMPTY);
    violations
}

fn check_rate_limited(path: &FieldPath, back_off: Option<&RateLimitedBackOff>) -> Violations {
    let mut violations = Violations::none();
    let Some(back_off) = back_off else { return violations };
    let path = path.field("rateLimitedBackOff");
    let max = back_off.max_interval.is_some_and(|d| d.is_zero() || d.is_negative());
    violations.check(max, path.field("maxInterval"), "must be greater than zero");
    let headers = path.field("resetHeaders");
    violations.check(back_off.reset_headers.is_none(), headers.clone(), DEFINED);
    for (i, header) in back_off.reset_headers.iter().flatten().enumerate() {
        violations.header_name(headers.index(i).field("name"), &header.name);
    }
    violations
}

fn check_hosts(path: &FieldPath, hosts: &[HostPredicate]) -> Violations {
    let mut violations = Violations::none();
    let mut priorities = false;
    for (i, host) in hosts.iter().enumerate() {
        let at = path.index(i);
        match host.predicate {
            HostPredicateType::OmitPreviousHosts => {}
            HostPredicateType::OmitHostsWithTags => {
                violations.check(host.tags.is_none(), at.field("tags"), DEFINED);
            }
            HostPredicateType::OmitPreviousPriorities => {
                let reason = "OmitPreviousPriorities must only be specified once";
                violations.check(priorities, at.field("predicate"), reason);
                let reason = "must be defined and greater than zero";
                violations.check(host.update_frequency <= 0, at.field("updateFrequency"), reason);
                priorities = true;
            }
        }
    }
    violations
}
