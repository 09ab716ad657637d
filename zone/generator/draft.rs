//! Configuration that is still open: typed, unpacked, edited by policies.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    model::kri::Kri,
    proto::envoy::{
        config::{
            cluster::v3::Cluster,
            core::v3::TransportSocket,
            listener::v3::{Filter, FilterChain, FilterChainMatch, Listener},
            route::v3::{Route, RouteConfiguration, VirtualHost},
        },
        extensions::{
            filters::{
                common::set_filter_state::v3::FilterStateValue,
                network::{
                    http_connection_manager::v3::{
                        HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier,
                    },
                    tcp_proxy::v3::TcpProxy,
                },
            },
            transport_sockets::tls::v3::{DownstreamTlsContext, Secret, UpstreamTlsContext},
            upstreams::http::v3::HttpProtocolOptions,
        },
    },
};

use super::{
    backend::Backend,
    envoy::{cluster, filter, tls},
    gateway::Entrance,
    placement::Nearness,
    resource_set::{Encoded, ResourceCollection, type_url},
};
use crate::mesh::{Inbound, Protocol};

/// What a listener or cluster stands for; how policies find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A port of the workload.
    Inbound(Inbound),
    /// Something the workload calls.
    Outbound(Backend),
    /// A port of a builtin gateway.
    Gateway(Entrance),
    /// The edge of a zone, where others come in.
    ZoneIngress,
    /// The edge of a zone, where its own go out.
    ZoneEgress,
    /// The admin endpoint of the proxy itself.
    Admin,
    /// What traffic meets that is redirected on the machine of the proxy, and probes and questions for names;
    /// with its origin.
    Machine(&'static str),
    /// What a policy about logs, traces or metrics asks for; the origin is that of its kind.
    Telemetry(&'static str),
}

impl Role {
    /// The origin recorded with the encoded resource.
    pub(super) fn origin(&self) -> &'static str {
        match self {
            Self::Inbound(_) => "inbound",
            Self::Outbound(backend) => backend.origin(),
            Self::Gateway(_) => "gateway",
            Self::ZoneIngress => "ingress",
            Self::ZoneEgress => "egress",
            Self::Admin => "admin",
            Self::Telemetry(origin) | Self::Machine(origin) => origin,
        }
    }

    /// What is spoken there.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Inbound(inbound) => inbound.protocol,
            Self::Outbound(backend) => backend.protocol,
            Self::Gateway(entrance) if entrance.protocol.is_http() => Protocol::Http,
            Self::Gateway(_) => Protocol::Tcp,
            Self::ZoneIngress | Self::ZoneEgress | Self::Telemetry(_) | Self::Machine(_) => Protocol::Tcp,
            Self::Admin => Protocol::Http,
        }
    }
}

/// A listener and its chains.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerDraft {
    /// What it stands for.
    pub role: Role,
    /// The message without chains, and without the filter that looks at TLS.
    pub message: Listener,
    /// Whether what the client says in its first TLS message is looked at.
    pub inspects_tls: bool,
    /// Its chains, in order.
    pub chains: Vec<Chain>,
}

/// One filter chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// Its name; empty for none.
    pub name: String,
    /// For which connections.
    pub matches: Option<FilterChainMatch>,
    /// Present when this chain terminates mesh TLS.
    pub tls: Option<DownstreamTlsContext>,
    /// Network filters before the last one.
    pub filters: NetworkFilters,
    /// The last network filter.
    pub terminal: Terminal,
}

/// The network filter that ends a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminal {
    /// Requests are routed.
    Http(Box<HttpChain>),
    /// Bytes are forwarded.
    Tcp(Box<TcpProxy>),
    /// Anything else.
    Other(Box<Filter>),
}

impl Default for Terminal {
    fn default() -> Self {
        Self::Tcp(Box::default())
    }
}

/// Network filters by what they are for, in the order in which a connection meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkFilters {
    /// Who may connect.
    pub permission: Option<Filter>,
    /// How many may connect.
    pub rate_limit: Option<Filter>,
    /// What is remembered of the client for routes to look at.
    pub client: Vec<FilterStateValue>,
}

/// HTTP filters by what they are for, in the order in which a request meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpFilters {
    /// Notes which route was taken, for the access log to look at.
    pub route_mark: Option<HttpFilter>,
    /// Who may call.
    pub permission: Option<HttpFilter>,
    /// Counts of gRPC calls.
    pub grpc_stats: Option<HttpFilter>,
    /// What goes wrong on purpose.
    pub faults: Vec<HttpFilter>,
    /// How many requests are taken.
    pub rate_limit: Option<HttpFilter>,
    /// Makes answers shorter.
    pub compressor: Option<HttpFilter>,
}

impl NetworkFilters {
    fn ordered(&self) -> impl Iterator<Item = Filter> {
        let Self { permission, rate_limit, client } = self;
        let client = (!client.is_empty()).then(|| filter::set_filter_state(client.clone()));
        [permission.clone(), rate_limit.clone(), client].into_iter().flatten()
    }
}

impl HttpFilters {
    fn ordered(&self) -> impl Iterator<Item = &HttpFilter> {
        let Self { route_mark, permission, grpc_stats, faults, rate_limit, compressor } = self;
        let one = [route_mark, permission, grpc_stats].into_iter().flatten();
        one.chain(faults).chain(rate_limit).chain(compressor)
    }
}

