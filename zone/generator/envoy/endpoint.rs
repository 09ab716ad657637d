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

use super::{address, metadata, number};
use crate::mesh::topology::{self, Locality};

/// Weights come from other zones, and Envoy refuses localities whose weights it cannot add up.
const MAX_WEIGHT: u32 = 100_000;

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

/// These endpoints, grouped by locality in the order given. Several behind one address and with the same
/// tags, as behind an ingress, are one.
pub fn grouped<'a>(
    cluster: &str,
    endpoints: impl IntoIterator<Item = &'a topology::Endpoint>,
) -> ClusterLoadAssignment {
    let mut groups: BTreeMap<&Locality, Vec<LbEndpoint>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for endpoint in endpoints {
        if seen.insert((endpoint.address, endpoint.port, &endpoint.tags)) {
            groups.entry(&endpoint.locality).or_default().push(one(endpoint));
        }
    }
    let localities = groups.into_iter().map(|(locality, lb_endpoints)| LocalityLbEndpoints {
        locality: locality.zone.clone().map(|zone| v3::Locality { zone, ..v3::Locality::default() }),
        priority: locality.priority,
        lb_endpoints,
        ..LocalityLbEndpoints::default()
    });
    assignment(cluster, localities.collect())
}

fn one(endpoint: &topology::Endpoint) -> LbEndpoint {
    let tags = metadata::strings(endpoint.tags.iter().filter(|(key, _)| *key != labels::TAG_SERVICE));
    LbEndpoint {
        metadata: metadata::of([
            (metadata::LOAD_BALANCER, tags.clone()),
            (metadata::TRANSPORT_SOCKET, tags),
            (metadata::LABELS, metadata::strings(&endpoint.labels)),
        ]),
        load_balancing_weight: number(endpoint.weight.clamp(1, MAX_WEIGHT)),
        ..at(endpoint.address, endpoint.port)
    }
}
