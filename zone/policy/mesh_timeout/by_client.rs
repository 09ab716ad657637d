//! Timeouts that depend on the client. A client is known once it has shown its certificate; what it said
//! about itself is kept with the connection, and routes look there.

use common::{
    policy::{PeerMatch, mesh_timeout::Conf},
    proto::envoy::{
        config::core::v3::{
            DataSource, SubstitutionFormatString, data_source::Specifier, substitution_format_string::Format,
        },
        extensions::filters::{
            common::set_filter_state::v3::{FilterStateValue, filter_state_value},
            network::set_filter_state::v3::Config,
        },
        r#type::matcher::v3::{
            FilterStateMatcher, RegexMatcher, StringMatcher, filter_state_matcher,
            string_matcher::MatchPattern,
        },
    },
};

use super::{Timeouts, set_route};
use crate::{
    generator::{Chain, ListenerDraft, RouteDraft, Terminal, envoy::filter},
    policy::identity,
};

const IDENTITY: &str = "kuma.mesh_timeout.match.spiffe_id";
const SERVER_NAME: &str = "kuma.mesh_timeout.match.sni";

/// Puts a copy of each route before it for every condition, narrowest first. Chains without mesh TLS do not
/// know their clients.
pub(super) fn set_listener(listener: &mut ListenerDraft, confs: &[(PeerMatch, Conf)]) {
    if confs.is_empty() {
        return;
    }
    let mut needs_server_name = false;
    for Chain { filters, terminal, .. } in listener.chains.iter_mut().filter(|c| c.tls.is_some()) {
        let Terminal::Http(http) = terminal else { continue };
        http.routes = http.routes.drain(..).flat_map(|route| by_client(route, confs)).collect();
        filters.push(filter::network("envoy.filters.network.set_filter_state", &remembered(confs)));
        needs_server_name |= confs.iter().any(|(condition, _)| condition.sni.is_some());
    }
    if needs_server_name && listener.message.listener_filters.is_empty() {
        listener.message.listener_filters.push(filter::tls_inspector());
    }
}

fn by_client(route: RouteDraft, confs: &[(PeerMatch, Conf)]) -> Vec<RouteDraft> {
    let special = confs.iter().map(|(condition, conf)| {
        let mut copy = route.clone();
        copy.message.r#match.get_or_insert_default().filter_state = conditions(condition);
        set_route(&mut copy, Timeouts::of(Some(conf)));
        copy
    });
    let mut routes: Vec<RouteDraft> = special.collect();
    routes.push(route);
    routes
}

/// What must have been remembered of the client; all of it.
fn conditions(condition: &PeerMatch) -> Vec<FilterStateMatcher> {
    let matcher = |key: &str, pattern| FilterStateMatcher {
        key: key.to_owned(),
        matcher: Some(filter_state_matcher::Matcher::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..StringMatcher::default()
        })),
    };
    let identity = condition.spiffe_id.as_ref().map(|id| {
        let regex = RegexMatcher { regex: identity::among_names(id), ..RegexMatcher::default() };
        matcher(IDENTITY, MatchPattern::SafeRegex(regex))
    });
    let server_name =
        condition.sni.as_ref().map(|sni| matcher(SERVER_NAME, MatchPattern::Exact(sni.value.clone())));
    identity.into_iter().chain(server_name).collect()
}

/// Remembers what any of the conditions looks at.
fn remembered(confs: &[(PeerMatch, Conf)]) -> Config {
    let identity = confs.iter().any(|(condition, _)| condition.spiffe_id.is_some());
    let server_name = confs.iter().any(|(condition, _)| condition.sni.is_some());
    let values = [
        identity.then(|| value(IDENTITY, "%DOWNSTREAM_PEER_URI_SAN%")),
        server_name.then(|| value(SERVER_NAME, "%REQUESTED_SERVER_NAME%")),
    ];
    Config { on_downstream_tls_handshake: values.into_iter().flatten().collect(), ..Config::default() }
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
