//! What makes a `MeshExternalService` valid.

use std::net::IpAddr;

use super::{
    ExternalEndpoint, ExternalTls, MeshExternalService, TlsDataSource, Verification, source::SourceType,
};
use crate::model::{FieldPath, Violations, kinds::address::is_host_or_ip};

const PORT: &str = "port must be a valid (1-65535)";

pub(super) fn check(spec: &MeshExternalService) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    let port = spec.r#match.port;
    violations.check(!(1..=65535).contains(&port), path.field("match").field("port"), PORT);
    if let Some(extension) = &spec.extension {
        let at = path.field("extension").field("type");
        violations.check(extension.r#type.is_empty(), at, "must not be empty");
        // Where it is and how it is spoken to is up to the extension.
        return violations;
    }
    for (i, endpoint) in spec.endpoints.iter().flatten().enumerate() {
        check_endpoint(endpoint, &path.field("endpoints").index(i), &mut violations);
    }
    if let Some(tls) = &spec.tls {
        check_tls(tls, &path.field("tls"), &mut violations);
    }
    violations
}

fn check_endpoint(endpoint: &ExternalEndpoint, path: &FieldPath, violations: &mut Violations) {
    let at = path.field("port");
    let wrong = endpoint.port.is_some_and(|port| !(1..=65535).contains(&port));
    let is_address = endpoint.address.parse::<IpAddr>().is_ok();
    if endpoint.address.strip_prefix("unix://").is_some_and(|path| path.starts_with('/') && path.len() > 1) {
        violations.check(endpoint.port.is_some(), at, "must not be defined when endpoint is a unix path");
    } else if !is_host_or_ip(&endpoint.address) {
        violations.add(path.field("address"), "address has to be a valid IP or hostname");
    } else if endpoint.port.is_none() {
        let what = if is_address { "an IP" } else { "a hostname" };
        violations.add(at, format!("must be defined when endpoint is {what}"));
    } else {
        violations.check(wrong, at, PORT);
    }
}

fn check_tls(tls: &ExternalTls, path: &FieldPath, violations: &mut Violations) {
    let turned = tls.version.is_some_and(|versions| versions.are_turned());
    violations.check(turned, path.field("version").field("min"), "min version must be lower than max");
    if let Some(verification) = &tls.verification {
        check_verification(verification, &path.field("verification"), violations);
    }
}

fn check_verification(verification: &Verification, path: &FieldPath, violations: &mut Violations) {
    let bad = |name: &String| name.parse::<IpAddr>().is_ok() || !is_host_or_ip(name);
    violations.check(
        verification.server_name.as_ref().is_some_and(bad),
        path.field("serverName"),
        "must be a valid DNS name",
    );
    let sources = [
        ("caCert", &verification.ca_cert),
        ("clientCert", &verification.client_cert),
        ("clientKey", &verification.client_key),
    ];
    for (name, source) in sources {
        if let Some(source) = source {
            check_source(source, &path.field(name), violations);
        }
    }
    match (&verification.client_cert, &verification.client_key) {
        (Some(_), None) => {
            violations.add(path.field("clientKey"), "must be defined when clientCert is defined");
        }
        (None, Some(_)) => {
            violations.add(path.field("clientCert"), "must be defined when clientKey is defined");
        }
        _ => {}
    }
}

/// Proxies are told what a certificate is, so it has to be something the control plane can look up.
fn check_source(source: &TlsDataSource, path: &FieldPath, violations: &mut Violations) {
    let older = [&source.secret, &source.inline, &source.inline_string];
    let Some(kind) = source.r#type else {
        let count = older.into_iter().flatten().count();
        violations.check(count > 1, path.clone(), "must have only one of secret, inline, inlineString");
        return;
    };
    violations.check(
        older.into_iter().any(Option::is_some),
        path.clone(),
        "must not have secret, inline or inlineString when type is defined",
    );
    let (member, text, value) = match kind {
        SourceType::SecretRef => ("secretRef", "name", source.secret_ref.as_ref().map(|it| &it.name)),
        SourceType::InsecureInline => {
            ("insecureInline", "value", source.insecure_inline.as_ref().map(|it| &it.value))
        }
        SourceType::File | SourceType::EnvVar => {
            let reason = "must be one of SecretRef, InsecureInline";
            return violations.add(path.field("type"), reason);
        }
    };
    match value {
        None => violations.add(path.field(member), "must be defined"),
        Some(value) => {
            violations.check(value.is_empty(), path.field(member).field(text), "must be defined");
        }
    }
}
