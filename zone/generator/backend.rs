//! What can be called, with the cluster that reaches it.

mod encryption;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{kinds::mesh_service::Port, kri::Kri, labels},
    proto::envoy::{
        config::cluster::v3::{Cluster, cluster::DnsLookupFamily},
        extensions::upstreams::http::v3::HttpProtocolOptions,
    },
};

use self::encryption::server_names;
use super::{
    ClusterDraft, Encoded, Giver, Placement, Role, XdsClient,
    envoy::{cluster, endpoint, number},
    gateway, names,
    outward::{self, Outward},
    sni, type_url, zone_listener,
};
use crate::{
    mesh::{
        Abroad, Destination, Exit, ExternalService, MeshContext, MultiZoneService, Protocol, ZoneService,
        egress_identity,
        topology::{self, Service},
    },
    share::{IDENTITIES_OF_SERVICE, LONGEST_IDENTITY},
};

/// A destination with what has to be known to send traffic there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Which one.
    pub destination: Destination,
    /// What it is called in names, metrics and rules: the service, or the cluster of a port.
    pub name: String,
    /// What is spoken to it.
    pub protocol: Protocol,
    /// Name of its cluster.
    pub cluster: String,
    /// Present when the service is a resource.
    pub resource: Option<ResourceBackend>,
    /// An egress stands for it, because it is outside the mesh.
    pub behind_egress: bool,
}

/// A port of a service that is a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceBackend {
    /// Its identifier, with the port as section.
    pub kri: Kri,
    /// The server name it is asked for.
    pub sni: String,
    /// The one that the ingresses of these zones know instead.
    pub sni_elsewhere: BTreeMap<String, String>,
    /// SPIFFE identities its proxies may have.
    pub identities: BTreeSet<String>,
}

/// Tag of listeners of services that are resources.
const UNIFIED_NAME: &str = "kuma.io/unified-name";

impl Backend {
    /// What is known of `destination`; `None` when it does not exist, or has the name of a cluster for the
    /// workload itself.
    pub fn of(mesh: &MeshContext, destination: &Destination) -> Option<Self> {
        match destination {
            Destination::Service(service) => Self::tagged(mesh, destination, service, service.to_string()),
            Destination::Subset(subset) => {
                let cluster = names::service_cluster(&subset.service, &subset.tags);
                Self::tagged(mesh, destination, &subset.service, cluster)
            }
            Destination::Port(name, port) => {
                let service = mesh.mesh_services.get(name)?;
                Some(Self::of_port(mesh, service, service.numbered(*port)?))
            }
            Destination::MultiZone(name, port) => {
                let service = mesh.multi_zone_services.get(name)?;
                Some(Self::of_parts(mesh, service, service.numbered(*port)?))
            }
            Destination::Through(through) => {
                let reached = Self::of(mesh, &through.destination)?;
                let mut tags = reached.tags();
                if tags.is_empty() {
                    tags.insert(labels::TAG_SERVICE.to_owned(), reached.cluster.clone());
                }
                let cluster = names::gateway_cluster(&tags[labels::TAG_SERVICE], &tags, &through.listener);
                Some(Self { destination: destination.clone(), cluster, ..reached })
            }
            Destination::External(name) => Self::of_external(mesh, mesh.external.resource(name)?),
            Destination::Abroad(abroad) => Self::abroad(mesh, abroad),
            Destination::Here(port) => {
                let reached = Self::of(mesh, port)?;
                let cluster = reached.resource.as_ref()?.kri.to_string();
                Some(Self { destination: destination.clone(), cluster, ..reached })
            }
        }
    }

    fn tagged(mesh: &MeshContext, destination: &Destination, service: &str, cluster: String) -> Option<Self> {
        if names::is_reserved(service) {
            return None;
        }
        let known = mesh.topology.service(destination);
        Some(Self {
            destination: destination.clone(),
            name: service.to_owned(),
            protocol: known.protocol,
            cluster,
            resource: None,
            behind_egress: matches!(known.exit, Some(Exit::Egress)),
        })
    }

    /// A gateway of another mesh.
    fn abroad(mesh: &MeshContext, abroad: &Arc<Abroad>) -> Option<Self> {
        if names::is_reserved(&abroad.service) {
            return None;
        }
        let destination = Destination::Abroad(Arc::clone(abroad));
        Some(Self {
            name: abroad.service.to_string(),
            // Nothing else is let in.
            protocol: mesh.topology.service(&destination).protocol,
            cluster: format!("{}_{}", names::service_cluster(&abroad.service, &abroad.tags), abroad.mesh),
            resource: None,
            behind_egress: false,
            destination,
        })
    }

