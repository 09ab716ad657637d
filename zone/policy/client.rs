//! Conditions on the client, as matchers of filters: its SPIFFE identity and the server name it asked for.

use common::{
    model::kri::Kri,
    policy::{PeerMatch, rules::RuleOrigin},
    proto::{
        envoy::extensions::matching::common_inputs::{network::v3::ServerNameInput, ssl::v3::UriSanInput},
        xds::{
            core::v3::TypedExtensionConfig,
            r#type::matcher::v3::{
                RegexMatcher, StringMatcher,
                matcher::matcher_list::{
                    Predicate,
                    predicate::{
                        MatchType, PredicateList, SinglePredicate, single_predicate::Matcher as ValueMatcher,
                    },
                },
                regex_matcher::{EngineType, GoogleRe2},
                string_matcher::MatchPattern,
            },
        },
    },
};
use prost::Name;

use super::identity;
use crate::generator::envoy::cluster::pack;

/// How a rule is called in logs: the identifier of its policy.
pub(super) fn name_of(origin: &RuleOrigin) -> String {
    let resource = &origin.policy.resource;
    Kri::of(resource).map_or_else(|| resource.name().to_owned(), |kri| kri.to_string())
}

/// Any of these; `None` when there is none.
pub(super) fn any(mut predicates: Vec<Predicate>) -> Option<Predicate> {
    match predicates.len() {
        0 => None,
        1 => Some(predicates.remove(0)),
        _ => Some(of(MatchType::OrMatcher(PredicateList { predicate: predicates }))),
    }
}

/// Not this.
pub(super) fn not(predicate: Predicate) -> Predicate {
    of(MatchType::NotMatcher(Box::new(predicate)))
}

fn of(match_type: MatchType) -> Predicate {
    Predicate { match_type: Some(match_type) }
}

/// All of a condition; `None` when it has no part, which must not mean everybody.
pub(super) fn predicate(condition: &PeerMatch) -> Option<Predicate> {
    let identity = condition.spiffe_id.as_ref().map(|id| {
        let pattern = MatchPattern::SafeRegex(RegexMatcher {
            regex: identity::among_names(id),
            engine_type: Some(EngineType::GoogleRe2(GoogleRe2 {})),
        });
        single("envoy.matching.inputs.uri_san", &UriSanInput {}, pattern)
    });
    let server_name = condition.sni.as_ref().map(|sni| {
        let pattern = MatchPattern::Exact(sni.value.clone());
        single("envoy.matching.inputs.server_name", &ServerNameInput {}, pattern)
    });
    match (identity, server_name) {
        (Some(identity), Some(name)) => {
            Some(of(MatchType::AndMatcher(PredicateList { predicate: vec![identity, name] })))
        }
        (identity, name) => identity.or(name),
    }
}

fn single<M: prost::Message + Name>(name: &str, input: &M, pattern: MatchPattern) -> Predicate {
    let input = TypedExtensionConfig { name: name.to_owned(), typed_config: Some(pack(input)) };
    let value = StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() };
    of(MatchType::SinglePredicate(SinglePredicate {
        input: Some(input),
        matcher: Some(ValueMatcher::ValueMatch(value)),
    }))
}
