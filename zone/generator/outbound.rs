//! What the workload calls: one listener per outbound, by which it reaches backends.
//!
//! Which backends an outbound has is decided by the route policies, which call in here.

use std::{collections::BTreeSet, net::IpAddr};

use common::{
    model::labels,
    proto::envoy::{
        config::{core::v3::TrafficDirection, listener::v3::Listener},
        extensions::filters::network::tcp_proxy::v3::{
            TcpProxy,
            tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
        },
    },
};

use super::{
    Backend, Chain, Draft, HttpChain, ListenerDraft, Role, RouteDraft, Sidecar, Terminal,
    envoy::{
        address,
        http::{self, Share},
        metadata, seconds,
    },
    names,
};
use crate::mesh::{MeshContext, Problem, problem::Subject};

/// An address on which the workload calls a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Where the proxy listens.
    pub address: IpAddr,
    /// On which port.
    pub port: u32,
    /// What is called when no route says otherwise.
    pub backend: Backend,
}

impl Outbound {
    /// Name of its listener.
    pub fn listener(&self) -> String {
        names::outbound_listener(self.address, self.port)
    }
}

/// The outbounds of a proxy; those that lead nowhere are problems.
pub(crate) fn all(proxy: &Sidecar, mesh: &MeshContext, problems: &mut Vec<Problem>) -> Vec<Outbound> {
    let mut outbounds: Vec<Outbound> = Vec::new();
    let mut taken: BTreeSet<(IpAddr, u32)> =
        proxy.dataplane.inbounds.iter().map(|i| (i.listen, i.port)).collect();
    for outbound in &proxy.dataplane.networking().outbound {
        let address = if outbound.address.is_empty() { "127.0.0.1" } else { &outbound.address };
        let mut problem = |reason: String| {
            problems.push(Problem {
                subject: Subject::of(&proxy.dataplane.resource),
                reason: format!("outbound {address}:{}: {reason}", outbound.port),
            });
        };
        let Ok(ip) = address.parse::<IpAddr>() else {
            problem("the address is not an IP address".to_owned());
            continue;
        };
        let backend = match &outbound.backend_ref {
            None => Backend::tagged(mesh, &outbound.tags)
                .ok_or_else(|| format!("the tag {} is missing or reserved", labels::TAG_SERVICE)),
            Some(reference) if reference.kind == "MeshService" => {
                let labels = Some(&reference.labels).filter(|labels| !labels.is_empty());
                let name = Some(reference.name.as_str()).filter(|name| !name.is_empty());
                Backend::of_reference(mesh, name, labels, &reference.port.to_string())
                    .ok_or_else(|| format!("there is no MeshService {:?} with this port", reference.name))
            }
            Some(reference) => Err(format!("references to a {} are not supported", reference.kind)),
        };
        match backend {
            Err(reason) => problem(reason),
            // Envoy refuses a second listener on an address.
            Ok(_) if !taken.insert((ip, outbound.port)) => problem("the address is taken".to_owned()),
            Ok(backend) => outbounds.push(Outbound { address: ip, port: outbound.port, backend }),
        }
    }
    outbounds
}

/// Adds the listener of `outbound` with these routes.
pub(crate) fn add_http_listener(
    proxy: &Sidecar,
    outbound: &Outbound,
    routes: Vec<RouteDraft>,
    draft: &mut Draft,
) {
    let service = &outbound.backend.service;
    let http = HttpChain {
        manager: http::outbound_manager(service, proxy.metadata.ipv6),
        filters: Vec::new(),
        config: http::route_configuration(&outbound.backend.routes()),
        host: service.clone(),
        routes,
    };
    add_listener(outbound, Terminal::Http(Box::new(http)), draft);
}

/// Adds the listener of `outbound` that forwards bytes.
pub(crate) fn add_tcp_listener(outbound: &Outbound, shares: &[Share], draft: &mut Draft) {
    let specifier = match shares {
        [only] => ClusterSpecifier::Cluster(only.cluster.clone()),
        several => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: several.iter().map(weighted).collect(),
        }),
    };
    let tcp = TcpProxy {
        stat_prefix: names::metric(&outbound.backend.service),
        idle_timeout: Some(seconds(3600)),
        cluster_specifier: Some(specifier),
        ..TcpProxy::default()
    };
    add_listener(outbound, Terminal::Tcp(Box::new(tcp)), draft);
}

fn weighted(share: &Share) -> ClusterWeight {
    ClusterWeight { name: share.cluster.clone(), weight: share.weight, ..ClusterWeight::default() }
}

fn add_listener(outbound: &Outbound, terminal: Terminal, draft: &mut Draft) {
    let message = Listener {
        name: outbound.listener(),
        address: Some(address::socket(outbound.address, outbound.port)),
        traffic_direction: TrafficDirection::Outbound.into(),
        metadata: metadata::tags(&outbound.backend.listener_tags()),
        ..Listener::default()
    };
    let chains = vec![Chain { terminal, ..Chain::default() }];
    let role = Role::Outbound(outbound.backend.clone());
    draft.listeners.insert(message.name.clone(), ListenerDraft { role, message, chains });
}
