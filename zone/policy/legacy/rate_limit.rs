//! `RateLimit`: how many requests an inbound takes of those who tell some tags, where no newer policy limits them.

use std::collections::BTreeSet;

use common::{
    policy::{
        HeaderAddition,
        legacy::{LegacyConf, choice, rate_limit::KIND},
        mesh_http_route::HeaderValue,
        mesh_rate_limit::{LocalHttp, OnRateLimit, Rate},
        rules::SelectableProxy,
    },
    proto::{
        envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit,
        kuma::mesh::v1alpha1::{Selector, rate_limit::conf::Http},
    },
};

use super::{candidates, fault_injection::clients, overridden, span};
use crate::{
    generator::{Chain, Draft, RouteDraft, Terminal},
    mesh::{MeshContext, Problem},
    policy::{PolicyEffect, Reporter, inbound_of, mesh_rate_limit},
};

/// Envoy fills no bucket more often than that.
const SHORTEST: std::time::Duration = std::time::Duration::from_millis(50);

pub(super) fn apply(
    mesh: &MeshContext,
    subject: Option<&SelectableProxy>,
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    let policies = candidates(mesh, subject, &KIND);
    if policies.is_empty() {
        return;
    }
    let mut reporter = Reporter { kind: &KIND, problems };
    for listener in draft.listeners.values_mut() {
        let Some(inbound) = inbound_of(&listener.role).filter(|inbound| inbound.protocol.is_http()) else {
            continue;
        };
        let fitting = choice::all_for_inbound(policies.iter().copied(), &inbound.tags).into_iter();
        let limits: Vec<(&Selector, LocalRateLimit)> = fitting
            .filter_map(|(source, policy)| {
                let LegacyConf::RateLimit(conf) = &policy.conf else { return None };
                Some((source, limit(conf.http.as_ref()?, &mut reporter)?))
            })
            .collect();
        let limited = |chain: &Chain| match &chain.terminal {
            Terminal::Http(http) => http.filters.rate_limit.is_some(),
            _ => false,
        };
        if limits.is_empty() {
            continue;
        }
        if listener.chains.iter().any(limited) {
            reporter.report(overridden("inbounds", mesh_rate_limit::MeshRateLimitEffect::KIND));
            continue;
        }
        for chain in &mut listener.chains {
            if let Terminal::Http(http) = &mut chain.terminal {
                http.routes = http.routes.drain(..).flat_map(|route| by_client(route, &limits)).collect();
            }
        }
        mesh_rate_limit::add_filter(listener);
    }
}

/// A copy of a route for each limit, and the route itself for everybody else.
fn by_client(route: RouteDraft, limits: &[(&Selector, LocalRateLimit)]) -> Vec<RouteDraft> {
    let copies = limits.iter().map(|(source, limit)| {
        let mut copy = route.clone();
        let condition = copy.message.r#match.get_or_insert_default();
        condition.headers.push(clients(std::iter::once(*source)));
        mesh_rate_limit::set_route(&mut copy, Some(limit));
        copy
    });
    let mut routes: Vec<RouteDraft> = copies.collect();
    routes.push(route);
    routes
}

fn limit(conf: &Http, reporter: &mut Reporter<'_>) -> Option<LocalRateLimit> {
    let interval = conf.interval.as_ref().map(span).unwrap_or_default();
    if conf.requests == 0 || interval < SHORTEST {
        reporter.report("a limit is left out: it takes no requests, or has an interval below 50ms");
        return None;
    }
    let mut headers = HeaderAddition::default();
    let answer = conf.on_rate_limit.as_ref();
    for header in answer.iter().flat_map(|answer| &answer.headers) {
        let given = HeaderValue { name: header.key.clone(), value: header.value.clone() };
        let append = header.append.is_some_and(|append| append.value);
        if append { headers.add.push(given) } else { headers.set.push(given) }
    }
    let status = answer.and_then(|answer| answer.status).map(|status| status.value).filter(|s| *s > 0);
    let http = LocalHttp {
        request_rate: Some(Rate {
            num: conf.requests,
            interval: common::model::Duration::from_std(interval),
        }),
        on_rate_limit: Some(OnRateLimit { status, headers: Some(headers) }),
        disabled: None,
    };
    mesh_rate_limit::http_limit(&http, reporter)
}
