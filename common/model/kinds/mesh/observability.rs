//! Where the proxies of a mesh send logs, spans and metrics, for policies of the older generation.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::Regex;

use super::{check_names, member, number, text};
use crate::{
    model::{FieldPath, Violations, kinds::address::check_port, labels},
    proto::{
        google::protobuf::{Struct, Value, value::Kind},
        kuma::mesh::v1alpha1::{
            Logging, LoggingBackend, Mesh, Metrics, MetricsBackend, Tracing, TracingBackend,
        },
    },
};

const PROMETHEUS: &str = "prometheus";
/// Where proxies offer metrics when nothing is said.
const METRICS_PORT: f64 = 5670.0;

pub(super) fn check(mesh: &Mesh, violations: &mut Violations) {
    if let Some(logging) = &mesh.logging {
        check_logging(logging, &FieldPath::new("logging"), violations);
    }
    if let Some(tracing) = &mesh.tracing {
        check_tracing(tracing, &FieldPath::new("tracing"), violations);
    }
    if let Some(metrics) = &mesh.metrics {
        check_metrics(metrics, &FieldPath::new("metrics"), violations);
    }
}

fn check_logging(logging: &Logging, path: &FieldPath, violations: &mut Violations) {
    for (i, backend) in logging.backends.iter().enumerate() {
        check_logging_backend(backend, &path.field("backends").index(i), violations);
    }
    let chosen = ("defaultBackend", logging.default_backend.as_str(), "logging backend in mesh");
    check_names(logging.backends.iter().map(|b| b.name.as_str()), chosen, path, violations);
}

fn check_logging_backend(backend: &LoggingBackend, path: &FieldPath, violations: &mut Violations) {
    violations.check(backend.name.is_empty(), path.field("name"), "cannot be empty");
    if let Some(reason) = format_problem(&backend.format) {
        violations.add(path.field("format"), reason);
    }
    let conf = path.field("config");
    match backend.r#type.as_str() {
        "file" => {
            let missing = text(&backend.conf, "path").is_none();
            violations.check(missing, conf.field("path"), "cannot be empty");
        }
        "tcp" => match text(&backend.conf, "address") {
            None => violations.add(conf.field("address"), "cannot be empty"),
            Some(address) => {
                let parts = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
                let plain = parts.is_some_and(|(host, port)| {
                    !port.is_empty()
                        && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
                });
                violations.check(!plain, conf.field("address"), "has to be in format of HOST:PORT");
            }
        },
        _ => violations.add(path.field("type"), r#"unknown backend type. Available backends: "tcp", "file""#),
    }
}

/// What is wrong with a line of a log: all between two percent signs is an operator, with its arguments in brackets
/// and the length it is cut to behind a colon.
fn format_problem(format: &str) -> Option<String> {
    static OPERATOR: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^%(?:[A-Z0-9_]+(?:\([^)]*\))?(?::[0-9]+)?)?%").expect("the expression is valid")
    });
    let mut at = 0;
    while let Some(found) = format[at..].find('%') {
        at += found;
        let rest = &format[at..];
        let Some(operator) = OPERATOR.find(rest) else {
            return Some(format!(
                "format string is not valid: expected a command operator to start at position {}, instead got: {rest:?}",
                at + 1
            ));
        };
        at += operator.end();
    }
    None
}

fn check_tracing(tracing: &Tracing, path: &FieldPath, violations: &mut Violations) {
    for (i, backend) in tracing.backends.iter().enumerate() {
        check_tracing_backend(backend, &path.field("backends").index(i), violations);
    }
    let chosen = ("defaultBackend", tracing.default_backend.as_str(), "tracing backend in mesh");
    check_names(tracing.backends.iter().map(|b| b.name.as_str()), chosen, path, violations);
}

