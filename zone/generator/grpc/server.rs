//! What an application serves: a listener for each address under which its library may ask, with the permissions of
//! that inbound.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use common::proto::envoy::{
    config::{
        core::v3::TrafficDirection,
        listener::v3::{FilterChain, Listener},
        route::v3::{NonForwardingAction, Route, RouteConfiguration, VirtualHost, route::Action},
    },
    extensions::{
        filters::network::http_connection_manager::v3::{
            HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier,
        },
        transport_sockets::tls::v3::{CertificateValidationContext, DownstreamTlsContext},
    },
};

use super::{
    super::{
        Chain, Encoded, ListenerDraft, ResourceCollection, Role, Shown, Sidecar, Terminal,
        envoy::{address, filter, flag, http, tls},
        names, type_url,
    },
    IDENTITY_SECRET, SERVER_TEMPLATE, TRUST_SECRET, permission,
};
use crate::mesh::{Inbound, MeshContext};

/// How a library asks for what it is to do on an address.
fn name(socket: &str) -> String {
    SERVER_TEMPLATE.replace("%s", socket)
}

/// The listeners of one inbound, as it was made for an Envoy; what is left out of them is told to `problem`. Where both are
/// let in a library cannot tell one from the other, and serves in plaintext if `may_be_plain`.
pub(crate) fn listeners(
    made: &ListenerDraft,
    may_be_plain: bool,
    mut problem: impl FnMut(&str),
) -> Vec<Arc<Encoded>> {
    let Role::Inbound(inbound) = &made.role else { return Vec::new() };
    let (plain, encrypted): (Vec<_>, Vec<_>) = made.chains.iter().partition(|chain| chain.tls.is_none());
    let preferred = if may_be_plain { [&plain, &encrypted] } else { [&encrypted, &plain] };
    let Some(chain) = preferred.into_iter().flatten().next() else { return Vec::new() };
    if !plain.is_empty() && !encrypted.is_empty() {
        problem(match may_be_plain {
            true => "it serves in plaintext alone: gRPC libraries do not tell apart what clients begin with",
            false => "it serves by mesh TLS alone: gRPC libraries do not tell apart what clients begin with",
        });
    }
    let Terminal::Http(http) = &chain.terminal else {
        problem("it is not served: the tag kuma.io/protocol of the inbound has to be grpc, http2 or http");
        return Vec::new();
    };
    let asked = [
        chain.filters.permission.as_ref().map(permission::of_connections),
        http.filters.permission.as_ref().map(permission::of_requests),
    ];
    let permissions = asked.into_iter().flatten().map(|permission| {
        permission.unwrap_or_else(|reason| {
            problem(&format!("nobody is let in: {reason}"));
            permission::nobody()
        })
    });
    let permissions = permissions.collect();
    let chain = served(chain, inbound, permissions);
    let every = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
    let addresses: BTreeSet<IpAddr> = [inbound.listen, inbound.advertised].into_iter().chain(every).collect();
    addresses.into_iter().map(|ip| listener(ip, inbound.port, &chain)).collect()
}

fn listener(ip: IpAddr, port: u32, chain: &FilterChain) -> Arc<Encoded> {
    let name = name(&names::socket(ip, port));
    let message = Listener {
        name: name.clone(),
        address: Some(address::socket(ip, port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        filter_chains: vec![chain.clone()],
        ..Listener::default()
    };
    Arc::new(Encoded::new(&name, type_url::LISTENER, "inbound", &message))
}

fn served(chain: &Chain, inbound: &Inbound, permissions: Vec<HttpFilter>) -> FilterChain {
    let route = Route {
        r#match: Some(http::any_path()),
        action: Some(Action::NonForwardingAction(NonForwardingAction {})),
        ..Route::default()
    };
    let name = inbound.service().unwrap_or("inbound").to_owned();
    let host =
        VirtualHost { name, domains: vec!["*".to_owned()], routes: vec![route], ..VirtualHost::default() };
    let config = RouteConfiguration { virtual_hosts: vec![host], ..RouteConfiguration::default() };
    let manager = HttpConnectionManager {
        http_filters: permissions.into_iter().chain([filter::router()]).collect(),
        route_specifier: Some(RouteSpecifier::RouteConfig(config)),
        ..HttpConnectionManager::default()
    };
    // Names of clients are for the permissions: libraries refuse conditions on them here.
    let encrypted = chain.tls.as_ref().map(|_| DownstreamTlsContext {
        common_tls_context: Some(super::tls(CertificateValidationContext::default())),
        require_client_certificate: flag(true),
        ..DownstreamTlsContext::default()
    });
    FilterChain {
        filters: vec![filter::http_connection_manager(&manager)],
        transport_socket: encrypted.as_ref().map(tls::socket),
        ..FilterChain::default()
    }
}

/// What the application shows and whom it believes, for who writes its files.
pub(crate) fn secrets(proxy: &Sidecar, mesh: &MeshContext, own: &mut ResourceCollection) {
    let Some(shown) = proxy.shown.as_ref().and_then(Shown::certificate) else { return };
    let given = shown.given_by().is_some();
    let believed = match mesh.trust_domains.get(shown.identity.trust_domain()) {
        // Of several domains it believes its own: a file does not say who may vouch for which.
        Some(bundle) if given => Some(bundle.pem.as_str()),
        _ if given => None,
        _ => mesh.mtls.as_ref().filter(|mtls| mtls.authority.is_some()).map(|mtls| &*mtls.roots),
    };
    let identity = tls::certificate_secret(IDENTITY_SECRET, &shown.certificate, &shown.key);
    let trust = believed.map(|roots| tls::ca_secret(TRUST_SECRET, roots));
    for secret in [Some(identity), trust].into_iter().flatten() {
        own.insert(Arc::new(Encoded::new(&secret.name, type_url::SECRET, "secrets", &secret)));
    }
}
