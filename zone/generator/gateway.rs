//! What clients outside of the mesh reach: the listeners and routes of builtin gateways, and the certificates they
//! show.

use std::{net::IpAddr, sync::Arc};

use common::proto::{
    envoy::{
        config::{
            core::v3::{
                HeaderValue, HeaderValueOption, TrafficDirection, header_value_option::HeaderAppendAction,
            },
            listener::v3::{FilterChainMatch, Listener},
            route::v3::{
                DirectResponseAction, Route, RouteAction, RouteConfiguration, VirtualHost, WeightedCluster,
                route::Action,
                route_action::{ClusterNotFoundResponseCode, ClusterSpecifier},
                virtual_host::TlsRequirementType,
                weighted_cluster::ClusterWeight,
            },
        },
        extensions::{
            compression::gzip::compressor::v3::Gzip,
            filters::{
                http::{
                    compressor::v3::{
                        Compressor,
                        compressor::{CommonDirectionConfig, ResponseDirectionConfig},
                    },
                    local_ratelimit::v3::LocalRateLimit,
                },
                network::{
                    http_connection_manager::v3::{HttpFilter, Rds, http_connection_manager::RouteSpecifier},
                    tcp_proxy::v3::{TcpProxy, tcp_proxy},
                },
            },
        },
        service::runtime::v3::Runtime,
    },
    google::protobuf::{Struct, Value, value::Kind},
};

use super::{
    Chain, Encoded, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Terminal,
    envoy::{
        address, cluster, filter, flag,
        http::{self, Share},
        number, seconds, tls,
    },
    names, outbound, type_url,
};
use crate::mesh::gateway::{CertificateSource, Gateway, GatewayPort, GatewayProtocol, GatewayTags};

/// Origin of everything here.
const ORIGIN: &str = "gateway";
/// What is kept of a connection before its peer has to wait, in bytes.
pub(super) const BUFFER: u32 = 32 * 1024;
/// The name of the limits of listeners, which the bootstrap of a gateway asks for.
pub(crate) const LIMITS: &str = "gateway.listeners";

const NO_ROUTES: &str = "This is a Kuma MeshGateway. No routes match this MeshGateway!\n";

/// A port of a gateway, as policies find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// The service the gateway is known as.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// What clients speak.
    pub protocol: GatewayProtocol,
}

/// The routes of requests that come in by a listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutesDraft {
    /// Their name.
    pub name: String,
    /// Whether clients must use TLS.
    pub secure: bool,
    /// By host names, most exact first.
    pub hosts: Vec<HostDraft>,
}

/// The routes for one host name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostDraft {
    /// The name.
    pub hostname: String,
    /// The listener it is for.
    pub listener: Arc<str>,
    /// Its routes, in order.
    pub routes: Vec<GatewayRouteDraft>,
}

/// One route of a gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayRouteDraft {
    /// The route.
    pub route: RouteDraft,
    /// Where it leads.
    pub backends: Vec<super::Backend>,
}

/// How the listener of `port` is called.
pub(crate) fn listener_name(gateway: &Gateway, port: &GatewayPort) -> String {
    format!("{}:{}:{}", gateway.name, port.protocol.name(), port.number)
}

/// How the routes of requests for a listener are called. Without TLS host names are told by requests only.
pub(crate) fn routes_name(gateway: &Gateway, port: &GatewayPort, hostname: &str) -> String {
    let hostname = if is_split(port) { hostname } else { "*" };
    format!("{}:{hostname}", listener_name(gateway, port))
}

/// Whether each host name of `port` has routes of its own.
pub(crate) fn is_split(port: &GatewayPort) -> bool {
    port.protocol.is_tls()
}

/// The listener of `port` with these chains.
pub(crate) fn listener(
    gateway: &Gateway,
    at: IpAddr,
    port: &GatewayPort,
    chains: Vec<Chain>,
) -> ListenerDraft {
    let message = Listener {
        name: listener_name(gateway, port),
        address: Some(address::socket(at, port.number)),
        traffic_direction: TrafficDirection::Inbound.into(),
        per_connection_buffer_limit_bytes: number(BUFFER),
        enable_reuse_port: flag(true),
        ..Listener::default()
    };
    let role = Role::Gateway(Entrance {
        service: gateway.service().to_owned(),
        port: port.number,
        protocol: port.protocol,
    });
    ListenerDraft { role, message, inspects_tls: true, chains }
}

/// Passes requests on by the routes of this name.
pub(crate) fn http_terminal(gateway: &Gateway, routes: String, ipv6: bool) -> Terminal {
    let mut manager = http::edge_manager(gateway.service(), ipv6);
    manager.route_specifier =
        Some(RouteSpecifier::Rds(Rds { config_source: Some(cluster::ads()), route_config_name: routes }));
    // It counts nothing until routes say what.
    let limit = LocalRateLimit { stat_prefix: "rate_limit".to_owned(), ..LocalRateLimit::default() };
    let filters = HttpFilters {
        rate_limit: Some(filter::http("envoy.filters.http.local_ratelimit", &limit)),
        compressor: Some(compressor()),
        ..HttpFilters::default()
    };
    Terminal::Http(Box::new(HttpChain { manager, filters, ..HttpChain::default() }))
}

