//! What a proxy says about itself when it asks for its bootstrap.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::ads::node::{ProxyId, ProxyKind};

/// The proxy wants the incremental protocol.
pub const FEATURE_DELTA: &str = "feature-delta-grpc";
/// The proxy wants resources named by one scheme.
pub const FEATURE_UNIFIED_NAMES: &str = "feature-unified-resource-naming";

/// Body of `POST /bootstrap`. Members nobody here knows are ignored, all others may be absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BootstrapRequest {
    /// Empty for zone proxies.
    pub mesh: String,
    /// Name of the resource that describes the proxy.
    pub name: String,
    /// What the proxy stands for.
    pub proxy_type: ProxyKind,
    /// The token itself, to be sent with every stream.
    pub dataplane_token: String,
    /// A file beside the proxy that holds the token; the proxy reads it again when it changes.
    pub dataplane_token_path: String,
    /// A file beside the proxy that holds the token and nothing else. The proxy reads it when it starts, so
    /// the token is not in the bootstrap and in no dump of it. Not known to Kuma.
    pub credential_file: String,
    /// The resource, as JSON or YAML text, when the proxy brings its own.
    pub dataplane_resource: String,
    /// Versions of the proxy.
    pub version: ProxyVersions,
    /// PEM of what the proxy trusts; empty for the authority of this control plane.
    pub ca_cert: String,
    /// Passed through.
    #[serde(deserialize_with = "or_none")]
    pub dynamic_metadata: BTreeMap<String, String>,
    /// Port of a DNS server beside the proxy, 0 for none.
    pub dns_port: u32,
    /// Port of a readiness reporter beside the proxy, 0 for none.
    pub readiness_port: u32,
    /// Despite its wire name, `true` says that the probe proxy is on.
    #[serde(rename = "appProbeProxyDisabled")]
    pub app_probe_proxy_enabled: bool,
    /// `linux`, `darwin`, `windows`; empty when an older proxy does not say it.
    pub operating_system: String,
    /// What the proxy can do.
    #[serde(deserialize_with = "or_none")]
    pub features: Vec<String>,
    /// A folder of the proxy, for its sockets.
    pub workdir: String,
    /// Bundle of public authorities beside the proxy.
    pub system_ca_path: String,
    /// Whether the machine of the proxy speaks IPv6.
    pub ipv6_enabled: bool,
    /// Limits of the proxy.
    pub resources: ProxyResources,
    /// Certificate of a metrics endpoint.
    pub metrics_resources: MetricsResources,
    /// Settings of transparent proxying; passed through.
    pub dataplane_config: Option<Value>,
    /// An agent that hands out identities.
    pub spire_resources: SpireResources,
    /// OpenTelemetry environment; passed through.
    pub otel_env: Option<Value>,
}

/// What is empty at a proxy may come as `null`: so Go writes a list or a map that nobody filled.
fn or_none<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The members of a request by which its token is judged; all others are skipped.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BootstrapClaim {
    pub(super) mesh: String,
    pub(super) name: String,
    pub(super) proxy_type: ProxyKind,
    pub(super) dataplane_token: String,
}

impl BootstrapClaim {
    /// Who asks, as [`BootstrapRequest::proxy`] has it.
    pub(super) fn proxy(&self) -> ProxyId {
        proxy(self.proxy_type, &self.mesh, &self.name)
    }
}

fn proxy(kind: ProxyKind, mesh: &str, name: &str) -> ProxyId {
    ProxyId::new(kind, if mesh.is_empty() { "default" } else { mesh }, name)
}

/// Versions of a proxy. Members nobody here knows are dropped, as Kuma does, which knows the same ones.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyVersions {
    /// Of what runs beside Envoy.
    pub kuma_dp: KumaDpVersion,
    /// Of Envoy.
    pub envoy: EnvoyVersion,
}

/// Version of what runs beside Envoy.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KumaDpVersion {
    /// Number of its release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Tag it was built from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub git_tag: String,
    /// Commit it was built from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub git_commit: String,
    /// When it was built.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub build_date: String,
}

/// Version of an Envoy.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyVersion {
    /// Number of its release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What it says about its build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// Whether what runs beside it was made for this version.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kuma_dp_compatible: bool,
}

/// Limits of a proxy.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyResources {
    /// Heap the proxy may use, 0 for no limit.
    pub max_heap_size_bytes: u64,
}

/// Paths beside the proxy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsResources {
    /// Certificate.
    pub cert_path: String,
    /// Key.
    pub key_path: String,
}

/// Paths beside the proxy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpireResources {
    /// Socket of the agent.
    pub socket_path: String,
}

impl BootstrapRequest {
    /// Which proxy asks. An absent mesh is `default`.
    pub fn proxy(&self) -> ProxyId {
        proxy(self.proxy_type, &self.mesh, &self.name)
    }

    /// Whether the proxy can do this.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }
}
