//! `MeshMetric`: which metrics of proxies and workloads are collected, and by whom.

mod check;

use serde::{Deserialize, Serialize};

use super::{CollectorRef, Duration, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshMetric", "meshmetrics")
    .flow(61)
    .named("meshmetric", "mm")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .typed::<MeshMetric>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshMetric {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The configuration.
    #[serde(default, deserialize_with = "decode::conf", skip_serializing_if = "MetricConf::is_empty")]
    pub default: MetricConf,
}

/// What is collected, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricConf {
    /// Metrics of the proxy itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarMetrics>,
    /// Metrics of what runs beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications: Option<Vec<Application>>,
    /// Who collects them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<MetricBackend>>,
}

impl MetricConf {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Metrics of the proxy itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarMetrics {
    /// Which of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<MetricProfiles>,
    /// Whether those are told, too, that nothing ever happened to.
    #[serde(default)]
    pub include_unused: bool,
}

/// Which metrics: those of all profiles, without the ones excluded, with the ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricProfiles {
    /// Prepared selections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_profiles: Option<Vec<MetricProfile>>,
    /// Left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Vec<MetricSelector>>,
    /// Told nonetheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<MetricSelector>>,
}

/// Names of prepared selections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProfileName {
    /// Everything.
    All,
    /// What the usual dashboards show.
    Basic,
    /// Nothing.
    None,
}

/// A prepared selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricProfile {
    /// Which one.
    pub name: ProfileName,
}

/// How names of metrics are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectorType {
    /// By a regular expression.
    Regex,
    /// By their beginning.
    Prefix,
    /// As a whole.
    Exact,
    /// By a part.
    Contains,
}

/// Metrics by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricSelector {
    /// How to compare.
    #[serde(rename = "type")]
    pub kind: SelectorType,
    /// What to compare with.
    #[serde(rename = "match")]
    pub value: String,
}

fn default_path() -> String {
    "/metrics".to_owned()
}

/// A workload that tells metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// What it is called in what is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it tells them.
    #[serde(default = "default_path")]
    pub path: String,
    /// On which address; that of the proxy when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// On which port.
    pub port: u32,
}

/// Kinds of collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetricBackendType {
    /// One that comes and asks.
    Prometheus,
    /// One that is told.
    OpenTelemetry,
}

/// Who collects metrics. The member of its type is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricBackend {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: MetricBackendType,
    /// One that comes and asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
    /// One that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetryMetrics>,
}

/// Where the proxy answers who asks for metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// Who asks, when several do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// On which port.
    #[serde(default = "Prometheus::default_port")]
    pub port: u32,
    /// On which path.
    #[serde(default = "default_path")]
    pub path: String,
    /// Whether by TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<PrometheusTls>,
}

impl Prometheus {
    const fn default_port() -> u32 {
        5670
    }
}

/// Ways to ask by TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsMode {
    /// Not at all.
    #[default]
    Disabled,
    /// With a certificate that lies beside the proxy.
    #[serde(rename = "ProvidedTLS")]
    Provided,
    /// As a member of the mesh.
    #[serde(rename = "ActiveMTLSBackend")]
    Mesh,
}

/// TLS of who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrometheusTls {
    /// In which way.
    #[serde(default)]
    pub mode: TlsMode,
}

/// A collector that is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryMetrics {
    /// Where it listens, as `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A collector that is described elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<CollectorRef>,
    /// How often it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_interval: Option<Duration>,
}

impl Spec for MeshMetric {
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
