//! A mesh: the unit of identity, trust and policy.

use std::collections::{BTreeMap, BTreeSet};

use super::tags;
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::{
        google::protobuf::{Struct, Value, value},
        kuma::mesh::v1alpha1::{
            CertificateAuthorityBackend, Logging, LoggingBackend, Mesh, Metrics, Tracing, TracingBackend,
            mesh::{Constraints, Mtls},
        },
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("Mesh", "meshes", "kuma.mesh.v1alpha1.Mesh")
    .global()
    .flow(17)
    .named("mesh", "m")
    .keeps_name()
    .typed::<Mesh>();

/// A certificate authority whose key the control plane makes.
pub const CA_BUILTIN: &str = "builtin";
/// A certificate authority whose key the operator brings.
pub const CA_PROVIDED: &str = "provided";

impl MessageSpec for Mesh {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        if let Some(mtls) = &self.mtls {
            check_mtls(mtls, &FieldPath::new("mtls"), &mut violations);
        }
        if let Some(logging) = &self.logging {
            check_logging(logging, &FieldPath::new("logging"), &mut violations);
        }
        if let Some(tracing) = &self.tracing {
            check_tracing(tracing, &FieldPath::new("tracing"), &mut violations);
        }
        if let Some(metrics) = &self.metrics {
            check_metrics(metrics, &FieldPath::new("metrics"), &mut violations);
        }
        if let Some(constraints) = &self.constraints {
            check_constraints(constraints, &mut violations);
        }
        violations
    }
}

/// Names of a list of backends are set and differ, and the chosen one is among them.
fn check_names<'a>(
    names: impl Iterator<Item = &'a str>,
    chosen: (&str, &str),
    path: &FieldPath,
    violations: &mut Violations,
) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        let path = path.field("backends").index(i).field("name");
        violations.check(name.is_empty(), path.clone(), "cannot be empty");
        violations.check(
            !seen.insert(name),
            path,
            format!("{name:?} name is already used for another backend"),
        );
    }
    let (field, chosen) = chosen;
    violations.check(
        !chosen.is_empty() && !seen.contains(chosen),
        path.field(field),
        "has to be set to one of the backends in the mesh",
    );
}

fn check_mtls(mtls: &Mtls, path: &FieldPath, violations: &mut Violations) {
    let names = mtls.backends.iter().map(|b| b.name.as_str());
    check_names(names, ("enabledBackend", &mtls.enabled_backend), path, violations);
    violations.check(mtls.backends.len() > 1, path.field("backends"), "cannot have more than 1 backends");
    for (i, backend) in mtls.backends.iter().enumerate() {
        check_ca(backend, mtls.skip_validation, &path.field("backends").index(i), violations);
    }
}

fn check_ca(
    backend: &CertificateAuthorityBackend,
    skip_validation: bool,
    path: &FieldPath,
    violations: &mut Violations,
) {
    let rotation = backend.dp_cert.as_ref().and_then(|c| c.rotation.as_ref());
    let expiration = rotation.map(|r| r.expiration.as_str()).filter(|e| !e.is_empty());
    if let Some(problem) = expiration.and_then(validity_problem) {
        violations.add(path.field("dpCert").field("rotation").field("expiration"), problem);
    }
    match backend.r#type.as_str() {
        // Nobody may ask for a key that takes for ever to make, whatever else may be skipped.
        CA_BUILTIN => check_root(&backend.conf, &path.field("conf").field("caCert"), violations),
        CA_PROVIDED if skip_validation => {}
        CA_PROVIDED => {
            for name in ["cert", "key"] {
                check_source(&backend.conf, name, &path.field("conf").field(name), violations);
            }
        }
        other => violations.add(
            path.field("type"),
            format!("unknown type {other:?} of certificate authority, use {CA_BUILTIN} or {CA_PROVIDED}"),
        ),
    }
}

/// Key and life of the certificate the control plane makes.
fn check_root(conf: &Option<Struct>, path: &FieldPath, violations: &mut Violations) {
    let Some(value::Kind::StructValue(root)) = member(conf, "caCert").and_then(|ca| ca.kind.as_ref()) else {
        return;
    };
    let bits = root.fields.get("RSAbits").map(number);
    let odd = bits.is_some_and(|bits| bits.is_none_or(|bits| ![2048.0, 3072.0, 4096.0].contains(&bits)));
    violations.check(odd, path.field("RSAbits"), "must be 2048, 3072 or 4096");
    let root = Some(root.clone());
    if let Some(problem) = text(&root, "expiration").and_then(validity_problem) {
        violations.add(path.field("expiration"), problem);
    }
}

