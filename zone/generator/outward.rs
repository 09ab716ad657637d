//! Clusters of what is outside the mesh: their endpoints are known by address or name, and TLS towards them is not
//! that of the mesh.

use std::{collections::BTreeMap, sync::Arc};

use common::proto::envoy::{
    config::{
        cluster::v3::cluster::{DnsLookupFamily, TransportSocketMatch},
        core::v3::Address,
        endpoint::v3::{Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier},
    },
    extensions::transport_sockets::tls::v3::UpstreamTlsContext,
};

use super::{
    ClusterDraft, Role,
    envoy::{address, cluster, metadata, number, tls},
};
use crate::mesh::{ExternalService, NAME_TAG, Protocol, Whereabouts};

/// What else a cluster of this kind follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outward<'a> {
    /// The mesh its endpoints are marked with.
    pub(crate) mesh: Option<&'a str>,
    /// Which addresses names are looked up for.
    pub(crate) lookup: DnsLookupFamily,
    /// The file with the certificates that the machine of the proxy believes.
    pub(crate) system_ca: Option<&'a str>,
}

/// The cluster of this name that reaches `services`, which are known as one.
///
/// # Errors
/// Why there is none: a connection that is not checked as it should be is worse.
pub(crate) fn cluster(
    role: Role,
    name: &str,
    services: &[Arc<ExternalService>],
    outward: Outward<'_>,
) -> Result<ClusterDraft, String> {
    let mut localities: BTreeMap<u32, Vec<LbEndpoint>> = BTreeMap::new();
    let (mut common, mut matches, mut named) = (None, Vec::new(), false);
    for service in services {
        let mut tags = service.tags.clone();
        tags.remove(common::model::labels::TAG_SERVICE);
        tags.extend(outward.mesh.map(|mesh| ("mesh".to_owned(), mesh.to_owned())));
        if let Some(origination) = &service.tls {
            let context = tls::outward(origination, outward.system_ca).ok_or_else(|| {
                let key = &service.resource.key;
                format!(
                    "{key}: nothing says which certificates the machine of the proxy believes; give the service a CA of \
                     its own"
                )
            })?;
            if service.is_resource() {
                common = Some(context);
            } else {
                tags.insert(NAME_TAG.to_owned(), service.resource.name().to_owned());
                matches.push(one_of_several(service, &tags, &context));
            }
        }
        for outpost in &service.endpoints {
            named |= outpost.at.host_name().is_some();
            let endpoints = localities.entry(outpost.priority).or_default();
            endpoints.push(endpoint(&outpost.at, &tags));
        }
    }
    // Priorities without a gap, or the cluster is refused.
    let localities =
        localities.into_values().enumerate().map(|(priority, lb_endpoints)| LocalityLbEndpoints {
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
            lb_endpoints,
            ..LocalityLbEndpoints::default()
        });
    let mut message = cluster::provided(name, localities.collect(), named.then_some(outward.lookup));
    message.transport_socket_matches = matches;
    let protocol = Protocol::common(services.iter().map(|service| service.protocol));
    Ok(ClusterDraft {
        role,
        message,
        http: match protocol {
            Protocol::Http => Some(cluster::http1()),
            Protocol::Http2 | Protocol::Grpc => Some(cluster::http2()),
            Protocol::Tcp | Protocol::Kafka | Protocol::Unknown => None,
        },
        tls: common,
        tls_elsewhere: BTreeMap::new(),
        nearness: None,
    })
}

fn one_of_several(
    service: &ExternalService,
    tags: &BTreeMap<String, String>,
    context: &UpstreamTlsContext,
) -> TransportSocketMatch {
    let host = service.endpoints.first().map(|outpost| outpost.at.text().to_owned());
    TransportSocketMatch {
        name: host.unwrap_or_else(|| service.resource.name().to_owned()),
        r#match: Some(metadata::strings(tags)),
        transport_socket: Some(tls::socket(context)),
    }
}

fn endpoint(at: &Whereabouts, tags: &BTreeMap<String, String>) -> LbEndpoint {
    let address: Address = match at {
        Whereabouts::Host(host, port) => address::named(host, *port),
        Whereabouts::Socket(path) => address::pipe(path),
    };
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    let tags = metadata::strings(tags);
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        load_balancing_weight: number(1),
        metadata: metadata::of([(metadata::LOAD_BALANCER, tags.clone()), (metadata::TRANSPORT_SOCKET, tags)]),
        ..LbEndpoint::default()
    }
}
