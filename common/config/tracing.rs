//! Settings about traces of writes.

use serde::{Deserialize, Serialize};

/// `tracing`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TracingSection {
    /// By OTLP.
    pub open_telemetry: OpenTelemetrySection,
}

/// `tracing.openTelemetry`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OpenTelemetrySection {
    /// Whether a collector is told.
    pub enabled: bool,
    /// Where it takes OTLP over gRPC.
    pub endpoint: String,
}

impl Default for OpenTelemetrySection {
    fn default() -> Self {
        Self { enabled: false, endpoint: "http://localhost:4317".to_owned() }
    }
}
