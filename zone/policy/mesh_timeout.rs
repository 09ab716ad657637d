//! `MeshTimeout`: every listener and cluster gets timeouts, with or without a policy.

use common::{
    model::{Duration, Kind},
    policy::mesh_timeout::{self, HttpTimeouts, TimeoutConf},
    proto::{
        envoy::{
            config::{core::v3::HttpProtocolOptions, route::v3::route::Action},
            extensions::filters::network::http_connection_manager::v3::HttpConnectionManager,
        },
        google::protobuf,
    },
};

use super::{InboundConfs, OutboundConfs, PolicyEffect, Reporter, by_client, inbound_of};
use crate::{
    generator::{
        Backend, Chain, ClusterDraft, Draft, GatewayRouteDraft, ListenerDraft, RouteDraft, Terminal,
        envoy::duration,
    },
    mesh::{MeshContext, Protocol},
};

const KEYS: by_client::Keys = by_client::Keys {
    identity: "kuma.mesh_timeout.match.spiffe_id",
    server_name: "kuma.mesh_timeout.match.sni",
};

/// See the module.
pub(super) struct MeshTimeoutEffect;

impl PolicyEffect for MeshTimeoutEffect {
    const KIND: &'static Kind = &mesh_timeout::KIND;
    type Conf = TimeoutConf;

    fn inbounds(
        &self,
        _mesh: &MeshContext,
        confs: &InboundConfs<'_, TimeoutConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role).cloned() else { continue };
            let timeouts = Timeouts::of(confs.of(&inbound, reporter).as_ref());
            set_listener(listener, timeouts, |_| timeouts);
            let by_client = confs.by_client(&inbound, reporter);
            by_client::set_listener(listener, &KEYS, &by_client, |route, conf| {
                set_route(route, Timeouts::of(Some(conf)));
            });
        }
        for cluster in draft.clusters.values_mut() {
            let Some(inbound) = inbound_of(&cluster.role) else { continue };
            let timeouts = Timeouts::of(confs.of(inbound, reporter).as_ref());
            set_cluster(cluster, timeouts);
        }
    }

    fn outbound(
        &self,
        confs: &OutboundConfs<'_, TimeoutConf>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let timeouts = Timeouts::of(confs.of(backend, reporter).as_ref());
        set_listener(listener, timeouts, |route| {
            let special = confs.route(backend, route, reporter);
            special.map_or(timeouts, |conf| Timeouts::of(Some(&conf)))
        });
    }

    fn cluster(
        &self,
        confs: &OutboundConfs<'_, TimeoutConf>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        set_cluster(cluster, Timeouts::of(confs.of(backend, reporter).as_ref()));
    }

    /// Clients outside of the mesh are waited for as long as a gateway waits, unless somebody says otherwise.
    fn entrance(
        &self,
        confs: &OutboundConfs<'_, TimeoutConf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.of_incoming(reporter) else { return };
        let http = conf.http.clone().unwrap_or_default();
        for Chain { terminal, .. } in &mut listener.chains {
            match terminal {
                Terminal::Http(chain) => set_edge(&mut chain.manager, conf.idle_timeout, &http),
                Terminal::Tcp(proxy) => {
                    proxy.idle_timeout = conf.idle_timeout.and_then(proto).or(proxy.idle_timeout);
                }
                Terminal::Other(_) => {}
            }
        }
    }

    fn gateway_routes(
        &self,
        confs: &OutboundConfs<'_, TimeoutConf>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    ) {
        for GatewayRouteDraft { route, .. } in routes {
            let Some(conf) = confs.of_gateway_route(route, reporter) else { continue };
            let http = conf.http.unwrap_or_default();
            if let Some(Action::Route(action)) = &mut route.message.action {
                action.timeout = proto(http.request_timeout.unwrap_or(Duration::from_secs(15)));
                action.idle_timeout = http.stream_idle_timeout.and_then(proto).or(action.idle_timeout);
            }
        }
    }
}

fn set_edge(manager: &mut HttpConnectionManager, idle: Option<Duration>, http: &HttpTimeouts) {
    if let Some(common) = &mut manager.common_http_protocol_options {
        common.idle_timeout = idle.and_then(proto).or(common.idle_timeout);
    }
    let given = |timeout: Option<Duration>| timeout.and_then(proto);
    manager.request_headers_timeout = given(http.request_headers_timeout).or(manager.request_headers_timeout);
    manager.stream_idle_timeout = given(http.stream_idle_timeout).or(manager.stream_idle_timeout);
    manager.request_timeout = given(http.request_timeout).or(manager.request_timeout);
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
    fn of(conf: Option<&TimeoutConf>) -> Self {
        let http: HttpTimeouts = conf.and_then(|c| c.http.clone()).unwrap_or_default();
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
                // A connection that is idle is ended by the cluster.
                http.manager.common_http_protocol_options.get_or_insert_with(|| HttpProtocolOptions {
                    idle_timeout: proto(Duration::ZERO),
                    ..HttpProtocolOptions::default()
                });
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
