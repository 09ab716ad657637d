//! `MeshPassthrough`: what outside the mesh workloads behind a transparent proxy may call.

mod check;

use serde::{Deserialize, Serialize};

use super::{TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshPassthrough", "meshpassthroughs")
    .flow(61)
    .named("meshpassthrough", "mp")
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .typed::<MeshPassthrough>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshPassthrough {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// What they may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<PassthroughConf>,
}

/// What outside the mesh may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PassthroughConf {
    /// Everything, nothing, or what matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough_mode: Option<PassthroughMode>,
    /// What matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_match: Option<Vec<PassthroughDestination>>,
}

/// How much outside the mesh may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassthroughMode {
    /// Everything.
    All,
    /// What matches.
    Matched,
    /// Nothing.
    None,
}

/// Something outside the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassthroughDestination {
    /// What the value is.
    #[serde(rename = "type")]
    pub kind: DestinationType,
    /// A name, an address or a network.
    pub value: String,
    /// On this port; on any if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What is spoken there.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub protocol: DestinationProtocol,
}

/// How a [`PassthroughDestination`] is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DestinationType {
    /// By name, which may begin with `*.`.
    Domain,
    /// By address.
    #[serde(rename = "IP")]
    Ip,
    /// By network.
    #[serde(rename = "CIDR")]
    Cidr,
}

/// What is spoken to a [`PassthroughDestination`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are called what they are")]
pub enum DestinationProtocol {
    #[default]
    Tcp,
    Tls,
    Grpc,
    Http,
    Http2,
    Mysql,
}

impl DestinationProtocol {
    /// Whether requests are told apart, so that a port can have one such protocol only.
    pub const fn has_requests(self) -> bool {
        matches!(self, Self::Grpc | Self::Http | Self::Http2)
    }
}

impl Spec for MeshPassthrough {
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
