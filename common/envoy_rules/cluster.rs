//! What an Envoy looks at in a cluster beyond its members one by one.

use std::{collections::BTreeMap, net::IpAddr};

use prost::Message;

use super::{
    listener::{DOWNSTREAM_TLS, SocketGist},
    noted::Noted,
};
use crate::{
    model::FieldStep,
    proto::{
        envoy::config::{
            cluster::v3::cluster::{DiscoveryType, LbPolicy},
            core::v3::{Address, address},
        },
        google::protobuf::Any,
    },
};

#[derive(Clone, PartialEq, Message)]
struct ClusterGist {
    #[prost(int32, optional, tag = "2")]
    r#type: Option<i32>,
    #[prost(message, optional, tag = "3")]
    eds_cluster_config: Option<SettingGist>,
    #[prost(int32, tag = "6")]
    lb_policy: i32,
    #[prost(message, repeated, tag = "8")]
    health_checks: Vec<CheckGist>,
    #[prost(message, optional, tag = "14")]
    http2_protocol_options: Option<SettingGist>,
    #[prost(message, optional, tag = "23")]
    ring_hash_lb_config: Option<RingGist>,
    #[prost(message, optional, tag = "24")]
    transport_socket: Option<SocketGist>,
    #[prost(message, optional, tag = "33")]
    load_assignment: Option<AssignmentGist>,
    #[prost(btree_map = "string, message", tag = "36")]
    typed_extension_protocol_options: BTreeMap<String, Any>,
    #[prost(message, optional, tag = "38")]
    cluster_type: Option<SettingGist>,
    #[prost(message, optional, tag = "41")]
    load_balancing_policy: Option<SettingGist>,
    #[prost(message, optional, tag = "52")]
    maglev_lb_config: Option<TableGist>,
}

/// Something of which it matters whether it is there.
#[derive(Clone, PartialEq, Message)]
struct SettingGist {}

#[derive(Clone, PartialEq, Message)]
struct CheckGist {
    #[prost(message, optional, tag = "11")]
    grpc_health_check: Option<SettingGist>,
}

#[derive(Clone, PartialEq, Message)]
struct ProtocolsGist {
    #[prost(message, optional, tag = "3")]
    explicit_http_config: Option<SpokenGist>,
    #[prost(message, optional, tag = "4")]
    use_downstream_protocol_config: Option<SpokenGist>,
    #[prost(message, optional, tag = "5")]
    auto_config: Option<SettingGist>,
}

#[derive(Clone, PartialEq, Message)]
struct SpokenGist {
    #[prost(message, optional, tag = "2")]
    http2_protocol_options: Option<SettingGist>,
}