fn check_tracing_backend(backend: &TracingBackend, path: &FieldPath, violations: &mut Violations) {
    violations.check(backend.name.is_empty(), path.field("name"), "cannot be empty");
    let sampling = backend.sampling.as_ref().map(|s| s.value);
    violations.check(
        sampling.is_some_and(|s| !(0.0..=100.0).contains(&s)),
        path.field("sampling"),
        "has to be in [0.0 - 100.0] range",
    );
    let conf = path.field("config");
    match backend.r#type.as_str() {
        "zipkin" => check_zipkin(&backend.conf, &conf, violations),
        "datadog" => {
            let missing = text(&backend.conf, "address").is_none();
            violations.check(missing, conf.field("address"), "cannot be empty");
            let port = member(&backend.conf, "port").and_then(number).unwrap_or_default();
            let port = if (1.0..=65535.0).contains(&port) { 1 } else { 0 };
            check_port(port, conf.field("port"), violations);
        }
        _ => violations
            .add(path.field("type"), r#"unknown backend type. Available backends: "zipkin", "datadog""#),
    }
}

fn check_zipkin(conf: &Option<Struct>, path: &FieldPath, violations: &mut Violations) {
    const VERSIONS: [&str; 3] = ["httpJsonV1", "httpJson", "httpProto"];
    let unknown = text(conf, "apiVersion").is_some_and(|version| !VERSIONS.contains(&version));
    let reason = || format!("has invalid value. Allowed values: {}", VERSIONS.join(", "));
    violations.check(unknown, path.field("apiVersion"), reason());
    let path = path.field("url");
    let Some(url) = text(conf, "url") else { return violations.add(path, "cannot be empty") };
    match url.parse::<http::Uri>().ok().filter(|_| url.contains("://") || url.starts_with('/')) {
        None => violations.add(path, "invalid URL"),
        Some(url) => violations.check(url.port().is_none(), path, "port has to be explicitly specified"),
    }
}

fn check_metrics(metrics: &Metrics, path: &FieldPath, violations: &mut Violations) {
    for (i, backend) in metrics.backends.iter().enumerate() {
        check_metrics_backend(backend, &path.field("backends").index(i), violations);
    }
    let chosen = ("enabledBackend", metrics.enabled_backend.as_str(), "backends in the mesh");
    check_names(metrics.backends.iter().map(|b| b.name.as_str()), chosen, path, violations);
}

/// Everything wrong with how metrics are offered, by a mesh or one of its dataplanes.
pub(in crate::model::kinds) fn check_metrics_backend(
    backend: &MetricsBackend,
    path: &FieldPath,
    violations: &mut Violations,
) {
    if backend.r#type != PROMETHEUS {
        let reason = r#"unknown backend type. Available backends: "prometheus""#;
        return violations.add(path.field("type"), reason);
    }
    let path = path.field("conf");
    let skipped = flag(&backend.conf, "skipMTLS");
    let clash = match (skipped, tls_mode(&backend.conf)) {
        (Some(skipped), Some(mode)) => {
            mode != if skipped { PrometheusTlsMode::Disabled } else { PrometheusTlsMode::Active }
        }
        _ => false,
    };
    if clash {
        return violations.add(path, "skipMTLS and tls configuration cannot be defined together");
    }
    let said =
        member(&backend.conf, "port").filter(|port| !matches!(port.kind, None | Some(Kind::NullValue(_))));
    if let Some(port) = said {
        let number = number(port);
        violations.check(number.is_none(), path.clone(), "could not parse config: port is no number");
        // Where nobody says a port there is one that everybody knows.
        let bad = number.is_some_and(|port| port.fract() != 0.0 || !(0.0..=65535.0).contains(&port));
        violations.check(bad, path.field("port"), "port must be in the range [1, 65535]");
    }
    let envoy = member(&backend.conf, "envoy").and_then(object);
    if let Some(error) = text(&envoy, "filterRegex").and_then(|filter| regex::Regex::new(filter).err()) {
        let reason = format!("provided regexp isn't correct: {error}");
        return violations.add(path.field("envoy").field("filterRegex"), reason);
    }
    let mut seen = BTreeSet::new();
    for (i, item) in list(&backend.conf, "aggregate").iter().enumerate() {
        let item = object(item);
        let name = text(&item, "name").unwrap_or_default().to_owned();
        let reason = format!("duplicate entry: {name}, values have to be unique");
        violations.check(!seen.insert(name), path.field("aggregate").index(i).field("name"), reason);
    }
}

/// Whether metrics are offered under TLS, and under whose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrometheusTlsMode {
    Active,
    Provided,
    Disabled,
}

