//! `TrafficRoute`: where calls of a service go.

use std::collections::BTreeMap;

use super::{
    Tags,
    check::{CALLERS, SERVICES, SelectorRequirements, selectors, tags},
};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::{
        TrafficRoute,
        traffic_route::{
            Conf, Http, LoadBalancer, Split,
            http::{
                Match, Modify,
                r#match::{StringMatcher, string_matcher::MatcherType},
                modify::{Headers, Host, Path, host, path},
            },
            load_balancer::LbType,
        },
    },
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("TrafficRoute", "traffic-routes", "kuma.mesh.v1alpha1.TrafficRoute", "traffic-route")
        .typed::<TrafficRoute>();

const EMPTY: &str = "cannot be empty";
const TARGET: SelectorRequirements =
    SelectorRequirements { some: true, service: true, only_service: false, http: false };

impl MessageSpec for TrafficRoute {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, CALLERS);
        violations.extend(selectors("destinations", &self.destinations, SERVICES));
        let path = FieldPath::new("conf");
        match &self.conf {
            None => violations.add(path, EMPTY),
            Some(conf) => violations.extend(check(&path, conf)),
        }
        violations
    }
}

fn check(path: &FieldPath, conf: &Conf) -> Violations {
    let mut violations = check_targets(path, &conf.split, &conf.destination);
    for (i, rule) in conf.http.iter().enumerate() {
        violations.extend(check_rule(&path.field("http").index(i), rule));
    }
    if let Some(LoadBalancer { lb_type: Some(LbType::RingHash(ring)) }) = &conf.load_balancer {
        let known = ["XX_HASH", "MURMUR_HASH_2"].contains(&ring.hash_function.as_str());
        let at = path.field("loadBalancer").field("ringHash").field("hashFunction");
        violations.check(!known, at, "must have a valid hash function");
    }
    violations
}

fn check_targets(path: &FieldPath, split: &[Split], destination: &Tags) -> Violations {
    let mut violations = Violations::none();
    match (split.is_empty(), destination.is_empty()) {
        (true, true) => violations.add(path.clone(), "requires either \"destination\" or \"split\""),
        (false, false) => {
            violations.add(path.clone(), "\"split\" cannot be defined at the same time as \"destination\"");
        }
        _ => {}
    }
    let at = path.field("split");
    for (i, part) in split.iter().enumerate() {
        violations.check(part.weight.is_none(), at.index(i).field("weight"), "needs to be defined");
        violations.extend(tags(&at.index(i).field("destination"), part.destination.iter(), TARGET));
    }
    let nothing = split.iter().all(|part| part.weight.is_none_or(|weight| weight.value == 0));
    let reason = "there must be at least one split entry with weight above 0";
    violations.check(!split.is_empty() && nothing, at, reason);
    if !destination.is_empty() {
        violations.extend(tags(&path.field("destination"), destination.iter(), TARGET));
    }
    violations
}

