//! How the control plane reaches the admin endpoint of an Envoy on another machine.
//!
//! The endpoint itself listens for its own machine only. A listener at the address of the proxy lets the
//! control plane in, which has to show a certificate, and everybody may ask whether the proxy is ready.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use common::proto::envoy::config::{
    core::v3::{Address, TrafficDirection},
    listener::v3::{FilterChainMatch, Listener},
    route::v3::{RouteMatch, route_match::PathSpecifier},
};

use super::{
    Chain, ClusterDraft, Draft, HttpChain, HttpFilters, ListenerDraft, ProxyMetadata, Role, RouteDraft,
    Terminal,
    envoy::{
        address, cluster, endpoint, flag,
        http::{self, Share},
        tls,
    },
    names,
};

/// The name the control plane shows to Envoys.
pub const CONTROL_PLANE_NAME: &str = "kuma-cp";

/// Where the bootstrap put the admin endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminEndpoint {
    /// On which address.
    pub address: IpAddr,
    /// On which port, or that of the listener in front of a socket.
    pub port: u32,
    /// The Unix socket it listens on instead.
    pub socket: Option<String>,
    /// Port of whoever says that the proxy is ready; without one Envoy itself does.
    pub readiness_port: Option<u32>,
}

/// What the Envoy of a proxy shows to the control plane, and whom it believes.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminIdentity {
    /// The address it is for: that of the proxy.
    pub address: IpAddr,
    /// Certificate as PEM.
    pub certificate: String,
    /// Its key as PEM.
    pub key: String,
    /// The authority that signed it, and signs for the control plane, as PEM.
    pub authority: String,
}

impl std::fmt::Debug for AdminIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdminIdentity({})", self.address)
    }
}

impl AdminEndpoint {
    /// Whether a proxy at `address` gets a listener. One whose endpoint is there already cannot; a socket is at no
    /// address.
    pub fn needs_listener(&self, address: IpAddr) -> bool {
        self.socket.is_some() || (!self.address.is_unspecified() && self.address != address)
    }

    /// Where its own machine reaches it.
    pub(crate) fn local(&self) -> Address {
        match &self.socket {
            Some(path) => address::pipe(path),
            None => address::socket(self.address, self.port),
        }
    }
}

/// Adds the listener and what is behind it. False when something of the proxy itself listens there: one of
/// the draft, or one of which `is_taken` knows.
pub(crate) fn generate(
    metadata: &ProxyMetadata,
    identity: Option<&Arc<AdminIdentity>>,
    is_taken: impl Fn(IpAddr, u32) -> bool,
    draft: &mut Draft,
) -> bool {
    let (Some(endpoint), Some(identity)) = (&metadata.admin, identity) else { return true };
    let at = address::socket(identity.address, endpoint.port);
    if is_taken(identity.address, endpoint.port)
        || draft.listeners.values().any(|listener| listener.message.address.as_ref() == Some(&at))
    {
        return false;
    }
    let admin = add_cluster(names::ADMIN, endpoint.local(), draft);
    let ready = match endpoint.readiness_port {
        Some(port) => add_cluster(names::READINESS, address::socket(Ipv4Addr::LOCALHOST.into(), port), draft),
        None => admin,
    };
    let ready = route(PathSpecifier::Path("/ready".to_owned()), ready);
    let everything = route(PathSpecifier::Prefix("/".to_owned()), admin);
    let tls = FilterChainMatch { transport_protocol: "tls".to_owned(), ..FilterChainMatch::default() };
    let chains = vec![
        chain(metadata, None, vec![ready.clone()]),
        Chain {
            tls: Some(tls::admin(identity, CONTROL_PLANE_NAME)),
            ..chain(metadata, Some(tls), vec![ready, everything])
        },
    ];
    let message = Listener {
        name: names::ADMIN.to_owned(),
        address: Some(at),
        traffic_direction: TrafficDirection::Inbound.into(),
        enable_reuse_port: flag(false),
        ..Listener::default()
    };
    draft.listeners.insert(
        message.name.clone(),
        ListenerDraft { role: Role::Admin, message, inspects_tls: true, chains },
    );
    true
}

fn add_cluster(name: &'static str, at: Address, draft: &mut Draft) -> &'static str {
    let message = cluster::fixed(name, endpoint::at_address(name, at));
    draft.clusters.insert(
        name.to_owned(),
        ClusterDraft {
            role: Role::Admin,
            message,
            http: None,
            tls: None,
            tls_elsewhere: std::collections::BTreeMap::new(),
            nearness: None,
        },
    );
    name
}

fn route(path: PathSpecifier, cluster: &str) -> RouteDraft {
    let matches = RouteMatch { path_specifier: Some(path), ..RouteMatch::default() };
    let shares = [Share { cluster: cluster.to_owned(), weight: 1 }];
    RouteDraft { message: http::forward("", matches, &shares), ..RouteDraft::default() }
}

fn chain(metadata: &ProxyMetadata, matches: Option<FilterChainMatch>, routes: Vec<RouteDraft>) -> Chain {
    let http = HttpChain {
        manager: http::inbound_manager(names::ADMIN, metadata.ipv6),
        filters: HttpFilters::default(),
        config: http::route_configuration(names::ADMIN),
        hosts: Vec::new(),
        host: names::ADMIN.to_owned(),
        routes,
    };
    Chain { matches, terminal: Terminal::Http(Box::new(http)), ..Chain::default() }
}
