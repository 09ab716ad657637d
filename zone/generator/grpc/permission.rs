//! Permissions as gRPC libraries read them: rules over the names in certificates. They pass over a decision in the form
//! of a matcher, which would let in everybody, and refuse a condition they do not know.

use std::collections::HashMap;

use common::proto::{
    envoy::{
        config::{
            listener::v3::{Filter, filter::ConfigType},
            rbac::v3::{
                Action as RbacAction, Permission, Policy, Principal, Rbac, permission,
                principal::{Authenticated, Identifier, Set},
                rbac::Action,
            },
        },
        extensions::{
            filters::{
                http::rbac::v3::Rbac as HttpRbac,
                network::{
                    http_connection_manager::v3::{HttpFilter, http_filter::ConfigType as HttpConfigType},
                    rbac::v3::Rbac as NetworkRbac,
                },
            },
            matching::common_inputs::ssl::v3::UriSanInput,
        },
        r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    },
    google::protobuf::Any,
    xds::r#type::matcher::v3::{
        Matcher,
        matcher::{
            MatcherType, OnMatch,
            matcher_list::{
                Predicate,
                predicate::{MatchType, SinglePredicate, single_predicate},
            },
            on_match,
        },
        string_matcher::MatchPattern as XdsPattern,
    },
};
use prost::{Message, Name};

use super::super::envoy::filter;

/// Name of the one policy in which a matcher ends up.
const POLICY: &str = "MeshTrafficPermission";

/// A filter that lets in nobody.
pub(super) fn nobody() -> HttpFilter {
    enforcing(Rbac { action: Action::Allow.into(), ..Rbac::default() })
}

/// The filter over requests, in words a library reads.
///
/// # Errors
/// Why there is none.
pub(super) fn of_requests(made: &HttpFilter) -> Result<HttpFilter, String> {
    let HttpRbac { rules, matcher, .. } = match &made.config_type {
        Some(HttpConfigType::TypedConfig(config)) => decode(config)?,
        _ => return Err("its permissions are somewhere else".to_owned()),
    };
    readable(rules, matcher)
}

/// The same of a filter over connections.
///
/// # Errors
/// Why there is none.
pub(super) fn of_connections(made: &Filter) -> Result<HttpFilter, String> {
    let NetworkRbac { rules, matcher, .. } = match &made.config_type {
        Some(ConfigType::TypedConfig(config)) => decode(config)?,
        _ => return Err("its permissions are somewhere else".to_owned()),
    };
    readable(rules, matcher)
}

fn decode<M: Message + Default>(config: &Any) -> Result<M, String> {
    M::decode(&config.value[..]).map_err(|error| format!("its permissions do not decode: {error}"))
}

fn enforcing(rules: Rbac) -> HttpFilter {
    filter::http("envoy.filters.http.rbac", &HttpRbac { rules: Some(rules), ..HttpRbac::default() })
}

fn readable(rules: Option<Rbac>, matcher: Option<Matcher>) -> Result<HttpFilter, String> {
    let rules = match (rules, matcher) {
        (Some(rules), None) => rules,
        (None, Some(matcher)) => listed(&matcher)?,
        _ => return Err("its permissions say nothing".to_owned()),
    };
    let principals = rules.policies.values().flat_map(|policy| &policy.principals);
    if !principals.into_iter().all(is_readable) {
        return Err(
            "gRPC libraries do not know a condition of its permissions, as those on zones are".to_owned()
        );
    }
    Ok(enforcing(rules))
}

fn is_readable(principal: &Principal) -> bool {
    match &principal.identifier {
        Some(Identifier::AndIds(all) | Identifier::OrIds(all)) => all.ids.iter().all(is_readable),
        Some(Identifier::NotId(one)) => is_readable(one),
        Some(Identifier::Any(_) | Identifier::Authenticated(_)) => true,
        _ => false,
    }
}

/// What is denied first and what is allowed after that, as one rule.
fn listed(matcher: &Matcher) -> Result<Rbac, String> {
    let fields = match &matcher.matcher_type {
        None => &[][..],
        Some(MatcherType::MatcherList(list)) => &list.matchers,
        Some(MatcherType::MatcherTree(_)) => return Err("its permissions are a tree".to_owned()),
    };
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    for field in fields {
        let predicate = field.predicate.as_ref().ok_or("a permission has no condition")?;
        match action(field.on_match.as_ref())? {
            Action::Deny => denied.push(principal(predicate)?),
            Action::Allow | Action::Log => allowed.push(principal(predicate)?),
        }
    }
    let mut policies = HashMap::new();
    if !allowed.is_empty() {
        let mut conditions = vec![of(Identifier::OrIds(Set { ids: allowed }))];
        if !denied.is_empty() {
            let denied = of(Identifier::OrIds(Set { ids: denied }));
            conditions.push(of(Identifier::NotId(Box::new(denied))));
        }
        let principals = vec![of(Identifier::AndIds(Set { ids: conditions }))];
        let permissions = vec![Permission { rule: Some(permission::Rule::Any(true)) }];
        policies.insert(POLICY.to_owned(), Policy { permissions, principals, ..Policy::default() });
    }
    Ok(Rbac { action: Action::Allow.into(), policies, ..Rbac::default() })
}

