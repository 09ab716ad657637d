//! Endpoints that a workload calls at their own addresses although its traffic is redirected: each has a
//! listener, since connections that are passed through are not encrypted.

use std::{collections::BTreeSet, net::IpAddr};

use common::proto::envoy::{
    config::{core::v3::TrafficDirection, listener::v3::Listener},
    extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
};

use super::{
    Chain, ClusterDraft, Draft, ListenerDraft, Role, Sidecar, Terminal,
    envoy::{address, cluster, flag, tls},
    names,
};
use crate::mesh::{Destination, MeshContext};

const ORIGIN: &str = "direct-access";
/// Stands for all services.
pub(crate) const ANY: &str = "*";

/// Adds a listener for each endpoint of this zone that is called so, but for addresses in use by the proxy.
pub(crate) fn generate(
    proxy: &Sidecar,
    mesh: &MeshContext,
    is_taken: impl Fn(IpAddr, u32) -> bool,
    draft: &mut Draft,
) {
    let Some(limits) = proxy.dataplane.reachable.as_deref().filter(|limits| !limits.direct.is_empty()) else {
        return;
    };
    if !proxy.metadata.recognises_calls(&proxy.dataplane) {
        return;
    }
    let own: BTreeSet<_> = proxy.dataplane.inbounds.iter().map(|i| (i.advertised, i.port)).collect();
    let mut endpoints = BTreeSet::new();
    let mut of_service = |service: &str| {
        let known = mesh.topology.service(&Destination::Service(service.into()));
        let local = known.endpoints.iter().filter(|endpoint| !endpoint.remote);
        endpoints.extend(local.map(|endpoint| (endpoint.address, endpoint.port)));
    };
    if limits.direct.contains(ANY) {
        mesh.topology.services().for_each(|(service, _)| of_service(service));
    } else {
        limits.direct.iter().for_each(|service| of_service(service));
    }
    for (ip, port) in endpoints.into_iter().filter(|at| !own.contains(at) && !is_taken(at.0, at.1)) {
        let listener = listener(ip, port);
        draft.listeners.insert(listener.message.name.clone(), listener);
    }
    let encrypted = proxy.tls(mesh).map(|(secrets, domains)| {
        tls::upstream(secrets, tls::members(domains.iter().map(String::as_str)), String::new())
    });
    let cluster = ClusterDraft {
        role: Role::Machine(ORIGIN),
        message: cluster::original(names::DIRECT_ACCESS),
        http: None,
        tls: encrypted,
        tls_elsewhere: std::collections::BTreeMap::new(),
        nearness: None,
    };
    draft.clusters.insert(names::DIRECT_ACCESS.to_owned(), cluster);
}

fn listener(ip: IpAddr, port: u32) -> ListenerDraft {
    let name = names::direct_listener(ip, port);
    let forward = TcpProxy {
        stat_prefix: names::metric(&name),
        cluster_specifier: Some(ClusterSpecifier::Cluster(names::DIRECT_ACCESS.to_owned())),
        ..TcpProxy::default()
    };
    let message = Listener {
        name,
        address: Some(address::socket(ip, port)),
        traffic_direction: TrafficDirection::Outbound.into(),
        bind_to_port: flag(false),
        ..Listener::default()
    };
    let chains = vec![Chain { terminal: Terminal::Tcp(Box::new(forward)), ..Chain::default() }];
    ListenerDraft { role: Role::Machine(ORIGIN), message, inspects_tls: false, chains }
}
