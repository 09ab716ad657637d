//! `MeshRateLimit`: how many requests and connections a proxy takes.

mod check;

use serde::{Deserialize, Serialize};

use super::{Duration, HeaderAddition, InboundItem, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshRateLimit", "meshratelimits")
    .flow(61)
    .named("meshratelimit", "mrl")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true })
    .typed::<MeshRateLimit>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshRateLimit {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// What a gateway takes, per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<RateLimitConf>>,
    /// For inbound traffic, the older form of `rules`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<RateLimitConf>>,
    /// For inbound traffic.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InboundItem<RateLimitConf>>,
}

/// Limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitConf {
    /// Those that each proxy keeps for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
}

/// Limits that each proxy keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// On requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<LocalHttp>,
    /// On connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<LocalTcp>,
}

/// A limit on requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalHttp {
    /// Turns the limit off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_rate: Option<Rate>,
    /// What the others are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_rate_limit: Option<OnRateLimit>,
}

/// A limit on connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalTcp {
    /// Turns the limit off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_rate: Option<Rate>,
}

/// So many in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many.
    pub num: u32,
    /// In which time.
    pub interval: Duration,
}

/// What requests above the limit are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnRateLimit {
    /// The status; 429 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    /// Headers of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<HeaderAddition>,
}

impl Spec for MeshRateLimit {
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
