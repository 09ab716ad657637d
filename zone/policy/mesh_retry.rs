//! `MeshRetry`: what is tried again. HTTP/2 services get nothing, as the policy says nothing about them.

use std::time::Duration;

use common::{
    model::Kind,
    policy::{
        HeaderMatch,
        mesh_retry::{
            self, BackOff, GrpcRetry, GrpcRetryOn, HostPredicate, HostPredicateType, HttpRetry,
            RateLimitedBackOff, ResetFormat, RetryConf,
        },
    },
    proto::envoy::{
        config::route::v3::{
            HeaderMatcher, RetryPolicy,
            retry_policy::{
                RateLimitedRetryBackOff, ResetHeader, ResetHeaderFormat, RetryBackOff, RetryHostPredicate,
                RetryPriority, retry_host_predicate, retry_priority,
            },
            route::Action,
        },
        extensions::retry::{
            host::{
                omit_host_metadata::v3::OmitHostMetadataConfig, previous_hosts::v3::PreviousHostsPredicate,
            },
            priority::previous_priorities::v3::PreviousPrioritiesConfig,
        },
    },
};

use super::{OutboundConfs, PolicyEffect, Reporter, header};
use crate::{
    generator::{
        Backend, Chain, GatewayRouteDraft, ListenerDraft, RouteDraft, Terminal,
        envoy::{cluster::pack, duration, metadata, number},
    },
    mesh::Protocol,
};

/// First pause when the policy gives none; Envoy insists on one.
const BASE_INTERVAL: Duration = Duration::from_millis(25);
pub(super) const HTTP_CONDITIONS: &str = "gateway-error,connect-failure,refused-stream";
pub(super) const GRPC_CONDITIONS: &str =
    "cancelled,connect-failure,gateway-error,refused-stream,reset,resource-exhausted,unavailable";

/// See the module.
pub(super) struct MeshRetryEffect;

impl PolicyEffect for MeshRetryEffect {
    const KIND: &'static Kind = &mesh_retry::KIND;
    type Conf = RetryConf;

    fn outbound(
        &self,
        confs: &OutboundConfs<'_, RetryConf>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let conf = confs.of(backend, reporter);
        set(listener, backend.protocol, conf.as_ref(), |route| {
            confs.route(backend, route, reporter).or_else(|| conf.clone())
        });
    }

    fn entrance(
        &self,
        confs: &OutboundConfs<'_, RetryConf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        // Requests are tried again as their routes say.
        set(listener, Protocol::Tcp, confs.of_gateway(reporter).as_ref(), |_| None);
    }

    fn gateway_routes(
        &self,
        confs: &OutboundConfs<'_, RetryConf>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    ) {
        for GatewayRouteDraft { route, .. } in routes {
            let Some(conf) = confs.of_gateway_route(route, reporter) else { continue };
            if let Some(Action::Route(action)) = &mut route.message.action {
                action.retry_policy = retry_policy(Protocol::Http, &conf);
            }
        }
    }
}

fn set(
    listener: &mut ListenerDraft,
    protocol: Protocol,
    conf: Option<&RetryConf>,
    mut of_route: impl FnMut(&RouteDraft) -> Option<RetryConf>,
) {
    for Chain { terminal, .. } in &mut listener.chains {
        match terminal {
            Terminal::Tcp(proxy) => {
                let attempts = conf.and_then(|c| c.tcp.as_ref()).and_then(|t| t.max_connect_attempt);
                proxy.max_connect_attempts = attempts.and_then(number).or(proxy.max_connect_attempts);
            }
            Terminal::Http(http) => {
                for route in &mut http.routes {
                    let own = of_route(route);
                    if let (Some(Action::Route(action)), Some(conf)) = (&mut route.message.action, own) {
                        action.retry_policy = retry_policy(protocol, &conf);
                    }
                }
            }
            Terminal::Other(_) => {}
        }
    }
}

fn retry_policy(protocol: Protocol, conf: &RetryConf) -> Option<RetryPolicy> {
    match protocol {
        Protocol::Http => conf.http.as_ref().and_then(http),
        Protocol::Grpc => conf.grpc.as_ref().and_then(grpc),
        _ => None,
    }
}

fn http(conf: &HttpRetry) -> Option<RetryPolicy> {
    if conf.num_retries == Some(0) {
        return None;
    }
    let mut policy = RetryPolicy {
        num_retries: conf.num_retries.and_then(number),
        per_try_timeout: conf.per_try_timeout.map(|d| duration(d.to_std())),
        retry_back_off: conf.back_off.as_ref().map(back_off),
        rate_limited_retry_back_off: conf.rate_limited_back_off.as_ref().and_then(rate_limited),
        retriable_headers: headers(conf.retriable_response_headers.as_deref()),
        retriable_request_headers: headers(conf.retriable_request_headers.as_deref()),
        host_selection_retry_max_attempts: conf.host_selection_max_attempts.unwrap_or(0),
        ..RetryPolicy::default()
    };
    for selection in conf.host_selection.iter().flatten() {
        select_hosts(&mut policy, selection);
    }
    let mut conditions = Vec::new();
    for condition in conf.retry_on.iter().flatten() {
        if let Ok(code) = condition.parse::<u32>() {
            policy.retriable_status_codes.push(code);
        } else if let Some(method) = condition.strip_prefix("HttpMethod") {
            let method = header::exact(":method", method.to_uppercase());
            policy.retriable_request_headers.push(method);
        } else {
            conditions.push(kebab_case(condition));
        }
    }
    if !policy.retriable_status_codes.is_empty() {
        conditions.push("retriable-status-codes".to_owned());
    }
    if !policy.retriable_headers.is_empty() {
        conditions.push("retriable-headers".to_owned());
    }
    policy.retry_on = if conditions.is_empty() { HTTP_CONDITIONS.to_owned() } else { conditions.join(",") };
    Some(policy)
}

