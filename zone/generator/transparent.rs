//! Where redirected traffic arrives: what is for no other listener is passed on to wherever it was meant for.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use common::proto::envoy::{
    config::{
        cluster::v3::Cluster,
        core::v3::{BindConfig, SocketAddress, TrafficDirection, socket_address::PortSpecifier},
        listener::v3::{FilterChainMatch, Listener},
    },
    extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
};

use super::{
    Chain, ClusterDraft, Draft, ListenerDraft, Role, Sidecar, Terminal,
    envoy::{address, cluster, flag, number},
    names,
    proxy::FEATURE_REUSE_PORT,
};
use crate::mesh::{Dataplane, MeshContext, redirection::Family};

/// Origin of what is made here.
pub(crate) const ORIGIN: &str = "transparent";
/// Announced by proxies that let nobody connect to ports of the machine that are none of the workload.
const FEATURE_STRICT_PORTS: &str = "feature-strict-inbound-ports";

/// One family of addresses.
struct Way {
    outbound: &'static str,
    inbound: &'static str,
    any: IpAddr,
    /// Where connections to the workload come from, so that they are not redirected again.
    source: IpAddr,
}

const WAYS: [Way; 2] = [
    Way {
        outbound: names::OUTBOUND_PASSTHROUGH[0],
        inbound: names::INBOUND_PASSTHROUGH[0],
        any: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        source: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6)),
    },
    Way {
        outbound: names::OUTBOUND_PASSTHROUGH[1],
        inbound: names::INBOUND_PASSTHROUGH[1],
        any: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        source: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6)),
    },
];

/// Adds the listeners to which traffic is redirected, and what is behind them.
pub(crate) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) {
    if !proxy.metadata.passes_through(&proxy.dataplane) {
        return;
    }
    let redirection = proxy.metadata.redirection(&proxy.dataplane);
    let nowhere = cluster::empty(names::NO_DESTINATION);
    add_cluster(nowhere, draft);
    let ways = WAYS.iter().take(if redirection.family == Family::Dual { 2 } else { 1 });
    for way in ways {
        let outbound = Listener {
            address: Some(address::socket(way.any, redirection.outbound)),
            traffic_direction: TrafficDirection::Outbound.into(),
            ..listener(way.outbound)
        };
        add_listener(outbound, vec![chain(way.outbound, way.outbound, None)], draft);
        if passes_out(mesh) {
            add_cluster(cluster::original(way.outbound), draft);
        }
        let inbound = Listener {
            address: Some(address::socket(way.any, redirection.inbound)),
            traffic_direction: TrafficDirection::Inbound.into(),
            enable_reuse_port: flag(proxy.metadata.has(FEATURE_REUSE_PORT)),
            ..listener(way.inbound)
        };
        if redirection.inbound > 0 {
            add_listener(inbound, inbound_chains(proxy, mesh, way), draft);
        }
        let message =
            Cluster { upstream_bind_config: Some(bound_to(way.source)), ..cluster::original(way.inbound) };
        add_cluster(message, draft);
    }
}

/// What connections to the workload of a transparent proxy at `workload` come from.
pub(super) fn source(proxy: &Sidecar, workload: IpAddr) -> Option<BindConfig> {
    let way = &WAYS[usize::from(workload.is_ipv6())];
    let apart = proxy.metadata.is_transparent(&proxy.dataplane) && !workload.is_loopback();
    apart.then(|| bound_to(way.source))
}

/// Whether the listeners of `dataplane` are only looked up by redirected traffic.
pub(super) fn bind_to_port(proxy: &Sidecar, dataplane: &Dataplane) -> Option<bool> {
    proxy.metadata.is_transparent(dataplane).then_some(false)
}

/// Whether workloads may call what nobody in the mesh has.
fn passes_out(mesh: &MeshContext) -> bool {
    let outbound = mesh.spec.networking.as_ref().and_then(|networking| networking.outbound.as_ref());
    outbound.and_then(|outbound| outbound.passthrough.as_ref()).is_none_or(|passthrough| passthrough.value)
}

fn bound_to(source: IpAddr) -> BindConfig {
    let source = SocketAddress {
        address: source.to_string(),
        port_specifier: Some(PortSpecifier::PortValue(0)),
        ..SocketAddress::default()
    };
    BindConfig { source_address: Some(source), ..BindConfig::default() }
}

fn inbound_chains(proxy: &Sidecar, mesh: &MeshContext, way: &Way) -> Vec<Chain> {
    let strict =
        proxy.shown.is_some() && !proxy.is_permissive(mesh) && proxy.metadata.has(FEATURE_STRICT_PORTS);
    let ports = &proxy.dataplane.inbound_ports;
    if !strict || ports.is_empty() {
        return vec![chain(way.inbound, way.inbound, None)];
    }
    let of_port = |(port, of_service): (&u32, &bool)| {
        let to = if *of_service { way.inbound } else { names::NO_DESTINATION };
        let matches = FilterChainMatch { destination_port: number(*port), ..FilterChainMatch::default() };
        chain(way.inbound, to, Some(matches))
    };
    ports.iter().map(of_port).collect()
}

fn listener(name: &str) -> Listener {
    Listener { name: name.to_owned(), use_original_dst: flag(true), ..Listener::default() }
}

fn chain(name: &str, to: &str, matches: Option<FilterChainMatch>) -> Chain {
    let proxy = TcpProxy {
        stat_prefix: names::metric(name),
        cluster_specifier: Some(ClusterSpecifier::Cluster(to.to_owned())),
        ..TcpProxy::default()
    };
    Chain { matches, terminal: Terminal::Tcp(Box::new(proxy)), ..Chain::default() }
}

fn add_listener(message: Listener, chains: Vec<Chain>, draft: &mut Draft) {
    let listener = ListenerDraft { role: Role::Machine(ORIGIN), message, inspects_tls: false, chains };
    draft.listeners.insert(listener.message.name.clone(), listener);
}

/// Adds a cluster of this machine.
pub(crate) fn add_cluster(message: Cluster, draft: &mut Draft) {
    let cluster = ClusterDraft {
        role: Role::Machine(ORIGIN),
        message,
        http: None,
        tls: None,
        tls_elsewhere: BTreeMap::new(),
        nearness: None,
    };
    draft.clusters.insert(cluster.message.name.clone(), cluster);
}
