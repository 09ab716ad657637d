//! What makes a `MeshAccessLog` valid.

use serde_json::Value;

use super::{
    AccessLogConf, FileLog, LogBackend, LogBackendType, LogField, LogFormatType, LogLineFormat,
    MeshAccessLog, TcpLog,
};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::{DEFINED, NOT_EMPTY, is_file},
        telemetry::{attribute_problem, check_collector, is_address},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];
const TO: &[TargetKind] = &[Mesh, MeshService, MeshExternalService, MeshMultiZoneService, MeshHttpRoute];

pub(super) fn check(spec: &MeshAccessLog) -> Violations {
    let path = FieldPath::new("spec");
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
    // What a gateway calls is not told apart.
    let gateway = spec.target_ref.as_ref().is_some_and(|target| target.kind == MeshGateway);
    let to = if gateway { &[Mesh][..] } else { TO };
    for (list, items, kinds) in [("to", &spec.to, to), ("from", &spec.from, &[Mesh][..])] {
        for (i, item) in items.iter().enumerate() {
            let at = path.field(list).index(i);
            violations.extend(Allowed::kinds(kinds).check(&at.field("targetRef"), &item.target_ref));
            violations.extend(check_conf(&at.field("default"), &item.default));
        }
    }
    for (i, rule) in spec.rules.iter().enumerate() {
        let at = path.field("rules").index(i);
        for (j, condition) in rule.matches.iter().enumerate() {
            violations.extend(condition.check(&at.field("matches").index(j)));
        }
        violations.extend(check_conf(&at.field("default"), &rule.default));
    }
    violations
}

fn check_conf(path: &FieldPath, conf: &AccessLogConf) -> Violations {
    let path = path.field("backends");
    let Some(backends) = &conf.backends else { return Violations::one(path, DEFINED) };
    let mut violations = Violations::none();
    for (i, backend) in backends.iter().enumerate() {
        violations.extend(check_backend(&path.index(i), backend));
    }
    violations
}

fn check_backend(path: &FieldPath, backend: &LogBackend) -> Violations {
    match (backend.kind, backend) {
        (LogBackendType::File, LogBackend { file: Some(FileLog { format, path: file }), .. }) => {
            let at = path.field("file");
            let mut violations = check_format(&at.field("format"), format.as_ref());
            violations.check(!is_file(file), at.field("path"), "file backend requires a valid path");
            violations
        }
        (LogBackendType::Tcp, LogBackend { tcp: Some(TcpLog { format, address }), .. }) => {
            let at = path.field("tcp");
            let mut violations = check_format(&at.field("format"), format.as_ref());
            violations.check(!is_address(address), at.field("address"), "tcp backend requires valid address");
            violations
        }
        (LogBackendType::OpenTelemetry, LogBackend { open_telemetry: Some(otel), .. }) => {
            let at = path.field("openTelemetry");
            let mut violations =
                check_collector(&at, otel.endpoint.as_deref(), otel.backend_ref.as_ref(), |_| None);
            for (i, attribute) in otel.attributes.iter().enumerate() {
                if let Some(reason) = attribute_problem(&attribute.key) {
                    violations.add(at.field("attributes").index(i).field("key"), reason);
                }
            }
            violations
        }
        (LogBackendType::File, _) => Violations::one(path.field("file"), DEFINED),
        (LogBackendType::Tcp, _) => Violations::one(path.field("tcp"), DEFINED),
        (LogBackendType::OpenTelemetry, _) => Violations::one(path.field("openTelemetry"), DEFINED),
    }
}

fn check_format(path: &FieldPath, format: Option<&LogLineFormat>) -> Violations {
    match format {
        None => Violations::none(),
        Some(LogLineFormat { kind: LogFormatType::Plain, plain, .. }) => match plain.as_deref() {
            None => Violations::one(path.field("plain"), DEFINED),
            Some("") => Violations::one(path.field("plain"), NOT_EMPTY),
            Some(_) => Violations::none(),
        },
        Some(LogLineFormat { kind: LogFormatType::Json, json, .. }) => match json.as_deref() {
            None => Violations::one(path.field("json"), DEFINED),
            Some([]) => Violations::one(path.field("json"), NOT_EMPTY),
            Some(fields) => check_fields(&path.field("json"), fields),
        },
    }
}

fn check_fields(path: &FieldPath, fields: &[LogField]) -> Violations {
    let mut violations = Violations::none();
    for (i, LogField { key, value }) in fields.iter().enumerate() {
        let at = path.index(i);
        violations.check(key.is_empty(), at.field("key"), "key cannot be empty");
        violations.check(value.is_empty(), at.field("value"), "value cannot be empty");
        let object = format!(r#"{{"{key}": "{value}"}}"#);
        let broken = serde_json::from_str::<Value>(&object).is_err();
        violations.check(broken, at, "is not a valid JSON object");
    }
    violations
}