/// Longest life of a certificate, in seconds: what fits into 64 bits of nanoseconds, as other control planes
/// count. No calendar of X.509 has much more.
const LONGEST_VALIDITY: u64 = i64::MAX as u64 / 1_000_000_000;

/// What is wrong with how long a certificate is to live.
fn validity_problem(text: &str) -> Option<&'static str> {
    match parse_validity(text) {
        None => Some("has to be a valid format, such as 24h, 30d or 1y"),
        Some(0) => Some("has to be longer than a second, or the certificate is over when it is made"),
        Some(seconds) => (seconds > LONGEST_VALIDITY).then_some("has to be shorter than 292 years"),
    }
}

/// Where a certificate or key comes from.
fn check_source(conf: &Option<Struct>, name: &str, path: &FieldPath, violations: &mut Violations) {
    const SOURCES: [&str; 4] = ["secret", "file", "inline", "inlineString"];
    let Some(source) = member(conf, name) else {
        return violations.add(path.clone(), "has to be defined");
    };
    let chosen = match &source.kind {
        Some(value::Kind::StructValue(source)) => {
            let source = Some(source.clone());
            SOURCES.iter().filter(|name| text(&source, name).is_some()).count()
        }
        _ => 0,
    };
    let reason = format!("one source has to be chosen. Available sources: {}", SOURCES.join(", "));
    violations.check(chosen != 1, path.clone(), reason);
}

/// The seconds in a validity time: numbers with one of the units `y w d h m s ms`.
pub fn parse_validity(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..unit_end] {
            "y" => 365 * 24 * 3_600_000,
            "w" => 7 * 24 * 3_600_000,
            "d" => 24 * 3_600_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        millis = millis.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(millis / 1000)
}

fn member<'a>(conf: &'a Option<Struct>, name: &str) -> Option<&'a Value> {
    conf.as_ref()?.fields.get(name)
}

fn text<'a>(conf: &'a Option<Struct>, name: &str) -> Option<&'a str> {
    match &member(conf, name)?.kind {
        Some(value::Kind::StringValue(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value.kind {
        Some(value::Kind::NumberValue(number)) => Some(number),
        _ => None,
    }
}

fn check_logging(logging: &Logging, path: &FieldPath, violations: &mut Violations) {
    let names = logging.backends.iter().map(|b| b.name.as_str());
    check_names(names, ("defaultBackend", &logging.default_backend), path, violations);
    for (i, backend) in logging.backends.iter().enumerate() {
        check_logging_backend(backend, &path.field("backends").index(i), violations);
    }
}

fn check_logging_backend(backend: &LoggingBackend, path: &FieldPath, violations: &mut Violations) {
    let conf = path.field("conf");
    match backend.r#type.as_str() {
        "file" => {
            let missing = text(&backend.conf, "path").is_none();
            violations.check(missing, conf.field("path"), "cannot be empty");
        }
        "tcp" => {
            let address = text(&backend.conf, "address");
            let good =
                address.is_some_and(|a| a.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok()));
            violations.check(!good, conf.field("address"), "has to be in format of HOST:PORT");
        }
        other => violations.add(
            path.field("type"),
            format!("unknown backend type {other:?}. Available backends: tcp, file"),
        ),
    }
}

fn check_tracing(tracing: &Tracing, path: &FieldPath, violations: &mut Violations) {
    let names = tracing.backends.iter().map(|b| b.name.as_str());
    check_names(names, ("defaultBackend", &tracing.default_backend), path, violations);
    for (i, backend) in tracing.backends.iter().enumerate() {
        check_tracing_backend(backend, &path.field("backends").index(i), violations);
    }
}

fn check_tracing_backend(backend: &TracingBackend, path: &FieldPath, violations: &mut Violations) {
    let sampling = backend.sampling.as_ref().map(|s| s.value);
    violations.check(
        sampling.is_some_and(|s| !(0.0..=100.0).contains(&s)),
        path.field("sampling"),
        "has to be in [0.0 - 100.0] range",
    );
    let conf = path.field("conf");
    match backend.r#type.as_str() {
        "zipkin" => {
            let good = text(&backend.conf, "url").is_some_and(|u| u.contains("://"));
            violations.check(!good, conf.field("url"), "invalid URL, has to be an absolute one");
        }
        "datadog" => {
            violations.check(
                text(&backend.conf, "address").is_none(),
                conf.field("address"),
                "cannot be empty",
            );
            let port = member(&backend.conf, "port").and_then(number);
            let good = port.is_some_and(|p| (1.0..=65535.0).contains(&p));
            violations.check(!good, conf.field("port"), "must be in range 1 to 65535");
        }
        other => violations.add(
            path.field("type"),
            format!("unknown backend type {other:?}. Available backends: zipkin, datadog"),
        ),
    }
}

