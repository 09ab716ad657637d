//! How hosts are asked, by what they speak.

use common::{
    policy::{
        mesh_health_check::{GrpcCheck, HealthCheckConf, HttpCheck, TcpCheck},
        mesh_http_route::HeaderValue,
    },
    proto::envoy::{
        config::core::v3::{
            HeaderValueOption,
            header_value_option::HeaderAppendAction,
            health_check::{
                GrpcHealthCheck, HealthChecker, HttpHealthCheck, Payload, TcpHealthCheck, payload,
            },
        },
        r#type::v3::{CodecClientType, Int64Range},
    },
};

use crate::{
    mesh::Protocol,
    policy::{Reporter, header},
};

/// The checker for hosts that speak `protocol`, if the policy has one for them. One that is disabled gives way
/// to that for bytes.
pub(super) fn of(
    protocol: Protocol,
    conf: &HealthCheckConf,
    reporter: &mut Reporter<'_>,
) -> Option<HealthChecker> {
    let bytes = conf.tcp.as_ref().filter(|tcp| tcp.disabled != Some(true));
    let bytes = || bytes.map(|conf| HealthChecker::TcpHealthCheck(tcp(conf)));
    match protocol {
        Protocol::Http | Protocol::Http2 => match &conf.http {
            Some(conf) if conf.disabled == Some(true) => bytes(),
            given => {
                given.as_ref().map(|conf| HealthChecker::HttpHealthCheck(http(protocol, conf, reporter)))
            }
        },
        Protocol::Grpc => match &conf.grpc {
            Some(conf) if conf.disabled == Some(true) => bytes(),
            given => given.as_ref().map(|conf| HealthChecker::GrpcHealthCheck(grpc(conf, reporter))),
        },
        Protocol::Tcp | Protocol::Kafka | Protocol::Unknown => bytes(),
    }
}

/// Envoy takes what is sent and received in hexadecimal.
fn tcp(conf: &TcpCheck) -> TcpHealthCheck {
    let payload = |text: &String| Payload { payload: Some(payload::Payload::Text(hex(text.as_bytes()))) };
    TcpHealthCheck {
        send: conf.send.as_ref().filter(|text| !text.is_empty()).map(payload),
        receive: conf.receive.iter().flatten().filter(|text| !text.is_empty()).map(payload).collect(),
        ..TcpHealthCheck::default()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn http(protocol: Protocol, conf: &HttpCheck, reporter: &mut Reporter<'_>) -> HttpHealthCheck {
    let range = |status: &i32| Int64Range { start: (*status).into(), end: i64::from(*status) + 1 };
    let codec = if protocol == Protocol::Http2 { CodecClientType::Http2 } else { CodecClientType::Http1 };
    let path = conf.path.clone().unwrap_or_else(|| "/".to_owned());
    let usable = header::is_value(&path);
    if !usable {
        reporter.report(format!("hosts are asked for / since {path:?} is no path"));
    }
    HttpHealthCheck {
        path: if usable { path } else { "/".to_owned() },
        request_headers_to_add: headers(conf, reporter),
        expected_statuses: conf.expected_statuses.iter().flatten().map(range).collect(),
        codec_client_type: codec.into(),
        ..HttpHealthCheck::default()
    }
}

fn headers(conf: &HttpCheck, reporter: &mut Reporter<'_>) -> Vec<HeaderValueOption> {
    let Some(given) = &conf.request_headers_to_add else { return Vec::new() };
    let added = given.add.iter().map(|header| (header, HeaderAppendAction::AppendIfExistsOrAdd));
    let set = given.set.iter().map(|header| (header, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let mut headers = Vec::new();
    for (given, action) in added.chain(set) {
        if !header::is_changeable(&given.name) || !header::is_value(&given.value) {
            reporter.report(format!("the header {:?} is left out: it is none", given.name));
            continue;
        }
        let one = |value: &str| HeaderValue { name: given.name.clone(), value: value.to_owned() };
        headers.extend(given.value.split(',').map(|value| header::option(&one(value), action)));
    }
    headers
}

fn grpc(conf: &GrpcCheck, reporter: &mut Reporter<'_>) -> GrpcHealthCheck {
    let authority = conf.authority.clone().unwrap_or_default();
    let usable = header::is_value(&authority);
    if !usable {
        reporter.report(format!("the authority {authority:?} is left out: it is none"));
    }
    GrpcHealthCheck {
        service_name: conf.service_name.clone().unwrap_or_default(),
        authority: if usable { authority } else { String::new() },
        ..GrpcHealthCheck::default()
    }
}
