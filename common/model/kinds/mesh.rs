//! A mesh: the unit of identity, trust and policy.

mod observability;

use std::collections::BTreeSet;

pub(super) use self::observability::check_metrics_backend;
use super::tags;
use crate::{
    model::{Column, FieldPath, FieldStep, Kind, MessageSpec, Referent, Spec, SyncStage, Violations},
    proto::{
        google::protobuf::{Struct, Value, value},
        kuma::mesh::v1alpha1::{
            CertificateAuthorityBackend, Mesh,
            mesh::{Constraints, Mtls},
        },
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("Mesh", "meshes", MESSAGE)
    .global()
    .flow(17)
    .named("mesh", "m")
    .keeps_name()
    .synced(SyncStage::Meshes)
    .columns(&[Column { heading: "MTLS", value: |mesh| mesh["mtls"]["enabledBackend"].clone() }])
    .referent(Referent::Whole)
    .caveat(caveat)
    .typed::<Mesh>();

const MESSAGE: &str = "kuma.mesh.v1alpha1.Mesh";

/// Authorities elsewhere may take their time to answer; those there are here sign where they are asked.
fn caveat(spec: &[u8]) -> Option<&'static str> {
    let mtls = <Mesh as Spec>::decode(spec).ok()?.mtls?;
    let timed = |backend: &CertificateAuthorityBackend| {
        backend.root_chain.is_some_and(|chain| chain.request_timeout.is_some())
            || backend.dp_cert.as_ref().is_some_and(|certificate| certificate.request_timeout.is_some())
    };
    mtls.backends.iter().any(timed).then_some(
        "rootChain.requestTimeout and dpCert.requestTimeout of mtls.backends have no effect: nobody far away is asked",
    )
}

/// A certificate authority whose key the control plane makes.
pub const CA_BUILTIN: &str = "builtin";
/// A certificate authority whose key the operator brings.
pub const CA_PROVIDED: &str = "provided";

impl MessageSpec for Mesh {
    fn open(&self) -> Option<&'static str> {
        Some(MESSAGE)
    }

    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        if let Some(mtls) = &self.mtls {
            check_mtls(mtls, &FieldPath::new("mtls"), &mut violations);
        }
        observability::check(self, &mut violations);
        if let Some(constraints) = &self.constraints {
            check_constraints(constraints, &mut violations);
        }
        let enabled = self.mtls.as_ref().is_some_and(|mtls| !mtls.enabled_backend.is_empty());
        let through_egress = self.routing.as_ref().is_some_and(|routing| routing.zone_egress);
        let reason = "has to be set when zoneEgress enabled";
        violations.check(through_egress && !enabled, "mtls".into(), reason);
        violations
    }

    fn fill(&mut self) {
        observability::fill(self);
    }
}

/// Names of a list of backends differ, and the chosen one is among them.
fn check_names<'a>(
    names: impl Iterator<Item = &'a str>,
    chosen: (&str, &str, &str),
    path: &FieldPath,
    violations: &mut Violations,
) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        let reason = || format!("{name:?} name is already used for another backend");
        violations.check(!seen.insert(name), path.field("backends").index(i).field("name"), reason());
    }
    let (field, chosen, known) = chosen;
    let reason = || format!("has to be set to one of the {known}");
    violations.check(!chosen.is_empty() && !seen.contains(chosen), path.field(field), reason());
}

fn check_mtls(mtls: &Mtls, path: &FieldPath, violations: &mut Violations) {
    // A second one is there while a mesh moves from one authority to another.
    let names: BTreeSet<&str> = mtls.backends.iter().map(|b| b.name.as_str()).collect();
    let repeated = names.len() < mtls.backends.len();
    violations.check(repeated, path.field("backends"), "cannot have more than 1 backends");
    let crowded = !repeated && mtls.backends.len() > 2;
    let reason =
        "cannot have more than 2 backends: one that signs, and one to which or from which the mesh moves";
    violations.check(crowded, path.field("backends"), reason);
    let names = mtls.backends.iter().map(|b| b.name.as_str());
    let chosen = ("enabledBackend", mtls.enabled_backend.as_str(), "backends in the mesh");
    check_names(names, chosen, path, violations);
    for (i, backend) in mtls.backends.iter().enumerate() {
        let at = path.field("backends").index(i);
        // The secrets of an authority are called after its backend.
        violations.check(backend.name.is_empty(), at.field("name"), "cannot be empty");
        let rotation = backend.dp_cert.as_ref().and_then(|c| c.rotation.as_ref());
        let expiration = rotation.map(|r| r.expiration.as_str()).filter(|e| !e.is_empty());
        if let Some(problem) = expiration.and_then(validity_problem) {
            // Clients of the API know this error by a field that names no backend.
            violations.add(path.field("dpcert").field("rotation").field("expiration"), problem);
        }
        check_ca(backend, mtls.skip_validation, &at, violations);
    }
}

