//! Faults for clients by SPIFFE identity and server name. A client gets those of the narrowest condition it
//! meets, else those that are for everybody.

use common::{
    policy::{PeerMatch, mesh_fault_injection::FaultInjectionConf, rules::InboundRules},
    proto::{
        envoy::{
            config::core::v3::TypedExtensionConfig as Extension,
            extensions::{
                common::matching::v3::ExtensionWithMatcher,
                filters::{
                    common::matcher::action::v3::SkipFilter, http::fault::v3::HttpFault,
                    network::http_connection_manager::v3::HttpFilter,
                },
            },
        },
        xds::{
            core::v3::TypedExtensionConfig,
            r#type::matcher::v3::{
                Matcher,
                matcher::{
                    MatcherList, MatcherType, OnMatch,
                    matcher_list::{FieldMatcher, Predicate},
                    on_match,
                },
            },
        },
    },
};

use super::{FAULT, fault};
use crate::{
    generator::envoy::{cluster::pack, filter},
    policy::{Reporter, client},
};

/// For each condition, narrowest first, its faults, and then those for everybody else.
pub(super) fn filters(
    rules: &InboundRules,
    by_client: &[(PeerMatch, FaultInjectionConf)],
    everybody: Option<FaultInjectionConf>,
    reporter: &mut Reporter<'_>,
) -> Vec<HttpFilter> {
    let mut narrower: Vec<Predicate> = Vec::new();
    let mut filters = Vec::new();
    for (condition, conf) in by_client {
        let Some(predicate) = client::predicate(condition) else { continue };
        let mut skipped = narrower.clone();
        skipped.push(client::not(predicate.clone()));
        narrower.push(predicate);
        let name = name_of(rules, Some(condition));
        filters.extend(fault::all(conf, reporter).iter().map(|fault| unless(&name, skipped.clone(), fault)));
    }
    let name = name_of(rules, None);
    let everybody = everybody.iter().flat_map(|conf| fault::all(conf, reporter));
    filters.extend(everybody.map(|fault| unless(&name, narrower.clone(), &fault)));
    filters
}

/// The most specific policy with this condition.
fn name_of(rules: &InboundRules, condition: Option<&PeerMatch>) -> String {
    let rule = rules.0.iter().rev().find(|rule| rule.condition.as_ref() == condition);
    rule.map_or_else(|| FAULT.to_owned(), |rule| client::name_of(&rule.origin))
}

/// The filter with this fault, for clients that meet none of `skipped`.
fn unless(name: &str, skipped: Vec<Predicate>, fault: &HttpFault) -> HttpFilter {
    let Some(predicate) = client::any(skipped) else { return filter::http(name, fault) };
    let skip =
        TypedExtensionConfig { name: "skip".to_owned(), typed_config: Some(pack(&SkipFilter::default())) };
    let skip = OnMatch { on_match: Some(on_match::OnMatch::Action(skip)), ..OnMatch::default() };
    let list =
        MatcherList { matchers: vec![FieldMatcher { predicate: Some(predicate), on_match: Some(skip) }] };
    let config = ExtensionWithMatcher {
        xds_matcher: Some(Matcher {
            matcher_type: Some(MatcherType::MatcherList(list)),
            ..Matcher::default()
        }),
        extension_config: Some(Extension { name: FAULT.to_owned(), typed_config: Some(pack(fault)) }),
        ..ExtensionWithMatcher::default()
    };
    filter::http(name, &config)
}
