//! What policies about logs, traces and metrics have in common: collectors and the clusters that reach them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::kinds::mesh_open_telemetry_backend::CollectorProtocol,
    policy::{
        COLLECTOR_PORT, CollectorRef, host_and_port, is_host, mesh_access_log::AccessLogConf, rules::Policy,
    },
    proto::{
        envoy::{
            config::core::v3::{
                GrpcService, HttpService, HttpUri,
                grpc_service::{EnvoyGrpc, TargetSpecifier},
                http_uri::HttpUpstreamType,
            },
            extensions::transport_sockets::tls::v3::{CommonTlsContext, UpstreamTlsContext},
        },
        opentelemetry::proto::common::v1::{AnyValue, KeyValue, any_value},
    },
};
use http::{Uri, uri::Authority};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    generator::{
        ClusterDraft, ProxyMetadata, Role,
        envoy::{cluster, seconds},
    },
    mesh::MeshContext,
};

/// Where something listens for what proxies tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Collector {
    /// Address or name of its host.
    pub(super) host: String,
    /// Port.
    pub(super) port: u32,
    /// The path before those of the signals, when it speaks HTTP and not gRPC.
    pub(super) http: Option<String>,
    /// Whether it is reached by TLS.
    pub(super) encrypted: bool,
    /// What it is called in names.
    pub(super) name: String,
}

impl Collector {
    /// The one that a policy means, by its endpoint or by reference.
    ///
    /// # Errors
    /// Why nothing can be sent there, in words.
    pub(super) fn of(
        endpoint: Option<&str>,
        reference: Option<&CollectorRef>,
        mesh: &MeshContext,
    ) -> Result<Self, String> {
        match (endpoint, reference) {
            (_, Some(reference)) => Self::referred_to(reference, mesh),
            (Some(endpoint), None) => {
                let name = endpoint.to_owned();
                if let Some(Url { encrypted, host, port, path }) = Url::of(endpoint) {
                    return Ok(Self { host, port, http: Some(path), encrypted, name });
                }
                let (host, port) = host_and_port(endpoint, COLLECTOR_PORT);
                if is_host(&host) {
                    Ok(Self { host, port, http: None, encrypted: false, name })
                } else {
                    Err(format!("{endpoint:?} names no host"))
                }
            }
            (None, None) => Err("it has no endpoint".to_owned()),
        }
    }

    fn referred_to(reference: &CollectorRef, mesh: &MeshContext) -> Result<Self, String> {
        let found = match (&reference.name, &reference.labels) {
            (Some(name), _) => mesh.collectors.named(name),
            (None, Some(labels)) => mesh.collectors.labelled(labels),
            (None, None) => None,
        };
        let found = found.ok_or_else(|| {
            let name = reference.name.as_deref().unwrap_or("with these labels");
            format!("there is not exactly one {:?} {name}", reference.kind)
        })?;
        let endpoint = found.spec.endpoint.clone().unwrap_or_default();
        let port = endpoint.port.and_then(|port| u32::try_from(port).ok()).unwrap_or(COLLECTOR_PORT);
        let http = found.spec.protocol == Some(CollectorProtocol::Http);
        Ok(Self {
            host: endpoint.address.unwrap_or_else(|| "127.0.0.1".to_owned()),
            port,
            http: http.then(|| endpoint.path.unwrap_or_default()),
            encrypted: http && port == 443,
            name: found.resource.display_name().to_owned(),
        })
    }

    /// The cluster that reaches it.
    pub(super) fn cluster(&self, name: &str, origin: &'static str, ipv6: bool) -> ClusterDraft {
        let mut draft = host_cluster(name, origin, &self.host, self.port, ipv6);
        draft.http = self.http.is_none().then(cluster::http2);
        draft.tls = self.encrypted.then(|| tls(&self.host));
        draft
    }

    /// How a signal of gRPC is sent there by `cluster`. An Envoy calls the server what the cluster is called unless it is
    /// told otherwise, and a name with two colons is no authority (RFC 3986): strict servers end such a stream.
    pub(super) fn grpc(&self, cluster: &str) -> GrpcService {
        let is_authority = cluster.parse::<Authority>().is_ok();
        let authority = if is_authority { String::new() } else { self.authority() };
        let envoy = EnvoyGrpc { cluster_name: cluster.to_owned(), authority, ..EnvoyGrpc::default() };
        GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(envoy)), ..GrpcService::default() }
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// How the signal of this name is sent there by HTTP; `None` when it speaks gRPC.
    pub(super) fn http(&self, cluster: &str, signal: &str) -> Option<HttpService> {
        let path = self.http.as_ref()?.trim_end_matches('/');
        let scheme = if self.encrypted { "https" } else { "http" };
        let signal = format!("/v1/{signal}");
        let path = path.strip_suffix(&signal).unwrap_or(path);
        let uri = HttpUri {
            uri: format!("{scheme}://{}{path}{signal}", self.authority()),
            timeout: Some(seconds(10)),
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster.to_owned())),
        };
        Some(HttpService { http_uri: Some(uri), ..HttpService::default() })
    }
}

