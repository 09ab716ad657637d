//! The HTTP part of listeners.

use std::time::Duration;

use common::proto::envoy::{
    config::{
        core::v3::{
            DataSource, HeaderValue, HeaderValueOption, Http2ProtocolOptions, HttpProtocolOptions,
            data_source::Specifier, http_protocol_options::HeadersWithUnderscoresAction,
        },
        route::v3::{
            Route, RouteAction, RouteConfiguration, RouteMatch, WeightedCluster, route::Action,
            route_action::ClusterSpecifier, route_match::PathSpecifier, weighted_cluster::ClusterWeight,
        },
    },
    extensions::filters::network::http_connection_manager::v3::{
        HttpConnectionManager,
        http_connection_manager::{
            ForwardClientCertDetails, InternalAddressConfig, PathWithEscapedSlashesAction,
            SetCurrentClientCertDetails,
        },
    },
};

use super::{address, duration, flag, number, seconds};
use crate::generator::names;

/// A connection manager with what both directions share.
fn manager(stat_prefix: &str, ipv6: bool) -> HttpConnectionManager {
    HttpConnectionManager {
        stat_prefix: names::metric(stat_prefix),
        internal_address_config: Some(InternalAddressConfig {
            cidr_ranges: address::internal_networks(ipv6),
            ..InternalAddressConfig::default()
        }),
        common_http_protocol_options: Some(HttpProtocolOptions {
            idle_timeout: Some(seconds(0)),
            ..HttpProtocolOptions::default()
        }),
        ..HttpConnectionManager::default()
    }
}

/// Towards the workload: tells it who called.
pub fn inbound_manager(stat_prefix: &str, ipv6: bool) -> HttpConnectionManager {
    HttpConnectionManager {
        forward_client_cert_details: ForwardClientCertDetails::SanitizeSet.into(),
        set_current_client_cert_details: Some(SetCurrentClientCertDetails {
            uri: true,
            ..SetCurrentClientCertDetails::default()
        }),
        stream_idle_timeout: Some(seconds(3600)),
        ..manager(stat_prefix, ipv6)
    }
}

/// For clients outside of the mesh, whose requests are taken with care.
pub fn edge_manager(stat_prefix: &str, ipv6: bool) -> HttpConnectionManager {
    HttpConnectionManager {
        server_name: "Kuma Gateway".to_owned(),
        normalize_path: flag(true),
        merge_slashes: true,
        path_with_escaped_slashes_action: PathWithEscapedSlashesAction::UnescapeAndRedirect.into(),
        use_remote_address: flag(true),
        request_headers_timeout: Some(duration(Duration::from_millis(500))),
        stream_idle_timeout: Some(seconds(5)),
        common_http_protocol_options: Some(HttpProtocolOptions {
            idle_timeout: Some(seconds(300)),
            headers_with_underscores_action: HeadersWithUnderscoresAction::RejectRequest.into(),
            ..HttpProtocolOptions::default()
        }),
        http2_protocol_options: Some(Http2ProtocolOptions {
            max_concurrent_streams: number(100),
            initial_stream_window_size: number(64 * 1024),
            initial_connection_window_size: number(1024 * 1024),
            allow_connect: true,
            ..Http2ProtocolOptions::default()
        }),
        ..manager(stat_prefix, ipv6)
    }
}

/// For who asks the proxy itself.
pub fn local_manager(stat_prefix: &str, ipv6: bool) -> HttpConnectionManager {
    HttpConnectionManager {
        stat_prefix: names::metric(stat_prefix),
        internal_address_config: Some(InternalAddressConfig {
            cidr_ranges: address::local_networks(ipv6),
            ..InternalAddressConfig::default()
        }),
        ..HttpConnectionManager::default()
    }
}

/// For what leaves the mesh.
pub fn passing_manager(stat_prefix: &str, ipv6: bool) -> HttpConnectionManager {
    HttpConnectionManager { common_http_protocol_options: None, ..manager(stat_prefix, ipv6) }
}

/// From the workload.
pub fn outbound_manager(stat_prefix: &str, ipv6: bool) -> HttpConnectionManager {
    HttpConnectionManager { normalize_path: flag(true), ..manager(stat_prefix, ipv6) }
}

/// An inline route configuration. Clusters may arrive after it, so it must not be checked against them.
pub fn route_configuration(name: &str) -> RouteConfiguration {
    RouteConfiguration {
        name: name.to_owned(),
        validate_clusters: flag(false),
        ..RouteConfiguration::default()
    }
}

/// Header by which sidecars tell each other their tags; not for the workload.
pub const TAGS_HEADER: &str = "x-kuma-tags";

/// The header with these tags.
pub fn tags_header(tags: &str) -> HeaderValueOption {
    let header =
        HeaderValue { key: TAGS_HEADER.to_owned(), value: tags.to_owned(), ..HeaderValue::default() };
    HeaderValueOption { header: Some(header), ..HeaderValueOption::default() }
}

/// A match for every path.
pub fn any_path() -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".to_owned())), ..RouteMatch::default() }
}

/// Text of an answer.
pub fn inline_text(text: &str) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineString(text.to_owned())), ..DataSource::default() }
}

/// Where a share of the requests goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name of the cluster.
    pub cluster: String,
    /// Out of the sum of all weights.
    pub weight: u32,
}

/// The same shares with weights that Envoy can add up.
pub fn bounded(mut shares: Vec<Share>) -> Vec<Share> {
    let sum: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
    let most = u64::from(u32::MAX) - shares.len() as u64;
    if sum > most {
        for share in &mut shares {
            let scaled = u128::from(share.weight) * u128::from(most) / u128::from(sum);
            share.weight = u32::try_from(scaled).unwrap_or(u32::MAX).max(1);
        }
    }
    shares
}

/// A cluster, or several by weight.
pub fn cluster_specifier(shares: &[Share]) -> ClusterSpecifier {
    match shares {
        [only] => ClusterSpecifier::Cluster(only.cluster.clone()),
        several => {
            let weighted = several.iter().map(|share| ClusterWeight {
                name: share.cluster.clone(),
                weight: number(share.weight),
                ..ClusterWeight::default()
            });
            let clusters = weighted.collect();
            ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..WeightedCluster::default() })
        }
    }
}

/// A route that forwards.
pub fn forward(name: &str, matches: RouteMatch, shares: &[Share]) -> Route {
    let action = RouteAction { cluster_specifier: Some(cluster_specifier(shares)), ..RouteAction::default() };
    Route {
        name: name.to_owned(),
        r#match: Some(matches),
        action: Some(Action::Route(action)),
        ..Route::default()
    }
}
