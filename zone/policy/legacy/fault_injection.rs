//! `FaultInjection`: requests to an inbound that fail, wait or trickle on purpose, beside those of the newer kind.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    policy::{
        IntOrString,
        legacy::{
            LegacyConf, LegacyPolicy, choice,
            fault_injection::{self, KIND},
        },
        mesh_fault_injection as newer,
        rules::SelectableProxy,
    },
    proto::{
        envoy::{
            config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
            extensions::filters::network::http_connection_manager::v3::HttpFilter,
            r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
        },
        google::protobuf::DoubleValue,
        kuma::mesh::v1alpha1::{Selector, fault_injection::Conf},
    },
};

use super::{candidates, span};
use crate::{
    generator::{Draft, Terminal, envoy::filter, envoy::http::TAGS_HEADER},
    mesh::{MeshContext, Problem},
    policy::{
        Reporter, header, identity, inbound_of,
        mesh_fault_injection::{FAULT, fault},
    },
};

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
        let mut fitting: Vec<&Arc<LegacyPolicy>> = Vec::new();
        for (_, policy) in choice::all_for_inbound(policies.iter().copied(), &inbound.tags) {
            // A client that two of its sources mean is hurt once.
            if !fitting.iter().any(|known| Arc::ptr_eq(known, policy)) {
                fitting.push(policy);
            }
        }
        let filters: Vec<HttpFilter> =
            fitting.into_iter().filter_map(|policy| filter_of(policy, &mut reporter)).collect();
        for chain in &mut listener.chains {
            if let Terminal::Http(http) = &mut chain.terminal {
                http.filters.faults.extend(filters.iter().cloned());
            }
        }
    }
}

fn filter_of(policy: &LegacyPolicy, reporter: &mut Reporter<'_>) -> Option<HttpFilter> {
    let LegacyConf::FaultInjection(conf) = &policy.conf else { return None };
    let conf = newer::FaultInjectionConf { http: Some(vec![in_newer_terms(conf)?]) };
    let mut config = fault::all(&conf, reporter).pop()?;
    config.headers = vec![clients(policy.sources.iter())];
    Some(filter::http(FAULT, &config))
}

fn in_newer_terms(conf: &Conf) -> Option<newer::Fault> {
    let share =
        |given: Option<DoubleValue>| IntOrString::Text(given.map_or(0.0, |given| given.value).to_string());
    let abort = conf.abort.as_ref().and_then(|abort| {
        let http_status = i32::try_from(abort.http_status?.value).ok()?;
        Some(newer::Abort { http_status, percentage: share(abort.percentage) })
    });
    let delay = conf.delay.as_ref().and_then(|delay| {
        let value = common::model::Duration::from_std(span(delay.value.as_ref()?));
        Some(newer::Delay { value, percentage: share(delay.percentage) })
    });
    let bandwidth = conf.response_bandwidth.as_ref().and_then(|limit| {
        let newer::Bandwidth(kbps) = fault_injection::bandwidth(&limit.limit.as_ref()?.value)?;
        Some(newer::ResponseBandwidth { limit: format!("{kbps} kbps"), percentage: share(limit.percentage) })
    });
    Some(newer::Fault { abort, delay, response_bandwidth: bandwidth })
}

/// Clients that tell the tags of one of these.
pub(super) fn clients<'a>(sources: impl Iterator<Item = &'a Selector>) -> HeaderMatcher {
    let all: Vec<String> = sources.map(pattern).collect();
    let pattern = match &all[..] {
        [only] => only.clone(),
        several => format!("(?:{})", several.join("|")),
    };
    let pattern = StringMatcher {
        match_pattern: Some(MatchPattern::SafeRegex(header::regex(&pattern))),
        ..StringMatcher::default()
    };
    HeaderMatcher {
        name: TAGS_HEADER.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(pattern)),
        ..HeaderMatcher::default()
    }
}

/// Tags are told in the order of their keys.
fn pattern(source: &Selector) -> String {
    let tag = |(key, value): (&String, &String)| {
        let value = match value.as_str() {
            "*" => String::new(),
            value => format!("(?:[^&]*,)?{}[,&]", identity::literal(value)),
        };
        format!("&{}={value}.*", identity::literal(key))
    };
    let tags: String = source.r#match.iter().map(tag).collect();
    format!(".*{tags}")
}
