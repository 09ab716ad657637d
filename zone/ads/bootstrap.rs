//! The bootstrap of a proxy: the one file an Envoy needs to find this control plane.
//!
//! `POST /bootstrap` says who asks; the answer holds node id and metadata, the address of the ADS, the
//! token to show there and the authority to trust. [`request`] is what comes in, [`envoy`] writes the
//! document, [`handler`] speaks HTTP, this file decides.

mod envoy;
pub mod handler;
mod request;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use common::{
    document::DocumentError,
    mode::Mode,
    model::{
        ResourceKey, SpecError, kinds, labels,
        text::{self, TextError, TextLimits},
    },
    proto::{
        envoy::config::core::v3::Node,
        kuma::mesh::v1alpha1::{self as mesh, dataplane::networking::gateway::GatewayType},
    },
    runtime::Env,
    store::index::Index,
    structure,
};
use prost::Message;
use serde_json::Value;
use thiserror::Error;

use self::request::BootstrapClaim;
pub use self::{
    envoy::Admin,
    request::{BootstrapRequest, FEATURE_DELTA, FEATURE_UNIFIED_NAMES},
};
use super::{
    auth::{Authenticator, ProxyAuthError, Requirement},
    certificate::ServerCertificate,
    node::{NodeError, Proxy, ProxyId, ProxyKind},
    registration::{RegisterError, RegistrationRules},
    resource::{self, InlineError},
};
use crate::mesh::{OfferedMetrics, WorkloadMetrics};

/// Bytes of a mesh or a name.
const NAME: usize = 253;
/// Bytes of a resource that are read of somebody whose token stays in a file beside the proxy.
const UNJUDGED: usize = 64 << 10;

/// What an operator may set about bootstraps.
#[derive(Clone, Debug)]
pub struct BootstrapSettings {
    /// Name or address proxies reach this control plane by; `None` takes it from the `Host` header.
    pub xds_host: Option<String>,
    /// How long a proxy tries to connect.
    pub connect_timeout: Duration,
    /// Where the admin endpoint of a proxy listens.
    pub admin_address: String,
    /// Port of the admin endpoint when the resource names none; 0 for no endpoint.
    pub admin_port: u16,
    /// Whether a proxy that names a work folder gets its admin endpoint on a socket there.
    pub admin_socket: bool,
    /// File the admin endpoint logs to.
    pub admin_access_log: String,
    /// Whether proxies are asked how their workloads are.
    pub health: bool,
    /// Connections that a builtin gateway takes from clients at the same time, over all its listeners.
    pub gateway_connections: u32,
    /// Template of the configuration of a DNS server that runs beside a proxy.
    pub corefile_template: Option<String>,
}

/// Connections that a builtin gateway takes where nobody chose a number.
pub const GATEWAY_CONNECTIONS: u32 = 50_000;

impl Default for BootstrapSettings {
    fn default() -> Self {
        Self {
            xds_host: None,
            connect_timeout: Duration::from_secs(1),
            admin_address: "127.0.0.1".to_owned(),
            admin_port: 9901,
            admin_socket: true,
            admin_access_log: "/dev/null".to_owned(),
            health: true,
            gateway_connections: GATEWAY_CONNECTIONS,
            corefile_template: None,
        }
    }
}

/// Makes bootstraps.
#[derive(Clone, Debug)]
pub struct Bootstraps {
    /// What the operator set.
    pub settings: BootstrapSettings,
    /// Which tokens a stream will have to show.
    pub requirement: Requirement,
    /// Certificate of the server, `None` in plaintext.
    pub certificate: Option<Arc<ServerCertificate>>,
    /// Port of the server.
    pub port: u16,
    /// Whether the server has no IPv6 address.
    pub ipv4_only: bool,
}

/// What a proxy starts with.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// The document for Envoy.
    pub envoy: Value,
    /// Address of the proxy, for the process that runs beside Envoy.
    pub address: String,
    /// Template of the configuration of its DNS server, for the same.
    pub corefile_template: Option<String>,
    /// Workloads whose metrics it tells with those of the Envoy, as the mesh and the proxy say.
    pub workloads: Vec<WorkloadMetrics>,
}

