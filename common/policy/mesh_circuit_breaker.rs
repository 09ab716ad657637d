//! `MeshCircuitBreaker`: limits on connections, and hosts left out while they fail.

mod check;

use serde::{Deserialize, Serialize};

use super::{Duration, IntOrString, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshCircuitBreaker", "meshcircuitbreakers")
    .flow(61)
    .named("meshcircuitbreaker", "mcb")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true })
    .typed::<MeshCircuitBreaker>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshCircuitBreaker {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<CircuitBreakerConf>>,
    /// For inbound traffic, the older form of `rules`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<CircuitBreakerConf>>,
    /// For inbound traffic.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<CircuitBreakerRule>,
}

/// An entry of `rules`. It has no conditions: what is limited are connections to the workload, which
/// clients share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitBreakerRule {
    /// The configuration.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: CircuitBreakerConf,
}

/// Limits and detection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreakerConf {
    /// What a cluster may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_limits: Option<ConnectionLimits>,
    /// When a host is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_detection: Option<OutlierDetection>,
}

/// What a cluster may use at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionLimits {
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Connection pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connection_pools: Option<u32>,
    /// Waiting requests, or connections for TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pending_requests: Option<u32>,
    /// Retries under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// Requests under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
}

/// When a host is left out, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutlierDetection {
    /// Turns detection off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Between sweeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// Left out for this long, times how often it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ejection_time: Option<Duration>,
    /// Share of the hosts that may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ejection_percent: Option<u32>,
    /// Count failures of this proxy's own making apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_external_and_local_errors: Option<bool>,
    /// What counts as failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectors: Option<Detectors>,
    /// Below this share of healthy hosts all are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_panic_threshold: Option<IntOrString>,
}

/// What counts as failing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Detectors {
    /// Failures in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_failures: Option<Consecutive>,
    /// 502, 503 and 504 in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_failures: Option<Consecutive>,
    /// Failures of this proxy's own making in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_origin_failures: Option<Consecutive>,
    /// A success rate far below the others'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// A share of failures above a threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_percentage: Option<FailurePercentage>,
}

/// So many in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consecutive {
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive: Option<u32>,
}

/// A success rate far below the others'.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuccessRate {
    /// Hosts with enough requests that it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_hosts: Option<u32>,
    /// Requests in an interval that are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_volume: Option<u32>,
    /// Standard deviations below the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_deviation_factor: Option<IntOrString>,
}

/// A share of failures above a threshold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailurePercentage {
    /// Hosts with enough requests that it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_hosts: Option<u32>,
    /// Requests in an interval that are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_volume: Option<u32>,
    /// The share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
}

impl Spec for MeshCircuitBreaker {
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
