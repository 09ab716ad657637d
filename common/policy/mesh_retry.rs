//! `MeshRetry`: which failed requests and connections are tried again.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Duration, HeaderMatch, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshRetry", "meshretries")
    .flow(61)
    .named("meshretry", "mr")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
    .typed::<MeshRetry>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshRetry {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination. It has to be there, and may be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Vec<PeerItem<RetryConf>>>,
}

/// Per protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryConf {
    /// TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpRetry>,
    /// HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpRetry>,
    /// gRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcRetry>,
}

/// Retries of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpRetry {
    /// Connection attempts before giving up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connect_attempt: Option<u32>,
}

/// Retries of HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRetry {
    /// How often; zero turns retries off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_retries: Option<u32>,
    /// Time for each try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<Duration>,
    /// Pause between tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// Pause the server asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limited_back_off: Option<RateLimitedBackOff>,
    /// Conditions: names, methods (`HttpMethodGet`) or status codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Vec<String>>,
    /// Response headers that make a response a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retriable_response_headers: Option<Vec<HeaderMatch>>,
    /// Request headers without which there is no retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retriable_request_headers: Option<Vec<HeaderMatch>>,
    /// Which hosts a retry avoids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_selection: Option<Vec<HostPredicate>>,
    /// Tries to find a host that is not to be avoided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_selection_max_attempts: Option<i64>,
}

/// Retries of gRPC calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRetry {
    /// How often; zero turns retries off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_retries: Option<u32>,
    /// Time for each try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<Duration>,
    /// Pause between tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// Pause the server asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limited_back_off: Option<RateLimitedBackOff>,
    /// Statuses that are tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Vec<GrpcRetryOn>>,
}

/// A gRPC status that is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrpcRetryOn {
    /// 1
    Canceled,
    /// 4
    DeadlineExceeded,
    /// 13
    Internal,
    /// 8
    ResourceExhausted,
    /// 14
    Unavailable,
}

/// Exponential back-off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackOff {
    /// The first pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_interval: Option<Duration>,
    /// The longest pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interval: Option<Duration>,
}

/// Back-off by response headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitedBackOff {
    /// Headers that say how long, tried in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_headers: Option<Vec<ResetHeader>>,
    /// The longest pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interval: Option<Duration>,
}

/// A header that says when to try again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetHeader {
    /// Header name.
    pub name: String,
    /// How to read its value.
    pub format: ResetFormat,
}

/// How the value of a [`ResetHeader`] is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetFormat {
    /// Seconds from now.
    Seconds,
    /// A point in time, in seconds.
    UnixTimestamp,
}

/// Hosts a retry avoids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPredicate {
    /// Which.
    pub predicate: HostPredicateType,
    /// For `OmitHostsWithTags`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// For `OmitPreviousPriorities`: after how many tries the priorities are computed again.
    #[serde(default = "HostPredicate::default_update_frequency")]
    pub update_frequency: i32,
}

impl HostPredicate {
    const fn default_update_frequency() -> i32 {
        2
    }
}

/// Kinds of [`HostPredicate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPredicateType {
    /// Hosts already tried.
    OmitPreviousHosts,
    /// Hosts with these tags.
    OmitHostsWithTags,
    /// Priorities already tried.
    OmitPreviousPriorities,
}

impl Spec for MeshRetry {
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
