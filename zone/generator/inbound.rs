//! What reaches the workload: one listener and one cluster per inbound.

use common::proto::envoy::{
    config::{
        cluster::v3::Cluster,
        core::v3::TrafficDirection,
        listener::v3::{FilterChainMatch, Listener},
    },
    extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
};

use super::{
    Chain, ClusterDraft, Draft, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Sidecar, Terminal,
    envoy::{
        address, cluster, endpoint, filter, flag,
        http::{self, Share},
        metadata, seconds, tls,
    },
    names,
    proxy::FEATURE_REUSE_PORT,
    transparent,
};
use crate::mesh::{Inbound, MeshContext, Protocol};

/// Adds listeners and clusters of all inbounds.
pub(crate) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) {
    for inbound in &proxy.dataplane.inbounds {
        let name = names::local_cluster(inbound.workload_port);
        let endpoints = endpoint::single(&name, inbound.workload, inbound.workload_port);
        let local = ClusterDraft {
            role: Role::Inbound(inbound.clone()),
            message: Cluster {
                upstream_bind_config: transparent::source(proxy, inbound.workload),
                ..cluster::fixed(&name, endpoints)
            },
            http: match inbound.protocol {
                Protocol::Http => Some(cluster::http1()),
                Protocol::Http2 | Protocol::Grpc => Some(cluster::http2()),
                Protocol::Tcp | Protocol::Kafka | Protocol::Unknown => None,
            },
            tls: None,
            tls_elsewhere: std::collections::BTreeMap::new(),
            nearness: None,
        };
        draft.clusters.insert(name, local);

        let listener = listener(proxy, mesh, inbound);
        draft.listeners.insert(listener.message.name.clone(), listener);
    }
}

fn listener(proxy: &Sidecar, mesh: &MeshContext, inbound: &Inbound) -> ListenerDraft {
    let chains = chains(proxy, mesh, inbound);
    let inspects = chains.iter().any(|chain| chain.matches.is_some());
    let message = Listener {
        name: names::inbound_listener(inbound.listen, inbound.port),
        address: Some(address::socket(inbound.listen, inbound.port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        metadata: metadata::tags(&inbound.tags),
        bind_to_port: transparent::bind_to_port(proxy, &proxy.dataplane).and_then(flag),
        enable_reuse_port: flag(proxy.metadata.has(FEATURE_REUSE_PORT)),
        ..Listener::default()
    };
    ListenerDraft { role: Role::Inbound(inbound.clone()), message, inspects_tls: inspects, chains }
}

fn chains(proxy: &Sidecar, mesh: &MeshContext, inbound: &Inbound) -> Vec<Chain> {
    let tls = proxy.downstream(mesh);
    let chain = Chain { tls, terminal: terminal(proxy, inbound), ..Chain::default() };
    let permissive = proxy.is_permissive(mesh);
    if permissive { by_first_words(&chain) } else { vec![chain] }
}

/// Clients may do without mesh TLS, or may not. Nothing to decide where there is none.
pub(crate) fn set_permissive(listener: &mut ListenerDraft, permissive: bool) {
    let Some(chain) = listener.chains.iter().find(|chain| chain.tls.is_some()) else { return };
    let chain = Chain { matches: None, ..chain.clone() };
    listener.chains = if permissive { by_first_words(&chain) } else { vec![chain] };
    listener.inspects_tls = permissive;
}

/// Three ways in: plaintext, TLS of the workload itself, and mesh TLS, told apart by what the client says first.
fn by_first_words(chain: &Chain) -> Vec<Chain> {
    let matching = |protocol: &str, alpn: &[&str]| {
        Some(FilterChainMatch {
            transport_protocol: protocol.to_owned(),
            application_protocols: alpn.iter().map(|&p| p.to_owned()).collect(),
            ..FilterChainMatch::default()
        })
    };
    let plain = Chain { tls: None, ..chain.clone() };
    vec![
        Chain { matches: matching("raw_buffer", &[]), ..plain.clone() },
        Chain { matches: matching("tls", &[]), ..plain },
        Chain { matches: matching("tls", &[tls::ALPN]), ..chain.clone() },
    ]
}

fn terminal(proxy: &Sidecar, inbound: &Inbound) -> Terminal {
    let cluster = names::local_cluster(inbound.workload_port);
    let listener = names::inbound_listener(inbound.listen, inbound.port);
    if !inbound.protocol.is_http() {
        return Terminal::Tcp(Box::new(TcpProxy {
            stat_prefix: names::metric(&cluster),
            idle_timeout: Some(seconds(7200)),
            cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
            ..TcpProxy::default()
        }));
    }
    let service = inbound.service().unwrap_or(&listener);
    let mut config = http::route_configuration(&inbound_routes(inbound, &listener));
    config.request_headers_to_remove = vec![http::TAGS_HEADER.to_owned()];
    let shares = [Share { cluster: cluster.clone(), weight: 1 }];
    let message = http::forward("", http::any_path(), &shares);
    let grpc = inbound.protocol == Protocol::Grpc;
    Terminal::Http(Box::new(HttpChain {
        manager: http::inbound_manager(&cluster, proxy.metadata.ipv6),
        filters: HttpFilters { grpc_stats: grpc.then(filter::grpc_stats), ..HttpFilters::default() },
        config,
        hosts: Vec::new(),
        host: service.to_owned(),
        routes: vec![RouteDraft { message, ..RouteDraft::default() }],
    }))
}

fn inbound_routes(inbound: &Inbound, listener: &str) -> String {
    inbound.service().map_or_else(|| listener.to_owned(), |service| format!("inbound:{service}"))
}
