//! Rules that are valid but that Envoy would refuse, and with them the whole listener.

use common::policy::mesh_http_route::{
    Filter, HeaderModifier, HttpRouteRuleConf, Match, PathMatchType, PathRewrite, QueryParamMatchType,
};

use crate::policy::header;

/// Why Envoy would refuse this condition of a rule or what it does; `None` when it would not.
pub(super) fn problem(condition: &Match, conf: &HttpRouteRuleConf) -> Option<String> {
    let mut filters = conf.filters.iter().flatten();
    in_condition(condition).or_else(|| filters.find_map(in_filter))
}

fn in_condition(condition: &Match) -> Option<String> {
    let path = condition.path.as_ref().filter(|p| p.kind == PathMatchType::RegularExpression);
    let params = condition.query_params.iter();
    let params = params.filter(|p| p.kind == QueryParamMatchType::RegularExpression);
    let mut expressions = path.map(|p| &p.value).into_iter().chain(params.map(|p| &p.value));
    if let Some(broken) = expressions.find(|e| !header::is_regex(e)) {
        return Some(format!("{broken:?} is not a regular expression"));
    }
    let header = condition.headers.iter().find(|h| !header::is_usable(h))?;
    Some(format!("the condition on the header {:?} has an invalid name or expression", header.name))
}

fn in_filter(filter: &Filter) -> Option<String> {
    let modifiers = [&filter.request_header_modifier, &filter.response_header_modifier];
    if let Some(broken) = modifiers.into_iter().flatten().find_map(in_modifier) {
        return Some(broken);
    }
    let redirect = filter.request_redirect.as_ref();
    let rewrite = filter.url_rewrite.as_ref();
    let hosts = [redirect.and_then(|r| r.hostname.as_ref()), rewrite.and_then(|r| r.hostname.as_ref())];
    let paths = [redirect.and_then(|r| r.path.as_ref()), rewrite.and_then(|r| r.path.as_ref())];
    let texts = |p: &'_ PathRewrite| [p.replace_full_path.clone(), p.replace_prefix_match.clone()];
    let paths = paths.into_iter().flatten().flat_map(texts).flatten();
    let mut all = hosts.into_iter().flatten().cloned().chain(paths);
    all.find(|text| !header::is_value(text)).map(|text| format!("{text:?} cannot stand in a header"))
}

fn in_modifier(modifier: &HeaderModifier) -> Option<String> {
    let values = || modifier.set.iter().chain(&modifier.add);
    let mut names = values().map(|v| &v.name).chain(&modifier.remove);
    if let Some(name) = names.find(|name| !header::is_changeable(name)) {
        return Some(format!("the header {name:?} cannot be changed"));
    }
    let broken = values().find(|v| !header::is_value(&v.value))?;
    Some(format!("the value of the header {:?} has characters that no header may have", broken.name))
}
