//! Rules for some requests: which, and how they are changed on their way.

use common::{
    policy::{HeaderMatch, HeaderMatchType, mesh_http_route::HeaderValue},
    proto::{
        envoy::{
            config::{
                core::v3::{HeaderValueOption, header_value_option::HeaderAppendAction},
                route::v3::{
                    Route, RouteAction, RouteMatch, route::Action, route_action::HostRewriteSpecifier,
                    route_match::PathSpecifier,
                },
            },
            r#type::matcher::v3::RegexMatchAndSubstitute,
        },
        kuma::mesh::v1alpha1::traffic_route::{
            Http,
            http::{
                Match, Modify,
                r#match::{StringMatcher, string_matcher::MatcherType},
                modify::{Headers, RegexReplace, host, path},
            },
        },
    },
};

use crate::{
    generator::envoy::http::{self, Share},
    policy::header,
};

/// The route of a rule whose requests are shared out so.
///
/// # Errors
/// Why Envoy would refuse it, and with it the whole listener.
pub(super) fn route(rule: &Http, shares: &[Share]) -> Result<Route, String> {
    let none = Match::default();
    let mut route = http::forward("", matched(rule.r#match.as_ref().unwrap_or(&none))?, shares);
    if let Some(modify) = &rule.modify {
        change(&mut route, modify)?;
    }
    Ok(route)
}

fn matched(condition: &Match) -> Result<RouteMatch, String> {
    let path = match condition.path.as_ref().and_then(|path| path.matcher_type.as_ref()) {
        None => PathSpecifier::Prefix("/".to_owned()),
        Some(MatcherType::Prefix(prefix)) => PathSpecifier::Prefix(prefix.clone()),
        Some(MatcherType::Exact(path)) => PathSpecifier::Path(path.clone()),
        Some(MatcherType::Regex(regex)) if header::is_regex(regex) => {
            PathSpecifier::SafeRegex(header::regex(regex))
        }
        Some(MatcherType::Regex(regex)) => return Err(format!("{regex:?} is not a regular expression")),
    };
    let method = condition.method.as_ref().map(|method| (":method", method));
    let headers = condition.headers.iter().map(|(name, value)| (name.as_str(), value)).chain(method);
    let mut matched = RouteMatch { path_specifier: Some(path), ..RouteMatch::default() };
    for (name, value) in headers {
        let Some(condition) = header_match(name, value) else { continue };
        if !header::is_usable(&condition) {
            return Err(format!("the condition on the header {name:?} has an invalid name or expression"));
        }
        matched.headers.push(header::matcher(&condition));
    }
    Ok(matched)
}

fn header_match(name: &str, value: &StringMatcher) -> Option<HeaderMatch> {
    let (kind, value) = match value.matcher_type.as_ref()? {
        MatcherType::Prefix(prefix) => (HeaderMatchType::Prefix, prefix),
        MatcherType::Exact(exact) => (HeaderMatchType::Exact, exact),
        MatcherType::Regex(regex) => (HeaderMatchType::RegularExpression, regex),
    };
    Some(HeaderMatch { kind, name: name.to_owned(), value: Some(value.clone()) })
}

fn change(route: &mut Route, modify: &Modify) -> Result<(), String> {
    if let Some(headers) = &modify.request_headers {
        (route.request_headers_to_add, route.request_headers_to_remove) = of_headers(headers)?;
    }
    if let Some(headers) = &modify.response_headers {
        (route.response_headers_to_add, route.response_headers_to_remove) = of_headers(headers)?;
    }
    if let Some(Action::Route(action)) = &mut route.action {
        rewrite(action, modify)?;
    }
    Ok(())
}

fn of_headers(headers: &Headers) -> Result<(Vec<HeaderValueOption>, Vec<String>), String> {
    let mut names = headers.add.iter().map(|h| &h.name).chain(headers.remove.iter().map(|h| &h.name));
    if let Some(name) = names.find(|name| !header::is_changeable(name)) {
        return Err(format!("the header {name:?} cannot be changed"));
    }
    let mut added = Vec::new();
    for given in &headers.add {
        if !header::is_value(&given.value) {
            let name = &given.name;
            return Err(format!("the value of the header {name:?} has characters that no header may have"));
        }
        let action = if given.append {
            HeaderAppendAction::AppendIfExistsOrAdd
        } else {
            HeaderAppendAction::OverwriteIfExistsOrAdd
        };
        let given = HeaderValue { name: given.name.clone(), value: given.value.clone() };
        added.push(header::option(&given, action));
    }
    Ok((added, headers.remove.iter().map(|header| header.name.clone()).collect()))
}

fn rewrite(action: &mut RouteAction, modify: &Modify) -> Result<(), String> {
    let written = |text: &String| {
        header::is_value(text)
            .then(|| text.clone())
            .ok_or_else(|| format!("{text:?} cannot stand in a header"))
    };
    match modify.path.as_ref().and_then(|path| path.r#type.as_ref()) {
        Some(path::Type::RewritePrefix(prefix)) => action.prefix_rewrite = written(prefix)?,
        Some(path::Type::Regex(regex)) => action.regex_rewrite = Some(replacement(regex)?),
        None => {}
    }
    match modify.host.as_ref().and_then(|host| host.r#type.as_ref()) {
        Some(host::Type::Value(value)) => {
            action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewriteLiteral(written(value)?));
        }
        Some(host::Type::FromPath(regex)) => {
            let regex = replacement(regex)?;
            action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewritePathRegex(regex));
        }
        None => {}
    }
    Ok(())
}

fn replacement(regex: &RegexReplace) -> Result<RegexMatchAndSubstitute, String> {
    let RegexReplace { pattern, substitution } = regex;
    if !header::is_regex(pattern) {
        return Err(format!("{pattern:?} is not a regular expression"));
    }
    if !header::is_value(substitution) {
        return Err(format!("{substitution:?} cannot stand in a header"));
    }
    Ok(RegexMatchAndSubstitute { pattern: Some(header::regex(pattern)), substitution: substitution.clone() })
}
