//! What a resource makes an Envoy ask for next: the endpoints of a cluster, the routes of a listener, the
//! secrets of both. Found once for equal bytes, which most proxies share.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster,
                cluster::{ClusterDiscoveryType, DiscoveryType},
            },
            core::v3::{TransportSocket, transport_socket},
            listener::v3::{FilterChain, Listener, filter},
        },
        extensions::{
            filters::network::http_connection_manager::v3::{
                HttpConnectionManager, http_connection_manager::RouteSpecifier,
            },
            transport_sockets::tls::v3::{
                CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext,
                common_tls_context::ValidationContextType,
            },
        },
    },
    google::protobuf::Any,
};
use prost::Message;

use crate::ResourceType;

/// Names a resource refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    pub(crate) endpoints: Vec<Arc<str>>,
    pub(crate) routes: Vec<Arc<str>>,
    pub(crate) secrets: Vec<Arc<str>>,
}

/// References of everything seen, by the checksum and length of its bytes.
#[derive(Default)]
pub(crate) struct ReferenceCache(RwLock<HashMap<(u32, usize), Arc<References>>>);

impl ReferenceCache {
    /// What `resource` refers to.
    pub(crate) fn of(&self, kind: ResourceType, resource: &[u8]) -> Arc<References> {
        let key = (crc32fast::hash(resource), resource.len());
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Arc::clone(known);
        }
        let found = Arc::new(find(kind, resource));
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&found));
        found
    }
}

fn find(kind: ResourceType, resource: &[u8]) -> References {
    let mut found = References::default();
    let mut secrets = BTreeSet::new();
    match kind {
        ResourceType::Cluster => {
            let cluster = Cluster::decode(resource).unwrap_or_default();
            if cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())) {
                let named = cluster.eds_cluster_config.map(|eds| eds.service_name).unwrap_or_default();
                found.endpoints.push(if named.is_empty() { cluster.name.into() } else { named.into() });
            }
            let matched = cluster.transport_socket_matches.into_iter().filter_map(|m| m.transport_socket);
            cluster.transport_socket.into_iter().chain(matched).for_each(|s| of_socket(s, &mut secrets));
        }
        ResourceType::Listener => {
            let listener = Listener::decode(resource).unwrap_or_default();
            for chain in listener.filter_chains.into_iter().chain(listener.default_filter_chain) {
                of_chain(chain, &mut found, &mut secrets);
            }
        }
        ResourceType::Endpoint | ResourceType::Route | ResourceType::Secret => {}
    }
    found.secrets = secrets.into_iter().map(Arc::from).collect();
    found
}

fn of_chain(chain: FilterChain, found: &mut References, secrets: &mut BTreeSet<String>) {
    chain.transport_socket.into_iter().for_each(|socket| of_socket(socket, secrets));
    for filter in chain.filters {
        let Some(filter::ConfigType::TypedConfig(config)) = filter.config_type else { continue };
        if !config.type_url.ends_with(".HttpConnectionManager") {
            continue;
        }
        let manager = HttpConnectionManager::decode(&config.value[..]).unwrap_or_default();
        if let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier {
            found.routes.push(rds.route_config_name.into());
        }
    }
}

fn of_socket(socket: TransportSocket, secrets: &mut BTreeSet<String>) {
    let Some(transport_socket::ConfigType::TypedConfig(Any { type_url, value })) = socket.config_type else {
        return;
    };
    let context = if type_url.ends_with(".UpstreamTlsContext") {
        UpstreamTlsContext::decode(&value[..]).unwrap_or_default().common_tls_context
    } else if type_url.ends_with(".DownstreamTlsContext") {
        DownstreamTlsContext::decode(&value[..]).unwrap_or_default().common_tls_context
    } else {
        None
    };
    of_context(context.unwrap_or_default(), secrets);
}

fn of_context(context: CommonTlsContext, secrets: &mut BTreeSet<String>) {
    let dynamic = |name: String, by_ads: bool| by_ads.then_some(name);
    let certificates = context.tls_certificate_sds_secret_configs.into_iter();
    secrets.extend(certificates.filter_map(|s| dynamic(s.name, s.sds_config.is_some())));
    let validation = match context.validation_context_type {
        Some(ValidationContextType::ValidationContextSdsSecretConfig(sds)) => Some(sds),
        Some(ValidationContextType::CombinedValidationContext(both)) => {
            both.validation_context_sds_secret_config
        }
        _ => None,
    };
    secrets.extend(validation.and_then(|s| dynamic(s.name, s.sds_config.is_some())));
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::{
        config::{cluster::v3::cluster::EdsClusterConfig, core::v3::ConfigSource, listener::v3::Filter},
        extensions::{
            filters::network::http_connection_manager::v3::Rds, transport_sockets::tls::v3::SdsSecretConfig,
        },
    };

    use super::*;

    fn packed(name: &str, message: &impl Message) -> Any {
        Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
    }

    fn secured() -> TransportSocket {
        let secret =
            |name: &str| SdsSecretConfig { name: name.to_owned(), sds_config: Some(ConfigSource::default()) };
        let context = UpstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_certificate_sds_secret_configs: vec![secret("identity")],
                validation_context_type: Some(ValidationContextType::ValidationContextSdsSecretConfig(
                    secret("authority"),
                )),
                ..CommonTlsContext::default()
            }),
            ..UpstreamTlsContext::default()
        };
        let config = packed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", &context);
        TransportSocket {
            config_type: Some(transport_socket::ConfigType::TypedConfig(config)),
            ..TransportSocket::default()
        }
    }

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn a_cluster_asks_for_endpoints_and_secrets() {
        let mut cluster = Cluster {
            name: "web".to_owned(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            transport_socket: Some(secured()),
            ..Cluster::default()
        };
        let cache = ReferenceCache::default();
        let found = cache.of(ResourceType::Cluster, &cluster.encode_to_vec());
        assert_eq!(found.endpoints, names(&["web"]));
        assert_eq!(found.secrets, names(&["authority", "identity"]));
        let eds = EdsClusterConfig { service_name: "other".to_owned(), ..EdsClusterConfig::default() };
        cluster.eds_cluster_config = Some(eds);
        assert_eq!(cache.of(ResourceType::Cluster, &cluster.encode_to_vec()).endpoints, names(&["other"]));
        cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into()));
        let none = cache.of(ResourceType::Cluster, &cluster.encode_to_vec());
        assert!(none.endpoints.is_empty());
    }

    #[test]
    fn a_listener_asks_for_routes() {
        let manager = HttpConnectionManager {
            route_specifier: Some(RouteSpecifier::Rds(Rds {
                route_config_name: "outbound".to_owned(),
                ..Rds::default()
            })),
            ..HttpConnectionManager::default()
        };
        let config = packed("x.HttpConnectionManager", &manager);
        let filter =
            Filter { config_type: Some(filter::ConfigType::TypedConfig(config)), ..Filter::default() };
        let chain = FilterChain { filters: vec![filter], ..FilterChain::default() };
        let listener = Listener { filter_chains: vec![chain], ..Listener::default() };
        let found = ReferenceCache::default().of(ResourceType::Listener, &listener.encode_to_vec());
        assert_eq!(found.routes, names(&["outbound"]));
    }
}