fn compressor() -> HttpFilter {
    let library = common::proto::envoy::config::core::v3::TypedExtensionConfig {
        name: "gzip".to_owned(),
        typed_config: Some(cluster::pack(&Gzip::default())),
    };
    let config = Compressor {
        compressor_library: Some(library),
        response_direction_config: Some(ResponseDirectionConfig {
            disable_on_etag_header: true,
            common_config: None::<CommonDirectionConfig>,
            ..ResponseDirectionConfig::default()
        }),
        ..Compressor::default()
    };
    filter::http("gzip-compress", &config)
}

/// Passes bytes on.
pub(crate) fn tcp_terminal(gateway: &Gateway, shares: &[Share]) -> Terminal {
    let specifier = match shares {
        [only] => tcp_proxy::ClusterSpecifier::Cluster(only.cluster.clone()),
        several => tcp_proxy::ClusterSpecifier::WeightedClusters(outbound::weighted_clusters(several)),
    };
    Terminal::Tcp(Box::new(TcpProxy {
        stat_prefix: names::metric(gateway.service()),
        cluster_specifier: Some(specifier),
        ..TcpProxy::default()
    }))
}

/// Connections of the proxies of any mesh.
pub(crate) fn from_meshes() -> FilterChainMatch {
    FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        application_protocols: vec![tls::ALPN.to_owned()],
        ..FilterChainMatch::default()
    }
}

/// For connections that ask for `hostname` in their first words.
pub(crate) fn asking_for(hostname: &str) -> FilterChainMatch {
    FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        server_names: if hostname == "*" { Vec::new() } else { vec![hostname.to_owned()] },
        ..FilterChainMatch::default()
    }
}

/// A certificate to show to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayCertificate {
    /// The name of the secret.
    pub(crate) name: String,
    chain: String,
    key: String,
}

impl GatewayCertificate {
    /// The certificate of `source`, of which this is the PEM text.
    ///
    /// # Errors
    /// Why nobody could show it.
    pub(crate) fn of(source: &CertificateSource, pem: &str) -> Result<Self, String> {
        let (kind, label) = match source {
            CertificateSource::Secret(name) => ("secret", name),
            CertificateSource::Inline { label, .. } => ("inline", label),
            CertificateSource::Elsewhere(reason) => return Err((*reason).to_owned()),
        };
        let (mut chain, mut key) = (String::new(), None);
        let blocks = pem::parse_many(pem).map_err(|error| format!("it is not PEM: {error}"))?;
        for block in blocks {
            let text = pem::encode(&block);
            if block.tag().ends_with("PRIVATE KEY") {
                let form =
                    key_form(block.tag(), block.contents()).ok_or("its key is neither RSA nor ECDSA")?;
                if key.replace((form, text)).is_some() {
                    return Err("it holds several private keys".to_owned());
                }
            } else if block.tag() == "CERTIFICATE" {
                if x509_parser::parse_x509_certificate(block.contents()).is_err() {
                    return Err("its certificate cannot be read".to_owned());
                }
                chain.push_str(&text);
            } else {
                return Err(format!(
                    "it holds a {:?}, which is neither a certificate nor a key",
                    block.tag()
                ));
            }
        }
        if chain.is_empty() {
            return Err("it holds no certificate".to_owned());
        }
        let (form, key) = key.ok_or("it holds no private key")?;
        Ok(Self { name: format!("cert.{form}:{kind}:{label}"), chain, key })
    }

    /// Packed and encoded.
    pub(crate) fn encode(&self) -> Arc<Encoded> {
        let secret = tls::certificate_secret(&self.name, &self.chain, &self.key);
        Arc::new(Encoded::new(&self.name, type_url::SECRET, ORIGIN, &secret))
    }
}

/// What kind of key it is; `None` for one that Envoy cannot use.
fn key_form(label: &str, der: &[u8]) -> Option<&'static str> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    // In PKCS#8 the algorithm comes before the key.
    let starts_with = |oid: &[u8]| der[..der.len().min(40)].windows(oid.len()).any(|part| part == oid);
    match label {
        "RSA PRIVATE KEY" => Some("rsa"),
        "EC PRIVATE KEY" => Some("ecdsa"),
        "PRIVATE KEY" if starts_with(RSA) => Some("rsa"),
        "PRIVATE KEY" if starts_with(EC) => Some("ecdsa"),
        _ => None,
    }
}

