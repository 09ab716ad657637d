//! Routes that depend on the client. A client is known once it has shown its certificate; what it said
//! about itself is kept with the connection, and routes look there.

use common::{
    policy::PeerMatch,
    proto::envoy::{
        config::core::v3::{
            DataSource, SubstitutionFormatString, data_source::Specifier, substitution_format_string::Format,
        },
        extensions::filters::common::set_filter_state::v3::{FilterStateValue, filter_state_value},
        r#type::matcher::v3::{
            FilterStateMatcher, RegexMatcher, StringMatcher, filter_state_matcher,
            string_matcher::MatchPattern,
        },
    },
};

use super::identity;
use crate::generator::{Chain, ListenerDraft, RouteDraft, Terminal};

/// Under which keys a policy keeps what it looks at.
pub(super) struct Keys {
    pub(super) identity: &'static str,
    pub(super) server_name: &'static str,
}

/// Puts a copy of each route before it for every condition, narrowest first, changed as `set` says. Chains
/// without mesh TLS do not know their clients.
pub(super) fn set_listener<C>(
    listener: &mut ListenerDraft,
    keys: &Keys,
    confs: &[(PeerMatch, C)],
    set: impl Fn(&mut RouteDraft, &C),
) {
    if confs.is_empty() {
        return;
    }
    let mut needs_server_name = false;
    for Chain { filters, terminal, .. } in listener.chains.iter_mut().filter(|c| c.tls.is_some()) {
        let Terminal::Http(http) = terminal else { continue };
        let copies = |route: RouteDraft| {
            let special = confs.iter().map(|(condition, conf)| {
                let mut copy = route.clone();
                copy.message.r#match.get_or_insert_default().filter_state.extend(conditions(keys, condition));
                set(&mut copy, conf);
                copy
            });
            let mut routes: Vec<RouteDraft> = special.collect();
            routes.push(route);
            routes
        };
        http.routes = http.routes.drain(..).flat_map(copies).collect();
        filters.client.extend(remembered(keys, confs));
        needs_server_name |= confs.iter().any(|(condition, _)| condition.sni.is_some());
    }
    listener.inspects_tls |= needs_server_name;
}

/// What must have been remembered of the client; all of it.
fn conditions(keys: &Keys, condition: &PeerMatch) -> Vec<FilterStateMatcher> {
    let matcher = |key: &str, pattern| FilterStateMatcher {
        key: key.to_owned(),
        matcher: Some(filter_state_matcher::Matcher::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..StringMatcher::default()
        })),
    };
    let identity = condition.spiffe_id.as_ref().map(|id| {
        let regex = RegexMatcher { regex: identity::among_names(id), ..RegexMatcher::default() };
        matcher(keys.identity, MatchPattern::SafeRegex(regex))
    });
    let server_name =
        condition.sni.as_ref().map(|sni| matcher(keys.server_name, MatchPattern::Exact(sni.value.clone())));
    identity.into_iter().chain(server_name).collect()
}

/// What any of the conditions looks at.
fn remembered<C>(keys: &Keys, confs: &[(PeerMatch, C)]) -> impl Iterator<Item = FilterStateValue> {
    let identity = confs.iter().any(|(condition, _)| condition.spiffe_id.is_some());
    let server_name = confs.iter().any(|(condition, _)| condition.sni.is_some());
    let values = [
        identity.then(|| value(keys.identity, "%DOWNSTREAM_PEER_URI_SAN%")),
        server_name.then(|| value(keys.server_name, "%REQUESTED_SERVER_NAME%")),
    ];
    values.into_iter().flatten()
}

fn value(key: &str, format: &str) -> FilterStateValue {
    let text =
        DataSource { specifier: Some(Specifier::InlineString(format.to_owned())), ..DataSource::default() };
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(text)),
        ..SubstitutionFormatString::default()
    };
    FilterStateValue {
        factory_key: "envoy.string".to_owned(),
        skip_if_empty: true,
        key: Some(filter_state_value::Key::ObjectKey(key.to_owned())),
        value: Some(filter_state_value::Value::FormatString(format)),
        ..FilterStateValue::default()
    }
}
