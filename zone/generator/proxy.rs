//! For whom configuration is generated.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use common::proto::{
    envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext,
    google::protobuf::{Struct, Value, value::Kind},
};

use super::{
    admin::{AdminEndpoint, AdminIdentity},
    envoy::tls::{self, SecretNames},
    runtime::FEATURE_RUNTIME,
    shown::{Giver, Shown},
};
use crate::mesh::{
    Dataplane, MeshContext, Redirection, WorkloadCertificate, ZoneEgress, ZoneIngress,
    redirection::FEATURE_BIND_OUTBOUNDS,
};

/// Announced by proxies on machines where several may listen on one port.
pub(super) const FEATURE_REUSE_PORT: &str = "feature-reuse-port";

/// Announced by applications that are members of a mesh by way of their gRPC library.
pub const FEATURE_GRPC: &str = "feature-grpc";

/// Who reads configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XdsClient {
    /// An Envoy.
    #[default]
    Envoy,
    /// The gRPC library of an application.
    Grpc,
}

/// A proxy next to a workload.
#[derive(Clone, Debug)]
pub struct Sidecar {
    /// Its resource, from [`crate::mesh::MeshContext::dataplanes`].
    pub dataplane: Arc<Dataplane>,
    /// What the Envoy said about itself.
    pub metadata: ProxyMetadata,
    /// What it shows to others; `None` without mutual TLS.
    pub shown: Option<Shown>,
    /// What it shows at a listener before its admin endpoint; `None` for no such listener.
    pub admin: Option<Arc<AdminIdentity>>,
}

impl Sidecar {
    /// The secrets of mesh TLS, and the trust domains whose members may call, none for all it believes; `None` where
    /// there is none.
    pub(super) fn tls(&self, mesh: &MeshContext) -> Option<(SecretNames, Vec<String>)> {
        let given = self.shown.as_ref()?.given();
        let several = self.meets_several(mesh);
        let domains = match given {
            // Whom its agent believes is no business of the mesh.
            Some(Giver::Agent(_)) => Vec::new(),
            _ if several => mesh.trust_domains.keys().cloned().collect(),
            _ => vec![mesh.mesh.to_string()],
        };
        Some((SecretNames::of(&mesh.mesh, given.as_ref(), several), domains))
    }

    /// How it accepts members of the mesh; `None` where there is no mesh TLS.
    pub(crate) fn downstream(&self, mesh: &MeshContext) -> Option<DownstreamTlsContext> {
        let (secrets, domains) = self.tls(mesh)?;
        Some(tls::downstream(secrets, domains.iter().map(String::as_str)))
    }

    /// The same for those it lets out of the mesh. Among trust domains to be believed is to be a member.
    pub(crate) fn downstream_on_the_way_out(&self, mesh: &MeshContext) -> Option<DownstreamTlsContext> {
        let (secrets, domains) = self.tls(mesh)?;
        let told_by_name = if self.meets_several(mesh) { Vec::new() } else { domains };
        Some(tls::downstream(secrets, told_by_name.iter().map(String::as_str)))
    }

    /// Whether it was given its identity, and does not have it as a member of the mesh like any other.
    fn is_given(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.name().is_some())
    }

    /// Whether it meets members of several trust domains, and is told who vouches for each.
    fn meets_several(&self, mesh: &MeshContext) -> bool {
        self.is_given() || mesh.has_trust_domains()
    }

    /// Whether clients may do without mesh TLS, as far as the mesh says so. Of who was given an identity only policies
    /// do.
    pub(super) fn is_permissive(&self, mesh: &MeshContext) -> bool {
        !self.is_given() && mesh.mtls.as_ref().is_some_and(|mtls| mtls.permissive)
    }

    /// Whether it may serve in plaintext alone: where the mesh has no TLS for it, or has not made up its mind.
    pub(crate) fn may_be_plain(&self, mesh: &MeshContext) -> bool {
        self.shown.is_none() || self.is_permissive(mesh)
    }
}

/// A zone ingress.
#[derive(Clone, Debug)]
pub struct ZoneIngressProxy {
    /// Its resource.
    pub ingress: Arc<ZoneIngress>,
    /// What the Envoy said about itself.
    pub metadata: ProxyMetadata,
    /// What it shows at a listener before its admin endpoint; `None` for no such listener.
    pub admin: Option<Arc<AdminIdentity>>,
}

/// A zone egress.
#[derive(Clone, Debug)]
pub struct ZoneEgressProxy {
    /// Its resource.
    pub egress: Arc<ZoneEgress>,
    /// What the Envoy said about itself.
    pub metadata: ProxyMetadata,
    /// What it presents in each mesh.
    pub certificates: BTreeMap<Arc<str>, Arc<WorkloadCertificate>>,
    /// What it shows at a listener before its admin endpoint; `None` for no such listener.
    pub admin: Option<Arc<AdminIdentity>>,
}

/// The part of the node metadata that decides about configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyMetadata {
    /// Capabilities, as named by data plane proxies.
    pub features: BTreeSet<String>,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
    /// Its admin endpoint, when it has one.
    pub admin: Option<AdminEndpoint>,
    /// Folder of whoever runs the Envoy and takes part in what it does; empty when nobody does.
    pub work_dir: String,
    /// How the traffic of its machine is redirected; `None` when its resource says that.
    pub redirection: Option<Redirection>,
    /// Port on which names are looked up, to which such questions are redirected.
    pub dns_port: Option<u32>,
    /// Whether somebody else answers probes.
    pub probes_answered: bool,
    /// Files with a certificate and its key for those who ask for metrics.
    pub metrics_certificate: Option<(String, String)>,
    /// File with the certificates its machine believes.
    pub system_ca: Option<String>,
    /// The socket of the agent of SPIRE beside it, where it says one.
    pub agent_socket: Option<String>,
}

