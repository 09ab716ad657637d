//! Filters of listeners, of connections and of requests. Each carries its typed configuration: a filter
//! known by name only is refused.

use common::proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use common::proto::envoy::{
    config::listener::v3::{Filter, ListenerFilter, filter, listener_filter},
    extensions::filters::{
        common::set_filter_state::v3::FilterStateValue,
        http::{grpc_stats::v3::FilterConfig as GrpcStats, router::v3::Router},
        listener::{http_inspector::v3::HttpInspector, tls_inspector::v3::TlsInspector},
        network::{
            direct_response,
            http_connection_manager::v3::{HttpConnectionManager, HttpFilter, http_filter},
            set_filter_state::v3::Config as SetFilterState,
            tcp_proxy::v3::TcpProxy,
        },
        udp::dns_filter::v3::DnsFilterConfig,
    },
};
use prost::{Message, Name};

use super::cluster::pack;

/// A network filter.
pub fn network<M: Message + Name>(name: &str, config: &M) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(pack(config))) }
}

/// An HTTP filter.
pub fn http<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(pack(config))),
        ..HttpFilter::default()
    }
}

/// The network filter that routes requests.
pub fn http_connection_manager(config: &HttpConnectionManager) -> Filter {
    network("envoy.filters.network.http_connection_manager", config)
}

/// The network filter that forwards bytes.
pub fn tcp_proxy(config: &TcpProxy) -> Filter {
    network("envoy.filters.network.tcp_proxy", config)
}

/// The network filter that answers each connection with `text`.
pub fn direct_response(text: String) -> Filter {
    let config = direct_response::v3::Config {
        response: Some(DataSource {
            specifier: Some(Specifier::InlineString(text)),
            ..DataSource::default()
        }),
    };
    network("envoy.filters.network.direct_response", &config)
}

/// The network filter that remembers these of the client.
pub fn set_filter_state(values: Vec<FilterStateValue>) -> Filter {
    let config = SetFilterState { on_downstream_tls_handshake: values, ..SetFilterState::default() };
    network("envoy.filters.network.set_filter_state", &config)
}

/// The HTTP filter that must come last.
pub fn router() -> HttpFilter {
    http("envoy.filters.http.router", &Router::default())
}

/// The HTTP filter that counts gRPC calls by method.
pub fn grpc_stats() -> HttpFilter {
    http("envoy.filters.http.grpc_stats", &GrpcStats { emit_filter_state: true, ..GrpcStats::default() })
}

/// The listener filter that tells TLS from plaintext and reads the server name.
pub fn tls_inspector() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(pack(&TlsInspector::default()))),
        ..ListenerFilter::default()
    }
}

/// The listener filter that tells HTTP from anything else.
pub fn http_inspector() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.http_inspector".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(pack(&HttpInspector::default()))),
        ..ListenerFilter::default()
    }
}

/// The listener filter that answers questions for names.
pub fn dns(config: &DnsFilterConfig) -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.udp.dns_filter".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(pack(config))),
        ..ListenerFilter::default()
    }
}
