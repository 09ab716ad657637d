//! `MeshRateLimit`: how many requests and connections an inbound takes.

use common::{
    model::Kind,
    policy::{
        mesh_http_route::HeaderValue,
        mesh_rate_limit::{self, LocalHttp, LocalTcp, OnRateLimit, Rate, RateLimitConf},
    },
    proto::envoy::{
        config::{
            core::v3::{
                HeaderValueOption, RuntimeFractionalPercent, header_value_option::HeaderAppendAction,
            },
            listener::v3::Filter,
        },
        extensions::filters::{
            http::local_ratelimit::v3::LocalRateLimit as HttpLimit,
            network::local_ratelimit::v3::LocalRateLimit as TcpLimit,
        },
        r#type::v3::{FractionalPercent, HttpStatus, StatusCode, TokenBucket},
    },
};

use super::{InboundConfs, OutboundConfs, PolicyEffect, Reporter, by_client, header, inbound_of};
use crate::{
    generator::{
        Chain, Draft, GatewayRouteDraft, ListenerDraft, RouteDraft, Terminal,
        envoy::{cluster::pack, duration, filter, number},
    },
    mesh::MeshContext,
};

const HTTP: &str = "envoy.filters.http.local_ratelimit";
const TCP: &str = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";

/// Envoy takes no more headers for an answer.
const MOST_HEADERS: usize = 10;

const KEYS: by_client::Keys = by_client::Keys {
    identity: "kuma.mesh_rate_limit.match.spiffe_id",
    server_name: "kuma.mesh_rate_limit.match.sni",
};

/// See the module.
pub(super) struct MeshRateLimitEffect;

impl PolicyEffect for MeshRateLimitEffect {
    const KIND: &'static Kind = &mesh_rate_limit::KIND;
    type Conf = RateLimitConf;

    fn inbounds(
        &self,
        _mesh: &MeshContext,
        confs: &InboundConfs<'_, RateLimitConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role).cloned() else { continue };
            let everybody = RateLimits::of(confs.of(&inbound, reporter).as_ref(), reporter);
            set_connections(listener, everybody.tcp);
            let by_client = confs.by_client(&inbound, reporter);
            let by_client: Vec<_> = by_client
                .into_iter()
                .map(|(condition, conf)| {
                    let limits = RateLimits::of(Some(&conf), reporter);
                    if limits.tcp != everybody.tcp {
                        reporter.report(
                            "a limit on connections is left out: rules with matches cannot have any, since \
                             connections are counted before a client is known",
                        );
                    }
                    (condition, limits.http)
                })
                .collect();
            set_requests(listener, everybody.http.as_ref());
            by_client::set_listener(listener, &KEYS, &by_client, |route, limit| {
                set_route(route, limit.as_ref());
            });
            let limited = everybody.http.is_some() || by_client.iter().any(|(_, limit)| limit.is_some());
            if limited {
                add_filter(listener);
            }
        }
    }

    /// Connections are limited where there is nothing else; requests by their routes.
    fn entrance(
        &self,
        confs: &OutboundConfs<'_, RateLimitConf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        if !listener.role.protocol().is_http() {
            let limits = RateLimits::of(confs.of_gateway(reporter).as_ref(), reporter);
            set_connections(listener, limits.tcp);
        }
    }

    fn gateway_routes(
        &self,
        confs: &OutboundConfs<'_, RateLimitConf>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    ) {
        for GatewayRouteDraft { route, .. } in routes {
            let limits = RateLimits::of(confs.of_gateway_route(route, reporter).as_ref(), reporter);
            if limits.http.is_some() {
                set_route(route, limits.http.as_ref());
            }
        }
    }
}

/// What holds in one place.
#[derive(Clone, Default)]
struct RateLimits {
    http: Option<HttpLimit>,
    tcp: Option<Rate>,
}

impl RateLimits {
    fn of(conf: Option<&RateLimitConf>, reporter: &mut Reporter<'_>) -> Self {
        let Some(local) = conf.and_then(|conf| conf.local.as_ref()) else { return Self::default() };
        Self {
            http: local.http.as_ref().and_then(|http| http_limit(http, reporter)),
            tcp: local.tcp.as_ref().and_then(tcp_rate),
        }
    }
}

