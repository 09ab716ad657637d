//! Permissions by the SPIFFE identity of the client and the server name it asked for.

use common::{
    policy::{PeerMatch, mesh_traffic_permission::TrafficPermissionRuleConf},
    proto::{
        envoy::config::rbac::v3::{Action as RbacAction, rbac::Action},
        xds::{
            core::v3::TypedExtensionConfig,
            r#type::matcher::v3::{
                self as xds, Matcher as Message,
                matcher::{MatcherList, MatcherType, OnMatch, matcher_list::FieldMatcher, on_match},
            },
        },
    },
};

use crate::{generator::envoy::cluster::pack, policy::client};

/// The decision of the filter.
pub(super) type Matcher = xds::Matcher;

/// Whether a condition of the rule looks at the server name.
pub(super) fn looks_at_server_name(conf: &TrafficPermissionRuleConf) -> bool {
    conditions(conf).any(|condition| condition.sni.is_some())
}

/// All conditions of the rule.
pub(super) fn conditions(conf: &TrafficPermissionRuleConf) -> impl Iterator<Item = &PeerMatch> {
    let lists = [&conf.deny, &conf.allow, &conf.allow_with_shadow_deny];
    lists.into_iter().flatten().flatten()
}

/// The decision, and the shadow of a stricter one: what is denied first, then what is allowed, else denied.
pub(super) fn matchers(rules: &[(String, TrafficPermissionRuleConf)]) -> (Matcher, Option<Matcher>) {
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
    let predicate = client::any(conditions.filter_map(client::predicate).collect())?;
    Some(FieldMatcher { predicate: Some(predicate), on_match: Some(action(name, then)) })
}