    /// A service outside the mesh that is a resource.
    pub fn of_external(mesh: &MeshContext, service: &ExternalService) -> Option<Self> {
        let name = service.resource.display_name();
        let kri = service.kri.clone()?;
        let hashed = || sni::of_resource(name, service.port, &mesh.mesh, "mes");
        // An egress of the mesh alone knows services by their identifiers, and has a name of its own.
        let (sni, identities) = match &mesh.topology.service(&service.destination).exit {
            Some(Exit::OwnEgress(identities)) => {
                (sni::of_kri(&kri).unwrap_or_else(hashed), BTreeSet::clone(identities))
            }
            _ => (hashed(), [egress_identity(&mesh.mesh)].into()),
        };
        Some(Self {
            destination: service.destination.clone(),
            name: service.service.to_string(),
            protocol: service.protocol,
            cluster: service.service.to_string(),
            resource: Some(ResourceBackend { kri, sni, sni_elsewhere: BTreeMap::new(), identities }),
            behind_egress: true,
        })
    }

    /// A port of a service that is a resource.
    pub fn of_port(mesh: &MeshContext, service: &ZoneService, port: &Port) -> Self {
        let (cluster, destination) = (service.destination(port), service.callee(port));
        let identities = identities(mesh, service, port);
        let kri = service.kri.clone().with_section(&ZoneService::section(port));
        let hashed = sni::of_resource(&service.sni_name(), port.port, &mesh.mesh, "ms");
        let (sni, sni_elsewhere) = server_names(&mesh.topology.service(&destination), &kri, hashed);
        Self {
            destination,
            name: cluster.clone(),
            protocol: ZoneService::protocol(port),
            resource: Some(ResourceBackend { kri, sni, sni_elsewhere, identities }),
            cluster,
            behind_egress: false,
        }
    }

    /// A port of a service of several zones: whoever answers is one of those it is made of.
    pub fn of_parts(mesh: &MeshContext, service: &MultiZoneService, port: &Port) -> Self {
        let cluster = service.destination(port);
        let parts = service.parts(&mesh.mesh_services);
        let identities = parts.filter_map(|part| Some(identities(mesh, part, part.numbered(port.port)?)));
        let identities = identities.flatten().collect();
        let destination = service.callee(port);
        let kri = service.kri.clone().with_section(&ZoneService::section(port));
        let hashed = sni::of_resource(service.resource.display_name(), port.port, &mesh.mesh, "mzms");
        let (sni, sni_elsewhere) = server_names(&mesh.topology.service(&destination), &kri, hashed);
        Self {
            destination,
            name: cluster.clone(),
            protocol: ZoneService::protocol(port),
            resource: Some(ResourceBackend { kri, sni, sni_elsewhere, identities }),
            cluster,
            behind_egress: false,
        }
    }

    /// The tags its endpoints are known by; of a service that is a resource there are none.
    pub(crate) fn tags(&self) -> BTreeMap<String, String> {
        match self.destination.itself() {
            Destination::Service(name) => [(labels::TAG_SERVICE.to_owned(), name.to_string())].into(),
            Destination::Subset(subset) => subset.tags.clone(),
            Destination::Abroad(abroad) => abroad.tags.clone(),
            Destination::Port(..)
            | Destination::MultiZone(..)
            | Destination::External(_)
            | Destination::Through(_)
            | Destination::Here(_) => BTreeMap::new(),
        }
    }

    /// Whether a builtin gateway calls it.
    fn is_through_gateway(&self) -> bool {
        matches!(self.destination, Destination::Through(_))
    }