fn grpc(conf: &GrpcRetry) -> Option<RetryPolicy> {
    if conf.num_retries == Some(0) {
        return None;
    }
    let name = |status: &GrpcRetryOn| match status {
        GrpcRetryOn::Canceled => "cancelled",
        GrpcRetryOn::DeadlineExceeded => "deadline-exceeded",
        GrpcRetryOn::Internal => "internal",
        GrpcRetryOn::ResourceExhausted => "resource-exhausted",
        GrpcRetryOn::Unavailable => "unavailable",
    };
    let named: Vec<&str> = conf.retry_on.iter().flatten().map(name).collect();
    Some(RetryPolicy {
        num_retries: conf.num_retries.and_then(number),
        per_try_timeout: conf.per_try_timeout.map(|d| duration(d.to_std())),
        retry_back_off: conf.back_off.as_ref().map(back_off),
        rate_limited_retry_back_off: conf.rate_limited_back_off.as_ref().and_then(rate_limited),
        retry_on: if named.is_empty() { GRPC_CONDITIONS.to_owned() } else { named.join(",") },
        ..RetryPolicy::default()
    })
}

fn back_off(conf: &BackOff) -> RetryBackOff {
    back_off_of(conf.base_interval.map(|d| d.to_std()), conf.max_interval.map(|d| d.to_std()))
}

/// Pauses between these.
pub(super) fn back_off_of(base: Option<Duration>, max: Option<Duration>) -> RetryBackOff {
    let given = base.filter(|d| !d.is_zero());
    let max = max.filter(|d| !d.is_zero());
    // Envoy counts in milliseconds, and refuses a longest pause shorter than the first.
    let base = given.unwrap_or(BASE_INTERVAL).max(Duration::from_millis(1));
    let max = max.map(|max| max.max(base));
    RetryBackOff { base_interval: Some(duration(base)), max_interval: max.map(duration) }
}

/// `None` without headers, which Envoy refuses.
fn rate_limited(conf: &RateLimitedBackOff) -> Option<RateLimitedRetryBackOff> {
    let named = conf.reset_headers.iter().flatten().filter(|header| header::is_changeable(&header.name));
    let reset = named.map(|header| ResetHeader {
        name: header.name.clone(),
        format: match header.format {
            ResetFormat::Seconds => ResetHeaderFormat::Seconds,
            ResetFormat::UnixTimestamp => ResetHeaderFormat::UnixTimestamp,
        }
        .into(),
    });
    let reset_headers: Vec<ResetHeader> = reset.collect();
    let max = conf.max_interval.map(|d| d.to_std()).filter(|d| !d.is_zero());
    let back_off = RateLimitedRetryBackOff { reset_headers, max_interval: max.map(duration) };
    (!back_off.reset_headers.is_empty()).then_some(back_off)
}

fn headers(matches: Option<&[HeaderMatch]>) -> Vec<HeaderMatcher> {
    let usable = matches.unwrap_or_default().iter().filter(|m| header::is_usable(m));
    usable.map(header::matcher).collect()
}

fn select_hosts(policy: &mut RetryPolicy, selection: &HostPredicate) {
    let predicate = |name: &str, config| RetryHostPredicate {
        name: format!("envoy.retry_host_predicates.{name}"),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(config)),
    };
    match selection.predicate {
        HostPredicateType::OmitPreviousHosts => {
            let config = pack(&PreviousHostsPredicate::default());
            policy.retry_host_predicate.push(predicate("previous_hosts", config));
        }
        HostPredicateType::OmitHostsWithTags => {
            let tags = metadata::strings(selection.tags.iter().flatten());
            let config =
                OmitHostMetadataConfig { metadata_match: metadata::of([(metadata::LOAD_BALANCER, tags)]) };
            policy.retry_host_predicate.push(predicate("omit_host_metadata", pack(&config)));
        }
        HostPredicateType::OmitPreviousPriorities => {
            let config = PreviousPrioritiesConfig { update_frequency: selection.update_frequency };
            policy.retry_priority = Some(RetryPriority {
                name: "envoy.retry_priorities.previous_priorities".to_owned(),
                config_type: Some(retry_priority::ConfigType::TypedConfig(pack(&config))),
            });
        }
    }
}

/// `GatewayError` becomes `gateway-error`; a digit starts a new word too, except at the beginning.
fn kebab_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut previous: Option<char> = None;
    for c in name.chars() {
        let after_letter = previous.is_some_and(|p| p.is_ascii_alphabetic());
        let after_digit = previous.is_some_and(|p| p.is_ascii_digit());
        let starts = c.is_ascii_uppercase() || (c.is_ascii_digit() && after_letter && name != "5xx");
        let http3 = c == '3' && out == "http";
        if starts && !http3 && (after_letter || after_digit) {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
        previous = Some(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::kebab_case;

    #[test]
    fn conditions_have_the_names_envoy_knows() {
        let check = |name, expected| assert_eq!(kebab_case(name), expected);
        check("5xx", "5xx");
        check("GatewayError", "gateway-error");
        check("Retriable4xx", "retriable-4xx");
        check("Http3PostConnectFailure", "http3-post-connect-failure");
        check("EnvoyRatelimited", "envoy-ratelimited");
        check("Reset", "reset");
    }
}
