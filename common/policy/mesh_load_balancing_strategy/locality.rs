//! Which endpoints are near.

use serde::{Deserialize, Serialize};

use crate::{model::decode, policy::IntOrString};

/// Which endpoints are near.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalityAwareness {
    /// All are alike, wherever they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Among those of the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_zone: Option<LocalZone>,
    /// Those of other zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_zone: Option<CrossZone>,
}

/// What is near in the zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalZone {
    /// Endpoints that have the client's value of one of these tags; the first counts most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_tags: Option<Vec<AffinityTag>>,
}

/// A tag that says what is near.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffinityTag {
    /// Its key.
    pub key: String,
    /// Share of the traffic; by its place in the list when no tag has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// When other zones are called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrossZone {
    /// Which, in order; zones none of these lead to are never called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Vec<Failover>>,
    /// When the next are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover_threshold: Option<FailoverThreshold>,
}

/// Zones that are called in place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// By clients in these; any when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<FromZone>,
    /// Which.
    pub to: ToZone,
}

/// Zones of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromZone {
    /// Their names.
    #[serde(deserialize_with = "decode::list")]
    pub zones: Vec<String>,
}

/// Zones that are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToZone {
    /// How they are chosen.
    #[serde(rename = "type")]
    pub kind: ToZoneType,
    /// Their names, or those of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Vec<String>>,
}

/// How zones are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ToZoneType {
    None,
    Only,
    Any,
    AnyExcept,
}

/// When the next zones are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverThreshold {
    /// When less than this share of the endpoints before them is healthy.
    pub percentage: IntOrString,
}
