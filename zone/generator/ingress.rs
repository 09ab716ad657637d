//! The listener at the edge of the zone: TLS is passed through, and the server name decides where it goes.

use std::collections::BTreeMap;

use common::proto::envoy::{
    config::{
        core::v3::TrafficDirection,
        listener::v3::{FilterChainMatch, Listener},
    },
    extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
};

use super::{
    Chain, ClusterDraft, ListenerDraft, Role, Terminal, ZoneIngressProxy,
    envoy::{address, cluster, filter, flag, seconds},
    names,
    proxy::FEATURE_REUSE_PORT,
};

/// The listener of `proxy` in `zone`, with a chain for each (server name, cluster); `None` when its address
/// is not resolved.
pub(crate) fn listener<'a>(
    proxy: &ZoneIngressProxy,
    zone: &str,
    chains: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<ListenerDraft> {
    let listen = proxy.ingress.listen?;
    let port = proxy.ingress.spec.networking.as_ref().map_or(0, |networking| networking.port);
    let mut chains: Vec<Chain> = chains.map(|(server_name, cluster)| chain(server_name, cluster)).collect();
    if chains.is_empty() {
        // A listener without any chain is refused; this one at least says who answers.
        let body = serde_json::json!({"proxy": proxy.ingress.name(), "zone": zone}).to_string();
        let terminal = Terminal::Other(Box::new(filter::direct_response(body)));
        chains.push(Chain { terminal, ..Chain::default() });
    }
    let message = Listener {
        name: names::inbound_listener(listen, port),
        address: Some(address::socket(listen, port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        enable_reuse_port: flag(proxy.metadata.has(FEATURE_REUSE_PORT)),
        ..Listener::default()
    };
    Some(ListenerDraft { role: Role::ZoneIngress, message, inspects_tls: true, chains })
}

/// A cluster behind it: TLS goes through as it came.
pub(crate) fn cluster(name: &str) -> ClusterDraft {
    ClusterDraft {
        role: Role::ZoneIngress,
        message: cluster::discovered(name),
        http: None,
        tls: None,
        tls_elsewhere: BTreeMap::new(),
        nearness: None,
    }
}

fn chain(server_name: &str, cluster: &str) -> Chain {
    let matches = FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        server_names: vec![server_name.to_owned()],
        ..FilterChainMatch::default()
    };
    let proxy = TcpProxy {
        stat_prefix: names::metric(cluster),
        idle_timeout: Some(seconds(3600)),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    };
    Chain { matches: Some(matches), terminal: Terminal::Tcp(Box::new(proxy)), ..Chain::default() }
}
