//! Where the endpoints of a destination are, as the clients of one class see it.

use std::collections::{BTreeMap, BTreeSet};

use common::proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, cluster_load_assignment::Policy};

use super::envoy::{
    endpoint::{self, EndpointLocality},
    number,
};
use crate::mesh::topology::Endpoint;

/// What is near to clients under one profile, whoever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// All endpoints are, in whatever zone.
    Alike,
    /// Those of the zone are; the others come after them.
    Zone,
    /// As somebody said.
    Said(SaidNearness),
}

/// What is near, as somebody said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaidNearness {
    /// Those in the zone that have the client's value of one of these tags, each with its share.
    pub affinity: Vec<(String, u32)>,
    /// Which other zones come after that.
    pub failover: Vec<FailoverZones>,
    /// In percent, by how much the endpoints tried first may be fewer than needed before others help.
    pub overprovisioning: u32,
}

/// Zones that are called when those before them are not enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailoverZones {
    /// Which.
    pub zones: Zones,
    /// After how many others.
    pub priority: u32,
}

/// Some of the other zones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zones {
    /// These.
    Only(BTreeSet<String>),
    /// Those that are not these.
    Except(BTreeSet<String>),
}

/// Where endpoints are to one class of clients: those with the same rules and the same values of the tags by
/// which these tell what is near.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// In their zones, which are all alike.
    Alike,
    /// In their zones, of which the client's comes first.
    Zone,
    /// As somebody said.
    Said(SaidPlacement),
}

/// [`SaidNearness`] to one class of clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaidPlacement {
    near: Vec<Near>,
    failover: Vec<FailoverZones>,
    overprovisioning: u32,
    /// Whether traffic is spread by the weights of localities.
    weighted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Near {
    key: String,
    value: String,
    weight: u32,
}

impl Nearness {
    /// To clients with these tags.
    pub fn to(&self, tags: &BTreeMap<String, String>) -> Placement {
        match self {
            Self::Alike => Placement::Alike,
            Self::Zone => Placement::Zone,
            Self::Said(said) => {
                let near = said.affinity.iter().filter_map(|(key, weight)| {
                    let (key, value) = tags.get_key_value(key)?;
                    Some(Near { key: key.clone(), value: value.clone(), weight: *weight })
                });
                Placement::Said(SaidPlacement {
                    near: near.collect(),
                    failover: said.failover.clone(),
                    overprovisioning: said.overprovisioning,
                    weighted: !said.affinity.is_empty(),
                })
            }
        }
    }
}

impl Zones {
    fn include(&self, zone: &str) -> bool {
        match self {
            Self::Only(zones) => zones.contains(zone),
            Self::Except(zones) => !zones.contains(zone),
        }
    }
}

impl Placement {
    /// These endpoints as those of `cluster`, seen from `zone`.
    pub(super) fn assignment<'a>(
        &self,
        cluster: &str,
        endpoints: impl Iterator<Item = &'a Endpoint>,
        zone: &str,
    ) -> ClusterLoadAssignment {
        let later = match self {
            Self::Alike => 0,
            Self::Zone => 1,
            Self::Said(said) => return said.assignment(cluster, endpoints, zone),
        };
        let placed = endpoints.map(|endpoint| {
            let priority = if endpoint.remote { later } else { 0 };
            (EndpointLocality { priority, ..EndpointLocality::of(endpoint) }, endpoint)
        });
        endpoint::placed(cluster, placed)
    }
}

impl SaidPlacement {
    fn assignment<'a>(
        &self,
        cluster: &str,
        endpoints: impl Iterator<Item = &'a Endpoint>,
        zone: &str,
    ) -> ClusterLoadAssignment {
        let placed = endpoints.filter_map(|endpoint| Some((self.place(endpoint, zone)?, endpoint)));
        let policy = Policy { overprovisioning_factor: number(self.overprovisioning), ..Policy::default() };
        ClusterLoadAssignment { policy: Some(policy), ..endpoint::placed(cluster, placed) }
    }

    /// `None` when it is not called at all.
    fn place(&self, endpoint: &Endpoint, zone: &str) -> Option<EndpointLocality> {
        let unlabelled = EndpointLocality { labels: false, ..EndpointLocality::default() };
        if endpoint.remote {
            let elsewhere = endpoint.locality.zone.as_deref()?;
            let rule = self.failover.iter().find(|rule| rule.zones.include(elsewhere))?;
            let zone = Some(elsewhere.to_owned());
            // A locality without a weight would get nothing from balancers that go by the weights.
            let weight = self.weighted.then_some(endpoint::Weight::OfEndpoints);
            return Some(EndpointLocality { zone, priority: rule.priority, weight, ..unlabelled });
        }
        let near = self.near.iter().find(|near| endpoint.tags.get(&near.key) == Some(&near.value));
        let sub_zone = near.map(|near| format!("{}={}", near.key, near.value)).unwrap_or_default();
        let weight = Some(endpoint::Weight::Fixed(near.map_or(1, |near| near.weight)));
        Some(EndpointLocality { zone: Some(zone.to_owned()), sub_zone, weight, ..unlabelled })
    }
}
