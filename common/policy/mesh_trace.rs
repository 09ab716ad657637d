//! `MeshTrace`: spans of requests, and who collects them.

mod check;

use serde::{Deserialize, Serialize};

use super::{CollectorRef, IntOrString, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTrace", "meshtraces")
    .flow(61)
    .named("meshtrace", "mtr")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .typed::<MeshTrace>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshTrace {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The configuration.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: TraceConf,
}

/// What is traced, and where spans go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceConf {
    /// At most one; none of them traces nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<TraceBackend>>,
    /// Which share of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// More tags of each span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<TraceTag>>,
}

/// Kinds of collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TraceBackendType {
    /// Whoever takes spans of Zipkin.
    Zipkin,
    /// An agent of Datadog.
    Datadog,
    /// Whoever speaks OTLP.
    OpenTelemetry,
}

/// Where spans go. The member of its type is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceBackend {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: TraceBackendType,
    /// Whoever takes spans of Zipkin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zipkin: Option<ZipkinTraces>,
    /// An agent of Datadog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datadog: Option<DatadogTraces>,
    /// Whoever speaks OTLP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetryTraces>,
}

/// Forms of spans of Zipkin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZipkinVersion {
    /// JSON.
    #[default]
    #[serde(rename = "httpJson")]
    Json,
    /// Protobuf.
    #[serde(rename = "httpProto")]
    Proto,
}

/// Whoever takes spans of Zipkin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZipkinTraces {
    /// Where it listens.
    pub url: String,
    /// Whether traces have long identifiers.
    #[serde(default, rename = "traceId128bit")]
    pub trace_id_128bit: bool,
    /// In which form it takes spans.
    #[serde(default)]
    pub api_version: ZipkinVersion,
    /// Whether client and server have one span.
    #[serde(default = "ZipkinTraces::shared")]
    pub shared_span_context: bool,
}

impl ZipkinTraces {
    const fn shared() -> bool {
        true
    }
}

/// An agent of Datadog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatadogTraces {
    /// Where it listens: scheme, host and port.
    pub url: String,
    /// Whether each direction and destination is a service of its own.
    #[serde(default)]
    pub split_service: bool,
}

/// Whoever speaks OTLP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryTraces {
    /// Where it listens: `host:port` for gRPC, or a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A collector that is described elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<CollectorRef>,
}

/// Shares of the requests, as percentages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// At most this share of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overall: Option<IntOrString>,
    /// Of those that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IntOrString>,
    /// Of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<IntOrString>,
}

/// A tag of each span: text, or what a header says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTag {
    /// Name of the tag.
    pub name: String,
    /// Text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub literal: Option<String>,
    /// A header of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderTag>,
}

/// What a header says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderTag {
    /// Name of the header.
    pub name: String,
    /// What is said without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl Spec for MeshTrace {
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
