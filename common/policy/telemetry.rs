//! What the policies about logs, traces and metrics have in common: collectors and addresses.

use std::collections::BTreeMap;

use http::Uri;
use serde::{Deserialize, Serialize};

use super::check::DEFINED;
use crate::model::{FieldPath, Violations};

/// Port of a collector that speaks gRPC, when nothing else is said.
pub const COLLECTOR_PORT: u32 = 4317;

/// What a [`CollectorRef`] may point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CollectorKind {
    /// A collector described once for all policies.
    MeshOpenTelemetryBackend,
}

/// A reference to a collector that several policies share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CollectorRef {
    /// What it points at.
    pub kind: CollectorKind,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels it must have, in place of a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl CollectorRef {
    /// Everything wrong with it.
    fn check(&self, path: &FieldPath) -> Violations {
        let named = self.name.as_ref().is_some_and(|name| !name.is_empty());
        let labelled = self.labels.as_ref().is_some_and(|labels| !labels.is_empty());
        let mut violations = Violations::none();
        let one_of = |much: &str| format!("backendRef must have {much} defined: name, labels");
        violations.check(!named && !labelled, path.clone(), one_of("exactly one"));
        violations.check(named && labelled, path.clone(), one_of("only one type"));
        violations
    }
}

/// Everything wrong with how a collector is named: by its endpoint, which `endpoint_problem` looks at, or by
/// reference.
pub(super) fn check_collector(
    path: &FieldPath,
    endpoint: Option<&str>,
    reference: Option<&CollectorRef>,
    endpoint_problem: impl FnOnce(&str) -> Option<&'static str>,
) -> Violations {
    let one_of = |much: &str| format!("openTelemetry must have {much} defined: endpoint, backendRef");
    match (endpoint.filter(|endpoint| !endpoint.is_empty()), reference) {
        (Some(_), Some(_)) => Violations::one(path.clone(), one_of("only one type")),
        (None, None) => Violations::one(path.clone(), one_of("exactly one")),
        (None, Some(reference)) => reference.check(&path.field("backendRef")),
        (Some(endpoint), None) => {
            let url = endpoint.contains(['/', '?', '#']).then_some("must be in host:port format, not a URL");
            let problem = url.or_else(|| endpoint_problem(endpoint));
            problem.map_or_else(Violations::none, |reason| Violations::one(path.field("endpoint"), reason))
        }
    }
}

/// What is wrong with the name of an attribute of a record, which is the same for every record.
pub(super) fn attribute_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some(DEFINED);
    }
    if name.contains('%') {
        return Some(
            "must be a static OpenTelemetry attribute name; placeholders are only supported in values",
        );
    }
    if name.starts_with("otel.") {
        return Some("must not use the reserved OpenTelemetry prefix 'otel.'");
    }
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase());
    (!begins || !name.split(['.', '_']).all(is_word)).then_some(
        "must start with a lowercase letter, use only lowercase letters, digits, '.' or '_', avoid consecutive \
         delimiters, and end with a letter or digit",
    )
}

/// Whether `text` is an address as people write it: a host, with or without scheme, port and path.
pub(super) fn is_address(text: &str) -> bool {
    let uri = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let Ok(uri) = uri.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let host = authority.host();
    // A single word may be anything; with a port it is a host.
    let plain = !text.contains("://") && authority.port().is_none();
    let port = authority
        .as_str()
        .rsplit_once(':')
        .is_none_or(|(_, port)| port.ends_with(']') || port.parse::<u16>().is_ok_and(|port| port > 0));
    port && is_host(host) && (!plain || host.contains('.') || host.starts_with('['))
}

/// Whether `text` is a host with a port.
pub(super) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether `text` is an IP address or the name of a host.
pub fn is_host(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 255 && !text.is_empty() && text.trim_end_matches('.').split('.').all(is_label)
}

/// Host and port of `host:port`, where the port and the brackets of an IPv6 address may be missing.
pub fn host_and_port(text: &str, otherwise: u32) -> (String, u32) {
    let bare = |host: &str| {
        host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).to_owned()
    };
    match text.rsplit_once(':') {
        Some((host, port)) if host.starts_with('[') || !host.contains(':') => match port.parse::<u16>() {
            Ok(port) if port > 0 => (bare(host), port.into()),
            // The address ends with a bracket, or there is no port of that number.
            _ if text.ends_with(']') => (bare(text), otherwise),
            _ => (bare(host), otherwise),
        },
        _ => (bare(text), otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host() {
        for good in ["127.0.0.1:5000", "http://logs.com", "logs:5000", "logs.example", "[::1]:5000"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "not_valid_url", "a b:1", "logs:0", "logs:99999", "-a.b", "http://"] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn attributes_have_static_names_of_lower_case() {
        for good in ["mesh", "service.version", "process_command_args", "process.command_args"] {
            assert_eq!(attribute_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "%KUMA_ZONE%",
            "otel.attribute",
            "my custom attribute",
            "service.Version",
            "request-id",
            "1service",
            "service..version",
            "service._version",
            "service.",
            "service_",
        ] {
            assert!(attribute_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn ports_may_be_missing() {
        let check = |text, host: &str, port| assert_eq!(host_and_port(text, 4317), (host.to_owned(), port));
        check("collector:4318", "collector", 4318);
        check("collector", "collector", 4317);
        check("[::1]:4318", "::1", 4318);
        check("[::1]", "::1", 4317);
        check("::1", "::1", 4317);
        check("collector:none", "collector", 4317);
    }
}
