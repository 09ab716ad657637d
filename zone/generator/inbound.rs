//! What reaches the workload: one listener and one cluster per inbound.

use common::proto::envoy::{
    config::{
        core::v3::TrafficDirection,
        listener::v3::{FilterChainMatch, Listener},
    },
    extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
};

use super::{
    Chain, ClusterDraft, Draft, HttpChain, ListenerDraft, Role, RouteDraft, Sidecar, Terminal,
    envoy::{
        address, cluster, endpoint, filter, flag,
        http::{self, Share},
        metadata, seconds, tls,
    },
    names,
};
use crate::mesh::{Inbound, MeshContext, Protocol};

/// Announced by proxies on machines where several may listen on one port.
const FEATURE_REUSE_PORT: &str = "feature-reuse-port";

/// Adds listeners and clusters of all inbounds.
pub(super) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) {
    for inbound in &proxy.dataplane.inbounds {
        let name = names::local_cluster(inbound.workload_port);
        let endpoints = endpoint::single(&name, inbound.workload, inbound.workload_port);
        let local = ClusterDraft {
            role: Role::Inbound(inbound.clone()),
            message: cluster::fixed(&name, endpoints),
            http: match inbound.protocol {
                Protocol::Http => Some(cluster::http1()),
                Protocol::Http2 | Protocol::Grpc => Some(cluster::http2()),
                Protocol::Tcp | Protocol::Kafka | Protocol::Unknown => None,
            },
            tls: None,
            tls_elsewhere: std::collections::BTreeMap::new(),
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
        enable_reuse_port: flag(proxy.metadata.has(FEATURE_REUSE_PORT)),
        listener_filters: if inspects { vec![filter::tls_inspector()] } else { Vec::new() },
        ..Listener::default()
    };
    ListenerDraft { role: Role::Inbound(inbound.clone()), message, chains }
}

/// One chain when there is one way in. A permissive mesh has three: plaintext, TLS of the workload itself,
/// and mesh TLS, told apart by what the client says first.
fn chains(proxy: &Sidecar, mesh: &MeshContext, inbound: &Inbound) -> Vec<Chain> {
    let plain = || Chain { terminal: terminal(proxy, inbound), ..Chain::default() };
    let matching = |protocol: &str, alpn: &[&str]| {
        Some(FilterChainMatch {
            transport_protocol: protocol.to_owned(),
            application_protocols: alpn.iter().map(|&p| p.to_owned()).collect(),
            ..FilterChainMatch::default()
        })
    };
    let tls = Some(tls::downstream(&mesh.mesh));
    match &mesh.mtls {
        None => vec![plain()],
        Some(mtls) if !mtls.permissive => vec![Chain { tls, ..plain() }],
        Some(_) => vec![
            Chain { matches: matching("raw_buffer", &[]), ..plain() },
            Chain { matches: matching("tls", &[]), ..plain() },
            Chain { matches: matching("tls", &[tls::ALPN]), tls, ..plain() },
        ],
    }
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
    config.request_headers_to_remove = vec![TAGS_HEADER.to_owned()];
    let shares = [Share { cluster: cluster.clone(), weight: 1 }];
    let message = http::forward("", http::any_path(), &shares);
    let grpc = inbound.protocol == Protocol::Grpc;
    Terminal::Http(Box::new(HttpChain {
        manager: http::inbound_manager(&cluster, proxy.metadata.ipv6),
        filters: if grpc { vec![filter::grpc_stats()] } else { Vec::new() },
        config,
        host: service.to_owned(),
        routes: vec![RouteDraft { message, ..RouteDraft::default() }],
    }))
}

/// Header by which sidecars tell each other their tags; not for the workload.
const TAGS_HEADER: &str = "x-kuma-tags";

fn inbound_routes(inbound: &Inbound, listener: &str) -> String {
    inbound.service().map_or_else(|| listener.to_owned(), |service| format!("inbound:{service}"))
}
