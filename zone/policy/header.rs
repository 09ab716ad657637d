//! Conditions on headers, by the forms Envoy does not call deprecated.

use common::{
    policy::{HeaderMatch, HeaderMatchType, mesh_http_route::HeaderValue},
    proto::envoy::{
        config::{
            core::v3::{
                HeaderValue as EnvoyHeader, HeaderValueOption, header_value_option::HeaderAppendAction,
            },
            route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
        },
        r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    },
};

/// Whether Envoy can compile this expression. One that it cannot would cost the proxy the whole listener.
pub(super) fn is_regex(expression: &str) -> bool {
    regex_syntax::Parser::new().parse(expression).is_ok()
}

/// Whether this can name a header that may be changed.
pub(super) fn is_changeable(name: &str) -> bool {
    http::HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| name != http::header::HOST)
}

/// Whether this can stand in a header.
pub(super) fn is_value(value: &str) -> bool {
    http::HeaderValue::from_str(value).is_ok()
}

/// A header of a message.
pub(super) fn option(header: &HeaderValue, action: HeaderAppendAction) -> HeaderValueOption {
    let HeaderValue { name: key, value } = header.clone();
    HeaderValueOption {
        header: Some(EnvoyHeader { key, value, ..EnvoyHeader::default() }),
        append_action: action.into(),
        ..HeaderValueOption::default()
    }
}

/// Whether a request may be looked at by this name: that of a header, or of a part of its first line.
pub(super) fn is_name(name: &str) -> bool {
    http::HeaderName::from_bytes(name.strip_prefix(':').unwrap_or(name).as_bytes()).is_ok()
}

/// Whether the condition can be handed to Envoy.
pub(super) fn is_usable(condition: &HeaderMatch) -> bool {
    is_name(&condition.name)
        && (condition.kind != HeaderMatchType::RegularExpression || is_regex(condition.value()))
}

/// The header is exactly this.
pub(super) fn exact(name: &str, value: String) -> HeaderMatcher {
    text(name, MatchPattern::Exact(value))
}

/// A regular expression over the whole text.
pub(super) fn regex(expression: &str) -> RegexMatcher {
    RegexMatcher { regex: expression.to_owned(), ..RegexMatcher::default() }
}

fn text(name: &str, pattern: MatchPattern) -> HeaderMatcher {
    let matcher = StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() };
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(matcher)),
        ..HeaderMatcher::default()
    }
}

/// The condition of a policy.
pub(super) fn matcher(condition: &HeaderMatch) -> HeaderMatcher {
    let value = condition.value().to_owned();
    let present = |present| HeaderMatcher {
        name: condition.name.clone(),
        header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(present)),
        ..HeaderMatcher::default()
    };
    match condition.kind {
        HeaderMatchType::Exact => text(&condition.name, MatchPattern::Exact(value)),
        // Envoy takes neither an empty prefix nor an empty expression.
        HeaderMatchType::Prefix if value.is_empty() => present(true),
        HeaderMatchType::Prefix => text(&condition.name, MatchPattern::Prefix(value)),
        HeaderMatchType::RegularExpression if value.is_empty() => {
            text(&condition.name, MatchPattern::Exact(value))
        }
        HeaderMatchType::RegularExpression => {
            text(&condition.name, MatchPattern::SafeRegex(regex(condition.value())))
        }
        HeaderMatchType::Present => present(true),
        HeaderMatchType::Absent => present(false),
    }
}
