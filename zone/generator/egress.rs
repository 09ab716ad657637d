//! The listener by which the proxies of a zone leave it. TLS to other zones is passed through; that to services
//! outside the mesh ends here.

use std::{collections::BTreeMap, sync::Arc};

use common::proto::envoy::{
    config::{
        cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds, cluster::DnsLookupFamily},
        core::v3::TrafficDirection,
        listener::v3::{FilterChainMatch, Listener},
        route::v3::{route::Action, route_action::HostRewriteSpecifier},
    },
    extensions::{
        filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
        transport_sockets::tls::v3::DownstreamTlsContext,
    },
};

use super::{
    Chain, ClusterDraft, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Terminal, ZoneEgressProxy,
    envoy::{
        address, cluster, flag,
        http::{self, Share},
        seconds, tls,
    },
    names,
    outward::{self, Outward},
    proxy::FEATURE_REUSE_PORT,
};
use crate::mesh::ExternalService;

/// The listener of `proxy` with these chains; `None` when it has none, or its address is not resolved.
pub(crate) fn listener(proxy: &ZoneEgressProxy, chains: Vec<Chain>) -> Option<ListenerDraft> {
    let (listen, port) = proxy.egress.door().filter(|_| !chains.is_empty())?;
    let message = Listener {
        name: names::inbound_listener(listen, port),
        address: Some(address::socket(listen, port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        enable_reuse_port: flag(proxy.metadata.has(FEATURE_REUSE_PORT)),
        ..Listener::default()
    };
    Some(ListenerDraft { role: Role::ZoneEgress, message, inspects_tls: true, chains })
}

fn asked_for(server_name: &str) -> FilterChainMatch {
    FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        server_names: vec![server_name.to_owned()],
        ..FilterChainMatch::default()
    }
}

fn forward(stat_prefix: &str, cluster: &str) -> Terminal {
    Terminal::Tcp(Box::new(TcpProxy {
        stat_prefix: names::metric(stat_prefix),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }))
}

/// Connections to a service of other zones, which only they can read.
pub(crate) fn passage(server_name: &str, cluster: &str) -> Chain {
    Chain { matches: Some(asked_for(server_name)), terminal: forward(cluster, cluster), ..Chain::default() }
}

/// The cluster with the ingresses behind which a service of other zones is.
pub(crate) fn cluster(name: &str) -> ClusterDraft {
    let mut message = cluster::discovered(name);
    message.connect_timeout = Some(seconds(5));
    let thresholds = vec![Thresholds { track_remaining: true, ..Thresholds::default() }];
    message.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
    ClusterDraft {
        role: Role::ZoneEgress,
        message,
        http: None,
        tls: None,
        tls_elsewhere: BTreeMap::new(),
        nearness: None,
    }
}

/// The cluster of a service outside the mesh.
pub(crate) fn external_cluster(mesh: &str, service: &ExternalService) -> String {
    if service.is_resource() {
        service.service.to_string()
    } else {
        names::ingress_cluster(mesh, &service.service)
    }
}

/// Connections to a service outside the mesh: the egress shows that it is one, and sees who calls.
pub(crate) fn external(mesh: &str, service: &Arc<ExternalService>, server_name: &str) -> Chain {
    let (known, cluster) = (&*service.service, external_cluster(mesh, service));
    let (name, routes) = if service.is_resource() {
        (known.to_owned(), known.to_owned())
    } else {
        (format!("{known}_{mesh}"), format!("outbound:{known}"))
    };
    let terminal = if service.protocol.is_http() {
        let mut message = http::forward("", http::any_path(), &[Share { cluster, weight: 1 }]);
        if let Some(Action::Route(action)) = &mut message.action {
            action.timeout = Some(seconds(0));
            action.host_rewrite_specifier = flag(true).map(HostRewriteSpecifier::AutoHostRewrite);
        }
        let mut config = http::route_configuration(&routes);
        config.request_headers_to_remove = vec![http::TAGS_HEADER.to_owned()];
        Terminal::Http(Box::new(HttpChain {
            manager: http::local_manager(known, false),
            filters: HttpFilters::default(),
            config,
            host: known.to_owned(),
            routes: vec![RouteDraft { message, ..RouteDraft::default() }],
            ..HttpChain::default()
        }))
    } else {
        forward(known, &cluster)
    };
    Chain {
        name,
        matches: Some(asked_for(server_name)),
        tls: Some(tls::downstream(tls::SecretNames::of_mesh(mesh), [mesh])),
        terminal,
        ..Chain::default()
    }
}

/// How an egress accepts the members of these trust domains, as `mesh` believes them.
pub(crate) fn members_of<'a>(mesh: &str, domains: impl IntoIterator<Item = &'a str>) -> DownstreamTlsContext {
    let trust = names::egress_trust_bundle(mesh);
    tls::downstream(tls::SecretNames::of_mesh(mesh).believing(trust), domains)
}

/// The cluster of `services`, which are known as one outside the mesh.
pub(crate) fn to_outside(mesh: &str, name: &str, services: &[Arc<ExternalService>]) -> ClusterDraft {
    // What its machine believes is known of each egress, and filled in there.
    let outward = Outward { mesh: Some(mesh), lookup: DnsLookupFamily::V4Only, system_ca: Some("") };
    let made = outward::cluster(Role::ZoneEgress, name, services, outward);
    let mut cluster = made.expect("nothing is missing where the file is given");
    cluster.message.connect_timeout = Some(seconds(5));
    cluster
}

/// Looks up addresses of both families for an egress that has IPv6.
pub(crate) fn look_up_ipv6(cluster: &mut ClusterDraft) {
    if cluster.message.dns_lookup_family == i32::from(DnsLookupFamily::V4Only) {
        cluster.message.dns_lookup_family = DnsLookupFamily::Auto.into();
    }
}
