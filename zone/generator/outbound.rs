//! What the workload calls: one listener per outbound, by which it reaches backends.

use std::net::IpAddr;

use common::proto::envoy::{
    config::{core::v3::TrafficDirection, listener::v3::Listener},
    extensions::filters::network::tcp_proxy::v3::{
        TcpProxy,
        tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
    },
};

use super::{
    Backend, Chain, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Terminal,
    envoy::{
        address,
        http::{self, Share},
        metadata, seconds,
    },
    names,
};

/// The listener at this address that passes requests for `called` on by these routes, and tells the tags of
/// who calls.
pub(crate) fn http_listener(
    at: (IpAddr, u32),
    called: &Backend,
    routes: Vec<RouteDraft>,
    tags: Option<&str>,
    ipv6: bool,
) -> ListenerDraft {
    let mut config = http::route_configuration(&called.routes());
    config.request_headers_to_add = tags.map(http::tags_header).into_iter().collect();
    let http = HttpChain {
        manager: http::outbound_manager(&called.name, ipv6),
        filters: HttpFilters::default(),
        config,
        hosts: Vec::new(),
        host: called.name.clone(),
        routes,
    };
    listener(at, called, Terminal::Http(Box::new(http)))
}

/// The listener at this address that forwards bytes for `called`.
pub(crate) fn tcp_listener(at: (IpAddr, u32), called: &Backend, shares: &[Share]) -> ListenerDraft {
    let specifier = match shares {
        [only] => ClusterSpecifier::Cluster(only.cluster.clone()),
        several => ClusterSpecifier::WeightedClusters(weighted_clusters(several)),
    };
    let tcp = TcpProxy {
        stat_prefix: names::metric(&called.name),
        idle_timeout: Some(seconds(3600)),
        cluster_specifier: Some(specifier),
        ..TcpProxy::default()
    };
    listener(at, called, Terminal::Tcp(Box::new(tcp)))
}

/// Several clusters by weight.
pub(super) fn weighted_clusters(shares: &[Share]) -> WeightedCluster {
    WeightedCluster { clusters: shares.iter().map(weighted).collect() }
}

fn weighted(share: &Share) -> ClusterWeight {
    ClusterWeight { name: share.cluster.clone(), weight: share.weight, ..ClusterWeight::default() }
}

fn listener((ip, port): (IpAddr, u32), called: &Backend, terminal: Terminal) -> ListenerDraft {
    let message = Listener {
        name: names::outbound_listener(ip, port),
        address: Some(address::socket(ip, port)),
        traffic_direction: TrafficDirection::Outbound.into(),
        metadata: metadata::tags(&called.listener_tags()),
        ..Listener::default()
    };
    let chains = vec![Chain { terminal, ..Chain::default() }];
    ListenerDraft { role: Role::Outbound(called.clone()), message, inspects_tls: false, chains }
}
