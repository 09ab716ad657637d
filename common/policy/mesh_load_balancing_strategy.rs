//! `MeshLoadBalancingStrategy`: which endpoint a request goes to.

mod check;
mod hash;
mod locality;

use serde::{Deserialize, Serialize};

pub use hash::{Cookie, FilterState, HashPolicy, HashPolicyType, HashedConnection, HashedName};
pub use locality::{
    AffinityTag, CrossZone, Failover, FailoverThreshold, FromZone, LocalZone, LocalityAwareness, ToZone,
    ToZoneType,
};

use super::{IntOrString, PeerItem, TargetRef, decode};
use crate::model::{Kind, PolicyTraits, Presets, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshLoadBalancingStrategy", "meshloadbalancingstrategies")
    .flow(61)
    .named("meshloadbalancingstrategy", "mlbs")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
    .presets(Presets { durations: &["ttl"], objects: &[] })
    .typed::<MeshLoadBalancingStrategy>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshLoadBalancingStrategy {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PeerItem<LoadBalancingConf>>,
}

/// How endpoints are chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancingConf {
    /// Which endpoints are near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality_awareness: Option<LocalityAwareness>,
    /// How one of several is picked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancer>,
    /// What of a request is hashed, by balancers that go by a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_policies: Option<Vec<HashPolicy>>,
}

/// How one of several endpoints is picked. `type` says which member may be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Which.
    #[serde(rename = "type")]
    pub kind: LoadBalancerType,
    /// In turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_robin: Option<Empty>,
    /// The least busy of a few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_request: Option<LeastRequest>,
    /// The nearest on a ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_hash: Option<RingHash>,
    /// Any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<Empty>,
    /// From a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maglev: Option<Maglev>,
}

/// Kinds of [`LoadBalancer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "described at the members of LoadBalancer")]
pub enum LoadBalancerType {
    RoundRobin,
    LeastRequest,
    RingHash,
    Random,
    Maglev,
}

/// A balancer without settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// The least busy of a few.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeastRequest {
    /// How many are looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice_count: Option<u32>,
    /// How much what is under way counts against a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_request_bias: Option<IntOrString>,
}

/// The nearest on a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingHash {
    /// By which endpoints are put on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_function: Option<HashFunction>,
    /// At least so many places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ring_size: Option<u32>,
    /// At most so many places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ring_size: Option<u32>,
    /// The older place of [`LoadBalancingConf::hash_policies`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_policies: Option<Vec<HashPolicy>>,
}

/// By which endpoints are put on a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum HashFunction {
    XXHash,
    MurmurHash2,
}

/// From a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Maglev {
    /// Its size, a prime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_size: Option<u32>,
    /// The older place of [`LoadBalancingConf::hash_policies`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_policies: Option<Vec<HashPolicy>>,
}

/// Whether a table of Maglev may have this size.
#[must_use]
pub fn is_prime(size: u32) -> bool {
    let size = u64::from(size);
    size > 1 && (2..).take_while(|n| n * n <= size).all(|n| !size.is_multiple_of(n))
}

impl LoadBalancingConf {
    /// What is hashed, wherever it is written.
    pub fn hashed(&self) -> Option<&[HashPolicy]> {
        let older = self.load_balancer.as_ref().and_then(|balancer| match balancer.kind {
            LoadBalancerType::RingHash => balancer.ring_hash.as_ref()?.hash_policies.as_deref(),
            LoadBalancerType::Maglev => balancer.maglev.as_ref()?.hash_policies.as_deref(),
            _ => None,
        });
        self.hash_policies.as_deref().or(older)
    }

    /// Tags by which endpoints in the zone are near or not.
    pub fn affinity_tags(&self) -> &[AffinityTag] {
        let local = self.locality_awareness.as_ref().and_then(|locality| locality.local_zone.as_ref());
        local.and_then(|local| local.affinity_tags.as_deref()).unwrap_or_default()
    }
}

impl Spec for MeshLoadBalancingStrategy {
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
