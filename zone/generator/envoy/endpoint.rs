//! Endpoints of clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use common::{
    model::labels,
    proto::envoy::config::{
        core::v3,
        endpoint::v3::{
            ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
        },
    },
};

use prost::Message;

use super::{address, metadata, number};
use crate::mesh::topology::{self, Locality};

/// Weights come from other zones, and Envoy refuses localities whose weights it cannot add up.
const MAX_WEIGHT: u32 = 100_000;
/// The same of all endpoints in one place.
const MAX_TOGETHER: u32 = 1_000_000;

fn at(ip: IpAddr, port: u32) -> LbEndpoint {
    at_any(address::socket(ip, port))
}

fn at_any(address: v3::Address) -> LbEndpoint {
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() }
}

/// Exactly one address.
pub fn single(cluster: &str, ip: IpAddr, port: u32) -> ClusterLoadAssignment {
    at_address(cluster, address::socket(ip, port))
}

/// Exactly one address of any kind.
pub fn at_address(cluster: &str, address: v3::Address) -> ClusterLoadAssignment {
    let locality =
        LocalityLbEndpoints { lb_endpoints: vec![at_any(address)], ..LocalityLbEndpoints::default() };
    assignment(cluster, vec![locality])
}

fn assignment(cluster: &str, endpoints: Vec<LocalityLbEndpoints>) -> ClusterLoadAssignment {
    ClusterLoadAssignment { cluster_name: cluster.to_owned(), endpoints, ..ClusterLoadAssignment::default() }
}

/// Where clients find an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointLocality {
    /// In which zone.
    pub zone: Option<String>,
    /// In which part of it.
    pub sub_zone: String,
    /// After how many others.
    pub priority: u32,
    /// What all endpoints there weigh together.
    pub weight: Option<Weight>,
    /// Whether it shows the labels of its proxy.
    pub labels: bool,
}

/// What all endpoints in one place weigh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// This.
    Fixed(u32),
    /// As much as each of them together.
    OfEndpoints,
}

impl Default for EndpointLocality {
    fn default() -> Self {
        Self { zone: None, sub_zone: String::new(), priority: 0, weight: None, labels: true }
    }
}

impl EndpointLocality {
    /// Where `endpoint` is to clients about whom nothing is known.
    pub fn of(endpoint: &topology::Endpoint) -> Self {
        let Locality { zone, priority } = &endpoint.locality;
        Self { zone: zone.clone(), priority: *priority, ..Self::default() }
    }
}

/// These endpoints, grouped by where they are in the order given.
pub fn grouped<'a>(
    cluster: &str,
    endpoints: impl IntoIterator<Item = &'a topology::Endpoint>,
) -> ClusterLoadAssignment {
    placed(cluster, endpoints.into_iter().map(|endpoint| (EndpointLocality::of(endpoint), endpoint)))
}

/// These endpoints, grouped by place in the order given. Several behind one address and with the same tags, as
/// behind an ingress, are one.
pub fn placed<'a>(
    cluster: &str,
    endpoints: impl IntoIterator<Item = (EndpointLocality, &'a topology::Endpoint)>,
) -> ClusterLoadAssignment {
    let mut groups: BTreeMap<EndpointLocality, Vec<LbEndpoint>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (place, endpoint) in endpoints {
        if seen.insert((endpoint.address, endpoint.port, &endpoint.tags)) {
            let one = one(endpoint, place.labels);
            groups.entry(place).or_default().push(one);
        }
    }
    let localities = groups.into_iter().map(|(place, lb_endpoints)| LocalityLbEndpoints {
        load_balancing_weight: place.weight.and_then(|weight| number(weight.of(&lb_endpoints))),
        locality: place.zone.map(|zone| v3::Locality {
            zone,
            sub_zone: place.sub_zone,
            ..v3::Locality::default()
        }),
        priority: place.priority,
        lb_endpoints,
        ..LocalityLbEndpoints::default()
    });
    assignment(cluster, localities.collect())
}

