//! Permissions by the SPIFFE identity of the client and the server name it asked for.

use common::{
    model::kri::Kri,
    policy::{PeerMatch, mesh_traffic_permission::RuleConf, rules::Origin},
    proto::{
        envoy::{
            config::rbac::v3::{Action as RbacAction, rbac::Action},
            extensions::matching::common_inputs::{network::v3::ServerNameInput, ssl::v3::UriSanInput},
        },
        xds::{
            core::v3::TypedExtensionConfig,
            r#type::matcher::v3::{
                self as xds, Matcher as Message, RegexMatcher, StringMatcher,
                matcher::{
                    MatcherList, MatcherType, OnMatch,
                    matcher_list::{
                        FieldMatcher, Predicate,
                        predicate::{
                            MatchType, PredicateList, SinglePredicate,
                            single_predicate::Matcher as ValueMatcher,
                        },
                    },
                    on_match,
                },
                regex_matcher::{EngineType, GoogleRe2},
                string_matcher::MatchPattern,
            },
        },
    },
};
use prost::Name;

use crate::{generator::envoy::cluster::pack, policy::identity};

/// The decision of the filter.
pub(super) type Matcher = xds::Matcher;

/// How a rule is called in logs: the identifier of its policy.
pub(super) fn name_of(origin: &Origin) -> String {
    let resource = &origin.policy.resource;
    Kri::of(resource).map_or_else(|| resource.name().to_owned(), |kri| kri.to_string())
}

/// Whether a condition of the rule looks at the server name.
pub(super) fn looks_at_server_name(conf: &RuleConf) -> bool {
    let lists = [&conf.deny, &conf.allow, &conf.allow_with_shadow_deny];
    lists.into_iter().flatten().flatten().any(|condition| condition.sni.is_some())
}

/// The decision, and the shadow of a stricter one: what is denied first, then what is allowed, else denied.
pub(super) fn matchers(rules: &[(String, RuleConf)]) -> (Matcher, Option<Matcher>) {
    let denied =
        rules.iter().filter_map(|(name, conf)| field(name, Action::Deny, conf.deny.iter().flatten()));
    let allowed = rules.iter().filter_map(|(name, conf)| {
        let both = conf.allow.iter().flatten().chain(conf.allow_with_shadow_deny.iter().flatten());
        field(name, Action::Allow, both)
    });
    let shadow: Vec<FieldMatcher> = rules
        .iter()
        .filter_map(|(name, conf)| field(name, Action::Deny, conf.allow_with_shadow_deny.iter().flatten()))
        .collect();
    (matcher(denied.chain(allowed).collect()), (!shadow.is_empty()).then(|| matcher(shadow)))
}

fn matcher(fields: Vec<FieldMatcher>) -> Matcher {
    let list = MatcherType::MatcherList(MatcherList { matchers: fields.clone() });
    Message {
        matcher_type: (!fields.is_empty()).then_some(list),
        on_no_match: Some(Box::new(action("default", Action::Deny))),
    }
}

fn action(name: &str, action: Action) -> OnMatch {
    let config = RbacAction { name: name.to_owned(), action: action.into() };
    let config = TypedExtensionConfig {
        name: "envoy.filters.rbac.action".to_owned(),
        typed_config: Some(pack(&config)),
    };
    OnMatch { on_match: Some(on_match::OnMatch::Action(config)), ..OnMatch::default() }
}

/// The action for clients that meet any of `conditions`; `None` when there is none.
fn field<'a>(
    name: &str,
    then: Action,
    conditions: impl Iterator<Item = &'a PeerMatch>,
) -> Option<FieldMatcher> {
    let mut any: Vec<Predicate> = conditions.filter_map(predicate).collect();
    let predicate = match any.len() {
        0 => return None,
        1 => any.remove(0),
        _ => of(MatchType::OrMatcher(PredicateList { predicate: any })),
    };
    Some(FieldMatcher { predicate: Some(predicate), on_match: Some(action(name, then)) })
}

fn of(match_type: MatchType) -> Predicate {
    Predicate { match_type: Some(match_type) }
}

/// All of a condition; `None` when it has no part, which must not mean everybody.
fn predicate(condition: &PeerMatch) -> Option<Predicate> {
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