fn tls_mode(conf: &Option<Struct>) -> Option<PrometheusTlsMode> {
    let tls = member(conf, "tls").and_then(object);
    Some(match text(&Some(tls?), "mode") {
        Some("providedTLS") => PrometheusTlsMode::Provided,
        Some("disabled") => PrometheusTlsMode::Disabled,
        _ => PrometheusTlsMode::Active,
    })
}

/// Fills in where metrics are offered, and how, where the author did not say it.
pub(super) fn fill(mesh: &mut Mesh) {
    let backends = mesh.metrics.iter_mut().flat_map(|metrics| &mut metrics.backends);
    for backend in backends.filter(|backend| backend.r#type == PROMETHEUS) {
        let disabled = flag(&backend.conf, "skipMTLS") == Some(true);
        let conf = backend.conf.get_or_insert_default();
        let absent = |name: &str| match conf.fields.get(name).and_then(|value| value.kind.as_ref()) {
            None | Some(Kind::NullValue(_)) => true,
            Some(Kind::NumberValue(number)) => *number == 0.0,
            Some(Kind::StringValue(text)) => text.is_empty(),
            Some(Kind::StructValue(tags)) => name == "tags" && tags.fields.is_empty(),
            Some(_) => false,
        };
        let tags = [(labels::TAG_SERVICE.to_owned(), said("dataplane-metrics"))].into_iter().collect();
        let mode = disabled.then(|| ("mode".to_owned(), said("disabled")));
        let presets = [
            ("port", Kind::NumberValue(METRICS_PORT)),
            ("path", Kind::StringValue("/metrics".to_owned())),
            ("tags", Kind::StructValue(Struct { fields: tags })),
            ("tls", Kind::StructValue(Struct { fields: mode.into_iter().collect() })),
        ];
        let missing: Vec<_> = presets.into_iter().filter(|(name, _)| absent(name)).collect();
        conf.fields
            .extend(missing.into_iter().map(|(name, kind)| (name.to_owned(), Value { kind: Some(kind) })));
    }
}

