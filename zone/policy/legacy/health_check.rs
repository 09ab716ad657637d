//! `HealthCheck`: the hosts of a service are asked whether they are well: by a connection, unless the policy says more.

use common::policy::mesh_http_route::HeaderValue;
use common::proto::{
    envoy::{
        config::core::v3::{
            HealthCheck,
            header_value_option::HeaderAppendAction,
            health_check::{HealthChecker, HttpHealthCheck, Payload, TcpHealthCheck, payload},
        },
        r#type::v3::{CodecClientType, Int64Range, Percent},
    },
    google::protobuf::{BytesValue, Duration},
    kuma::mesh::v1alpha1::health_check::{
        Conf,
        conf::{Http, Tcp},
    },
};

use super::span;
use crate::{
    generator::{
        ClusterDraft,
        envoy::{duration, number, seconds},
    },
    mesh::Protocol,
    policy::{Reporter, header, mesh_health_check},
};

pub(super) fn set(cluster: &mut ClusterDraft, conf: &Conf, protocol: Protocol, reporter: &mut Reporter<'_>) {
    if let Some(share) = conf.healthy_panic_threshold {
        let value = f64::from(share.value).clamp(0.0, 100.0);
        mesh_health_check::common(cluster).healthy_panic_threshold = Some(Percent { value });
    }
    if let Some(fail) = conf.fail_traffic_on_panic {
        mesh_health_check::fail_traffic_on_panic(mesh_health_check::common(cluster), fail.value, reporter);
    }
    let checker = match (&conf.http, &conf.tcp) {
        (Some(http), _) => HealthChecker::HttpHealthCheck(of_http(http, protocol, reporter)),
        (None, tcp) => HealthChecker::TcpHealthCheck(tcp.as_ref().map(of_tcp).unwrap_or_default()),
    };
    let time = |given: &Option<Duration>| given.as_ref().map(span).filter(|span| !span.is_zero());
    // Envoy insists on both, and on some time for each.
    let needed = |given: &Option<Duration>| Some(time(given).map_or(seconds(1), duration));
    cluster.message.health_checks.push(HealthCheck {
        interval: needed(&conf.interval),
        timeout: needed(&conf.timeout),
        unhealthy_threshold: number(conf.unhealthy_threshold.max(1)),
        healthy_threshold: number(conf.healthy_threshold.max(1)),
        initial_jitter: time(&conf.initial_jitter).map(duration),
        interval_jitter: time(&conf.interval_jitter).map(duration),
        interval_jitter_percent: conf.interval_jitter_percent,
        no_traffic_interval: time(&conf.no_traffic_interval).map(duration),
        event_logger: mesh_health_check::event_logger(&conf.event_log_path).into_iter().collect(),
        always_log_health_check_failures: conf.always_log_health_check_failures.is_some_and(|on| on.value),
        reuse_connection: conf.reuse_connection,
        health_checker: Some(checker),
        ..HealthCheck::default()
    });
}

/// Envoy takes what is sent and received in hexadecimal.
fn of_tcp(conf: &Tcp) -> TcpHealthCheck {
    let payload = |bytes: &BytesValue| {
        let text: String = bytes.value.iter().map(|byte| format!("{byte:02x}")).collect();
        Payload { payload: Some(payload::Payload::Text(text)) }
    };
    let something = |bytes: &&BytesValue| !bytes.value.is_empty();
    TcpHealthCheck {
        send: conf.send.as_ref().filter(something).map(payload),
        receive: conf.receive.iter().filter(something).map(payload).collect(),
        ..TcpHealthCheck::default()
    }
}

fn of_http(conf: &Http, protocol: Protocol, reporter: &mut Reporter<'_>) -> HttpHealthCheck {
    let path = Some(&conf.path).filter(|path| !path.is_empty() && header::is_value(path));
    if path.is_none() {
        reporter.report(format!("hosts are asked for / since {:?} is no path", conf.path));
    }
    let mut headers = Vec::new();
    for added in &conf.request_headers_to_add {
        let Some(given) = &added.header else { continue };
        let given = HeaderValue { name: given.key.clone(), value: given.value.clone() };
        let append = added.append.is_some_and(|append| append.value);
        if header::is_changeable(&given.name) && header::is_value(&given.value) {
            let action = if append {
                HeaderAppendAction::AppendIfExistsOrAdd
            } else {
                HeaderAppendAction::OverwriteIfExistsOrAdd
            };
            headers.push(header::option(&given, action));
        } else {
            reporter.report(format!("the header {:?} is left out: it is none", given.name));
        }
    }
    let statuses = conf.expected_statuses.iter().map(|status| i64::from(status.value));
    let statuses = statuses.filter(|status| (100..600).contains(status));
    let codec = if protocol == Protocol::Http2 { CodecClientType::Http2 } else { CodecClientType::Http1 };
    HttpHealthCheck {
        path: path.map_or("/", String::as_str).to_owned(),
        request_headers_to_add: headers,
        expected_statuses: statuses.map(|status| Int64Range { start: status, end: status + 1 }).collect(),
        codec_client_type: codec.into(),
        ..HttpHealthCheck::default()
    }
}