fn check_ca(
    backend: &CertificateAuthorityBackend,
    skip_validation: bool,
    path: &FieldPath,
    violations: &mut Violations,
) {
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
            format!(
                "could not find installed plugin for this type: {other:?} is none of {CA_BUILTIN} and {CA_PROVIDED}"
            ),
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
    let chosen: Vec<(&String, &Value)> = match &source.kind {
        Some(value::Kind::StructValue(source)) => {
            source.fields.iter().filter(|(name, _)| SOURCES.contains(&name.as_str())).collect()
        }
        _ => Vec::new(),
    };
    match chosen.as_slice() {
        [(name, value)] => {
            let said = matches!(&value.kind, Some(value::Kind::StringValue(text)) if !text.is_empty());
            violations.check(!said, path.field(name), "cannot be empty");
        }
        _ => {
            let reason = "data source has to be chosen. Available sources: secret, file, inline";
            violations.add(path.clone(), reason);
        }
    }
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

fn check_constraints(constraints: &Constraints, violations: &mut Violations) {
    let Some(proxy) = &constraints.dataplane_proxy else { return };
    let path = FieldPath::new("constraints").field("dataplaneProxy");
    for (rules, name) in [(&proxy.requirements, "requirements"), (&proxy.restrictions, "restrictions")] {
        for (i, rule) in rules.iter().enumerate() {
            let path = path.field(name).index(i).field("tags");
            violations.check(rule.tags.is_empty(), path.clone(), "must have at least one tag");
            tags::check_selector(&rule.tags, &FieldStep::At(&path), violations);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::model::transcode;

    fn violations(json: &serde_json::Value) -> Vec<String> {
        let spec = transcode::from_json(&KIND, json).unwrap();
        let mesh = <Mesh as Spec>::decode(&spec).unwrap();
        mesh.violations().iter().map(|v| v.field.to_string()).collect()
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let is_told = |backend: serde_json::Value| {
            let mesh = json!({ "mtls": { "backends": [backend] } });
            (KIND.caveat)(&transcode::from_json(&KIND, &mesh).unwrap()).is_some()
        };
        assert!(!is_told(json!({ "name": "ca", "dpCert": { "rotation": { "expiration": "1d" } } })));
        assert!(is_told(json!({ "name": "ca", "dpCert": { "requestTimeout": "1s" } })));
        assert!(is_told(json!({ "name": "ca", "rootChain": { "requestTimeout": "1s" } })));
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
            &["mtls.backends", "mtls.backends[1].name"],
        );
        let named = |name: &str| json!({ "name": name, "type": "builtin" });
        check(json!({ "mtls": { "backends": [named("a"), named("b")] } }), &[]);
        check(json!({ "mtls": { "backends": [named("a"), named("b"), named("c")] } }), &["mtls.backends"]);
        check(
            json!({ "mtls": { "backends": [{ "name": "a", "type": "vault" }] } }),
            &["mtls.backends[0].type"],
        );
        check(
            json!({ "mtls": { "backends": [
                { "name": "a", "type": "builtin", "dpCert": { "rotation": { "expiration": "1 day" } } }
            ] } }),
            &["mtls.dpcert.rotation.expiration"],
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
            provided(json!({ "cert": { "secret": "" }, "key": secret })),
            &["mtls.backends[0].conf.cert.secret"],
        );
        let egress = json!({ "zoneEgress": true });
        check(json!({ "routing": egress }), &["mtls"]);
        check(json!({ "routing": egress, "mtls": { "backends": [builtin] } }), &["mtls"]);
        let mtls = json!({ "enabledBackend": "ca-1", "backends": [builtin] });
        check(json!({ "routing": egress, "mtls": mtls }), &[]);
        let rules =
            |tags| json!({ "constraints": { "dataplaneProxy": { "requirements": [{ "tags": tags }] } } });
        check(rules(json!({ "kuma.io/service": "*", "kuma.io/protocol": "anything" })), &[]);
        let path = "constraints.dataplaneProxy.requirements[0].tags";
        check(rules(json!({})), &[path]);
        check(rules(json!({ "a": "x*" })), &[&format!("{path}[\"a\"]")]);
        check(rules(json!({ "a": "" })), &[&format!("{path}[\"a\"]")]);
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