    /// Who asks for its cluster.
    pub(super) fn origin(&self) -> &'static str {
        if self.is_through_gateway() { "gateway" } else { "outbound" }
    }

    /// How it is spoken to. Between sidecars HTTP is always HTTP/2, whatever the workloads speak; bytes do not
    /// mind. A gateway speaks as the workload does, and an egress is spoken to as those outside are.
    fn http(&self) -> Option<HttpProtocolOptions> {
        match self.protocol {
            _ if !self.is_through_gateway() && !self.behind_egress => Some(cluster::http2()),
            Protocol::Http => Some(cluster::http1()),
            Protocol::Http2 | Protocol::Grpc => Some(cluster::http2()),
            Protocol::Tcp | Protocol::Kafka | Protocol::Unknown => None,
        }
    }

    /// How its routes are called.
    pub(super) fn routes(&self) -> String {
        match &self.resource {
            Some(resource) => resource.kri.to_string(),
            None => format!("outbound:{}", self.name),
        }
    }

    /// By what patches find its listener.
    pub(super) fn listener_tags(&self) -> BTreeMap<String, String> {
        match &self.resource {
            Some(resource) => [(UNIFIED_NAME.to_owned(), resource.kri.to_string())].into(),
            None => self.tags(),
        }
    }

    /// Its cluster, whose endpoints are discovered, unless it is outside the mesh and called there. It is called by
    /// who was `given` its identity by this.
    ///
    /// # Errors
    /// Why there is none.
    pub fn cluster(
        &self,
        mesh: &MeshContext,
        system_ca: Option<&str>,
        given: Option<&Giver>,
    ) -> Result<ClusterDraft, String> {
        if matches!(self.destination, Destination::Here(_)) {
            return Ok(zone_listener::cluster_here(&self.cluster));
        }
        let service = mesh.topology.service(&self.destination);
        if let Some(Exit::Direct(external)) = &service.exit {
            let outward = Outward { mesh: None, lookup: DnsLookupFamily::V4Preferred, system_ca };
            let meant = |external: &&Arc<ExternalService>| {
                let wanted = self.destination.filter().into_iter().flatten();
                wanted.into_iter().all(|(key, value)| external.tags.get(key) == Some(value))
            };
            let external: Vec<_> = external.iter().filter(meant).cloned().collect();
            return outward::cluster(Role::Outbound(self.clone()), &self.cluster, &external, outward);
        }
        let encrypted = given.is_some() || uses_tls(mesh, &service);
        let limit = self.is_through_gateway();
        Ok(ClusterDraft {
            role: Role::Outbound(self.clone()),
            message: Cluster {
                per_connection_buffer_limit_bytes: limit.then(|| number(gateway::BUFFER)).flatten(),
                ..cluster::discovered(&self.cluster)
            },
            http: self.http(),
            tls: encrypted.then(|| self.tls(mesh, given)),
            tls_elsewhere: if encrypted {
                self.tls_elsewhere(mesh, &service, given)
            } else {
                BTreeMap::new()
            },
            nearness: None,
        })
    }

    /// Whether its clients call it where it is, outside the mesh.
    pub fn is_called_outside(&self, mesh: &MeshContext) -> bool {
        matches!(mesh.topology.service(&self.destination).exit, Some(Exit::Direct(_)))
    }
}

/// SPIFFE identities the proxies behind a port may have.
fn identities(mesh: &MeshContext, service: &ZoneService, port: &Port) -> BTreeSet<String> {
    let is_here = service.remote_zone.is_none();
    let told = service.spec.identities.iter().filter(|told| is_here || told.value.len() <= LONGEST_IDENTITY);
    let told = told.take(if is_here { usize::MAX } else { IDENTITIES_OF_SERVICE });
    let known = told.map(|identity| match identity.r#type.as_str() {
        "SpiffeID" => identity.value.clone(),
        _ => format!("spiffe://{}/{}", mesh.mesh, identity.value),
    });
    let mut identities: BTreeSet<String> = known.collect();
    if identities.is_empty() {
        // Nobody has written them down yet; the tags of the endpoints are where they come from.
        let endpoints = mesh.topology.service(&service.callee(port));
        let tags = endpoints.endpoints.iter().filter(|e| !e.remote).map(|e| &e.tags);
        let services = tags.filter_map(|tags| tags.get(labels::TAG_SERVICE));
        identities.extend(services.map(|name| format!("spiffe://{}/{name}", mesh.mesh)));
    }
    identities
}

/// The endpoints of `destination` as those of `cluster`, the same for every client of this kind that sees them in these
/// places.
pub(crate) fn assignment(
    mesh: &MeshContext,
    destination: &Destination,
    placement: Option<&Placement>,
    cluster: &str,
    client: XdsClient,
) -> Option<Arc<Encoded>> {
    let service = mesh.topology.service(destination);
    if matches!(service.exit, Some(Exit::Direct(_))) {
        // They are in the cluster.
        return None;
    }
    let here = matches!(destination, Destination::Here(_));
    // An ingress passes on what asks for a server name, which gRPC libraries do not say.
    let near = here || client == XdsClient::Grpc;
    let meant = |e: &&topology::Endpoint| {
        destination.filter().is_none_or(|tags| e.has_tags(tags)) && !(near && e.remote)
    };
    let origin = if here { "ingress" } else { "outbound" };
    let endpoints = service.endpoints.iter().filter(meant);
    let message = match placement {
        None => endpoint::grouped(cluster, endpoints),
        Some(placement) => placement.assignment(cluster, endpoints, &mesh.zone),
    };
    let message = match client {
        XdsClient::Envoy => message,
        XdsClient::Grpc => endpoint::complete(message, &mesh.zone),
    };
    Some(Arc::new(Encoded::new(cluster, type_url::ENDPOINT, origin, &message)))
}

/// A strict mesh always uses TLS. A permissive one uses it for a service once each of its endpoints
/// accepts it; those of other zones are reachable in no other way.
fn uses_tls(mesh: &MeshContext, service: &Service) -> bool {
    match &mesh.mtls {
        None => false,
        Some(mtls) => {
            let remote = !service.endpoints.is_empty() && service.endpoints.iter().all(|e| e.remote);
            !mtls.permissive || service.tls_ready || remote || service.exit.is_some()
        }
    }
}
