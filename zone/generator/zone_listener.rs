//! Listeners by which a proxy is the ingress or egress of its mesh: services are known there by their identifiers.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    model::kri::Kri,
    proto::envoy::{
        config::{
            cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds, cluster::DnsLookupFamily},
            core::v3::{Locality, TrafficDirection},
            listener::v3::{FilterChainMatch, Listener},
            route::v3::{route::Action, route_action::HostRewriteSpecifier},
        },
        extensions::{
            filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
            transport_sockets::tls::v3::DownstreamTlsContext,
        },
    },
};

use super::{
    Backend, Chain, ClusterDraft, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Terminal,
    envoy::{
        address, cluster, flag,
        http::{self, Share},
        seconds,
    },
    names,
    outward::{self, Outward},
};
use crate::mesh::{Edge, ExternalService, ZoneListener};

/// The listener with these chains, on a machine where several may listen on one port or not; `None` when it has none.
pub(crate) fn listener(
    listener: &ZoneListener,
    reuses_port: bool,
    chains: Vec<Chain>,
) -> Option<ListenerDraft> {
    if chains.is_empty() {
        return None;
    }
    let name = names::zone_listener(listener);
    let message = Listener {
        stat_prefix: name.clone(),
        name,
        address: Some(address::socket(listener.listen, listener.port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        enable_reuse_port: flag(reuses_port),
        ..Listener::default()
    };
    let role = match listener.edge {
        Edge::Ingress => Role::ZoneIngress,
        Edge::Egress => Role::ZoneEgress,
    };
    Some(ListenerDraft { role, message, inspects_tls: true, chains })
}

fn asked_for(server_name: &str) -> Option<FilterChainMatch> {
    Some(FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        server_names: vec![server_name.to_owned()],
        ..FilterChainMatch::default()
    })
}

fn forward(cluster: &str) -> Terminal {
    Terminal::Tcp(Box::new(TcpProxy {
        stat_prefix: names::metric(cluster),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }))
}

/// Connections from other zones, which only those who serve them can read.
pub(crate) fn passage(server_name: &str, cluster: &str) -> Chain {
    Chain { matches: asked_for(server_name), terminal: forward(cluster), ..Chain::default() }
}

/// The cluster of those who serve something in this zone: TLS goes through as it came.
pub(super) fn cluster_here(name: &str) -> ClusterDraft {
    let mut message = cluster::discovered(name);
    message.connect_timeout = Some(seconds(5));
    let thresholds = vec![Thresholds { track_remaining: true, ..Thresholds::default() }];
    message.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
    ClusterDraft {
        role: Role::ZoneIngress,
        message,
        http: None,
        tls: None,
        tls_elsewhere: BTreeMap::new(),
        nearness: None,
    }
}

/// Connections to a service outside the mesh: the proxy shows who it is, and sees who calls.
pub(crate) fn external(
    tls: Option<DownstreamTlsContext>,
    service: &ExternalService,
    kri: &Kri,
    server_name: &str,
    ipv6: bool,
    tells_tags: bool,
) -> Chain {
    let name = kri.to_string();
    let terminal = if service.protocol.is_http() {
        let mut message = http::forward("", http::any_path(), &[Share { cluster: name.clone(), weight: 1 }]);
        if let Some(Action::Route(action)) = &mut message.action {
            action.timeout = Some(seconds(0));
            action.host_rewrite_specifier = flag(true).map(HostRewriteSpecifier::AutoHostRewrite);
        }
        let mut config = http::route_configuration(&name);
        if tells_tags {
            // What they tell each other does not leave the mesh.
            config.request_headers_to_remove = vec![http::TAGS_HEADER.to_owned()];
        }
        Terminal::Http(Box::new(HttpChain {
            manager: http::passing_manager(&name, ipv6),
            filters: HttpFilters::default(),
            config,
            host: name.clone(),
            routes: vec![RouteDraft { message, ..RouteDraft::default() }],
            ..HttpChain::default()
        }))
    } else {
        forward(&name)
    };
    Chain { name, matches: asked_for(server_name), tls, terminal, ..Chain::default() }
}

/// The cluster of a service outside the mesh, for a proxy on whose machine these certificates are believed.
///
/// # Errors
/// Why there is none.
pub(crate) fn to_outside(
    backend: &Backend,
    service: &Arc<ExternalService>,
    kri: &Kri,
    system_ca: Option<&str>,
    ipv6: bool,
) -> Result<ClusterDraft, String> {
    let lookup = if ipv6 { DnsLookupFamily::Auto } else { DnsLookupFamily::V4Only };
    let outward = Outward { mesh: None, lookup, system_ca };
    let role = Role::Outbound(backend.clone());
    let mut cluster = outward::cluster(role, &kri.to_string(), std::slice::from_ref(service), outward)?;
    cluster.message.connect_timeout = Some(seconds(5));
    // They are known to be no endpoints of the zone, so others would come first if there were any.
    for locality in
        cluster.message.load_assignment.iter_mut().flat_map(|assignment| &mut assignment.endpoints)
    {
        let sub_zone = format!("priority-{}", locality.priority);
        locality.locality = Some(Locality { sub_zone, ..Locality::default() });
        locality.priority += 1;
    }
    Ok(cluster)
}
