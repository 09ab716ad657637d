//! `Timeout`: how long connections and requests to a service may take. What a policy leaves out has no limit.

use common::proto::{
    envoy::config::{core::v3::HttpProtocolOptions, route::v3::route::Action},
    kuma::mesh::v1alpha1::timeout::Conf,
};

use super::{span, span_or_nothing};
use crate::{
    generator::{
        ClusterDraft, ListenerDraft, Terminal,
        envoy::{duration, seconds},
    },
    mesh::Protocol,
};

/// The older kind speaks of streams of gRPC in a section of its own.
fn of_streams(conf: &Conf, protocol: Protocol) -> (std::time::Duration, std::time::Duration) {
    let (http, grpc) = (conf.http.as_ref(), conf.grpc.as_ref().filter(|_| protocol == Protocol::Grpc));
    let idle = http.and_then(|http| http.stream_idle_timeout.as_ref());
    let idle = idle.or_else(|| grpc.and_then(|grpc| grpc.stream_idle_timeout.as_ref()));
    let longest = http.and_then(|http| http.max_stream_duration.as_ref());
    let longest = longest.or_else(|| grpc.and_then(|grpc| grpc.max_stream_duration.as_ref()));
    (span_or_nothing(idle), span_or_nothing(longest))
}

pub(super) fn set_listener(listener: &mut ListenerDraft, conf: &Conf, protocol: Protocol) {
    let request = conf.http.as_ref().and_then(|http| http.request_timeout.as_ref());
    let (idle, _) = of_streams(conf, protocol);
    for chain in &mut listener.chains {
        match &mut chain.terminal {
            Terminal::Tcp(proxy) => {
                let idle = conf.tcp.as_ref().and_then(|tcp| tcp.idle_timeout.as_ref());
                proxy.idle_timeout = Some(duration(span_or_nothing(idle)));
            }
            Terminal::Http(http) => {
                http.manager.stream_idle_timeout = Some(duration(idle));
                for route in &mut http.routes {
                    if let Some(Action::Route(action)) = &mut route.message.action {
                        action.timeout = Some(duration(span_or_nothing(request)));
                        // That of the whole manager holds.
                        action.idle_timeout = None;
                    }
                }
            }
            Terminal::Other(_) => {}
        }
    }
}

pub(super) fn set_cluster(cluster: &mut ClusterDraft, conf: &Conf, protocol: Protocol) {
    let connect = conf.connect_timeout.as_ref().map(span).filter(|span| !span.is_zero());
    // Envoy refuses to wait for no time at all.
    cluster.message.connect_timeout = Some(connect.map_or(seconds(5), duration));
    if let Some(http) = cluster.http.as_mut().filter(|_| protocol.is_http()) {
        let idle = conf.http.as_ref().and_then(|http| http.idle_timeout.as_ref());
        let (_, longest) = of_streams(conf, protocol);
        http.common_http_protocol_options = Some(HttpProtocolOptions {
            idle_timeout: Some(duration(span_or_nothing(idle))),
            max_stream_duration: (!longest.is_zero()).then(|| duration(longest)),
            ..HttpProtocolOptions::default()
        });
    }
}
