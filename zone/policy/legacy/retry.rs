//! `Retry`: what is tried again. HTTP/2 services get nothing, as the policy says nothing about them.

use common::proto::{
    envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff, route::Action},
    google::protobuf::Duration,
    kuma::mesh::v1alpha1::{
        HttpMethod, HttpRetryOn,
        retry::{
            Conf,
            conf::{BackOff, Grpc, Http},
        },
    },
};

use super::span;
use crate::{
    generator::{
        ListenerDraft, Terminal,
        envoy::{duration, number},
    },
    mesh::Protocol,
    policy::{header, mesh_retry},
};

pub(super) fn set(listener: &mut ListenerDraft, conf: &Conf, protocol: Protocol) {
    let policy = match protocol {
        Protocol::Http => conf.http.as_ref().map(http),
        Protocol::Grpc => conf.grpc.as_ref().map(grpc),
        _ => None,
    };
    for chain in &mut listener.chains {
        match &mut chain.terminal {
            Terminal::Tcp(proxy) => {
                let attempts = conf.tcp.as_ref().map(|tcp| tcp.max_connect_attempts).filter(|n| *n > 0);
                proxy.max_connect_attempts = attempts.and_then(number).or(proxy.max_connect_attempts);
            }
            Terminal::Http(http) => {
                for route in &mut http.routes {
                    if let Some(Action::Route(action)) = &mut route.message.action {
                        action.retry_policy.clone_from(&policy);
                    }
                }
            }
            Terminal::Other(_) => {}
        }
    }
}

fn http(conf: &Http) -> RetryPolicy {
    let mut conditions: Vec<String> = conf.retry_on().map(condition_name).collect();
    if conditions.is_empty() {
        conditions.extend(mesh_retry::HTTP_CONDITIONS.split(',').map(str::to_owned));
    }
    let by_code = condition_name(HttpRetryOn::RetriableStatusCodes);
    if !conf.retriable_status_codes.is_empty() && !conditions.contains(&by_code) {
        conditions.push(by_code);
    }
    let methods = conf.retriable_methods().filter(|method| *method != HttpMethod::None);
    RetryPolicy {
        retry_on: conditions.join(","),
        num_retries: conf.num_retries,
        per_try_timeout: conf.per_try_timeout.as_ref().map(|given| duration(span(given))),
        retry_back_off: conf.back_off.as_ref().map(back_off),
        retriable_status_codes: conf.retriable_status_codes.clone(),
        retriable_request_headers: methods
            .map(|method| header::exact(":method", method.as_str_name().to_owned()))
            .collect(),
        ..RetryPolicy::default()
    }
}

/// Names of the older kind have no digit in front and no hyphens.
fn condition_name(condition: HttpRetryOn) -> String {
    match condition {
        HttpRetryOn::All5xx => "5xx".to_owned(),
        other => other.as_str_name().replace('_', "-"),
    }
}

fn grpc(conf: &Grpc) -> RetryPolicy {
    let named: Vec<String> = conf.retry_on().map(|status| status.as_str_name().replace('_', "-")).collect();
    RetryPolicy {
        retry_on: if named.is_empty() { mesh_retry::GRPC_CONDITIONS.to_owned() } else { named.join(",") },
        num_retries: conf.num_retries,
        per_try_timeout: conf.per_try_timeout.as_ref().map(|given| duration(span(given))),
        retry_back_off: conf.back_off.as_ref().map(back_off),
        ..RetryPolicy::default()
    }
}

fn back_off(conf: &BackOff) -> RetryBackOff {
    let given = |given: &Option<Duration>| given.as_ref().map(span);
    mesh_retry::back_off_of(given(&conf.base_interval), given(&conf.max_interval))
}
