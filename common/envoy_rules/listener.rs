//! What an Envoy looks at in a listener beyond its members one by one.

use std::{collections::BTreeSet, net::IpAddr};

use prost::Message;

use super::noted::Noted;
use crate::{
    model::FieldStep,
    proto::envoy::config::{
        core::v3::{
            Address, CidrRange, address,
            socket_address::{PortSpecifier, Protocol},
        },
        listener::v3::FilterChainMatch,
    },
};

/// Something of which it matters whether it is there.
#[derive(Clone, PartialEq, Message)]
struct PresenceGist {}

#[derive(Clone, PartialEq, Message)]
struct PackedGist {
    #[prost(string, tag = "1")]
    type_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct ListenerGist {
    #[prost(message, optional, tag = "2")]
    address: Option<Address>,
    #[prost(message, repeated, tag = "3")]
    filter_chains: Vec<ChainGist>,
    #[prost(message, repeated, tag = "9")]
    listener_filters: Vec<ListenerFilterGist>,
    #[prost(message, optional, tag = "19")]
    api_listener: Option<PresenceGist>,
    #[prost(message, optional, tag = "25")]
    default_filter_chain: Option<PresenceGist>,
    #[prost(message, optional, tag = "27")]
    internal_listener: Option<PresenceGist>,
    #[prost(message, optional, tag = "32")]
    filter_chain_matcher: Option<PresenceGist>,
    #[prost(message, optional, tag = "36")]
    fcds_config: Option<PresenceGist>,
}

#[derive(Clone, PartialEq, Message)]
struct ChainGist {
    #[prost(message, optional, tag = "1")]
    filter_chain_match: Option<FilterChainMatch>,
}

#[derive(Clone, PartialEq, Message)]
struct FiltersGist {
    #[prost(message, repeated, tag = "3")]
    filters: Vec<FilterGist>,
    #[prost(message, optional, tag = "6")]
    transport_socket: Option<SocketGist>,
}

#[derive(Clone, PartialEq, Message)]
struct FilterGist {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "4")]
    typed_config: Option<PackedGist>,
    #[prost(message, optional, tag = "5")]
    config_discovery: Option<PresenceGist>,
}

#[derive(Clone, PartialEq, Message)]
struct ListenerFilterGist {
    #[prost(message, optional, tag = "3")]
    typed_config: Option<PresenceGist>,
    #[prost(message, optional, tag = "5")]
    config_discovery: Option<PresenceGist>,
}

#[derive(Clone, PartialEq, Message)]
struct ManagerGist {
    #[prost(message, repeated, tag = "5")]
    http_filters: Vec<FilterGist>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketGist {
    #[prost(message, optional, tag = "3")]
    typed_config: Option<PackedGist>,
}

#[derive(Clone, PartialEq, Message)]
struct AddressesGist {
    #[prost(message, optional, tag = "2")]
    address: Option<Address>,
    #[prost(message, repeated, tag = "33")]
    additional_addresses: Vec<AdditionalGist>,
}

#[derive(Clone, PartialEq, Message)]
struct AdditionalGist {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

/// An address at which a listener takes connections, or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenAddress {
    /// Whether it takes packets.
    pub datagrams: bool,
    /// The address.
    pub ip: IpAddr,
    /// The port.
    pub port: u32,
}

/// Where an encoded listener listens, as far as it says that itself.
pub fn listens_at(listener: &[u8]) -> Vec<ListenAddress> {
    let Ok(listener) = AddressesGist::decode(listener) else { return Vec::new() };
    let more = listener.additional_addresses.into_iter().filter_map(|additional| additional.address);
    let all = listener.address.into_iter().chain(more);
    let socket = |address: Address| match address.address? {
        address::Address::SocketAddress(socket) => {
            let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else { return None };
            let datagrams = socket.protocol() == Protocol::Udp;
            Some(ListenAddress { datagrams, ip: socket.address.parse().ok()?, port })
        }
        _ => None,
    };
    // The kernel chooses where nobody does.
    all.filter_map(socket).filter(|at| at.port != 0).collect()
}

/// Which side of a connection speaks TLS.
pub(super) const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
pub(super) const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

/// Filters that end a chain, and some that do not. Of others nothing is known.
struct Ends {
    ends: &'static [&'static str],
    goes_on: &'static [&'static str],
}

const NETWORK: Ends = Ends {
    ends: &[
        "envoy.extensions.filters.network.direct_response.v3.Config",
        "envoy.extensions.filters.network.echo.v3.Echo",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
    ],
    goes_on: &[
        "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
        "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz",
        "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit",
        "envoy.extensions.filters.network.ratelimit.v3.RateLimit",
        "envoy.extensions.filters.network.rbac.v3.RBAC",
        "envoy.extensions.filters.network.set_filter_state.v3.Config",
        "envoy.extensions.filters.network.sni_cluster.v3.SniCluster",
    ],
};

const HTTP: Ends = Ends {
    ends: &["envoy.extensions.filters.http.router.v3.Router"],
    goes_on: &[
        "envoy.extensions.filters.http.buffer.v3.Buffer",
        "envoy.extensions.filters.http.compressor.v3.Compressor",
        "envoy.extensions.filters.http.cors.v3.Cors",
        "envoy.extensions.filters.http.csrf.v3.CsrfPolicy",
        "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        "envoy.extensions.filters.http.fault.v3.HTTPFault",
        "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
        "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
        "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "envoy.extensions.filters.http.lua.v3.Lua",
        "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "envoy.extensions.filters.http.rbac.v3.RBAC",
        "envoy.extensions.filters.http.set_metadata.v3.Config",
        "envoy.extensions.filters.http.tap.v3.Tap",
    ],
};