/// Why there is no bootstrap.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// Not JSON of the right shape.
    #[error("the request is not valid: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Not JSON, or too much of it.
    #[error("the request is not JSON that is read here: {0}")]
    Text(#[from] TextError),
    /// No proxy has such a name.
    #[error("mesh and name may be {NAME} bytes long")]
    NameTooLong,
    /// The stream would be refused as well.
    #[error(transparent)]
    Token(#[from] ProxyAuthError),
    /// A long resource of somebody who shows nothing.
    #[error(
        "without dataplaneToken at most {UNJUDGED} bytes of dataplaneResource are read, and these are {0}: send \
         the token along, or apply the resource"
    )]
    Unjudged(usize),
    /// Nothing to identify the proxy by.
    #[error("name must be set")]
    NameMissing,
    /// The stream would be refused for want of a token.
    #[error(
        "a {0} token is required: set dataplaneToken or dataplaneTokenPath; `straitctl generate {0}-token` makes one"
    )]
    TokenMissing(&'static str),
    /// The token cannot be a header value.
    #[error("dataplaneToken holds characters that no token has")]
    TokenMalformed,
    /// The resource that came with the request.
    #[error(transparent)]
    Inline(#[from] InlineError),
    /// The proxy came without a resource, and none is stored.
    #[error("{0} does not exist: apply it first, or send it along as dataplaneResource")]
    Unknown(ProxyId),
    /// Envoy would refuse the certificate of this server.
    #[error(
        "the server certificate is not valid for {0:?}: use one of its names, or set the xDS host of the \
         bootstrap"
    )]
    Host(String),
    /// No way to know how the proxy reached us.
    #[error("the request has no Host header")]
    HostMissing,
    /// What the proxy trusts cannot sign.
    #[error("caCert is not a PEM certificate of an authority: {0}")]
    NotAnAuthority(String),
    /// The stream would not take the resource that came with the request.
    #[error(transparent)]
    Refused(#[from] RegisterError),
    /// The stream would not take the node that would be in the bootstrap.
    #[error("a proxy with this bootstrap would be refused: {0}")]
    Node(#[from] NodeError),
    /// What is stored does not decode.
    #[error("decode the stored resource: {0}")]
    Stored(#[from] SpecError),
}

impl From<DocumentError> for BootstrapError {
    fn from(error: DocumentError) -> Self {
        Self::Inline(error.into())
    }
}

/// Judges who asks for a bootstrap as the streams judge who comes with one.
#[derive(Clone)]
pub struct Judge {
    authenticator: Authenticator,
    rules: RegistrationRules,
}

impl Judge {
    /// With the rules for the proxies of a zone.
    pub fn new(authenticator: Authenticator, mode: Mode, env: Env) -> Self {
        Self { authenticator, rules: RegistrationRules::new(mode, env) }
    }

    /// Whether a stream would take `request`, with `token` where that is known here.
    fn admit(
        &self,
        request: &BootstrapRequest,
        token: Option<&str>,
        index: &Index,
    ) -> Result<(), BootstrapError> {
        let (proxy, authenticator) = (request.proxy(), &self.authenticator);
        if request.dataplane_resource.trim().is_empty() {
            return match token {
                Some(_) => Ok(authenticator.check_stored(&proxy, token, index)?),
                None => Ok(()),
            };
        }
        if token.is_some() {
            authenticator.check_replaced(&proxy, token, index)?;
        }
        let document = resource::inline(&request.dataplane_resource, &proxy)?;
        if token.is_some() {
            authenticator.check_inline(&proxy, &document, token, index)?;
        }
        self.rules.decide(&proxy, document, None, index)?;
        Ok(())
    }
}

impl Bootstraps {
    /// The bootstrap for the request in `body`, which came to `host`. What the token says is judged before
    /// anything else is looked at: what the stream would refuse gets no bootstrap.
    ///
    /// # Errors
    /// [`BootstrapError`].
    pub fn answer(
        &self,
        body: &[u8],
        host: Option<&str>,
        judge: &Judge,
        index: &Index,
    ) -> Result<Bootstrap, BootstrapError> {
        let claim: BootstrapClaim = serde_json::from_slice(body)?;
        if claim.mesh.len() > NAME || claim.name.len() > NAME {
            return Err(BootstrapError::NameTooLong);
        }
        if claim.name.is_empty() {
            return Err(BootstrapError::NameMissing);
        }
        let token = well_formed(&claim.dataplane_token)?;
        let judged = !token.is_empty();
        if judged {
            judge.authenticator.check_bearer(&claim.proxy(), token, index)?;
        }
        let request: BootstrapRequest = serde_json::from_value(text::json(body, TextLimits::BODY)?)?;
        let length = request.dataplane_resource.len();
        if !judged && self.requirement.token_of(request.proxy_type).is_some() && length > UNJUDGED {
            return Err(BootstrapError::Unjudged(length));
        }
        self.check_token(&request)?;
        judge.admit(&request, judged.then_some(token), index)?;
        let bootstrap = self.make(&request, host, index)?;
        Proxy::of(Some(node_of(&bootstrap.envoy)))?;
        Ok(bootstrap)
    }

    /// The bootstrap for `request`, which came to `host` (a host name or address without port).
    ///
    /// # Errors
    /// [`BootstrapError`].
    pub fn make(
        &self,
        request: &BootstrapRequest,
        host: Option<&str>,
        index: &Index,
    ) -> Result<Bootstrap, BootstrapError> {
        let proxy = request.proxy();
        if request.name.is_empty() {
            return Err(BootstrapError::NameMissing);
        }
        self.check_token(request)?;
        let described = describe(request, &proxy, index)?;
        let xds_host = self.xds_host(host)?;
        let envoy = envoy::document(&envoy::Params {
            request,
            service: described.service,
            gateway_connections: described.gateway.then_some(self.settings.gateway_connections),
            xds_host,
            xds_port: self.port,
            ipv4_only: self.ipv4_only,
            connect_timeout: duration(self.settings.connect_timeout),
            tls: self.certificate.is_some(),
            ca: self.authority(request)?,
            admin: self.admin(request, described.admin_port),
            admin_access_log: self.admin_access_log(request),
            health: self.settings.health && proxy.kind == ProxyKind::Dataplane,
        });
        let corefile_template = self.settings.corefile_template.clone();
        Ok(Bootstrap { envoy, address: described.address, corefile_template, workloads: described.workloads })
    }

    /// Nowhere is called otherwise on Windows.
    fn admin_access_log(&self, request: &BootstrapRequest) -> String {
        match self.settings.admin_access_log.as_str() {
            "/dev/null" if request.operating_system == "windows" => "NUL".to_owned(),
            file => file.to_owned(),
        }
    }

    fn check_token(&self, request: &BootstrapRequest) -> Result<(), BootstrapError> {
        let token = well_formed(&request.dataplane_token)?;
        match self.requirement.token_of(request.proxy_type) {
            Some(kind)
                if token.is_empty()
                    && request.dataplane_token_path.is_empty()
                    && request.credential_file.is_empty() =>
            {
                Err(BootstrapError::TokenMissing(kind))
            }
            _ => Ok(()),
        }
    }

    fn xds_host(&self, host: Option<&str>) -> Result<String, BootstrapError> {
        let host = match (&self.settings.xds_host, host) {
            (Some(fixed), _) => return Ok(fixed.clone()),
            (None, Some(host)) => host,
            (None, None) => return Err(BootstrapError::HostMissing),
        };
        match &self.certificate {
            Some(certificate) if !certificate.covers(host) => Err(BootstrapError::Host(host.to_owned())),
            _ => Ok(host.to_owned()),
        }
    }

    fn authority(&self, request: &BootstrapRequest) -> Result<Option<String>, BootstrapError> {
        if request.ca_cert.trim().is_empty() {
            return Ok(self.certificate.as_ref().and_then(|c| c.authority_pem()).map(str::to_owned));
        }
        super::certificate::check_authority(&request.ca_cert).map_err(BootstrapError::NotAnAuthority)?;
        Ok(Some(request.ca_cert.clone()))
    }

    fn admin(&self, request: &BootstrapRequest, port: Option<u16>) -> Admin {
        let on_socket = self.settings.admin_socket && !request.workdir.is_empty();
        Admin {
            address: self.settings.admin_address.clone(),
            port: port.unwrap_or(self.settings.admin_port),
            socket: on_socket.then(|| format!("{}/kuma-envoy-admin.sock", request.workdir)),
        }
    }
}

/// The node an Envoy with this bootstrap sends.
fn node_of(envoy: &Value) -> Node {
    let metadata = envoy.pointer("/node/metadata").and_then(Value::as_object).cloned();
    let id = envoy.pointer("/node/id").and_then(Value::as_str).unwrap_or_default().to_owned();
    Node { id, metadata: metadata.map(structure::from_json), ..Node::default() }
}

fn well_formed(token: &str) -> Result<&str, BootstrapError> {
    let token = token.trim();
    if token.bytes().all(|b| b.is_ascii_graphic()) { Ok(token) } else { Err(BootstrapError::TokenMalformed) }
}

/// What the resource of a proxy tells its bootstrap.
struct Described {
    service: String,
    address: String,
    admin_port: Option<u16>,
    /// Whether it runs a builtin gateway.
    gateway: bool,
    workloads: Vec<WorkloadMetrics>,
}

fn describe(request: &BootstrapRequest, proxy: &ProxyId, index: &Index) -> Result<Described, BootstrapError> {
    let spec = if request.dataplane_resource.trim().is_empty() {
        let stored = index.get(&proxy.key()).ok_or_else(|| BootstrapError::Unknown(proxy.clone()))?;
        stored.spec.clone()
    } else {
        resource::inline(&request.dataplane_resource, proxy)?.spec.into()
    };
    let (mut gateway, mut workloads) = (false, Vec::new());
    let (service, address, admin) = match proxy.kind {
        ProxyKind::Dataplane => {
            let dataplane = decode::<mesh::Dataplane>(&spec)?;
            workloads = workloads_of(&dataplane, &request.mesh, index);
            let networking = dataplane.networking.unwrap_or_default();
            gateway = networking.gateway.as_ref().is_some_and(|g| g.r#type() == GatewayType::Builtin);
            (identifying_service(&networking), networking.address, networking.admin)
        }
        ProxyKind::Ingress => {
            let networking = decode::<mesh::ZoneIngress>(&spec)?.networking.unwrap_or_default();
            ("ingress".to_owned(), networking.address, networking.admin)
        }
        ProxyKind::Egress => {
            let networking = decode::<mesh::ZoneEgress>(&spec)?.networking.unwrap_or_default();
            ("egress".to_owned(), networking.address, networking.admin)
        }
    };
    let admin_port = admin.and_then(|a| u16::try_from(a.port).ok()).filter(|port| *port > 0);
    Ok(Described { service, address, admin_port, gateway, workloads })
}

/// The workloads beside `dataplane` that tell metrics. A mesh that cannot be read offers none.
fn workloads_of(dataplane: &mesh::Dataplane, name: &str, index: &Index) -> Vec<WorkloadMetrics> {
    let mesh = index.get(&ResourceKey::global(&kinds::mesh::KIND, name));
    let mesh = mesh.and_then(|mesh| decode::<mesh::Mesh>(&mesh.spec).ok());
    let offered = mesh.and_then(|mesh| OfferedMetrics::of(&mesh, dataplane.metrics.as_ref()));
    offered.map(|offered| offered.workloads).unwrap_or_default()
}

fn decode<M: Message + Default>(spec: &[u8]) -> Result<M, SpecError> {
    Ok(M::decode(spec)?)
}

/// The first service the proxy stands for.
fn identifying_service(networking: &mesh::dataplane::Networking) -> String {
    let inbound = networking.inbound.iter().find_map(|i| i.tags.get(labels::TAG_SERVICE));
    let gateway = networking.gateway.iter().find_map(|g| g.tags.get(labels::TAG_SERVICE));
    gateway.or(inbound).cloned().unwrap_or_else(|| "unknown".to_owned())
}

fn duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{:.3}s", duration.as_secs_f64())
    }
}
