//! The filter chain for some destinations outside the mesh.

use std::collections::BTreeMap;

use common::{
    policy::mesh_passthrough::DestinationProtocol,
    proto::envoy::{
        config::{
            core::v3::{DataSource, data_source::Specifier},
            listener::v3::FilterChainMatch,
            route::v3::{DirectResponseAction, Route, VirtualHost, route::Action},
        },
        extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
    },
};

use super::order::{Group, PassthroughTarget};
use crate::generator::{
    Chain, HttpChain, HttpFilters, RouteDraft, Terminal,
    envoy::{
        address,
        http::{self, Share},
        number,
    },
    metric_name,
};

/// What a request hears that is for nobody who is listed.
const NO_MATCH: &str = "No destination that a MeshPassthrough lists has this name, so the proxy of the caller refuses \
                        the request.\n";

/// Makes the chain of a group.
pub(super) struct ChainMaker<'a> {
    /// Whether the machine has IPv6.
    pub(super) ipv6: bool,
    /// Which one.
    pub(super) group: &'a Group,
}

impl ChainMaker<'_> {
    /// The chain; notes the clusters it sends traffic to, with what is spoken to each.
    pub(super) fn chain(&self, clusters: &mut BTreeMap<String, DestinationProtocol>) -> Chain {
        let name = match &self.group.to {
            PassthroughTarget::Hosts(_) => format!("meshpassthrough_{}_{}", self.protocol(), self.port()),
            PassthroughTarget::Host(value) | PassthroughTarget::Network { written: value, .. } => {
                self.name(value)
            }
        };
        let mut note = |value: &str| {
            let name = self.name(value);
            clusters.insert(name.clone(), self.group.protocol);
            name
        };
        let terminal = match &self.group.to {
            PassthroughTarget::Hosts(hosts) => {
                let for_all = hosts.iter().find(|host| *host == "*").map(|host| note(host));
                let named = hosts.iter().filter(|host| *host != "*");
                let hosts = named.map(|host| self.host(host, note(host))).collect();
                self.requests(&name, hosts, for_all)
            }
            PassthroughTarget::Host(value) | PassthroughTarget::Network { written: value, .. } => {
                let cluster = note(value);
                if self.group.protocol.has_requests() {
                    self.requests(&name, Vec::new(), Some(cluster))
                } else {
                    Terminal::Tcp(Box::new(TcpProxy {
                        stat_prefix: metric_name(&name),
                        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
                        ..TcpProxy::default()
                    }))
                }
            }
        };
        Chain { name, matches: Some(self.matches()), terminal, ..Chain::default() }
    }

    /// The word by which MySQL is known is that of bytes.
    fn protocol(&self) -> &'static str {
        match self.group.protocol {
            DestinationProtocol::Tcp | DestinationProtocol::Mysql => "tcp",
            DestinationProtocol::Tls => "tls",
            DestinationProtocol::Grpc => "grpc",
            DestinationProtocol::Http => "http",
            DestinationProtocol::Http2 => "http2",
        }
    }

    fn port(&self) -> String {
        self.group.port.map_or_else(|| "*".to_owned(), |port| port.to_string())
    }

    fn name(&self, value: &str) -> String {
        format!("meshpassthrough_{}_{value}_{}", self.protocol(), self.port())
    }

    fn matches(&self) -> FilterChainMatch {
        let encrypted = self.group.protocol == DestinationProtocol::Tls;
        let mut matches = FilterChainMatch {
            destination_port: self.group.port.and_then(number),
            transport_protocol: if encrypted { "tls" } else { "raw_buffer" }.to_owned(),
            ..FilterChainMatch::default()
        };
        match &self.group.to {
            PassthroughTarget::Hosts(_) => {}
            // Any name at all is no condition, and Envoy knows no such pattern.
            PassthroughTarget::Host(name) if name == "*" => {}
            PassthroughTarget::Host(name) => matches.server_names = vec![name.to_lowercase()],
            PassthroughTarget::Network { address, bits, .. } => {
                matches.prefix_ranges = vec![address::network(&address.to_string(), u32::from(*bits))];
            }
        }
        if self.group.protocol.has_requests() {
            matches.application_protocols = vec!["http/1.1".to_owned(), "h2c".to_owned()];
        }
        matches
    }

    /// Routes to these hosts, and to `for_all` when it is none of them.
    fn requests(&self, name: &str, hosts: Vec<VirtualHost>, for_all: Option<String>) -> Terminal {
        let (host, route) = match (for_all, &self.group.to) {
            (Some(cluster), PassthroughTarget::Network { written, .. }) => (written.clone(), to(cluster)),
            (Some(cluster), _) => ("*".to_owned(), to(cluster)),
            (None, _) => ("no_match".to_owned(), refusal()),
        };
        Terminal::Http(Box::new(HttpChain {
            manager: http::passing_manager(name, self.ipv6),
            filters: HttpFilters::default(),
            config: http::route_configuration(name),
            hosts,
            host,
            routes: vec![RouteDraft { message: route, ..RouteDraft::default() }],
        }))
    }

    /// A client may say the port along with the name.
    fn host(&self, name: &str, cluster: String) -> VirtualHost {
        let with_port = match self.group.port {
            Some(port) => Some(format!("{name}:{port}")),
            None => (!name.starts_with('*')).then(|| format!("{name}:*")),
        };
        VirtualHost {
            name: name.to_owned(),
            domains: [name.to_owned()].into_iter().chain(with_port).collect(),
            routes: vec![to(cluster)],
            ..VirtualHost::default()
        }
    }
}

fn to(cluster: String) -> Route {
    http::forward("", http::any_path(), &[Share { cluster, weight: 1 }])
}

fn refusal() -> Route {
    let body =
        DataSource { specifier: Some(Specifier::InlineString(NO_MATCH.to_owned())), ..DataSource::default() };
    let answer = DirectResponseAction { status: 503, body: Some(body), ..DirectResponseAction::default() };
    Route {
        r#match: Some(http::any_path()),
        action: Some(Action::DirectResponse(answer)),
        ..Route::default()
    }
}
