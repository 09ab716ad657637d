//! Configuration that is still open: typed, unpacked, edited by policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::kri::Kri,
    proto::envoy::{
        config::{
            cluster::v3::Cluster,
            core::v3::TransportSocket,
            endpoint::v3::ClusterLoadAssignment,
            listener::v3::{Filter, FilterChain, FilterChainMatch, Listener},
            route::v3::{Route, RouteConfiguration, VirtualHost},
        },
        extensions::{
            filters::network::{
                http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier,
                },
                tcp_proxy::v3::TcpProxy,
            },
            transport_sockets::tls::v3::{DownstreamTlsContext, Secret, UpstreamTlsContext},
            upstreams::http::v3::HttpProtocolOptions,
        },
    },
};

use super::{
    assignment::Assignments,
    backend::Backend,
    envoy::{cluster, endpoint, filter, tls},
    interner::Interner,
    resource_set::{Encoded, ResourceSet, type_url},
};
use crate::mesh::{
    Inbound, Protocol,
    topology::{Endpoint, Service},
};

/// What a listener or cluster stands for; how policies find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A port of the workload.
    Inbound(Inbound),
    /// Something the workload calls.
    Outbound(Backend),
    /// The edge of a zone.
    ZoneIngress,
    /// The admin endpoint of the proxy itself.
    Admin,
}

impl Role {
    /// The origin recorded with the encoded resource.
    fn origin(&self) -> &'static str {
        match self {
            Self::Inbound(_) => "inbound",
            Self::Outbound(_) => "outbound",
            Self::ZoneIngress => "ingress",
            Self::Admin => "admin",
        }
    }

    /// What is spoken there.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Inbound(inbound) => inbound.protocol,
            Self::Outbound(backend) => backend.protocol,
            Self::ZoneIngress => Protocol::Tcp,
            Self::Admin => Protocol::Http,
        }
    }
}

/// A listener and its chains.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerDraft {
    /// What it stands for.
    pub role: Role,
    /// The message without filter chains.
    pub message: Listener,
    /// Its chains, in order.
    pub chains: Vec<Chain>,
}

/// One filter chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// For which connections.
    pub matches: Option<FilterChainMatch>,
    /// Present when this chain terminates mesh TLS.
    pub tls: Option<DownstreamTlsContext>,
    /// Network filters before the last one.
    pub filters: Vec<Filter>,
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

/// The HTTP part of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpChain {
    /// The connection manager without filters and routes.
    pub manager: HttpConnectionManager,
    /// HTTP filters; the router is added behind them.
    pub filters: Vec<HttpFilter>,
    /// The route configuration without virtual hosts.
    pub config: RouteConfiguration,
    /// Name of the one virtual host.
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
}

/// The endpoints of a cluster, still unencoded: most are the same for every proxy of a mesh, and telling
/// that costs less than building the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointsDraft {
    /// Those of a service that have these tags.
    Selected {
        /// The service.
        service: Arc<Service>,
        /// What they must have.
        tags: BTreeMap<String, String>,
    },
    /// Exactly these.
    Listed(Vec<Endpoint>),
}

impl EndpointsDraft {
    /// As the endpoints of `cluster`.
    pub(super) fn encoded(self, cluster: &str, interner: &Interner) -> Arc<Encoded> {
        interner.encode(type_url::ENDPOINT, cluster, self, |endpoints| {
            Encoded::new(cluster, type_url::ENDPOINT, "outbound", &endpoints.pack(cluster))
        })
    }

    fn pack(&self, cluster: &str) -> ClusterLoadAssignment {
        match self {
            Self::Selected { service, tags } => {
                endpoint::grouped(cluster, service.endpoints.iter().filter(|e| e.has_tags(tags)))
            }
            Self::Listed(endpoints) => endpoint::grouped(cluster, endpoints),
        }
    }
}

/// All of it, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// Listeners.
    pub listeners: BTreeMap<String, ListenerDraft>,
    /// Clusters.
    pub clusters: BTreeMap<String, ClusterDraft>,
    /// Endpoints of the clusters that ask for them.
    pub endpoints: BTreeMap<String, EndpointsDraft>,
    /// Secrets.
    pub secrets: BTreeMap<String, Secret>,
    /// Services whose protocol was asked for.
    pub consulted: BTreeSet<String>,
}

impl Draft {
    /// Packs and encodes everything that `interner` does not know encoded already. Also says where the
    /// endpoints came from.
    pub fn finish(self, interner: &Interner) -> (ResourceSet, Assignments) {
        let mut set = ResourceSet::default();
        let mut assignments = Assignments::default();
        for (name, listener) in self.listeners {
            let origin = listener.role.origin();
            set.insert(interner.encode(type_url::LISTENER, &name, listener, |listener| {
                Encoded::new(&name, type_url::LISTENER, origin, &listener.pack())
            }));
        }
        for (name, cluster) in self.clusters {
            let origin = cluster.role.origin();
            set.insert(interner.encode(type_url::CLUSTER, &name, cluster, |cluster| {
                Encoded::new(&name, type_url::CLUSTER, origin, &cluster.pack())
            }));
        }
        for (name, endpoints) in self.endpoints {
            let tags = match &endpoints {
                EndpointsDraft::Selected { tags, .. } => Some(tags.clone()),
                EndpointsDraft::Listed(_) => None,
            };
            let encoded = endpoints.encoded(&name, interner);
            if let Some(tags) = tags {
                assignments.add(&encoded.name, &tags);
            }
            set.insert(encoded);
        }
        for (name, secret) in self.secrets {
            // Not remembered: every proxy has a certificate of its own under the same name.
            set.insert(Arc::new(Encoded::new(&name, type_url::SECRET, "secrets", &secret)));
        }
        assignments.consulted(self.consulted);
        (set, assignments)
    }
}

impl ListenerDraft {
    fn pack(&self) -> Listener {
        let chains = self.chains.iter().map(Chain::pack).collect();
        Listener { filter_chains: chains, ..self.message.clone() }
    }
}

impl Chain {
    /// Its HTTP part, when it has one.
    pub fn http_mut(&mut self) -> Option<&mut HttpChain> {
        match &mut self.terminal {
            Terminal::Http(http) => Some(http),
            _ => None,
        }
    }

    fn pack(&self) -> FilterChain {
        let terminal = match &self.terminal {
            Terminal::Http(http) => filter::http_connection_manager(&http.pack()),
            Terminal::Tcp(proxy) => filter::tcp_proxy(proxy),
            Terminal::Other(filter) => Filter::clone(filter),
        };
        let mut filters = self.filters.clone();
        filters.push(terminal);
        FilterChain {
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
        let config = RouteConfiguration { virtual_hosts: vec![host], ..self.config.clone() };
        let mut filters = self.filters.clone();
        filters.push(filter::router());
        HttpConnectionManager {
            http_filters: filters,
            route_specifier: Some(RouteSpecifier::RouteConfig(config)),
            ..self.manager.clone()
        }
    }
}

impl ClusterDraft {
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
        message.transport_socket_matches = elsewhere.collect();
        Cluster { transport_socket: socket, ..message }
    }
}
