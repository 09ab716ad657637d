//! When something is logged: by who the client is, and by which route was taken.

use common::{
    policy::{PeerMatch, SpiffeMatchType},
    proto::envoy::{
        config::{
            accesslog::v3::{
                AccessLogFilter, ExtensionFilter, MetadataFilter, access_log_filter::FilterSpecifier,
                extension_filter,
            },
            core::v3::{DataSource, data_source::Specifier},
            route::v3::Route,
        },
        extensions::{
            access_loggers::filters::cel::v3::ExpressionFilter,
            filters::{http::lua::v3::Lua, network::http_connection_manager::v3::HttpFilter},
        },
        r#type::matcher::v3::{
            MetadataMatcher, StringMatcher, ValueMatcher, metadata_matcher::PathSegment,
            metadata_matcher::path_segment::Segment, string_matcher::MatchPattern, value_matcher,
        },
    },
};

use crate::generator::envoy::{cluster, filter, flag, metadata};

/// The HTTP filter that notes the mark of a route.
const MARKER: &str = "envoy.filters.http.lua";
/// Where it notes it.
const NAMESPACE: &str = "kuma.routes";
const MARK: &str = "route_kri";

/// Connections of clients that meet `condition`; `None` for all of them.
pub(super) fn of_client(condition: &PeerMatch) -> Option<AccessLogFilter> {
    let identity = condition.spiffe_id.as_ref().map(|id| {
        let value = literal(&id.value);
        match id.kind {
            SpiffeMatchType::Exact => format!("connection.uri_san_peer_certificate == {value}"),
            SpiffeMatchType::Prefix => format!("connection.uri_san_peer_certificate.startsWith({value})"),
        }
    });
    let server = condition
        .sni
        .as_ref()
        .map(|sni| format!("connection.requested_server_name == {}", literal(&sni.value)));
    let parts: Vec<String> = identity.into_iter().chain(server).collect();
    if parts.is_empty() {
        return None;
    }
    let config = ExpressionFilter { expression: parts.join(" && "), ..ExpressionFilter::default() };
    let extension = ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(cluster::pack(&config))),
    };
    Some(AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(extension)) })
}

/// `text` as an expression.
fn literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Requests by a route without logs of its own.
pub(super) fn unmarked() -> AccessLogFilter {
    by_mark(value_matcher::MatchPattern::NullMatch(value_matcher::NullMatch {}), true)
}

/// Requests by the route with this mark.
pub(super) fn marked(mark: &str) -> AccessLogFilter {
    let exact = StringMatcher {
        match_pattern: Some(MatchPattern::Exact(mark.to_owned())),
        ..StringMatcher::default()
    };
    by_mark(value_matcher::MatchPattern::StringMatch(exact), false)
}

fn by_mark(pattern: value_matcher::MatchPattern, otherwise: bool) -> AccessLogFilter {
    let matcher = MetadataMatcher {
        filter: NAMESPACE.to_owned(),
        path: vec![PathSegment { segment: Some(Segment::Key(MARK.to_owned())) }],
        value: Some(ValueMatcher { match_pattern: Some(pattern) }),
        ..MetadataMatcher::default()
    };
    let filter = MetadataFilter { matcher: Some(matcher), match_if_key_not_found: flag(otherwise) };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::MetadataFilter(filter)) }
}

/// The HTTP filter that copies the mark of a route to where a logger finds it.
pub(super) fn marker() -> HttpFilter {
    let script = format!(
        "function envoy_on_request(handle)\n  local meta = handle:metadata():get(\"{MARK}\")\n  if meta ~= nil then\n    \
         handle:streamInfo():dynamicMetadata():set(\"{NAMESPACE}\", \"{MARK}\", meta)\n  end\nend\n"
    );
    let source = DataSource { specifier: Some(Specifier::InlineString(script)), ..DataSource::default() };
    filter::http(MARKER, &Lua { default_source_code: Some(source), ..Lua::default() })
}

/// Gives a route its mark.
pub(super) fn set_mark(route: &mut Route, mark: String) {
    let fields = metadata::strings([(&MARK.to_owned(), &mark)]);
    route.metadata.get_or_insert_default().filter_metadata.insert(MARKER.to_owned(), fields);
}
