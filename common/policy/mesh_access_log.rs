//! `MeshAccessLog`: what is written down about each request or connection, and where to.

mod check;
pub mod operators;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CollectorRef, InboundItem, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshAccessLog", "meshaccesslogs")
    .flow(61)
    .named("meshaccesslog", "mal")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true })
    .typed::<MeshAccessLog>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshAccessLog {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<AccessLogConf>>,
    /// For inbound traffic, the older form of `rules`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<AccessLogConf>>,
    /// For inbound traffic. Each applies for itself, whatever else does.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InboundItem<AccessLogConf>>,
}

/// Where the logs go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessLogConf {
    /// All of these; none of them logs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<LogBackend>>,
}

/// Kinds of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogBackendType {
    /// A connection on which lines are written.
    Tcp,
    /// A file beside the proxy.
    File,
    /// A collector.
    OpenTelemetry,
}

/// A place where logs go. The member of its type is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogBackend {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: LogBackendType,
    /// A connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpLog>,
    /// A file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileLog>,
    /// A collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetryLog>,
}

/// Lines over a connection, which whoever runs the proxy makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpLog {
    /// What a line looks like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<LogLineFormat>,
    /// Where to.
    pub address: String,
}

/// Lines in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileLog {
    /// What a line looks like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<LogLineFormat>,
    /// Which file.
    pub path: String,
}

/// Records for a collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryLog {
    /// Where it listens, as `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A collector that is described elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<CollectorRef>,
    /// Attributes of each record.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<LogField>,
    /// The body of a record: text, or a value as OTLP writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// Kinds of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogFormatType {
    /// Text.
    Plain,
    /// An object.
    Json,
}

/// What a line looks like. The member of its type is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLineFormat {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: LogFormatType,
    /// Text with placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<String>,
    /// Members, their values with placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Vec<LogField>>,
    /// Whether what is empty is left out rather than shown as a dash.
    #[serde(default)]
    pub omit_empty_values: bool,
}

/// A key and the text that stands for its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogField {
    /// Name.
    #[serde(default)]
    pub key: String,
    /// Text with placeholders.
    #[serde(default)]
    pub value: String,
}

impl Spec for MeshAccessLog {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        check::check(self)
    }
}