/// The parts of a URL over HTTP.
pub(super) struct Url {
    /// Whether over TLS.
    pub(super) encrypted: bool,
    /// Address or name of the host.
    pub(super) host: String,
    /// Port, that of the scheme when it names none.
    pub(super) port: u32,
    /// Path, empty when there is none.
    pub(super) path: String,
}

impl Url {
    /// The parts of `text`; `None` when it is no such URL.
    pub(super) fn of(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let encrypted = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = uri.host().map(|host| host.trim_matches(['[', ']'])).filter(|host| is_host(host))?;
        let port = uri.port().map_or(Some(if encrypted { 443 } else { 80 }), |_| uri.port_u16())?;
        // The parser adds a path where there is none.
        let path = if text.splitn(4, '/').nth(3).is_some() { uri.path() } else { "" };
        (port > 0).then(|| Self {
            encrypted,
            host: host.to_owned(),
            port: port.into(),
            path: path.to_owned(),
        })
    }
}

/// The cluster that reaches one host without TLS.
pub(super) fn host_cluster(
    name: &str,
    origin: &'static str,
    host: &str,
    port: u32,
    ipv6: bool,
) -> ClusterDraft {
    let mut message = cluster::of_host(name, host, port, ipv6);
    message.connect_timeout = Some(seconds(5));
    of_message(message, origin)
}

/// A cluster as a policy about telemetry makes it.
pub(super) fn of_message(
    message: common::proto::envoy::config::cluster::v3::Cluster,
    origin: &'static str,
) -> ClusterDraft {
    ClusterDraft {
        role: Role::Telemetry(origin),
        message,
        http: None,
        tls: None,
        tls_elsewhere: BTreeMap::new(),
        nearness: None,
    }
}

/// TLS towards a host of this name.
pub(super) fn tls(host: &str) -> UpstreamTlsContext {
    UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext::default()),
        sni: if host.parse::<std::net::IpAddr>().is_ok() { String::new() } else { host.to_owned() },
        ..UpstreamTlsContext::default()
    }
}

/// The path of a socket or pipe of whoever runs a proxy.
pub(super) fn socket(metadata: &ProxyMetadata, name: &str) -> String {
    metadata.socket(name)
}

/// The collectors to which these policies send access logs. Their order says which number each has in names,
/// the same for what a proxy serves and what it calls.
pub(super) fn log_collectors<'a>(
    policies: impl IntoIterator<Item = &'a Arc<Policy>>,
    mesh: &MeshContext,
) -> BTreeSet<Collector> {
    let confs = policies.into_iter().flat_map(|policy| {
        let items = policy.to.iter().chain(&policy.from).map(|item| &item.conf);
        items.chain(policy.rules.iter().map(|rule| &rule.conf))
    });
    let backends = confs.filter_map(|conf| AccessLogConf::deserialize(conf).ok()?.backends).flatten();
    let named = backends.filter_map(|backend| backend.open_telemetry);
    let found = named.map(|otel| Collector::of(otel.endpoint.as_deref(), otel.backend_ref.as_ref(), mesh));
    found.filter_map(Result::ok).collect()
}

/// Whether `policy` refers to a collector that is described elsewhere.
pub(super) fn refers_to_collector(policy: &Policy) -> bool {
    fn refers(conf: &Value) -> bool {
        let backends = conf.get("backends").and_then(Value::as_array).into_iter().flatten();
        let told = backends.filter_map(|backend| backend.get("openTelemetry"));
        told.filter_map(|told| told.get("backendRef")).next().is_some()
    }
    let items = policy.to.iter().chain(&policy.from).map(|item| &item.conf);
    let rules = policy.rules.iter().map(|rule| &rule.conf);
    items.chain(rules).chain(&policy.default).any(refers)
}

/// Attributes with text as their values; those without are left out.
pub(super) fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Vec<KeyValue> {
    let one = |(key, value): (&str, String)| KeyValue {
        key: key.to_owned(),
        value: Some(text(value)),
        ..KeyValue::default()
    };
    pairs.into_iter().filter(|(_, value)| !value.is_empty()).map(one).collect()
}

/// Text as a value.
pub(super) fn text(value: String) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(value)) }
}
