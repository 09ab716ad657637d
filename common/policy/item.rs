//! The list items all policies are made of.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{PeerMatch, TargetRef, decode};

/// An entry of `to` or `from`: a configuration for a group of peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "C: DeserializeOwned + Default"))]
pub struct PeerItem<C> {
    /// The peers.
    pub target_ref: TargetRef,
    /// The configuration.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: C,
}

/// An entry of `rules`: a configuration for inbound traffic that matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: DeserializeOwned + Default"))]
pub struct InboundItem<C> {
    /// Any of these; none means all traffic.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<PeerMatch>,
    /// The configuration.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: C,
}