/// The HTTP part of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpChain {
    /// The connection manager without filters. Routes that are discovered are named here; otherwise there are
    /// none here.
    pub manager: HttpConnectionManager,
    /// HTTP filters; the router is added behind them.
    pub filters: HttpFilters,
    /// The route configuration without virtual hosts.
    pub config: RouteConfiguration,
    /// Virtual hosts for some domains.
    pub hosts: Vec<VirtualHost>,
    /// Name of the virtual host for all others.
    pub host: String,
    /// Its routes, in order.
    pub routes: Vec<RouteDraft>,
}

/// One route, and the rule of a policy it comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteDraft {
    /// The message.
    pub message: Route,
    /// Hash of the matches of its rule.
    pub hash: String,
    /// The route policy that asked for it; `None` for the catch-all.
    pub policy: Option<Kri>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterDraft {
    /// What it stands for.
    pub role: Role,
    /// The message without what is packed below.
    pub message: Cluster,
    /// How HTTP is spoken to it.
    pub http: Option<HttpProtocolOptions>,
    /// TLS towards it.
    pub tls: Option<UpstreamTlsContext>,
    /// TLS towards its endpoints in these other zones, in place of that.
    pub tls_elsewhere: BTreeMap<String, UpstreamTlsContext>,
    /// Which of its endpoints are near, when it is not the same for every proxy of the mesh.
    pub nearness: Option<Nearness>,
}

/// All of it, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// Listeners.
    pub listeners: BTreeMap<String, ListenerDraft>,
    /// Clusters.
    pub clusters: BTreeMap<String, ClusterDraft>,
    /// Secrets.
    pub secrets: BTreeMap<String, Secret>,
}

impl Draft {
    /// Packs and encodes everything.
    pub fn finish(self) -> ResourceCollection {
        let mut all = ResourceCollection::default();
        for listener in self.listeners.values() {
            all.insert(listener.encode());
        }
        for cluster in self.clusters.values() {
            all.insert(cluster.encode());
        }
        for (name, secret) in self.secrets {
            all.insert(Arc::new(Encoded::new(&name, type_url::SECRET, "secrets", &secret)));
        }
        all
    }
}

impl ListenerDraft {
    /// Packed and encoded.
    pub fn encode(&self) -> Arc<Encoded> {
        let (name, origin) = (&self.message.name, self.role.origin());
        Arc::new(Encoded::new(name, type_url::LISTENER, origin, &self.pack()))
    }

    fn pack(&self) -> Listener {
        let inspector = self.inspects_tls.then(filter::tls_inspector);
        Listener {
            filter_chains: self.chains.iter().map(Chain::pack).collect(),
            listener_filters: inspector.into_iter().chain(self.message.listener_filters.clone()).collect(),
            ..self.message.clone()
        }
    }
}

impl Chain {
    fn pack(&self) -> FilterChain {
        let terminal = match &self.terminal {
            Terminal::Http(http) => filter::http_connection_manager(&http.pack()),
            Terminal::Tcp(proxy) => filter::tcp_proxy(proxy),
            Terminal::Other(filter) => Filter::clone(filter),
        };
        let mut filters: Vec<Filter> = self.filters.ordered().collect();
        filters.push(terminal);
        FilterChain {
            name: self.name.clone(),
            filter_chain_match: self.matches.clone(),
            filters,
            transport_socket: self.tls.as_ref().map(tls::socket),
            ..FilterChain::default()
        }
    }
}

impl HttpChain {
    fn pack(&self) -> HttpConnectionManager {
        let host = VirtualHost {
            name: self.host.clone(),
            domains: vec!["*".to_owned()],
            routes: self.routes.iter().map(|route| route.message.clone()).collect(),
            ..VirtualHost::default()
        };
        let virtual_hosts = self.hosts.iter().cloned().chain([host]).collect();
        let config = RouteConfiguration { virtual_hosts, ..self.config.clone() };
        let mut filters: Vec<HttpFilter> = self.filters.ordered().cloned().collect();
        filters.push(filter::router());
        let discovered = self.manager.route_specifier.clone();
        HttpConnectionManager {
            http_filters: filters,
            route_specifier: Some(discovered.unwrap_or(RouteSpecifier::RouteConfig(config))),
            ..self.manager.clone()
        }
    }
}

impl ClusterDraft {
    /// Packed and encoded.
    pub fn encode(&self) -> Arc<Encoded> {
        let (name, origin) = (&self.message.name, self.role.origin());
        Arc::new(Encoded::new(name, type_url::CLUSTER, origin, &self.pack()))
    }

    fn pack(&self) -> Cluster {
        let mut message = self.message.clone();
        if let Some(options) = &self.http {
            message.typed_extension_protocol_options.insert(
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(),
                cluster::pack(options),
            );
        }
        let socket: Option<TransportSocket> = self.tls.as_ref().map(tls::socket);
        let elsewhere = self.tls_elsewhere.iter().map(|(zone, tls)| cluster::in_zone(zone, tls::socket(tls)));
        message.transport_socket_matches.extend(elsewhere);
        Cluster { transport_socket: socket, ..message }
    }
}
