//! What makes a `MeshHTTPRoute` valid.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Filter, FilterType, HeaderModifier, HttpRouteRule, HttpRouteTo, Match, MeshHttpRoute, PathMatch,
    PathMatchType, PathRewrite, RequestMirror, RequestRedirect, UrlRewrite,
};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::{Checks, DEFINED, MOST_HEADERS, NOT_EMPTY},
        mesh_tcp_route::check_backend_refs,
        peer_match::is_subdomain,
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshService, MeshServiceSubset, MeshGateway, Dataplane];
const TO: &[TargetKind] = &[MeshService, MeshExternalService, MeshMultiZoneService];
const MIRRORS: &[TargetKind] = &[MeshService, MeshServiceSubset];

pub(super) fn check(spec: &MeshHttpRoute) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::top(TOP, false).check(&path.field("targetRef"), target));
    }
    let gateway = spec.target_ref.as_ref().is_some_and(|t| t.kind == MeshGateway);
    for (i, to) in spec.to.iter().enumerate() {
        violations.extend(check_to(&path.field("to").index(i), to, gateway));
    }
    violations
}

fn check_to(path: &FieldPath, to: &HttpRouteTo, gateway: bool) -> Violations {
    let kinds = if gateway { &[Mesh][..] } else { TO };
    let mut violations = Allowed::kinds(kinds).check(&path.field("targetRef"), &to.target_ref);
    let hostnames = path.field("hostnames");
    let misplaced = !gateway && !to.hostnames.is_empty();
    violations.check(misplaced, hostnames.clone(), "must not be defined");
    for (i, hostname) in to.hostnames.iter().enumerate() {
        violations.extend(check_hostname(&hostnames.index(i), hostname));
    }
    for (i, rule) in to.rules.iter().enumerate() {
        violations.extend(check_rule(&path.field("rules").index(i), rule, gateway));
    }
    violations
}

fn check_hostname(path: &FieldPath, hostname: &str) -> Violations {
    let mut violations = Violations::none();
    if hostname == "*" {
        return violations;
    }
    violations.check(hostname.parse::<IpAddr>().is_ok(), path.clone(), "must not be an IP address");
    match hostname.strip_prefix("*.") {
        Some(domain) => violations.check(!is_subdomain(domain), path.clone(), "invalid wildcard domain"),
        None => violations.check(!is_subdomain(hostname), path.clone(), "invalid hostname"),
    }
    violations
}

fn check_rule(path: &FieldPath, rule: &HttpRouteRule, gateway: bool) -> Violations {
    let mut violations = Violations::none();
    let at = path.field("matches");
    violations.check(rule.matches.is_empty(), at.clone(), "in body should have at least 1 items");
    for (i, matched) in rule.matches.iter().enumerate() {
        violations.extend(check_match(&at.index(i), matched));
    }
    let conf = path.field("default");
    for (i, filter) in rule.default.filters.iter().flatten().enumerate() {
        violations.extend(check_filter(&conf.field("filters").index(i), filter, &rule.matches, gateway));
    }
    let refs = rule.default.backend_refs.as_deref().unwrap_or_default();
    let at = conf.field("backendRefs");
    // Behind a gateway there is no service of its own that requests could go on to.
    let redirects = rule.default.filters.iter().flatten().any(|f| f.kind == FilterType::RequestRedirect);
    violations.check(gateway && refs.is_empty() && !redirects, at.clone(), NOT_EMPTY);
    violations.extend(check_backend_refs(&at, refs));
    violations
}

fn check_match(path: &FieldPath, matched: &Match) -> Violations {
    let mut violations = Violations::none();
    if let Some(on_path) = &matched.path {
        violations.extend(check_path(&path.field("path"), on_path));
    }
    let mut names = BTreeSet::new();
    for (i, param) in matched.query_params.iter().enumerate() {
        let at = path.field("queryParams").index(i).field("name");
        violations.check(param.name.is_empty(), at.clone(), "in body should be at least 1 chars long");
        let reason = format!("multiple entries for name {}", param.name);
        violations.check(!names.insert(&param.name), at, reason);
    }
    for (i, header) in matched.headers.iter().enumerate() {
        violations.extend(header.check(&path.field("headers").index(i)));
    }
    violations
}

fn check_path(path: &FieldPath, matched: &PathMatch) -> Violations {
    let mut violations = Violations::none();
    let value = matched.value.as_str();
    let at = path.field("value");
    match matched.kind {
        PathMatchType::RegularExpression => violations.check(value.is_empty(), at, "cannot be empty"),
        PathMatchType::Exact => {
            violations.check(!value.starts_with('/'), at, "must be an absolute path");
        }
        PathMatchType::PathPrefix if value == "/" => {}
        PathMatchType::PathPrefix => {
            let slash = value.ends_with('/');
            let reason = "does not need a trailing slash because only a `/`-separated prefix or an entire path is matched";
            violations.check(slash, at.clone(), reason);
            violations.check(!value.starts_with('/'), at, "must be an absolute path");
        }
    }
    violations
}