/// A route with no action yet to these shares, each told who calls.
pub(crate) fn forward(shares: &[Share], tags: &GatewayTags) -> Action {
    let clusters = shares.iter().map(|share| ClusterWeight {
        name: share.cluster.clone(),
        weight: number(share.weight),
        request_headers_to_add: vec![http::tags_header(&told(tags))],
        ..ClusterWeight::default()
    });
    let clusters = WeightedCluster { clusters: clusters.collect(), ..WeightedCluster::default() };
    Action::Route(RouteAction {
        cluster_specifier: Some(ClusterSpecifier::WeightedClusters(clusters)),
        cluster_not_found_response_code: ClusterNotFoundResponseCode::InternalServerError.into(),
        idle_timeout: Some(seconds(5)),
        ..RouteAction::default()
    })
}

fn told(tags: &GatewayTags) -> String {
    tags.iter().map(|(key, value)| format!("&{key}={value}&")).collect()
}

/// Requests that lead nowhere.
pub(crate) fn unreachable() -> Action {
    Action::DirectResponse(DirectResponseAction { status: 500, ..DirectResponseAction::default() })
}

/// What a listener without routes answers.
pub(crate) fn no_routes() -> RouteDraft {
    let answer = DirectResponseAction {
        status: 404,
        body: Some(http::inline_text(NO_ROUTES)),
        ..DirectResponseAction::default()
    };
    let message = Route {
        r#match: Some(http::any_path()),
        action: Some(Action::DirectResponse(answer)),
        ..Route::default()
    };
    RouteDraft { message, ..RouteDraft::default() }
}

impl RoutesDraft {
    /// Packed and encoded.
    pub(crate) fn encode(&self) -> Arc<Encoded> {
        let config = RouteConfiguration {
            virtual_hosts: self.hosts.iter().map(|host| host.pack(self.secure)).collect(),
            request_headers_to_remove: vec![http::TAGS_HEADER.to_owned()],
            ignore_port_in_host_matching: true,
            ..http::route_configuration(&self.name)
        };
        Arc::new(Encoded::new(&self.name, type_url::ROUTE, ORIGIN, &config))
    }
}

impl HostDraft {
    fn pack(&self, secure: bool) -> VirtualHost {
        let hsts = HeaderValueOption {
            header: Some(HeaderValue {
                key: "Strict-Transport-Security".to_owned(),
                value: "max-age=31536000; includeSubDomains".to_owned(),
                ..HeaderValue::default()
            }),
            append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
            ..HeaderValueOption::default()
        };
        let tls = if secure { TlsRequirementType::All } else { TlsRequirementType::None };
        VirtualHost {
            name: self.hostname.clone(),
            domains: vec![self.hostname.clone()],
            require_tls: tls.into(),
            response_headers_to_add: secure.then_some(hsts).into_iter().collect(),
            routes: self.routes.iter().map(|route| route.route.message.clone()).collect(),
            ..VirtualHost::default()
        }
    }
}

/// How many connections each listener takes.
pub(crate) fn limits(gateway: Option<&Gateway>) -> Arc<Encoded> {
    let limit = |(gateway, port): (&Gateway, &GatewayPort)| {
        let name = listener_name(gateway, port);
        let value = Value { kind: Some(Kind::NumberValue(port.connection_limit?.into())) };
        Some((format!("envoy.resource_limits.listener.{name}.connection_limit"), value))
    };
    let ports =
        gateway.into_iter().flat_map(|gateway| gateway.ports.values().map(move |port| (gateway, port)));
    let fields = ports.filter_map(limit).collect();
    let runtime = Runtime { name: LIMITS.to_owned(), layer: Some(Struct { fields }) };
    Arc::new(Encoded::new(LIMITS, type_url::RUNTIME, ORIGIN, &runtime))
}

#[cfg(test)]
mod tests {
    use common::keys::{KeyForm, PrivateKey};

    use super::*;

    #[test]
    fn a_certificate_is_named_after_its_key_and_its_place() {
        let secret = CertificateSource::Secret("edge".into());
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let pair = common::tls::KeyPairPem::self_signed(&["edge.example.com".to_owned()]).unwrap();
        let both = format!("{}\n{}", pair.certificate, pair.key);
        assert_eq!(GatewayCertificate::of(&secret, &both).unwrap().name, "cert.ecdsa:secret:edge");
        let inline = CertificateSource::Inline { label: "*.example.com".into(), text: both.as_str().into() };
        assert_eq!(GatewayCertificate::of(&inline, &both).unwrap().name, "cert.ecdsa:inline:*.example.com");
        let two = format!("{both}\n{}", key.pem());
        for (pem, reason) in [
            ("", "it holds no certificate"),
            (pair.certificate.as_str(), "it holds no private key"),
            (pair.key.as_str(), "it holds no certificate"),
            (two.as_str(), "it holds several private keys"),
        ] {
            assert_eq!(GatewayCertificate::of(&secret, pem).unwrap_err(), reason);
        }
    }
}
