//! What the workload calls: one listener per outbound, and a cluster with endpoints per backend.
//!
//! Which backends an outbound has is decided by the route policies, which call in here.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

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
    Chain, ClusterDraft, Draft, EndpointsDraft, HttpChain, ListenerDraft, Role, RouteDraft, Sidecar,
    Terminal,
    envoy::{
        address, cluster,
        http::{self, Share},
        metadata, seconds, tls,
    },
    names, sni,
};
use crate::mesh::{MeshContext, Problem, Protocol, problem::Subject, topology::Service};

/// A set of endpoints of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Value of the service tag.
    pub service: String,
    /// All tags its endpoints must have, the service tag included.
    pub tags: BTreeMap<String, String>,
    /// What is spoken to it.
    pub protocol: Protocol,
    /// Name of its cluster.
    pub cluster: String,
}

impl Backend {
    /// The endpoints of `mesh` with these tags; `None` without a service tag, or with one that is the name
    /// of a cluster for the workload itself.
    pub fn tagged(mesh: &MeshContext, tags: &BTreeMap<String, String>) -> Option<Self> {
        let service = tags.get(labels::TAG_SERVICE).filter(|name| !names::is_reserved(name))?;
        Some(Self {
            service: service.clone(),
            tags: tags.clone(),
            protocol: mesh.topology.service(service).protocol,
            cluster: names::service_cluster(service, tags),
        })
    }
}

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
        if let Some(reference) = &outbound.backend_ref {
            problem(format!("references to a {} are not supported yet; use tags", reference.kind));
            continue;
        }
        match Backend::tagged(mesh, &outbound.tags) {
            None => problem(format!("the tag {} is missing or reserved", labels::TAG_SERVICE)),
            // Envoy refuses a second listener on an address.
            Some(_) if !taken.insert((ip, outbound.port)) => problem("the address is taken".to_owned()),
            Some(backend) => outbounds.push(Outbound { address: ip, port: outbound.port, backend }),
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
        config: http::route_configuration(&format!("outbound:{service}")),
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
        metadata: metadata::tags(&outbound.backend.tags),
        ..Listener::default()
    };
    let chains = vec![Chain { terminal, ..Chain::default() }];
    let role = Role::Outbound(outbound.backend.clone());
    draft.listeners.insert(message.name.clone(), ListenerDraft { role, message, chains });
}

/// Adds cluster and endpoints of `backend`, once.
pub(crate) fn add_backend(mesh: &MeshContext, backend: &Backend, draft: &mut Draft) {
    if draft.clusters.contains_key(&backend.cluster) {
        return;
    }
    let service = mesh.topology.service(&backend.service);
    let endpoints = EndpointsDraft::Selected { service: Arc::clone(&service), tags: backend.tags.clone() };
    draft.endpoints.insert(backend.cluster.clone(), endpoints);

    let cluster = ClusterDraft {
        role: Role::Outbound(backend.clone()),
        message: cluster::discovered(&backend.cluster),
        // Between sidecars HTTP is always HTTP/2, whatever the workloads speak.
        http: backend.protocol.is_http().then(cluster::http2),
        tls: uses_tls(mesh, &service).then(|| {
            let identity = tls::exact(format!("spiffe://{}/{}", mesh.mesh, backend.service));
            let sni = sni::of_tags(&backend.service, &mesh.mesh, &backend.tags);
            tls::upstream(&mesh.mesh, vec![identity], sni)
        }),
    };
    draft.clusters.insert(backend.cluster.clone(), cluster);
}

/// A strict mesh always uses TLS. A permissive one uses it for a service once each of its endpoints
/// accepts it; those of other zones are reachable in no other way.
fn uses_tls(mesh: &MeshContext, service: &Arc<Service>) -> bool {
    match &mesh.mtls {
        None => false,
        Some(mtls) => {
            let remote = !service.endpoints.is_empty() && service.endpoints.iter().all(|e| e.remote);
            !mtls.permissive || service.tls_ready || remote
        }
    }
}