#[derive(Clone, PartialEq, Message)]
struct RingGist {
    #[prost(message, optional, tag = "1")]
    minimum_ring_size: Option<u64>,
    #[prost(message, optional, tag = "4")]
    maximum_ring_size: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TableGist {
    #[prost(message, optional, tag = "1")]
    table_size: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct AssignmentGist {
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityGist>,
}

#[derive(Clone, PartialEq, Message)]
struct LocalityGist {
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<MemberGist>,
}

#[derive(Clone, PartialEq, Message)]
struct MemberGist {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<EndpointGist>,
}

#[derive(Clone, PartialEq, Message)]
struct EndpointGist {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

/// The largest ring if nothing is said about it.
const LARGEST_RING: u64 = 8 << 20;
/// The smallest one.
const SMALLEST_RING: u64 = 1024;

/// How members are found, and how one of them is chosen, goes together.
pub(super) fn cluster(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let cluster = ClusterGist::decode(message).ok()?;
    if cluster.transport_socket.as_ref().is_some_and(|socket| socket.is(DOWNSTREAM_TLS)) {
        noted.note(&at.field("transport_socket"), "must be the TLS of who opens connections");
    }
    balancing(noted, &cluster, at);
    checks(noted, &cluster, at);
    if cluster.cluster_type.is_some() {
        return Some(());
    }
    let kind = DiscoveryType::try_from(cluster.r#type.unwrap_or_default()).ok();
    if kind != Some(DiscoveryType::Eds) && cluster.eds_cluster_config.is_some() {
        noted.note(&at.field("eds_cluster_config"), "is for clusters of type EDS");
    }
    let is_provided = cluster.lb_policy == i32::from(LbPolicy::ClusterProvided);
    match kind {
        Some(DiscoveryType::Eds) if cluster.eds_cluster_config.is_none() => {
            noted.note(&at.field("eds_cluster_config"), "is required for type EDS");
        }
        Some(DiscoveryType::OriginalDst) => {
            if !is_provided && cluster.load_balancing_policy.is_none() {
                noted.note(&at.field("lb_policy"), "must be CLUSTER_PROVIDED for type ORIGINAL_DST");
            }
            if cluster.load_assignment.is_some() {
                noted.note(&at.field("load_assignment"), "is not for type ORIGINAL_DST");
            }
        }
        Some(DiscoveryType::LogicalDns) => one_member(noted, &cluster, at),
        Some(DiscoveryType::Static) => addresses(noted, &cluster, at),
        Some(DiscoveryType::StrictDns | DiscoveryType::Eds) | None => {}
    }
    if kind != Some(DiscoveryType::OriginalDst) && is_provided {
        noted.note(&at.field("lb_policy"), "is CLUSTER_PROVIDED, which is for type ORIGINAL_DST");
    }
    Some(())
}

/// Where it stands how HTTP is spoken.
const PROTOCOLS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Who is asked by gRPC speaks HTTP/2.
fn checks(noted: &mut Noted, cluster: &ClusterGist, at: &FieldStep<'_>) {
    let at = at.field("health_checks");
    for (i, check) in cluster.health_checks.iter().enumerate() {
        if check.grpc_health_check.is_some() && !speaks_http2(cluster) {
            noted.note(&at.index(i).field("grpc_health_check"), "is for clusters that speak HTTP/2");
        }
    }
}

fn speaks_http2(cluster: &ClusterGist) -> bool {
    // The older place counts where the newer one says nothing at all.
    let Some(newer) = cluster.typed_extension_protocol_options.get(PROTOCOLS) else {
        return cluster.http2_protocol_options.is_some();
    };
    let Ok(spoken) = ProtocolsGist::decode(&*newer.value) else { return true };
    let named = [spoken.explicit_http_config, spoken.use_downstream_protocol_config];
    let named = named.into_iter().flatten().any(|spoken| spoken.http2_protocol_options.is_some());
    named || spoken.auto_config.is_some()
}

fn balancing(noted: &mut Noted, cluster: &ClusterGist, at: &FieldStep<'_>) {
    if let Some(ring) =
        cluster.ring_hash_lb_config.as_ref().filter(|_| cluster.lb_policy == i32::from(LbPolicy::RingHash))
    {
        let (min, max) =
            (ring.minimum_ring_size.unwrap_or(SMALLEST_RING), ring.maximum_ring_size.unwrap_or(LARGEST_RING));
        if min > max {
            let reason = format!("must not be greater than the maximum of {max}, and is {min}");
            noted.note(&at.field("ring_hash_lb_config").field("minimum_ring_size"), reason);
        }
    }
    let table = cluster.maglev_lb_config.as_ref().and_then(|maglev| maglev.table_size);
    if let Some(size) =
        table.filter(|size| cluster.lb_policy == i32::from(LbPolicy::Maglev) && !is_prime(*size))
    {
        let at = at.field("maglev_lb_config");
        noted.note(&at.field("table_size"), format!("must be a prime number, and is {size}"));
    }
    if cluster.lb_policy == i32::from(LbPolicy::LoadBalancingPolicyConfig)
        && cluster.load_balancing_policy.is_none()
    {
        noted.note(&at.field("load_balancing_policy"), "is required by this lb_policy");
    }
}

fn is_prime(number: u64) -> bool {
    let divides = |divisor: u64| number.is_multiple_of(divisor);
    number > 1 && !(2..).take_while(|divisor| divisor * divisor <= number).any(divides)
}

fn one_member(noted: &mut Noted, cluster: &ClusterGist, at: &FieldStep<'_>) {
    let localities = cluster.load_assignment.iter().flat_map(|assignment| &assignment.endpoints);
    let members: Vec<usize> = localities.map(|locality| locality.lb_endpoints.len()).collect();
    if members != [1] {
        let reason = "must have one locality with one endpoint for type LOGICAL_DNS";
        noted.note(&at.field("load_assignment"), reason);
    }
}

/// Nobody looks up a name.
fn addresses(noted: &mut Noted, cluster: &ClusterGist, at: &FieldStep<'_>) {
    let at = at.field("load_assignment");
    let at = at.field("endpoints");
    for (i, locality) in
        cluster.load_assignment.iter().flat_map(|assignment| &assignment.endpoints).enumerate()
    {
        for (j, member) in locality.lb_endpoints.iter().enumerate() {
            let address =
                member.endpoint.as_ref().and_then(|endpoint| endpoint.address.as_ref()?.address.as_ref());
            if let Some(address::Address::SocketAddress(socket)) = address
                && socket.resolver_name.is_empty()
                && socket.address.parse::<IpAddr>().is_err()
            {
                let (at, member) = (at.index(i), j);
                let at = at.field("lb_endpoints");
                let reason = format!("has an address that is no IP address: {:?}", socket.address);
                noted.note(&at.index(member), reason);
            }
        }
    }
}