fn check_metrics(metrics: &Metrics, path: &FieldPath, violations: &mut Violations) {
    let names = metrics.backends.iter().map(|b| b.name.as_str());
    check_names(names, ("enabledBackend", &metrics.enabled_backend), path, violations);
    for (i, backend) in metrics.backends.iter().enumerate() {
        let path = path.field("backends").index(i).field("type");
        let reason = format!("unknown backend type {:?}. Available backends: prometheus", backend.r#type);
        violations.check(backend.r#type != "prometheus", path, reason);
    }
}

fn check_constraints(constraints: &Constraints, violations: &mut Violations) {
    let Some(proxy) = &constraints.dataplane_proxy else { return };
    let path = FieldPath::new("constraints").field("dataplaneProxy");
    for (rules, name) in [(&proxy.requirements, "requirements"), (&proxy.restrictions, "restrictions")] {
        for (i, rule) in rules.iter().enumerate() {
            let path = path.field(name).index(i).field("tags");
            violations.check(rule.tags.is_empty(), path.clone(), "must have at least one tag");
            // A star stands for any value.
            let exact: BTreeMap<String, String> =
                rule.tags.iter().filter(|(_, v)| *v != "*").map(|(k, v)| (k.clone(), v.clone())).collect();
            tags::check(&exact, &path, violations);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::model::{Spec, transcode};

    fn violations(json: &serde_json::Value) -> Vec<String> {
        let spec = transcode::from_json(&KIND, json).unwrap();
        let mesh = <Mesh as Spec>::decode(&spec).unwrap();
        mesh.violations().iter().map(|v| v.field.to_string()).collect()
    }

    #[test]
    fn violations_name_their_field() {
        let check = |json, fields: &[&str]| assert_eq!(violations(&json), fields, "{json}");
        check(json!({}), &[]);
        let builtin = json!({ "name": "ca-1", "type": "builtin" });
        check(json!({ "mtls": { "enabledBackend": "ca-1", "backends": [builtin] } }), &[]);
        check(
            json!({ "mtls": { "enabledBackend": "ca-2", "backends": [builtin] } }),
            &["mtls.enabledBackend"],
        );
        check(
            json!({ "mtls": { "backends": [builtin, builtin] } }),
            &["mtls.backends[1].name", "mtls.backends"],
        );
        check(
            json!({ "mtls": { "backends": [{ "name": "a", "type": "vault" }] } }),
            &["mtls.backends[0].type"],
        );
        check(
            json!({ "mtls": { "backends": [
                { "name": "a", "type": "builtin", "dpCert": { "rotation": { "expiration": "1 day" } } }
            ] } }),
            &["mtls.backends[0].dpCert.rotation.expiration"],
        );
        let provided =
            |conf| json!({ "mtls": { "backends": [{ "name": "a", "type": "provided", "conf": conf }] } });
        let secret = json!({ "secret": "s" });
        check(provided(json!({ "cert": secret, "key": { "inlineString": "k" } })), &[]);
        check(provided(json!({ "cert": secret })), &["mtls.backends[0].conf.key"]);
        check(
            provided(json!({ "cert": {}, "key": "k" })),
            &["mtls.backends[0].conf.cert", "mtls.backends[0].conf.key"],
        );
        let root = json!({ "caCert": { "RSAbits": 1024, "expiration": "soon" } });
        check(
            json!({ "mtls": { "backends": [{ "name": "a", "type": "builtin", "conf": root }] } }),
            &["mtls.backends[0].conf.caCert.RSAbits", "mtls.backends[0].conf.caCert.expiration"],
        );
        check(
            json!({ "logging": { "defaultBackend": "x", "backends": [{ "name": "l", "type": "tcp" }] } }),
            &["logging.defaultBackend", "logging.backends[0].conf.address"],
        );
    }

    #[test]
    fn validity_times() {
        let check = |text, seconds| assert_eq!(parse_validity(text), seconds, "{text}");
        check("24h", Some(86_400));
        check("1y", Some(31_536_000));
        check("1d12h", Some(129_600));
        check("500ms", Some(0));
        check("1.5h", None);
        check("", None);
        check("h", None);
    }
}
