//! What the workload calls: one listener per outbound, and a cluster with endpoints per backend.
//!
//! Which backends an outbound has is decided by the route policies, which call in here.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    model::{kinds::mesh_service::Port, kri::Kri, labels},
    proto::envoy::{
        config::{core::v3::TrafficDirection, listener::v3::Listener},
        extensions::{
            filters::network::tcp_proxy::v3::{
                TcpProxy,
                tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
            },
            transport_sockets::tls::v3::UpstreamTlsContext,
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
use crate::mesh::{MeshContext, MeshService, Problem, Protocol, problem::Subject, topology::Service};

/// A set of endpoints of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Value of the service tag; the name of the cluster for a service that is a resource.
    pub service: String,
    /// All tags its endpoints must have, the service tag included.
    pub tags: BTreeMap<String, String>,
    /// What is spoken to it.
    pub protocol: Protocol,
    /// Name of its cluster.
    pub cluster: String,
    /// Present when the service is a resource.
    pub resource: Option<ResourceBackend>,
}

/// A port of a service that is a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceBackend {
    /// Its identifier, with the port as section.
    pub kri: Kri,
    /// The server name its ingress knows.
    pub sni: String,
    /// SPIFFE identities its proxies may have.
    pub identities: BTreeSet<String>,
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
            resource: None,
        })
    }

    /// A port of a service that is a resource.
    pub fn of_resource(mesh: &MeshContext, service: &MeshService, port: &Port) -> Self {
        let cluster = service.destination(port);
        let known = service.spec.identities.iter().map(|identity| match identity.r#type.as_str() {
            "SpiffeID" => identity.value.clone(),
            _ => format!("spiffe://{}/{}", mesh.mesh, identity.value),
        });
        let mut identities: BTreeSet<String> = known.collect();
        if identities.is_empty() {
            // Nobody has written them down yet; the tags of the endpoints are where they come from.
            let destination = mesh.topology.destination(&cluster);
            let tags = destination.endpoints.iter().filter(|e| !e.remote).map(|e| &e.tags);
            let services = tags.filter_map(|tags| tags.get(labels::TAG_SERVICE));
            identities.extend(services.map(|name| format!("spiffe://{}/{name}", mesh.mesh)));
        }
        Self {
            service: cluster.clone(),
            tags: BTreeMap::new(),
            protocol: MeshService::protocol(port),
            resource: Some(ResourceBackend {
                kri: service.kri.clone().with_section(&MeshService::section(port)),
                sni: sni::of_resource(&service.sni_name(), port.port, &mesh.mesh, "ms"),
                identities,
            }),
            cluster,
        }
    }

    /// Its endpoints, those of other tags included.
    fn members(&self, mesh: &MeshContext) -> Arc<Service> {
        match self.resource {
            Some(_) => mesh.topology.destination(&self.service),
            None => mesh.topology.service(&self.service),
        }
    }

    /// TLS towards it.
    fn tls(&self, mesh: &MeshContext) -> UpstreamTlsContext {
        match &self.resource {
            Some(resource) => {
                let identities = resource.identities.iter().cloned().map(tls::exact).collect();
                tls::upstream(&mesh.mesh, identities, resource.sni.clone())
            }
            None => {
                let identity = tls::exact(format!("spiffe://{}/{}", mesh.mesh, self.service));
                let sni = sni::of_tags(&self.service, &mesh.mesh, &self.tags);
                tls::upstream(&mesh.mesh, vec![identity], sni)
            }
        }
    }

    /// How its routes are called.
    fn routes(&self) -> String {
        match &self.resource {
            Some(resource) => resource.kri.to_string(),
            None => format!("outbound:{}", self.service),
        }
    }

    /// By what patches find its listener.
    fn listener_tags(&self) -> BTreeMap<String, String> {
        match &self.resource {
            Some(resource) => [(UNIFIED_NAME.to_owned(), resource.kri.to_string())].into(),
            None => self.tags.clone(),
        }
    }
}

/// Tag of listeners of services that are resources.
const UNIFIED_NAME: &str = "kuma.io/unified-name";

impl Backend {
    /// What a reference of a proxy or a route means, when it is a port of a service that is a resource.
    pub fn of_reference(
        mesh: &MeshContext,
        name: Option<&str>,
        labels: Option<&BTreeMap<String, String>>,
        port: &str,
    ) -> Option<Self> {
        let (service, port) = mesh.mesh_service(name, labels, port)?;
        Some(Self::of_resource(mesh, service, port))
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

/// Adds cluster and endpoints of `backend`, once.
pub(crate) fn add_backend(mesh: &MeshContext, backend: &Backend, draft: &mut Draft) {
    if draft.clusters.contains_key(&backend.cluster) {
        return;
    }
    let service = backend.members(mesh);
    let endpoints = EndpointsDraft::Selected { service: Arc::clone(&service), tags: backend.tags.clone() };
    draft.endpoints.insert(backend.cluster.clone(), endpoints);

    let cluster = ClusterDraft {
        role: Role::Outbound(backend.clone()),
        message: cluster::discovered(&backend.cluster),
        // Between sidecars HTTP is always HTTP/2, whatever the workloads speak; bytes do not mind.
        http: Some(cluster::http2()),
        tls: uses_tls(mesh, &service).then(|| backend.tls(mesh)),
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
