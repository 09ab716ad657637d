//! A collector of logs, traces and metrics, described once for all policies that refer to it.

use serde::{Deserialize, Serialize};

use super::address::is_host_or_ip;
use crate::model::{FieldPath, Kind, Spec, SpecError, Violations, decode};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshOpenTelemetryBackend", "meshopentelemetrybackends")
    .flow(29)
    .named("meshopentelemetrybackend", "motb")
    .with_status()
    .caveat(|spec| {
        let env = MeshOpenTelemetryBackend::decode(spec).ok()?.env?;
        (env.mode != EnvMode::Disabled).then_some(
            "env has no effect: what the environment of a proxy says about collectors is not looked at yet",
        )
    })
    .typed::<MeshOpenTelemetryBackend>();

/// The spec. An empty one is the collector beside each proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshOpenTelemetryBackend {
    /// Where it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<CollectorEndpoint>,
    /// What it speaks; gRPC when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<CollectorProtocol>,
    /// What variables of whoever runs the proxy may say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvPolicy>,
}

/// Where a collector listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorEndpoint {
    /// IP address or name of the host; that of the proxy itself when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Port; 4317 when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Before the paths of the signals, for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What a collector speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectorProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP.
    Http,
}

/// Whether variables count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvMode {
    /// They do not.
    Disabled,
    /// They do where they are set.
    #[default]
    Optional,
    /// They have to be set.
    Required,
}

/// Who wins where both say something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvPrecedence {
    /// What is written here.
    ExplicitFirst,
    /// Variables.
    #[default]
    EnvFirst,
}

/// What variables of whoever runs the proxy may say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvPolicy {
    /// Whether they count.
    #[serde(default)]
    pub mode: EnvMode,
    /// Who wins.
    #[serde(default)]
    pub precedence: EnvPrecedence,
    /// Whether there may be others for one signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_signal_overrides: Option<bool>,
}

impl Spec for MeshOpenTelemetryBackend {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let Some(endpoint) = &self.endpoint else { return violations };
        let at = FieldPath::new("spec").field("endpoint");
        if let Some(address) = &endpoint.address {
            let at = at.field("address");
            violations.check(address.is_empty(), at.clone(), "must not be empty");
            let bad = !address.is_empty() && !is_host_or_ip(address);
            violations.check(bad, at, "address has to be a valid IP or hostname");
        }
        let bad = endpoint.port.is_some_and(|port| !(1..=65535).contains(&port));
        violations.check(bad, at.field("port"), "port must be a valid (1-65535)");
        if let Some(path) = endpoint.path.as_ref().filter(|path| !path.is_empty()) {
            let at = at.field("path");
            if self.protocol != Some(CollectorProtocol::Http) {
                violations.add(at, "must not be set when protocol is grpc");
            } else {
                violations.check(!path.starts_with('/'), at.clone(), "must start with /");
                violations.check(path.contains(['?', '#']), at, "must not contain query or fragment");
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(spec: &str) -> Vec<String> {
        let violations = MeshOpenTelemetryBackend::decode(spec.as_bytes()).expect("it decodes").validate();
        violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect()
    }

    #[test]
    fn an_endpoint_is_checked() {
        assert_eq!(wrong("{}"), Vec::<String>::new());
        let good =
            r#"{"endpoint": {"address": "collector", "port": 4318, "path": "/otlp"}, "protocol": "http"}"#;
        assert_eq!(wrong(good), Vec::<String>::new());
        assert_eq!(
            wrong(r#"{"endpoint": {"address": "a b", "port": 70000, "path": "/otlp"}}"#),
            [
                "spec.endpoint.address: address has to be a valid IP or hostname",
                "spec.endpoint.port: port must be a valid (1-65535)",
                "spec.endpoint.path: must not be set when protocol is grpc",
            ]
        );
        assert_eq!(
            wrong(r#"{"endpoint": {"address": "", "path": "otlp?a"}, "protocol": "http"}"#),
            [
                "spec.endpoint.address: must not be empty",
                "spec.endpoint.path: must start with /",
                "spec.endpoint.path: must not contain query or fragment",
            ]
        );
    }

    #[test]
    fn what_variables_may_say_has_defaults() {
        let spec = MeshOpenTelemetryBackend::decode(br#"{"env": {}}"#).expect("it decodes");
        let filled = r#"{"env":{"mode":"Optional","precedence":"EnvFirst"}}"#;
        assert_eq!(String::from_utf8_lossy(&spec.encode()), filled);
    }
}