fn check_filter(path: &FieldPath, filter: &Filter, matches: &[Match], gateway: bool) -> Violations {
    let mut violations = check_headers(path, filter);
    let missing = |name: &str| Violations::one(path.field(name), DEFINED);
    // Only the member of its type means anything.
    violations.extend(match filter.kind {
        FilterType::RequestHeaderModifier => match &filter.request_header_modifier {
            Some(modifier) => check_modifier(&path.field("requestHeaderModifier"), modifier),
            None => missing("requestHeaderModifier"),
        },
        FilterType::ResponseHeaderModifier => match &filter.response_header_modifier {
            Some(modifier) => check_modifier(&path.field("responseHeaderModifier"), modifier),
            None => missing("responseHeaderModifier"),
        },
        FilterType::RequestRedirect => match &filter.request_redirect {
            Some(redirect) => check_redirect(&path.field("requestRedirect"), redirect, matches),
            None => missing("requestRedirect"),
        },
        FilterType::UrlRewrite => match &filter.url_rewrite {
            Some(rewrite) => check_url(&path.field("urlRewrite"), rewrite, matches, gateway),
            None => missing("urlRewrite"),
        },
        FilterType::RequestMirror => match &filter.request_mirror {
            Some(mirror) => check_mirror(&path.field("requestMirror"), mirror),
            None => missing("requestMirror"),
        },
    });
    violations
}

/// Names of headers, and how many there are, whatever the filter is.
fn check_headers(path: &FieldPath, filter: &Filter) -> Violations {
    let mut violations = Violations::none();
    let modifiers = [
        ("requestHeaderModifier", &filter.request_header_modifier),
        ("responseHeaderModifier", &filter.response_header_modifier),
    ];
    for (name, modifier) in modifiers {
        if let Some(HeaderModifier { set, add, remove }) = modifier {
            let at = path.field(name);
            for (list, headers) in [("set", set), ("add", add)] {
                violations.header_names(&at.field(list), headers.iter().map(|header| header.name.as_str()));
            }
            violations.at_most(at.field("remove"), remove.len(), MOST_HEADERS);
        }
    }
    violations
}

fn check_redirect(path: &FieldPath, redirect: &RequestRedirect, matches: &[Match]) -> Violations {
    let mut violations = check_rewrite(&path.field("path"), redirect.path.as_ref(), matches);
    violations.extend(check_precise_hostname(&path.field("hostname"), redirect.hostname.as_deref()));
    let out_of_range = redirect.port.is_some_and(|p| p == 0 || p > 65535);
    violations.check(out_of_range, path.field("port"), "port must be in the range [1, 65535]");
    let status = redirect.status_code.is_some_and(|s| !matches!(s, 301..=303 | 307 | 308));
    violations.check(status, path.field("statusCode"), "in body should be one of [301 302 303 307 308]");
    violations
}

fn check_url(path: &FieldPath, rewrite: &UrlRewrite, matches: &[Match], gateway: bool) -> Violations {
    let mut violations = check_rewrite(&path.field("path"), rewrite.path.as_ref(), matches);
    violations.extend(check_precise_hostname(&path.field("hostname"), rewrite.hostname.as_deref()));
    if rewrite.host_to_backend_hostname == Some(true) {
        let at = path.field("hostToBackendHostname");
        violations.check(!gateway, at.clone(), "can only be set with MeshGateway");
        violations.check(rewrite.hostname.is_some(), at, "cannot be set together with hostname");
    }
    violations
}

fn check_mirror(path: &FieldPath, mirror: &RequestMirror) -> Violations {
    let mut violations = Violations::none();
    violations.decimal_percent(path.field("percentage"), mirror.percentage.as_ref());
    let target = mirror.backend_ref.target();
    violations.extend(Allowed::kinds(MIRRORS).check(&path.field("backendRef"), &target));
    violations
}

fn check_modifier(path: &FieldPath, modifier: &HeaderModifier) -> Violations {
    let mut violations = Violations::none();
    let empty = *modifier == HeaderModifier::default();
    violations.check(empty, path.clone(), "must have at least one defined: set, add, remove");
    let mut seen = BTreeSet::new();
    let named = [("set", &modifier.set), ("add", &modifier.add)];
    let named = named.into_iter().flat_map(|(list, headers)| {
        headers.iter().enumerate().map(move |(i, h)| (list, i, h.name.to_ascii_lowercase()))
    });
    let removed =
        modifier.remove.iter().enumerate().map(|(i, name)| ("remove", i, name.to_ascii_lowercase()));
    for (list, i, name) in named.chain(removed) {
        let at = path.field(list).index(i).field("name");
        violations.check(!seen.insert(name), at, "duplicate header name");
    }
    violations
}

fn check_rewrite(path: &FieldPath, rewrite: Option<&PathRewrite>, matches: &[Match]) -> Violations {
    let mut violations = Violations::none();
    let of_prefix = rewrite.is_some_and(|rewrite| rewrite.replace_prefix_match.is_some());
    let is_prefix = |m: &Match| m.path.as_ref().is_some_and(|p| p.kind == PathMatchType::PathPrefix);
    let reason = "can only appear if all matches match a path prefix";
    let misplaced = of_prefix && !matches.iter().all(is_prefix);
    violations.check(misplaced, path.field("replacePrefixMatch"), reason);
    violations
}

fn check_precise_hostname(path: &FieldPath, hostname: Option<&str>) -> Violations {
    let mut violations = Violations::none();
    let address = hostname.is_some_and(|h| h.parse::<IpAddr>().is_ok());
    violations.check(address, path.clone(), "cannot be an IP address");
    let broken = hostname.is_some_and(|h| !address && !is_subdomain(h));
    let reason = "in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'";
    violations.check(broken, path.clone(), reason);
    violations
}
