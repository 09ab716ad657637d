//! What makes a `MeshTrace` valid.

use http::Uri;

use super::{MeshTrace, Sampling, TraceBackend, TraceBackendType, TraceConf, TraceTag};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, IntOrString, TargetKind,
        TargetKind::*,
        check::{DEFINED, NOT_EMPTY},
        telemetry::{check_collector, is_address},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];

pub(super) fn check(spec: &MeshTrace) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::kinds(TOP).check(&path.field("targetRef"), target));
    }
    violations.extend(check_conf(&path.field("default"), &spec.default));
    violations
}

fn check_conf(path: &FieldPath, conf: &TraceConf) -> Violations {
    let mut violations = Violations::none();
    let backends = path.field("backends");
    match conf.backends.as_deref() {
        None => violations.add(backends, DEFINED),
        Some([]) => {}
        Some([backend]) => violations.extend(check_backend(&backends.index(0), backend)),
        Some(_) => violations.add(backends, "must have zero or one backend defined"),
    }
    for (i, tag) in conf.tags.iter().flatten().enumerate() {
        violations.extend(check_tag(&path.field("tags").index(i), tag));
    }
    if let Some(Sampling { overall, client, random }) = &conf.sampling {
        let at = path.field("sampling");
        for (member, share) in [("client", client), ("random", random), ("overall", overall)] {
            violations.extend(check_share(&at.field(member), share.as_ref()));
        }
    }
    violations
}

fn check_share(path: &FieldPath, share: Option<&IntOrString>) -> Violations {
    let mut violations = Violations::none();
    match share.map(IntOrString::value) {
        None => {}
        Some(None) => violations.add(path.clone(), "string is not a number"),
        Some(Some(share)) => {
            let outside = !(0.0..=100.0).contains(&share);
            violations.check(outside, path.clone(), "must be between 0 and 100");
        }
    }
    violations
}

fn check_tag(path: &FieldPath, tag: &TraceTag) -> Violations {
    let mut violations = Violations::none();
    violations.check(tag.name.is_empty(), path.field("name"), NOT_EMPTY);
    let both_or_none = tag.header.is_some() == tag.literal.is_some();
    violations.check(both_or_none, path.clone(), "tag must have only one type defined: header, literal");
    violations
}

fn check_backend(path: &FieldPath, backend: &TraceBackend) -> Violations {
    match (backend.kind, backend) {
        (TraceBackendType::Zipkin, TraceBackend { zipkin: Some(zipkin), .. }) => {
            let mut violations = Violations::none();
            let at = path.field("zipkin").field("url");
            let (empty, bad) = (zipkin.url.is_empty(), !is_address(&zipkin.url));
            violations.check(empty, at.clone(), NOT_EMPTY);
            violations.check(bad && !empty, at, "must be a valid url");
            violations
        }
        (TraceBackendType::Datadog, TraceBackend { datadog: Some(datadog), .. }) => {
            check_agent(&path.field("datadog").field("url"), &datadog.url)
        }
        (TraceBackendType::OpenTelemetry, TraceBackend { open_telemetry: Some(otel), .. }) => {
            let at = path.field("openTelemetry");
            check_collector(&at, otel.endpoint.as_deref(), otel.backend_ref.as_ref(), |_| None)
        }
        (TraceBackendType::Zipkin, _) => Violations::one(path.field("zipkin"), DEFINED),
        (TraceBackendType::Datadog, _) => Violations::one(path.field("datadog"), DEFINED),
        (TraceBackendType::OpenTelemetry, _) => Violations::one(path.field("openTelemetry"), DEFINED),
    }
}

fn check_agent(path: &FieldPath, url: &str) -> Violations {
    let uri = url.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
    let Some(uri) = uri else { return Violations::one(path.clone(), "must be a valid url") };
    let mut violations = Violations::none();
    violations.check(uri.scheme_str() != Some("http"), path.clone(), "scheme must be http");
    match (uri.port(), uri.port_u16()) {
        (None, _) => violations.add(path.clone(), "port must be defined"),
        (Some(_), None | Some(0)) => violations.add(path.clone(), "port must be a valid (1-65535)"),
        (Some(_), Some(_)) => {}
    }
    let user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    violations.check(user, path.clone(), "user must not be defined");
    // The parser adds a path where there is none.
    let has_path = url.splitn(4, '/').nth(3).is_some();
    violations.check(has_path && uri.path() != "", path.clone(), "path must not be defined");
    violations.check(uri.query().is_some(), path.clone(), "query must not be defined");
    violations.check(url.contains('#'), path.clone(), "fragment must not be defined");
    violations
}
