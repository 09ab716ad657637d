//! `MeshHealthCheck`: hosts are asked whether they are well.

mod check;

use serde::{Deserialize, Serialize};

use super::{Duration, HeaderAddition, IntOrString, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshHealthCheck", "meshhealthchecks")
    .flow(61)
    .named("meshhealthcheck", "mhc")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
    .typed::<MeshHealthCheck>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshHealthCheck {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<HealthCheckConf>>,
}

/// How hosts are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheckConf {
    /// Between two questions; a minute if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// For the answer; 15 seconds if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// After so many failures a host gets nothing more; 5 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_threshold: Option<i32>,
    /// After so many successes it gets traffic again; 1 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_threshold: Option<i32>,
    /// At most this much before the first question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_jitter: Option<Duration>,
    /// At most this much more than the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_jitter: Option<Duration>,
    /// At most this share of the interval more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_jitter_percent: Option<i32>,
    /// Below this share of healthy hosts all are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_panic_threshold: Option<IntOrString>,
    /// Below that share none is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_traffic_on_panic: Option<bool>,
    /// Between two questions while nobody calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_traffic_interval: Option<Duration>,
    /// A file of the proxy in which changes are noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_log_path: Option<String>,
    /// Note every failure there, not only the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_log_health_check_failures: Option<bool>,
    /// Ask on the connection of the last question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_connection: Option<bool>,
    /// Hosts that take bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// Hosts that speak HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// Hosts that speak gRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
}

/// How hosts that take bytes are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCheck {
    /// Not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// What they are sent; nothing asks for a connection only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<String>,
    /// What must be in the answer, in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<Vec<String>>,
}

/// How hosts that speak HTTP are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpCheck {
    /// Not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// For this; `/` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Headers of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_headers_to_add: Option<HeaderAddition>,
    /// Good answers; 200 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_statuses: Option<Vec<i32>>,
}

/// How hosts that speak gRPC are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcCheck {
    /// Not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// About this service of theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

impl Spec for MeshHealthCheck {
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