fn tcp_rate(conf: &LocalTcp) -> Option<Rate> {
    conf.connection_rate.filter(|_| conf.disabled != Some(true))
}

pub(super) fn http_limit(conf: &LocalHttp, reporter: &mut Reporter<'_>) -> Option<HttpLimit> {
    let rate = conf.request_rate.filter(|_| conf.disabled != Some(true))?;
    let none = OnRateLimit::default();
    let answer = conf.on_rate_limit.as_ref().unwrap_or(&none);
    Some(HttpLimit {
        stat_prefix: "rate_limit".to_owned(),
        status: answer.status.and_then(|status| http_status(status, reporter)),
        token_bucket: Some(bucket(rate)),
        filter_enabled: Some(always("local_rate_limit_enabled")),
        filter_enforced: Some(always("local_rate_limit_enforced")),
        response_headers_to_add: headers(answer, reporter),
        ..HttpLimit::default()
    })
}

/// Envoy refuses a listener that answers with a status it has no name for.
fn http_status(status: u32, reporter: &mut Reporter<'_>) -> Option<HttpStatus> {
    let known = i32::try_from(status).ok().and_then(|code| StatusCode::try_from(code).ok());
    if known.is_none() {
        reporter.report(format!("requests above the limit get 429, since Envoy knows no status {status}"));
    }
    known.map(|code| HttpStatus { code: code.into() })
}

fn headers(answer: &OnRateLimit, reporter: &mut Reporter<'_>) -> Vec<HeaderValueOption> {
    let Some(given) = &answer.headers else { return Vec::new() };
    let added = given.add.iter().map(|header| (header.clone(), HeaderAppendAction::AppendIfExistsOrAdd));
    let set = given.set.iter().flat_map(|header| {
        let one = |value: &str| HeaderValue { name: header.name.clone(), value: value.to_owned() };
        header.value.split(',').map(one).map(|h| (h, HeaderAppendAction::OverwriteIfExistsOrAdd))
    });
    let mut headers = Vec::new();
    for (given, action) in added.chain(set) {
        if !header::is_changeable(&given.name) || !header::is_value(&given.value) {
            reporter.report(format!("the header {:?} is left out: it is none", given.name));
        } else if headers.len() == MOST_HEADERS {
            reporter.report(format!("the header {:?} is left out: there are too many", given.name));
        } else {
            headers.push(header::option(&given, action));
        }
    }
    headers
}

fn bucket(rate: Rate) -> TokenBucket {
    TokenBucket {
        max_tokens: rate.num,
        tokens_per_fill: number(rate.num),
        fill_interval: Some(duration(rate.interval.to_std())),
    }
}

fn always(key: &str) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent { numerator: 100, ..FractionalPercent::default() }),
        runtime_key: key.to_owned(),
    }
}

fn set_connections(listener: &mut ListenerDraft, rate: Option<Rate>) {
    let filter = rate.map(connection_limit);
    for chain in &mut listener.chains {
        chain.filters.rate_limit.clone_from(&filter);
    }
}

fn connection_limit(rate: Rate) -> Filter {
    let config = TcpLimit {
        stat_prefix: "tcp_rate_limit".to_owned(),
        token_bucket: Some(bucket(rate)),
        ..TcpLimit::default()
    };
    filter::network(TCP, &config)
}

fn set_requests(listener: &mut ListenerDraft, limit: Option<&HttpLimit>) {
    for Chain { terminal, .. } in &mut listener.chains {
        if let Terminal::Http(http) = terminal {
            http.routes.iter_mut().for_each(|route| set_route(route, limit));
        }
    }
}

pub(super) fn set_route(route: &mut RouteDraft, limit: Option<&HttpLimit>) {
    let configs = &mut route.message.typed_per_filter_config;
    match limit {
        Some(limit) => drop(configs.insert(HTTP.to_owned(), pack(limit))),
        None => drop(configs.remove(HTTP)),
    }
}

/// The filter counts nothing by itself; routes tell it what to.
pub(super) fn add_filter(listener: &mut ListenerDraft) {
    let config = HttpLimit { stat_prefix: "rate_limit".to_owned(), ..HttpLimit::default() };
    for Chain { terminal, .. } in &mut listener.chains {
        if let Terminal::Http(http) = terminal {
            http.filters.rate_limit = Some(filter::http(HTTP, &config));
        }
    }
}
