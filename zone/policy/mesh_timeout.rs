//! `MeshTimeout`: every listener and cluster gets timeouts, with or without a policy.

mod by_client;

use common::{
    model::Kind,
    policy::{
        Duration,
        mesh_timeout::{self, Conf, Http},
    },
    proto::{
        envoy::config::{core::v3::HttpProtocolOptions, route::v3::route::Action},
        google::protobuf,
    },
};

use super::{Context, Policy, Reporter};
use crate::{
    generator::{Chain, ClusterDraft, Draft, ListenerDraft, Role, RouteDraft, Terminal, envoy::duration},
    mesh::Protocol,
};

/// See the module.
pub(super) struct MeshTimeout;

impl Policy for MeshTimeout {
    fn kind(&self) -> &'static Kind {
        &mesh_timeout::KIND
    }

    fn apply(&self, context: &Context<'_>, draft: &mut Draft, reporter: &mut Reporter<'_>) {
        let rules = context.rules::<mesh_timeout::MeshTimeout>(reporter);
        for listener in draft.listeners.values_mut() {
            let role = listener.role.clone();
            let conf = match &role {
                Role::Inbound(inbound) => rules.inbound(inbound, reporter),
                Role::Outbound(backend) => rules.outbound(backend, reporter),
                Role::ZoneIngress | Role::Admin => continue,
            };
            let timeouts = Timeouts::of(conf.as_ref());
            set_listener(listener, timeouts, |route| {
                let Role::Outbound(backend) = &role else { return timeouts };
                let special = rules.route(backend, route, reporter);
                special.map_or(timeouts, |conf| Timeouts::of(Some(&conf)))
            });
            if let Role::Inbound(inbound) = &role {
                by_client::set_listener(listener, &rules.by_client(inbound, reporter));
            }
        }
        for cluster in draft.clusters.values_mut() {
            let conf = match &cluster.role {
                Role::Inbound(inbound) => rules.inbound(inbound, reporter),
                Role::Outbound(backend) => rules.outbound(backend, reporter),
                Role::ZoneIngress | Role::Admin => continue,
            };
            set_cluster(cluster, Timeouts::of(conf.as_ref()));
        }
    }
}

/// What applies in one place, defaults filled in.
#[derive(Clone, Copy)]
struct Timeouts {
    connection: Duration,
    idle: Duration,
    request: Duration,
    stream_idle: Duration,
    request_headers: Duration,
    max_stream: Duration,
    max_connection: Duration,
}

impl Timeouts {
    fn of(conf: Option<&Conf>) -> Self {
        let http: Http = conf.and_then(|c| c.http.clone()).unwrap_or_default();
        let seconds = |given: Option<Duration>, otherwise| given.unwrap_or(Duration::from_secs(otherwise));
        Self {
            connection: seconds(conf.and_then(|c| c.connection_timeout), 5),
            idle: seconds(conf.and_then(|c| c.idle_timeout), 3600),
            request: seconds(http.request_timeout, 15),
            stream_idle: seconds(http.stream_idle_timeout, 1800),
            request_headers: seconds(http.request_headers_timeout, 0),
            max_stream: seconds(http.max_stream_duration, 0),
            max_connection: seconds(http.max_connection_duration, 0),
        }
    }
}

fn proto(value: Duration) -> Option<protobuf::Duration> {
    Some(duration(value.to_std()))
}

fn set_listener(
    listener: &mut ListenerDraft,
    timeouts: Timeouts,
    mut of_route: impl FnMut(&RouteDraft) -> Timeouts,
) {
    for Chain { terminal, .. } in &mut listener.chains {
        match terminal {
            Terminal::Http(http) => {
                http.manager.request_headers_timeout = proto(timeouts.request_headers);
                for route in &mut http.routes {
                    let own = of_route(route);
                    set_route(route, own);
                }
            }
            Terminal::Tcp(proxy) => proxy.idle_timeout = proto(timeouts.idle),
            Terminal::Other(_) => {}
        }
    }
}

fn set_route(route: &mut RouteDraft, timeouts: Timeouts) {
    if let Some(Action::Route(action)) = &mut route.message.action {
        action.timeout = proto(timeouts.request);
        action.idle_timeout = proto(timeouts.stream_idle);
    }
}

fn set_cluster(cluster: &mut ClusterDraft, timeouts: Timeouts) {
    cluster.message.connect_timeout = proto(timeouts.connection);
    // Not for gRPC, whose streams live as long as the callers want.
    let limited = matches!(cluster.role.protocol(), Protocol::Http | Protocol::Http2);
    if let Some(http) = cluster.http.as_mut().filter(|_| limited) {
        http.common_http_protocol_options = Some(HttpProtocolOptions {
            idle_timeout: proto(timeouts.idle),
            max_stream_duration: proto(timeouts.max_stream),
            max_connection_duration: proto(timeouts.max_connection),
            ..HttpProtocolOptions::default()
        });
    }
}
