//! Probes of the workload from outside the mesh, which show no certificate: a port of their own, and only the
//! paths that are listed.

use common::proto::envoy::config::{
    core::v3::TrafficDirection,
    listener::v3::Listener,
    route::v3::{
        HeaderMatcher, RedirectAction, Route, RouteAction, RouteMatch, header_matcher::HeaderMatchSpecifier,
        redirect_action::PathRewriteSpecifier, route::Action, route_action::ClusterSpecifier,
        route_match::PathSpecifier,
    },
};

use super::{
    Chain, Draft, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Sidecar, Terminal,
    envoy::{address, flag, http, tls},
    names, transparent,
};
use crate::mesh::dataplane::{Probe, Probes};

const ORIGIN: &str = "probe";

/// Adds the listener, unless somebody else answers.
pub(crate) fn generate(proxy: &Sidecar, draft: &mut Draft) {
    let dataplane = &proxy.dataplane;
    let (Some(probes), Some(address)) = (&dataplane.probes, dataplane.address) else { return };
    if proxy.metadata.probes_answered {
        return;
    }
    let routes = probes.endpoints.iter().map(|probe| route(proxy, probe));
    let http = HttpChain {
        manager: http::passing_manager(names::PROBES, proxy.metadata.ipv6),
        filters: HttpFilters::default(),
        config: http::route_configuration("probe:route_configuration"),
        hosts: Vec::new(),
        host: "probe".to_owned(),
        routes: routes.map(|message| RouteDraft { message, ..RouteDraft::default() }).collect(),
    };
    let Probes { port, .. } = probes.as_ref();
    let message = Listener {
        name: names::PROBES.to_owned(),
        address: Some(address::socket(address, *port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        bind_to_port: transparent::bind_to_port(proxy, dataplane).and_then(flag),
        enable_reuse_port: flag(proxy.metadata.reuses_ports()),
        ..Listener::default()
    };
    let chains = vec![Chain { terminal: Terminal::Http(Box::new(http)), ..Chain::default() }];
    let listener = ListenerDraft { role: Role::Machine(ORIGIN), message, inspects_tls: false, chains };
    draft.listeners.insert(names::PROBES.to_owned(), listener);
}

fn route(proxy: &Sidecar, probe: &Probe) -> Route {
    let only_get = HeaderMatcher {
        name: ":method".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(tls::exact("GET".to_owned()))),
        ..HeaderMatcher::default()
    };
    let matches = RouteMatch {
        path_specifier: Some(PathSpecifier::Path(probe.path.clone())),
        headers: vec![only_get],
        ..RouteMatch::default()
    };
    let behind = proxy.dataplane.inbounds.iter().any(|inbound| inbound.workload_port == probe.port);
    let action = if behind {
        Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(names::local_cluster(probe.port))),
            prefix_rewrite: probe.workload_path.clone(),
            ..RouteAction::default()
        })
    } else {
        // No cluster leads there, so who probes is told where to ask.
        Action::Redirect(RedirectAction {
            port_redirect: probe.port,
            path_rewrite_specifier: Some(PathRewriteSpecifier::PathRedirect(probe.workload_path.clone())),
            ..RedirectAction::default()
        })
    };
    Route { r#match: Some(matches), action: Some(action), ..Route::default() }
}
