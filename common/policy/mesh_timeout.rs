//! `MeshTimeout`: how long connections, requests and streams may take.

mod check;

use serde::{Deserialize, Serialize};

use super::{Duration, InboundItem, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTimeout", "meshtimeouts")
    .flow(61)
    .named("meshtimeout", "mt")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true })
    .typed::<MeshTimeout>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshTimeout {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<TimeoutConf>>,
    /// For inbound traffic, the older form of `rules`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<TimeoutConf>>,
    /// For inbound traffic.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InboundItem<TimeoutConf>>,
}

/// Timeouts; zero disables one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeoutConf {
    /// To establish a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_timeout: Option<Duration>,
    /// Without bytes (TCP) or active requests (HTTP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,
    /// Only for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpTimeouts>,
}

/// Timeouts of HTTP traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpTimeouts {
    /// From the last byte of the request to the last byte of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<Duration>,
    /// Without activity on a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_idle_timeout: Option<Duration>,
    /// Life of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_stream_duration: Option<Duration>,
    /// Life of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connection_duration: Option<Duration>,
    /// To receive the headers of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_headers_timeout: Option<Duration>,
}

impl Spec for MeshTimeout {
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
