//! The list items all policies are made of.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{PeerMatch, TargetRef, decode};
use crate::model::{FieldPath, Violations};

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

impl<C> InboundItem<C> {
    /// What is wrong with its conditions.
    pub(super) fn check_matches(&self, path: &FieldPath) -> Violations {
        let mut violations = Violations::none();
        for (i, peer) in self.matches.iter().enumerate() {
            let at = path.field("matches").index(i);
            let empty = peer.spiffe_id.is_none() && peer.sni.is_none();
            violations.extend(peer.check(&at));
            violations.check(empty, at, "must specify at least one of 'spiffeID' or 'sni'");
        }
        violations
    }
}