fn check_rule(path: &FieldPath, rule: &Http) -> Violations {
    let mut violations = check_match(&path.field("match"), rule.r#match.as_ref());
    if let Some(modify) = &rule.modify {
        violations.extend(check_modify(&path.field("modify"), modify, rule.r#match.as_ref()));
    }
    violations.extend(check_targets(path, &rule.split, &rule.destination));
    violations
}

fn check_match(path: &FieldPath, condition: Option<&Match>) -> Violations {
    let nothing = Match { method: None, path: None, headers: BTreeMap::new() };
    let Some(condition) = condition.filter(|condition| **condition != nothing) else {
        let reason =
            "must be present and contain at least one of the elements: \"method\", \"path\" or \"headers\"";
        return Violations::one(path.clone(), reason);
    };
    let mut violations = Violations::none();
    let named = [("method", &condition.method), ("path", &condition.path)];
    for (name, matcher) in named {
        if let Some(matcher) = matcher {
            check_text(&path.field(name), matcher, &mut violations);
        }
    }
    for (name, matcher) in &condition.headers {
        let path = path.field("headers").key(name);
        violations.check(name.is_empty(), path.clone(), EMPTY);
        check_text(&path, matcher, &mut violations);
    }
    violations
}

fn check_text(path: &FieldPath, matcher: &StringMatcher, violations: &mut Violations) {
    match &matcher.matcher_type {
        Some(MatcherType::Exact(_)) => {}
        Some(MatcherType::Prefix(prefix)) => violations.check(prefix.is_empty(), path.field("prefix"), EMPTY),
        Some(MatcherType::Regex(regex)) => violations.check(regex.is_empty(), path.field("regex"), EMPTY),
        None => violations
            .add(path.clone(), "cannot be empty. Available options: \"exact\", \"split\" or \"regex\""),
    }
}

fn check_modify(path: &FieldPath, modify: &Modify, condition: Option<&Match>) -> Violations {
    let mut violations = Violations::none();
    if let Some(change) = &modify.path {
        check_path(&path.field("path"), change, condition, &mut violations);
    }
    if let Some(change) = &modify.host {
        check_host(&path.field("host"), change, &mut violations);
    }
    let headers =
        [("requestHeaders", &modify.request_headers), ("responseHeaders", &modify.response_headers)];
    for (name, headers) in headers {
        if let Some(headers) = headers {
            check_headers(&path.field(name), headers, &mut violations);
        }
    }
    violations
}

fn check_path(path: &FieldPath, change: &Path, condition: Option<&Match>, violations: &mut Violations) {
    match &change.r#type {
        Some(path::Type::RewritePrefix(prefix)) => {
            let matched = condition.and_then(|c| c.path.as_ref()).and_then(|path| path.matcher_type.as_ref());
            let by_prefix = matches!(matched, Some(MatcherType::Prefix(prefix)) if !prefix.is_empty());
            let at = path.field("rewritePrefix");
            violations.check(prefix.is_empty(), at.clone(), EMPTY);
            let reason = "can only be set when .http.match.path.prefix is not empty";
            violations.check(!prefix.is_empty() && !by_prefix, at, reason);
        }
        Some(path::Type::Regex(regex)) => {
            check_replacement(&path.field("regex"), (&regex.pattern, &regex.substitution), violations);
        }
        None => violations.add(path.clone(), "either \"rewritePrefix\" or \"regex\" has to be set"),
    }
}

fn check_host(path: &FieldPath, change: &Host, violations: &mut Violations) {
    match &change.r#type {
        Some(host::Type::Value(value)) => violations.check(value.is_empty(), path.field("value"), EMPTY),
        Some(host::Type::FromPath(regex)) => {
            check_replacement(&path.field("fromPath"), (&regex.pattern, &regex.substitution), violations);
        }
        None => violations.add(path.clone(), "either \"value\" or \"fromPath\" has to be set"),
    }
}

fn check_replacement(path: &FieldPath, (pattern, substitution): (&str, &str), violations: &mut Violations) {
    violations.check(pattern.is_empty(), path.field("pattern"), EMPTY);
    violations.check(substitution.is_empty(), path.field("substitution"), EMPTY);
}

fn check_headers(path: &FieldPath, headers: &Headers, violations: &mut Violations) {
    for (i, added) in headers.add.iter().enumerate() {
        let path = path.field("add").index(i);
        check_header(path.field("name"), &added.name, violations);
        violations.check(added.value.is_empty(), path.field("value"), EMPTY);
    }
    for (i, removed) in headers.remove.iter().enumerate() {
        check_header(path.field("remove").index(i).field("name"), &removed.name, violations);
    }
}

fn check_header(path: FieldPath, name: &str, violations: &mut Violations) {
    if name.is_empty() {
        violations.add(path, EMPTY);
    } else if name.starts_with(':') || name.eq_ignore_ascii_case("host") {
        violations.add(path, "host header and HTTP/2 pseudo-headers are not allowed to be modified");
    }
}

/// Where the shares of a route go, each with its weight; one destination is all of them.
pub fn targets<'a>(split: &'a [Split], destination: &'a Tags) -> impl Iterator<Item = (u32, &'a Tags)> {
    let parts = split.iter().map(|part| (part.weight.map_or(0, |weight| weight.value), &part.destination));
    let only = (!destination.is_empty()).then_some((1, destination)).into_iter();
    parts.chain(only).filter(|(weight, _)| *weight > 0)
}
