//! Conditions on headers, by the forms Envoy does not call deprecated.

use common::{
    policy::{HeaderMatch, HeaderMatchType},
    proto::envoy::{
        config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
        r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    },
};

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
        HeaderMatchType::Prefix => text(&condition.name, MatchPattern::Prefix(value)),
        HeaderMatchType::RegularExpression => {
            text(&condition.name, MatchPattern::SafeRegex(regex(condition.value())))
        }
        HeaderMatchType::Present => present(true),
        HeaderMatchType::Absent => present(false),
    }
}
