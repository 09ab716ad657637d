//! Configuration for whoever runs the Envoy beside it: a listener on a socket, which answers with what is in
//! its own configuration. Who has the answer already, by its tag, gets none.

use common::proto::envoy::{
    config::{
        core::v3::{DataSource, HeaderValue, HeaderValueOption, data_source::Specifier},
        listener::v3::Listener,
        route::v3::{
            DirectResponseAction, HeaderMatcher, Route, RouteMatch, header_matcher::HeaderMatchSpecifier,
            route::Action, route_match::PathSpecifier,
        },
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use sha2::{Digest, Sha256};

use super::{
    Chain, Draft, HttpChain, HttpFilters, ListenerDraft, Role, RouteDraft, Terminal,
    envoy::{address, http, number},
    names,
};

/// The socket, which has the name of what was told there first.
pub(crate) const SOCKET: &str = "kuma-mesh-metric-config";
/// Origin of the listener.
const ORIGIN: &str = "dynamic-config";

/// Answers on `socket` who asks for `path` with `body`.
pub(crate) fn answer(socket: &str, path: &str, body: String, ipv6: bool, draft: &mut Draft) {
    let listener =
        draft.listeners.entry(names::DYNAMIC_CONFIG.to_owned()).or_insert_with(|| listener(socket, ipv6));
    for Chain { terminal, .. } in &mut listener.chains {
        let Terminal::Http(http) = terminal else { continue };
        let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let known = http.config.max_direct_response_body_size_bytes.as_ref().map_or(0, |known| known.value);
        http.config.max_direct_response_body_size_bytes = number(size.max(known));
        let routes = routes(path, &body).map(|message| RouteDraft { message, ..RouteDraft::default() });
        http.routes.extend(routes);
    }
}

fn listener(socket: &str, ipv6: bool) -> ListenerDraft {
    let http = HttpChain {
        manager: http::local_manager(names::DYNAMIC_CONFIG, ipv6),
        filters: HttpFilters::default(),
        config: http::route_configuration(""),
        hosts: Vec::new(),
        host: names::DYNAMIC_CONFIG.to_owned(),
        routes: Vec::new(),
    };
    let message = Listener {
        name: names::DYNAMIC_CONFIG.to_owned(),
        address: Some(address::pipe(socket)),
        ..Listener::default()
    };
    let chains = vec![Chain { terminal: Terminal::Http(Box::new(http)), ..Chain::default() }];
    ListenerDraft { role: Role::Telemetry(ORIGIN), message, inspects_tls: false, chains }
}

fn routes(path: &str, body: &str) -> [Route; 2] {
    let digest = Sha256::digest(body.as_bytes());
    let tag: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let matches = |headers| RouteMatch {
        path_specifier: Some(PathSpecifier::Path(path.to_owned())),
        headers,
        ..RouteMatch::default()
    };
    let exact =
        StringMatcher { match_pattern: Some(MatchPattern::Exact(tag.clone())), ..StringMatcher::default() };
    let known = HeaderMatcher {
        name: "If-None-Match".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact)),
        ..HeaderMatcher::default()
    };
    let answer = |status, body: Option<&str>| {
        let specifier = body.map(|body| Specifier::InlineString(body.to_owned()));
        let body = specifier.map(|s| DataSource { specifier: Some(s), ..DataSource::default() });
        Some(Action::DirectResponse(DirectResponseAction { status, body, ..DirectResponseAction::default() }))
    };
    let header = HeaderValue { key: "Etag".to_owned(), value: tag, ..HeaderValue::default() };
    [
        Route { r#match: Some(matches(vec![known])), action: answer(304, None), ..Route::default() },
        Route {
            name: format!("{}:{path}", names::DYNAMIC_CONFIG),
            r#match: Some(matches(Vec::new())),
            action: answer(200, Some(body)),
            response_headers_to_add: vec![HeaderValueOption {
                header: Some(header),
                ..HeaderValueOption::default()
            }],
            ..Route::default()
        },
    ]
}