/// The same for who leaves out places that have no weight and is put off by an address that is there twice or a gap
/// between priorities. Endpoints nobody said the place of are in `zone`.
pub fn complete(mut assignment: ClusterLoadAssignment, zone: &str) -> ClusterLoadAssignment {
    let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
    for place in &mut assignment.endpoints {
        place.lb_endpoints.retain(|endpoint| match &endpoint.host_identifier {
            Some(HostIdentifier::Endpoint(at)) => seen.insert(at.encode_to_vec()),
            _ => false,
        });
        for endpoint in &mut place.lb_endpoints {
            endpoint.metadata = None;
        }
        let here = || v3::Locality { zone: zone.to_owned(), ..v3::Locality::default() };
        place.locality.get_or_insert_with(here);
        if place.load_balancing_weight.is_none() {
            place.load_balancing_weight = number(Weight::OfEndpoints.of(&place.lb_endpoints));
        }
    }
    assignment.endpoints.retain(|place| !place.lb_endpoints.is_empty());
    let used: BTreeSet<u32> = assignment.endpoints.iter().map(|place| place.priority).collect();
    for place in &mut assignment.endpoints {
        place.priority = number_of(used.range(..place.priority).count());
    }
    assignment
}

fn number_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Weight {
    fn of(self, endpoints: &[LbEndpoint]) -> u32 {
        let each = endpoints.iter().filter_map(|endpoint| endpoint.load_balancing_weight.as_ref());
        match self {
            Self::Fixed(weight) => weight,
            Self::OfEndpoints => {
                let sum: u64 = each.map(|weight| u64::from(weight.value)).sum();
                u32::try_from(sum).unwrap_or(u32::MAX).clamp(1, MAX_TOGETHER)
            }
        }
    }
}

fn one(endpoint: &topology::Endpoint, shows_labels: bool) -> LbEndpoint {
    let tags = metadata::strings(endpoint.tags.iter().filter(|(key, _)| *key != labels::TAG_SERVICE));
    let shown = endpoint.labels.iter().filter(|_| shows_labels);
    LbEndpoint {
        metadata: metadata::of([
            (metadata::LOAD_BALANCER, tags.clone()),
            (metadata::TRANSPORT_SOCKET, tags),
            (metadata::LABELS, metadata::strings(shown)),
        ]),
        load_balancing_weight: number(endpoint.weight.clamp(1, MAX_WEIGHT)),
        ..at(endpoint.address, endpoint.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(zone: Option<&str>, priority: u32, ports: &[u32]) -> LocalityLbEndpoints {
        let endpoints = ports
            .iter()
            .map(|port| LbEndpoint { load_balancing_weight: number(3), ..at([127, 0, 0, 1].into(), *port) });
        LocalityLbEndpoints {
            locality: zone.map(|zone| v3::Locality { zone: zone.to_owned(), ..v3::Locality::default() }),
            priority,
            lb_endpoints: endpoints.collect(),
            ..LocalityLbEndpoints::default()
        }
    }

    #[test]
    fn every_place_has_a_weight_and_every_address_one_place() {
        let places = vec![
            place(None, 1, &[1, 2]),
            place(Some("b"), 4, &[2, 3]),
            place(Some("c"), 2, &[1]),
            place(None, 4, &[]),
        ];
        let complete = complete(assignment("web", places), "a");
        let seen = complete.endpoints.iter().map(|place| {
            let zone = place.locality.as_ref().map(|locality| locality.zone.as_str());
            let weight = place.load_balancing_weight.as_ref().map(|weight| weight.value);
            (zone, place.priority, place.lb_endpoints.len(), weight)
        });
        assert_eq!(seen.collect::<Vec<_>>(), [(Some("a"), 0, 2, Some(6)), (Some("b"), 1, 1, Some(3))]);
    }
}