impl Default for ProxyMetadata {
    fn default() -> Self {
        Self {
            features: BTreeSet::new(),
            ipv6: true,
            admin: None,
            work_dir: String::new(),
            redirection: None,
            dns_port: None,
            probes_answered: false,
            metrics_certificate: None,
            system_ca: None,
            agent_socket: None,
        }
    }
}

impl ProxyMetadata {
    /// Whether several may listen on one port of its machine.
    pub(crate) fn reuses_port(&self) -> bool {
        self.has(FEATURE_REUSE_PORT)
    }

    /// From the metadata of an xDS node. Unknown members are ignored.
    pub fn of_node(metadata: &Struct) -> Self {
        let text = |value: &Value| match &value.kind {
            Some(Kind::StringValue(text)) => Some(text.clone()),
            _ => None,
        };
        let features = match metadata.fields.get("features").and_then(|v| v.kind.as_ref()) {
            Some(Kind::ListValue(list)) => list.values.iter().filter_map(text).collect(),
            _ => BTreeSet::new(),
        };
        let ipv6 = metadata.fields.get("ipv6Enabled").and_then(|v| v.kind.as_ref());
        let admin = AdminEndpoint::of_node(metadata);
        let file =
            |name: &str| metadata.fields.get(name).and_then(text).filter(|path: &String| !path.is_empty());
        let metrics_certificate = file("metricsCertPath").zip(file("metricsKeyPath"));
        let work_dir = metadata.fields.get("workdir").and_then(text).unwrap_or_default();
        let dns_port = metadata.fields.get("dataplane.dns.port").and_then(text);
        let probes = metadata.fields.get("dataplane.appProbeProxy.enabled").and_then(text);
        Self {
            features,
            ipv6: !matches!(ipv6, Some(Kind::BoolValue(false))),
            admin,
            work_dir,
            redirection: Redirection::of_node(metadata),
            dns_port: dns_port.and_then(|port| port.parse::<u16>().ok()).filter(|p| *p > 0).map(u32::from),
            probes_answered: probes.as_deref() == Some("true"),
            metrics_certificate,
            system_ca: file("systemCaPath"),
            agent_socket: file("spireAgent.socketPath"),
        }
    }

    /// Whether its bootstrap has a place for a layer of the runtime.
    pub(crate) fn has_runtime_layer(&self) -> bool {
        self.has(FEATURE_RUNTIME)
    }

    /// Who reads what is made for it.
    pub fn client(&self) -> XdsClient {
        if self.has(FEATURE_GRPC) { XdsClient::Grpc } else { XdsClient::Envoy }
    }

    /// Whether several listeners may have one port.
    pub fn reuses_ports(&self) -> bool {
        self.has(FEATURE_REUSE_PORT)
    }

    /// How the traffic of the machine of `dataplane` is redirected to it.
    pub fn redirection(&self, dataplane: &Dataplane) -> Redirection {
        self.redirection.unwrap_or(dataplane.redirection)
    }

    /// Whether its workload sees nothing but traffic redirected to it.
    pub fn is_transparent(&self, dataplane: &Dataplane) -> bool {
        self.redirection(dataplane).is_complete(dataplane.address)
    }

    /// Whether it passes on what is redirected, wherever that was meant for.
    pub fn passes_through(&self, dataplane: &Dataplane) -> bool {
        self.redirection(dataplane).outbound > 0 && !self.has(FEATURE_BIND_OUTBOUNDS)
    }

    /// Whether its workload calls services at virtual addresses, and not at those its resource lists.
    pub fn calls_virtually(&self, dataplane: &Dataplane) -> bool {
        self.is_transparent(dataplane) || self.has(FEATURE_BIND_OUTBOUNDS)
    }

    /// Whether the addresses it calls are only recognised, and not its own.
    pub fn recognises_calls(&self, dataplane: &Dataplane) -> bool {
        self.is_transparent(dataplane) && !self.has(FEATURE_BIND_OUTBOUNDS)
    }

    /// The path of a socket or pipe of whoever runs the proxy, cut to what may be the name of a socket.
    pub(crate) fn socket(&self, name: &str) -> String {
        const LONGEST: usize = 98;
        let folder = self.work_dir.trim_end_matches('/');
        let mut path = format!("{folder}/{name}");
        let end = (0..=LONGEST.min(path.len())).rev().find(|at| path.is_char_boundary(*at)).unwrap_or(0);
        path.truncate(end);
        path + ".sock"
    }

    /// Whether the proxy announced this capability.
    pub fn has(&self, feature: &str) -> bool {
        self.features.contains(feature)
    }
}

impl AdminEndpoint {
    /// As the metadata of an xDS node has it.
    pub(crate) fn of_node(metadata: &Struct) -> Option<Self> {
        let text = |name: &str| match &metadata.fields.get(name)?.kind {
            Some(Kind::StringValue(text)) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        };
        let port = |name: &str| text(name)?.parse::<u16>().ok().filter(|port| *port > 0).map(u32::from);
        let address = text("dataplane.admin.address").and_then(|address| address.parse().ok());
        Some(Self {
            address: address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            port: port("dataplane.admin.port")?,
            socket: text("dataplane.admin.socketPath").map(str::to_owned),
            readiness_port: port("dataplane.readinessReporter.port"),
        })
    }
}
