//! Clusters.

use common::model::labels;
use common::proto::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster,
                cluster::{
                    ClusterDiscoveryType, DiscoveryType, DnsLookupFamily, EdsClusterConfig, LbPolicy,
                    TransportSocketMatch,
                },
            },
            core::v3::{
                AggregatedConfigSource, ApiConfigSource, ApiVersion, ConfigSource, GrpcService,
                Http1ProtocolOptions, Http2ProtocolOptions, TransportSocket,
                api_config_source::ApiType,
                config_source::ConfigSourceSpecifier,
                grpc_service::{EnvoyGrpc, TargetSpecifier},
            },
            endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints},
        },
        extensions::upstreams::http::v3::{
            HttpProtocolOptions,
            http_protocol_options::{ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config},
        },
    },
    google::protobuf::Any,
};
use prost::{Message, Name};

use super::{address, endpoint, metadata, seconds};
use crate::generator::names;

/// Packs a message for a field that takes any type.
pub fn pack<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// The stream this resource itself came on.
pub fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    }
}

/// A stream of its own, from the cluster of this name.
pub fn grpc(cluster: &str) -> ConfigSource {
    let envoy = EnvoyGrpc { cluster_name: cluster.to_owned(), ..EnvoyGrpc::default() };
    let service =
        GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(envoy)), ..GrpcService::default() };
    let source = ApiConfigSource {
        api_type: ApiType::Grpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![service],
        ..ApiConfigSource::default()
    };
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(source)),
        ..ConfigSource::default()
    }
}

fn base(name: &str, discovery: DiscoveryType) -> Cluster {
    let metric = names::metric(name);
    Cluster {
        alt_stat_name: if metric == name { String::new() } else { metric },
        name: name.to_owned(),
        connect_timeout: Some(seconds(10)),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery.into())),
        ..Cluster::default()
    }
}

/// A cluster whose endpoints never change.
pub fn fixed(name: &str, endpoints: ClusterLoadAssignment) -> Cluster {
    Cluster { load_assignment: Some(endpoints), ..base(name, DiscoveryType::Static) }
}

/// A cluster without endpoints.
pub fn empty(name: &str) -> Cluster {
    Cluster {
        connect_timeout: Some(seconds(5)),
        alt_stat_name: names::metric(name),
        ..base(name, DiscoveryType::Static)
    }
}

/// A cluster of whatever address a redirected connection was meant for.
pub fn original(name: &str) -> Cluster {
    Cluster {
        connect_timeout: Some(seconds(5)),
        lb_policy: LbPolicy::ClusterProvided.into(),
        ..base(name, DiscoveryType::OriginalDst)
    }
}

/// A cluster of one host, by its address or by its name, which is looked up again and again.
pub fn of_host(name: &str, host: &str, port: u32, ipv6: bool) -> Cluster {
    if let Ok(ip) = host.parse() {
        return fixed(name, endpoint::single(name, ip, port));
    }
    let lookup = if ipv6 { DnsLookupFamily::Auto } else { DnsLookupFamily::V4Only };
    Cluster {
        load_assignment: Some(endpoint::at_address(name, address::named(host, port))),
        dns_lookup_family: lookup.into(),
        ..base(name, DiscoveryType::StrictDns)
    }
}

/// A cluster of these endpoints; their names are looked up again and again when they have some.
pub fn provided(name: &str, endpoints: Vec<LocalityLbEndpoints>, lookup: Option<DnsLookupFamily>) -> Cluster {
    let discovery = if lookup.is_some() { DiscoveryType::StrictDns } else { DiscoveryType::Static };
    Cluster {
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            endpoints,
            ..ClusterLoadAssignment::default()
        }),
        dns_lookup_family: lookup.unwrap_or_default().into(),
        ..base(name, discovery)
    }
}

/// A cluster whose endpoints arrive as a resource of the same name.
pub fn discovered(name: &str) -> Cluster {
    let eds = EdsClusterConfig { eds_config: Some(ads()), ..EdsClusterConfig::default() };
    Cluster { eds_cluster_config: Some(eds), ..base(name, DiscoveryType::Eds) }
}

/// How the endpoints of a cluster in this zone are reached, when it is not how all of them are.
pub fn in_zone(zone: &str, socket: TransportSocket) -> TransportSocketMatch {
    let zone = (labels::ZONE.to_owned(), zone.to_owned());
    TransportSocketMatch {
        name: zone.1.clone(),
        r#match: Some(metadata::strings([(&zone.0, &zone.1)])),
        transport_socket: Some(socket),
    }
}

fn explicit(config: explicit_http_config::ProtocolConfig) -> HttpProtocolOptions {
    let explicit = ExplicitHttpConfig { protocol_config: Some(config) };
    HttpProtocolOptions {
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)),
        ..HttpProtocolOptions::default()
    }
}

/// HTTP/1.1 towards the cluster.
pub fn http1() -> HttpProtocolOptions {
    explicit(explicit_http_config::ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default()))
}

/// HTTP/2 towards the cluster.
pub fn http2() -> HttpProtocolOptions {
    explicit(explicit_http_config::ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default()))
}