/// A listener listens somewhere, and which of its chains a connection takes is not left open.
pub(super) fn listener(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let listener = ListenerGist::decode(message).ok()?;
    for (i, filter) in listener.listener_filters.iter().enumerate() {
        if filter.typed_config.is_none() && filter.config_discovery.is_none() {
            noted.note(&at.field("listener_filters").index(i).field("typed_config"), "is required");
        }
    }
    if listener.api_listener.is_some() {
        return Some(());
    }
    let is_datagram = matches!(
        listener.address.as_ref().and_then(|address| address.address.as_ref()),
        Some(address::Address::SocketAddress(socket)) if socket.protocol() == Protocol::Udp
    );
    let some = !listener.filter_chains.is_empty()
        || listener.default_filter_chain.is_some()
        || listener.fcds_config.is_some();
    let is_placed = listener.address.is_some() || listener.internal_listener.is_some();
    if !some && !is_placed {
        // One that has but a name stands for one, for those who try out the protocol.
        return Some(());
    }
    if !is_placed {
        noted.note(&at.field("address"), "is required");
    }
    if !some && !is_datagram {
        noted.note(&at.field("filter_chains"), "must have at least 1 of them");
    }
    if listener.filter_chain_matcher.is_none() {
        ambiguous(noted, &listener.filter_chains, &at.field("filter_chains"));
    }
    Some(())
}

/// Notes chains that a connection could take as well as another one.
fn ambiguous(noted: &mut Noted, chains: &[ChainGist], at: &FieldStep<'_>) {
    let everything = FilterChainMatch::default();
    let mut seen = BTreeSet::new();
    for (i, chain) in chains.iter().enumerate() {
        let at = at.index(i);
        let matches = chain.filter_chain_match.as_ref().unwrap_or(&everything);
        let partial = |name: &&String| name.contains('*') && !name.starts_with("*.");
        if let Some(name) = matches.server_names.iter().find(partial) {
            let at = at.field("filter_chain_match");
            noted.note(
                &at.field("server_names"),
                format!("must not have {name:?} in it: only a first label is a `*`"),
            );
        }
        if cases(matches).into_iter().any(|case| !seen.insert(case)) {
            noted.note(&at.field("filter_chain_match"), "must not ask for what another chain asks for");
        }
    }
}

/// Every combination for which `matches` asks.
fn cases(matches: &FilterChainMatch) -> Vec<String> {
    let ranges = |ranges: &[CidrRange]| -> Vec<String> {
        let range = |range: &CidrRange| {
            format!("{}/{}", range.address_prefix, range.prefix_len.as_ref().map_or(0, |length| length.value))
        };
        ranges.iter().map(range).collect()
    };
    let port = matches.destination_port.as_ref().map(|port| port.value.to_string());
    product(&[
        port.into_iter().collect(),
        ranges(&matches.prefix_ranges),
        matches.server_names.iter().map(|name| name.to_lowercase()).collect(),
        vec![matches.transport_protocol.clone()],
        matches.application_protocols.clone(),
        ranges(&matches.direct_source_prefix_ranges),
        vec![matches.source_type.to_string()],
        ranges(&matches.source_prefix_ranges),
        matches.source_ports.iter().map(u32::to_string).collect(),
    ])
}

/// One of each, as one text; an empty list stands for whatever there is.
fn product(lists: &[Vec<String>]) -> Vec<String> {
    let mut cases = vec![String::new()];
    for list in lists {
        if list.len() > 1 {
            let all = cases.iter().flat_map(|case| list.iter().map(move |one| format!("{case}{one}")));
            // Of what somebody made that large nothing more is told.
            cases = all.take(MOST_CASES).collect();
        }
        for case in &mut cases {
            if let [one] = &list[..] {
                case.push_str(one);
            }
            case.push('\0');
        }
    }
    cases
}

/// Combinations of one chain that are looked at.
const MOST_CASES: usize = 10_000;

/// Filters are configured, and the one that ends the chain is the last.
pub(super) fn chain(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let chain = FiltersGist::decode(message).ok()?;
    filters(noted, &chain.filters, &NETWORK, &at.field("filters"));
    if chain.transport_socket.is_some_and(|socket| socket.is(UPSTREAM_TLS)) {
        noted.note(&at.field("transport_socket"), "must be the TLS of who accepts connections");
    }
    Some(())
}

/// The same for filters of requests.
pub(super) fn connection_manager(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let manager = ManagerGist::decode(message).ok()?;
    filters(noted, &manager.http_filters, &HTTP, &at.field("http_filters"));
    Some(())
}

fn filters(noted: &mut Noted, filters: &[FilterGist], ends: &Ends, at: &FieldStep<'_>) {
    let last = filters.len().saturating_sub(1);
    for (i, filter) in filters.iter().enumerate() {
        let at = at.index(i);
        let Some(config) = &filter.typed_config else {
            if filter.config_discovery.is_none() {
                noted.note(&at.field("typed_config"), "is required");
            }
            continue;
        };
        let is_one = |of: &[&str]| of.contains(&config.name());
        if i < last && is_one(ends.ends) {
            noted.note(&at, format!("the filter {:?} must be the last one", filter.name));
        } else if i == last && is_one(ends.goes_on) {
            noted.note(&at, format!("the filter {:?} must not be the last one", filter.name));
        }
    }
}

/// A transport socket is configured.
pub(super) fn transport_socket(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    if SocketGist::decode(message).ok()?.typed_config.is_none() {
        noted.note(&at.field("typed_config"), "is required");
    }
    Some(())
}

impl PackedGist {
    fn name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }
}

impl SocketGist {
    /// Whether it is configured by a message of this type.
    pub(super) fn is(&self, name: &str) -> bool {
        self.typed_config.as_ref().is_some_and(|config| config.name() == name)
    }
}