fn said(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn flag(conf: &Option<Struct>, name: &str) -> Option<bool> {
    match member(conf, name)?.kind {
        Some(Kind::BoolValue(value)) => Some(value),
        _ => None,
    }
}

fn object(value: &Value) -> Option<Struct> {
    match &value.kind {
        Some(Kind::StructValue(object)) => Some(object.clone()),
        _ => None,
    }
}

fn list<'a>(conf: &'a Option<Struct>, name: &str) -> &'a [Value] {
    match member(conf, name).and_then(|value| value.kind.as_ref()) {
        Some(Kind::ListValue(list)) => &list.values,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use crate::model::{kinds::mesh::KIND, transcode};

    /// The fields of a mesh with these members that are wrong.
    fn wrong(members: &Value) -> Vec<String> {
        let violations = KIND.validate(&transcode::from_json(&KIND, members).unwrap()).unwrap();
        violations.iter().map(|v| v.field.to_string()).collect()
    }

    fn check(member: &str, backend: &Value, expected: &[&str]) {
        let found = wrong(&json!({ member: { "backends": [backend] } }));
        let prefix = format!("{member}.backends[0].");
        let found: Vec<String> = found.iter().map(|field| field.replacen(&prefix, "", 1)).collect();
        assert_eq!(found, expected, "{backend}");
    }

    #[test]
    fn logs_go_to_files_and_sockets() {
        let file = |path: &str| json!({ "name": "l", "type": "file", "conf": { "path": path } });
        check("logging", &file("/log"), &[]);
        check("logging", &file(""), &["config.path"]);
        check("logging", &json!({ "type": "statsd" }), &["name", "type"]);
        let tcp = |address: &str| json!({ "name": "l", "type": "tcp", "conf": { "address": address } });
        for good in ["logs:5000", "10.0.0.1:http", "[::1]:5000"] {
            check("logging", &tcp(good), &[]);
        }
        for bad in ["", "logs", ":5000", "logs:", "::1:5000"] {
            check("logging", &tcp(bad), &["config.address"]);
        }
        let line =
            |format: &str| json!({ "name": "l", "type": "file", "conf": { "path": "/l" }, "format": format });
        for good in ["", "plain", "%START_TIME(%s)% %REQ(X-A?B):10% 5%% %KUMA_MESH%", "%RESPONSE_CODE%\n"] {
            check("logging", &line(good), &[]);
        }
        for bad in ["%", "%START_TIME", "%START_TIME% %sent_bytes%", "%A% 50%"] {
            check("logging", &line(bad), &["format"]);
        }
        let two = json!({ "defaultBackend": "x", "backends": [file("/a"), file("/b")] });
        assert_eq!(wrong(&json!({ "logging": two })), ["logging.backends[1].name", "logging.defaultBackend"]);
    }

    #[test]
    fn spans_go_to_collectors() {
        let zipkin = |conf: Value| json!({ "name": "z", "type": "zipkin", "conf": conf });
        check("tracing", &zipkin(json!({ "url": "http://zipkin:9411/api" })), &[]);
        check("tracing", &zipkin(json!({ "url": "http://zipkin/api" })), &["config.url"]);
        check("tracing", &zipkin(json!({ "url": "zipkin" })), &["config.url"]);
        check("tracing", &zipkin(json!({ "apiVersion": "thrift" })), &["config.apiVersion", "config.url"]);
        let datadog =
            |conf: Value| json!({ "name": "d", "type": "datadog", "sampling": 100.1, "conf": conf });
        check("tracing", &datadog(json!({ "address": "dd", "port": 8126 })), &["sampling"]);
        check("tracing", &datadog(json!({ "port": 65_536 })), &["sampling", "config.address", "config.port"]);
        let chosen = json!({ "tracing": { "defaultBackend": "x" } });
        assert_eq!(wrong(&chosen), ["tracing.defaultBackend"]);
    }

    #[test]
    fn metrics_are_for_prometheus() {
        let of = |conf: Value| json!({ "name": "p", "type": "prometheus", "conf": conf });
        check("metrics", &of(json!({ "skipMTLS": true })), &[]);
        check("metrics", &of(json!({ "skipMTLS": true, "tls": { "mode": "disabled" } })), &[]);
        check("metrics", &of(json!({ "skipMTLS": true, "tls": {} })), &["conf"]);
        check("metrics", &of(json!({ "skipMTLS": false, "tls": { "mode": "providedTLS" } })), &["conf"]);
        check("metrics", &of(json!({ "envoy": { "filterRegex": "(" } })), &["conf.envoy.filterRegex"]);
        check("metrics", &of(json!({ "port": 0 })), &[]);
        check("metrics", &of(json!({ "port": null })), &[]);
        for port in [70_000, -1] {
            check("metrics", &of(json!({ "port": port })), &["conf.port"]);
        }
        check("metrics", &of(json!({ "port": "http" })), &["conf"]);
        let twice = json!({ "aggregate": [{ "name": "a", "port": 1 }, { "name": "b" }, { "name": "a" }] });
        check("metrics", &of(twice), &["conf.aggregate[2].name"]);
        check("metrics", &json!({ "name": "p", "type": "statsd" }), &["type"]);
    }

    #[test]
    fn where_metrics_are_offered_is_filled_in() {
        let filled = |conf: Value| {
            let mesh =
                json!({ "metrics": { "backends": [{ "name": "p", "type": "prometheus", "conf": conf }] } });
            let spec = KIND.normalize(&transcode::from_json(&KIND, &mesh).unwrap()).unwrap();
            transcode::to_json(&KIND, &spec).unwrap()["metrics"]["backends"][0]["conf"].clone()
        };
        let tags = json!({ "kuma.io/service": "dataplane-metrics" });
        assert_eq!(filled(json!({})), json!({ "port": 5670, "path": "/metrics", "tags": tags, "tls": {} }));
        let off = json!({ "mode": "disabled" });
        assert_eq!(
            filled(json!({ "skipMTLS": true, "port": 1234 })),
            json!({ "port": 1234, "path": "/metrics", "tags": tags, "skipMTLS": true, "tls": off })
        );
        let own = json!({ "port": 1, "path": "/m", "tags": { "a": "b" }, "tls": { "mode": "providedTLS" } });
        assert_eq!(filled(own.clone()), own);
    }
}
