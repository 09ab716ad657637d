//! `MeshFaultInjection`: requests that fail, wait or trickle on purpose.

mod bandwidth;
mod check;

use serde::{Deserialize, Serialize};

pub use bandwidth::Bandwidth;

use super::{Duration, InboundItem, IntOrString, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshFaultInjection", "meshfaultinjections")
    .flow(61)
    .named("meshfaultinjection", "mfi")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: false })
    .typed::<MeshFaultInjection>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshFaultInjection {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// What a gateway does, per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<FaultInjectionConf>>,
    /// For inbound traffic of clients by tags.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<FaultInjectionConf>>,
    /// For inbound traffic of clients by identity.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InboundItem<FaultInjectionConf>>,
}

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultInjectionConf {
    /// With requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Vec<Fault>>,
}

/// Faults that are injected one beside the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// An error as the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<Abort>,
    /// A pause before the request goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// A slow answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bandwidth: Option<ResponseBandwidth>,
}

/// An error as the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Abort {
    /// Its status.
    pub http_status: i32,
    /// For which share of the requests.
    pub percentage: IntOrString,
}

/// A pause before the request goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// How long.
    pub value: Duration,
    /// For which share of the requests.
    pub percentage: IntOrString,
}

/// A slow answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseBandwidth {
    /// How fast, as a [`Bandwidth`].
    pub limit: String,
    /// For which share of the requests.
    pub percentage: IntOrString,
}

impl Spec for MeshFaultInjection {
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
