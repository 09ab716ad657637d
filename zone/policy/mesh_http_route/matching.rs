//! Conditions on requests.

use std::cmp::Reverse;

use common::{
    policy::mesh_http_route::{Match, PathMatchType, QueryParamMatch, QueryParamMatchType},
    proto::envoy::{
        config::route::v3::{
            QueryParameterMatcher, RouteMatch, query_parameter_matcher::QueryParameterMatchSpecifier,
            route_match::PathSpecifier,
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
};

use crate::policy::header;

/// Sorts narrower conditions first: by path, then method, then how many headers and parameters.
pub(super) fn precedence(condition: &Match) -> impl Ord + use<> {
    let path = condition.path.as_ref().map(|path| match path.kind {
        PathMatchType::Exact => (0, Reverse(0)),
        PathMatchType::PathPrefix => (1, Reverse(path.value.len())),
        PathMatchType::RegularExpression => (2, Reverse(0)),
    });
    (
        path.unwrap_or((3, Reverse(0))),
        condition.method.is_none(),
        Reverse(condition.headers.len()),
        Reverse(condition.query_params.len()),
    )
}

/// The prefix a route matched, which a rewrite replaces; none when the whole path was matched otherwise.
pub(super) type MatchedPrefix = Option<String>;

/// The matches Envoy needs for one condition. A prefix ends at a slash: `/a` means `/a` itself and
/// everything below `/a/`.
pub(super) fn route_matches(condition: &Match) -> Vec<(RouteMatch, MatchedPrefix)> {
    let base = RouteMatch {
        headers: condition
            .method
            .iter()
            .map(|method| header::exact(":method", method.as_str().to_owned()))
            .chain(condition.headers.iter().map(header::matcher))
            .collect(),
        query_parameters: condition.query_params.iter().map(query).collect(),
        ..RouteMatch::default()
    };
    let with = |specifier, prefix| (RouteMatch { path_specifier: Some(specifier), ..base.clone() }, prefix);
    let Some(path) = &condition.path else {
        return vec![with(PathSpecifier::Prefix("/".to_owned()), Some("/".to_owned()))];
    };
    match path.kind {
        PathMatchType::Exact => vec![with(PathSpecifier::Path(path.value.clone()), None)],
        PathMatchType::RegularExpression => {
            vec![with(PathSpecifier::SafeRegex(header::regex(&path.value)), None)]
        }
        PathMatchType::PathPrefix => {
            let stem = path.value.trim_end_matches('/');
            let below = format!("{stem}/");
            let whole = with(PathSpecifier::Prefix(below.clone()), Some(below));
            if stem.is_empty() {
                return vec![whole];
            }
            vec![with(PathSpecifier::Path(stem.to_owned()), Some(stem.to_owned())), whole]
        }
    }
}

fn query(condition: &QueryParamMatch) -> QueryParameterMatcher {
    let pattern = match condition.kind {
        QueryParamMatchType::Exact => MatchPattern::Exact(condition.value.clone()),
        QueryParamMatchType::RegularExpression => MatchPattern::SafeRegex(header::regex(&condition.value)),
    };
    let matcher = StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() };
    QueryParameterMatcher {
        name: condition.name.clone(),
        query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(matcher)),
    }
}