fn action(then: Option<&OnMatch>) -> Result<Action, String> {
    let Some(on_match::OnMatch::Action(config)) = then.and_then(|then| then.on_match.as_ref()) else {
        return Err("a permission has no action".to_owned());
    };
    let config = config.typed_config.as_ref().ok_or("a permission has no action")?;
    Ok(decode::<RbacAction>(config)?.action())
}

fn of(identifier: Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

fn principal(predicate: &Predicate) -> Result<Principal, String> {
    let all = |list: &[Predicate]| list.iter().map(principal).collect::<Result<Vec<_>, _>>();
    match &predicate.match_type {
        Some(MatchType::AndMatcher(list)) => Ok(of(Identifier::AndIds(Set { ids: all(&list.predicate)? }))),
        Some(MatchType::OrMatcher(list)) => Ok(of(Identifier::OrIds(Set { ids: all(&list.predicate)? }))),
        Some(MatchType::NotMatcher(one)) => Ok(of(Identifier::NotId(Box::new(principal(one)?)))),
        Some(MatchType::SinglePredicate(one)) => named(one),
        None => Err("a permission has no condition".to_owned()),
    }
}

/// A condition on the names of a client, which it meets by any of them.
fn named(condition: &SinglePredicate) -> Result<Principal, String> {
    let input = condition.input.as_ref().and_then(|input| input.typed_config.as_ref());
    if input.is_none_or(|input| input.type_url != UriSanInput::type_url()) {
        return Err("gRPC libraries look at no server name, as a permission asks".to_owned());
    }
    let Some(single_predicate::Matcher::ValueMatch(value)) = &condition.matcher else {
        return Err("a permission has a condition of an unknown form".to_owned());
    };
    let Some(XdsPattern::SafeRegex(regex)) = &value.match_pattern else {
        return Err("a permission has a condition of an unknown form".to_owned());
    };
    let regex = RegexMatcher { regex: regex.regex.clone(), ..RegexMatcher::default() };
    let name =
        StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex)), ..StringMatcher::default() };
    Ok(of(Identifier::Authenticated(Authenticated { principal_name: Some(name) })))
}

#[cfg(test)]
mod tests {
    use common::proto::{
        envoy::{
            config::core::v3::TypedExtensionConfig,
            extensions::matching::common_inputs::network::v3::ServerNameInput,
        },
        xds::{
            core::v3::TypedExtensionConfig as Input,
            r#type::matcher::v3::matcher::{MatcherList, matcher_list::FieldMatcher},
        },
    };

    use super::*;
    use crate::generator::envoy::cluster::pack;

    fn permitting(identifier: Identifier) -> Rbac {
        let policy = Policy { principals: vec![of(identifier)], ..Policy::default() };
        Rbac { policies: [("web".to_owned(), policy)].into(), ..Rbac::default() }
    }

    #[test]
    fn a_condition_libraries_do_not_know_is_refused_however_deep() {
        let custom = || of(Identifier::Custom(TypedExtensionConfig::default()));
        let any = || of(Identifier::Any(true));
        let readable = |identifier| readable(Some(permitting(identifier)), None).is_ok();
        assert!(readable(Identifier::AndIds(Set { ids: vec![any(), any()] })));
        assert!(readable(Identifier::NotId(Box::new(any()))));
        assert!(!readable(Identifier::Custom(TypedExtensionConfig::default())));
        assert!(!readable(Identifier::AndIds(Set { ids: vec![any(), custom()] })));
        assert!(!readable(Identifier::OrIds(Set { ids: vec![custom()] })));
        assert!(!readable(Identifier::NotId(Box::new(custom()))));
    }

    #[test]
    fn nothing_said_is_not_everybody_let_in() {
        assert!(readable(None, None).is_err());
        let none = listed(&Matcher::default()).expect("a list of nobody");
        assert!(none.policies.is_empty() && none.action() == Action::Allow);
    }

    #[test]
    fn a_server_name_is_not_looked_at() {
        let input = Input { name: String::new(), typed_config: Some(pack(&ServerNameInput {})) };
        let single = SinglePredicate { input: Some(input), matcher: None };
        let predicate = Predicate { match_type: Some(MatchType::SinglePredicate(single)) };
        let config = RbacAction { name: String::new(), action: Action::Deny.into() };
        let config = Input { name: String::new(), typed_config: Some(pack(&config)) };
        let then = OnMatch { on_match: Some(on_match::OnMatch::Action(config)), ..OnMatch::default() };
        let field = FieldMatcher { predicate: Some(predicate), on_match: Some(then) };
        let list = MatcherList { matchers: vec![field] };
        let matcher = Matcher { matcher_type: Some(MatcherType::MatcherList(list)), ..Matcher::default() };
        let refused = listed(&matcher).expect_err("a condition nobody can check");
        assert!(refused.contains("server name"), "{refused}");
    }
}
