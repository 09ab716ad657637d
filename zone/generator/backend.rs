//! What can be called: a set of endpoints with the cluster that reaches them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    issuing,
    model::{kinds::mesh_service::Port, kri::Kri, labels},
    proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext,
};

use super::{
    ClusterDraft, Draft, EndpointsDraft, Role,
    envoy::{cluster, tls},
    names, sni,
};
use crate::mesh::{MeshContext, MeshService, Protocol, topology::Service};

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

/// Tag of listeners of services that are resources.
const UNIFIED_NAME: &str = "kuma.io/unified-name";

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
    pub(super) fn members(&self, mesh: &MeshContext) -> Arc<Service> {
        match self.resource {
            Some(_) => mesh.topology.destination(&self.service),
            None => mesh.topology.service(&self.service),
        }
    }

    /// TLS towards it in this zone.
    fn tls(&self, mesh: &MeshContext) -> UpstreamTlsContext {
        self.tls_in(&mesh.zone, mesh)
    }

    /// TLS towards it in other zones, as far as it differs by zone.
    fn tls_elsewhere(&self, mesh: &MeshContext, service: &Service) -> BTreeMap<String, UpstreamTlsContext> {
        if mesh.mtls.as_ref().is_none_or(|mtls| mtls.issuers.is_empty()) {
            return BTreeMap::new();
        }
        let zones = service.other_zones().into_iter();
        zones.map(|zone| (zone.to_owned(), self.tls_in(zone, mesh))).collect()
    }

    /// Where a zone signs with a key of its own, its workloads prove by a DNS name that they are there: any zone
    /// could sign the URI names.
    fn tls_in(&self, zone: &str, mesh: &MeshContext) -> UpstreamTlsContext {
        let proves_zone = mesh.mtls.as_ref().is_some_and(|mtls| mtls.issuers.contains(zone));
        let trust_domain = format!("spiffe://{}/", mesh.mesh);
        let name = |identity: &str| match identity.strip_prefix(&trust_domain) {
            Some(service) if proves_zone => tls::dns(tls::exact(issuing::name(service, zone, &mesh.mesh))),
            _ => tls::uri(tls::exact(identity.to_owned())),
        };
        match &self.resource {
            Some(resource) => {
                let names = resource.identities.iter().map(|identity| name(identity)).collect();
                tls::upstream(&mesh.mesh, names, resource.sni.clone())
            }
            None => {
                let names = vec![name(&format!("{trust_domain}{}", self.service))];
                let sni = sni::of_tags(&self.service, &mesh.mesh, &self.tags);
                tls::upstream(&mesh.mesh, names, sni)
            }
        }
    }

    /// How its routes are called.
    pub(super) fn routes(&self) -> String {
        match &self.resource {
            Some(resource) => resource.kri.to_string(),
            None => format!("outbound:{}", self.service),
        }
    }

    /// By what patches find its listener.
    pub(super) fn listener_tags(&self) -> BTreeMap<String, String> {
        match &self.resource {
            Some(resource) => [(UNIFIED_NAME.to_owned(), resource.kri.to_string())].into(),
            None => self.tags.clone(),
        }
    }

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

/// Adds cluster and endpoints of `backend`, once.
pub(crate) fn add_backend(mesh: &MeshContext, backend: &Backend, draft: &mut Draft) {
    if draft.clusters.contains_key(&backend.cluster) {
        return;
    }
    let service = backend.members(mesh);
    let endpoints = EndpointsDraft::Selected { service: Arc::clone(&service), tags: backend.tags.clone() };
    draft.endpoints.insert(backend.cluster.clone(), endpoints);

    let encrypted = uses_tls(mesh, &service);
    let cluster = ClusterDraft {
        role: Role::Outbound(backend.clone()),
        message: cluster::discovered(&backend.cluster),
        // Between sidecars HTTP is always HTTP/2, whatever the workloads speak; bytes do not mind.
        http: Some(cluster::http2()),
        tls: encrypted.then(|| backend.tls(mesh)),
        tls_elsewhere: if encrypted { backend.tls_elsewhere(mesh, &service) } else { BTreeMap::new() },
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
