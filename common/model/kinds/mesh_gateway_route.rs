//! Routes of a builtin gateway, of the older generation.

use std::collections::BTreeMap;

use super::{
    address::check_port,
    selectors::{self, TagRequirements},
};
use crate::{
    model::{FieldPath, Kind, MessageSpec, PolicyTraits, Violations},
    proto::kuma::mesh::v1alpha1::{
        HttpMethod, MeshGatewayRoute,
        mesh_gateway_route::{
            Backend, HttpRoute,
            conf::Route,
            http_route::{
                Filter, Match, Rule,
                filter::{self, HeaderFilter, header_filter, rewrite},
                r#match::{header, path::MatchType},
            },
        },
    },
};

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("MeshGatewayRoute", "meshgatewayroutes", "kuma.mesh.v1alpha1.MeshGatewayRoute")
        .flow(17)
        .named("meshgatewayroute", "")
        .policy(PolicyTraits {
            target_ref: false,
            to: false,
            from: false,
            rules: false,
            from_as_rules: false,
        })
        .typed::<MeshGatewayRoute>();

impl MeshGatewayRoute {
    /// Whether it is for a listener with these tags.
    pub fn selects(&self, tags: &BTreeMap<String, String>) -> bool {
        let has =
            |(key, value): (&String, &String)| tags.get(key).is_some_and(|v| value == "*" || v == value);
        self.selectors.iter().any(|selector| selector.r#match.iter().all(has))
    }

    /// The tags of everything it leads to.
    pub fn destinations(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        let (http, tcp) = match self.conf.as_ref().and_then(|conf| conf.route.as_ref()) {
            Some(Route::Http(http)) => (http.rules.as_slice(), &[][..]),
            Some(Route::Tcp(tcp)) => (&[][..], tcp.rules.as_slice()),
            None => (&[][..], &[][..]),
        };
        let backends =
            http.iter().flat_map(|rule| &rule.backends).chain(tcp.iter().flat_map(|rule| &rule.backends));
        backends.map(|backend| &backend.destination)
    }
}

const EMPTY: &str = "cannot be empty";

impl MessageSpec for MeshGatewayRoute {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        selectors::check(&self.selectors, false, &FieldPath::new("selectors"), &mut violations);
        let path = FieldPath::new("conf");
        match self.conf.as_ref().and_then(|conf| conf.route.as_ref()) {
            None => violations.add(path, EMPTY),
            Some(Route::Tcp(_)) => {}
            Some(Route::Http(http)) => check_http(http, &path.field("http"), &mut violations),
        }
        violations
    }
}

fn check_http(http: &HttpRoute, path: &FieldPath, violations: &mut Violations) {
    let rules = path.field("rules");
    violations.check(http.rules.is_empty(), rules.clone(), EMPTY);
    for (i, rule) in http.rules.iter().enumerate() {
        check_rule(rule, &rules.index(i), violations);
    }
}

fn check_rule(rule: &Rule, path: &FieldPath, violations: &mut Violations) {
    if rule.matches.is_empty() {
        return violations.add(path.field("matches"), EMPTY);
    }
    for (i, matched) in rule.matches.iter().enumerate() {
        check_match(matched, &path.field("matches").index(i), violations);
    }
    let by_prefix = |m: &Match| m.path.as_ref().is_some_and(|p| p.r#match() == MatchType::Prefix);
    let prefix = rule.matches.iter().any(by_prefix);
    let is_of_backend = |filter: &&Filter| match &filter.filter {
        Some(filter::Filter::Rewrite(rewrite)) => rewrite.host_to_backend_hostname,
        _ => false,
    };
    let host_is_backends = rule.filters.iter().any(|filter| is_of_backend(&filter));
    let others = rule.filters.iter().filter(|filter| !is_of_backend(filter));
    for (i, filter) in others.enumerate() {
        check_filter(filter, prefix, host_is_backends, &path.field("filters").index(i), violations);
    }
    let is_redirect = |filter: &Filter| matches!(filter.filter, Some(filter::Filter::Redirect(_)));
    let redirects = rule.filters.iter().any(is_redirect);
    if redirects && rule.filters.len() != 1 {
        return violations.add(path.field("filters"), "redirects cannot be used with other filters");
    }
    let backends = path.field("backends");
    violations.check(rule.backends.is_empty() && !redirects, backends.clone(), EMPTY);
    let reason = "must be empty when using redirect filters";
    violations.check(!rule.backends.is_empty() && redirects, backends.clone(), reason);
    for (i, backend) in rule.backends.iter().enumerate() {
        check_backend(backend, &backends.index(i), violations);
    }
}

fn check_backend(backend: &Backend, path: &FieldPath, violations: &mut Violations) {
    let rules = TagRequirements { service: true, ..TagRequirements::default() };
    selectors::check_tags(&backend.destination, rules, path, violations);
}

fn check_match(matched: &Match, path: &FieldPath, violations: &mut Violations) {
    let nothing = matched.path.is_none()
        && matched.method() == HttpMethod::None
        && matched.headers.is_empty()
        && matched.query_parameters.is_empty();
    violations.check(nothing, path.clone(), EMPTY);
    if let Some(on_path) = &matched.path {
        // The path of this violation is that of the match.
        let at = path.field("value");
        match on_path.r#match() {
            MatchType::Regex => violations.check(on_path.value.is_empty(), at, EMPTY),
            MatchType::Exact | MatchType::Prefix => {
                violations.check(!on_path.value.starts_with('/'), at, "must be an absolute path");
            }
        }
    }
    for (i, on_header) in matched.headers.iter().enumerate() {
        let at = path.field("headers").index(i);
        violations.check(on_header.name.is_empty(), at.field("name"), EMPTY);
        match on_header.r#match() {
            header::MatchType::Absent | header::MatchType::Present => {
                violations.check(!on_header.value.is_empty(), at.field("value"), "cannot be set");
            }
            header::MatchType::Exact | header::MatchType::Regex => {
                violations.check(on_header.value.is_empty(), at.field("value"), EMPTY);
            }
        }
    }
    for (i, query) in matched.query_parameters.iter().enumerate() {
        let at = path.field("query_parameters").index(i);
        violations.check(query.name.is_empty(), at.field("name"), EMPTY);
        violations.check(query.value.is_empty(), at.field("value"), EMPTY);
    }
}

fn check_filter(
    filter: &Filter,
    prefix: bool,
    host_is_backends: bool,
    path: &FieldPath,
    violations: &mut Violations,
) {
    match &filter.filter {
        Some(filter::Filter::RequestHeader(headers)) => {
            check_headers(headers, host_is_backends, &path.field("request_header"), violations);
        }
        Some(filter::Filter::Redirect(redirect)) => {
            let at = path.field("redirect");
            if redirect.port > 0 {
                check_port(redirect.port, at.field("port"), violations);
            }
            let reason = "must be in the range [300, 308]";
            violations.check(!(300..=308).contains(&redirect.status_code), at.field("status_code"), reason);
        }
        Some(filter::Filter::Mirror(mirror)) => {
            let at = path.field("mirror");
            match &mirror.percentage {
                None => violations.add(at.field("percentage"), EMPTY),
                Some(share) => {
                    let reason = "has to be in [0.0 - 100.0] range";
                    violations.check(!(0.0..=100.0).contains(&share.value), at.field("percentage"), reason);
                }
            }
            match &mirror.backend {
                None => violations.add(at.field("backend"), EMPTY),
                Some(backend) => check_backend(backend, &at.field("backend"), violations),
            }
        }
        Some(filter::Filter::Rewrite(rewrite)) => {
            let of_prefix = matches!(rewrite.path, Some(rewrite::Path::ReplacePrefixMatch(_)));
            let at = path.field("rewrite").field("replacePrefixMatch");
            violations.check(of_prefix && !prefix, at, "cannot be used without a match on path prefix");
        }
        Some(filter::Filter::ResponseHeader(_)) | None => {}
    }
}

fn check_headers(
    headers: &HeaderFilter,
    host_is_backends: bool,
    path: &FieldPath,
    violations: &mut Violations,
) {
    let nothing = headers.set.is_empty() && headers.add.is_empty() && headers.remove.is_empty();
    violations.check(nothing, path.clone(), EMPTY);
    let mut check = |list: &[header_filter::Header], path: FieldPath| {
        for (i, header) in list.iter().enumerate() {
            let name = header.name.as_str();
            let of_host = matches!(name, ":authority" | "Host" | "host");
            let reason = format!(
                "cannot modify '{name}' header, when route has set 'rewrite.host_to_backend_hostname' option"
            );
            violations.check(of_host && host_is_backends, path.index(i), reason);
            violations.check(name.is_empty(), path.index(i).field("name"), EMPTY);
            violations.check(header.value.is_empty(), path.index(i).field("value"), EMPTY);
        }
    };
    check(&headers.set, path.field("set"));
    check(&headers.add, path.field("add"));
    for (i, name) in headers.remove.iter().enumerate() {
        violations.check(name.is_empty(), path.field("remove").index(i), EMPTY);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::model::transcode;

    fn wrong(rule: &Value) -> Vec<String> {
        let route = json!({ "selectors": [{ "match": { "kuma.io/service": "edge" } }],
            "conf": { "http": { "rules": [rule] } } });
        let violations = KIND.validate(&transcode::from_json(&KIND, &route).unwrap()).unwrap();
        let told = violations.iter().map(|v| format!("{}: {}", v.field, v.reason));
        told.map(|told| told.trim_start_matches("conf.http.rules[0].").to_owned()).collect()
    }

    #[test]
    fn rules_are_refused_in_kumas_words() {
        let path = |value: &str| json!([{ "path": { "match": "PREFIX", "value": value } }]);
        let exact = json!([{ "path": { "value": "/a" } }]);
        let backends = json!([{ "weight": 1, "destination": { "kuma.io/service": "b" } }]);
        let good = json!({ "matches": path("/"), "backends": backends });
        assert_eq!(wrong(&good), [""; 0]);
        let redirect = json!({ "redirect": { "scheme": "https", "statusCode": 301 } });
        assert_eq!(wrong(&json!({ "matches": exact, "filters": [redirect] })), [""; 0]);
        for (rule, reasons) in [
            (json!({ "backends": backends }), vec!["matches: cannot be empty"]),
            (json!({ "matches": [{}], "backends": backends }), vec!["matches[0]: cannot be empty"]),
            (
                json!({ "matches": path("a"), "backends": backends }),
                vec!["matches[0].value: must be an absolute path"],
            ),
            (json!({ "matches": exact }), vec!["backends: cannot be empty"]),
            (
                json!({ "matches": exact, "backends": [{ "destination": { "a": "b" } }] }),
                vec!["backends[0]: mandatory tag \"kuma.io/service\" is missing"],
            ),
            (
                json!({ "matches": exact, "backends": backends, "filters": [redirect] }),
                vec!["backends: must be empty when using redirect filters"],
            ),
            (
                json!({ "matches": exact, "filters": [{ "redirect": { "statusCode": 200 } }] }),
                vec!["filters[0].redirect.status_code: must be in the range [300, 308]"],
            ),
            (
                json!({ "matches": exact, "backends": backends, "filters": [{ "rewrite": { "replacePrefixMatch": "/" } }] }),
                vec!["filters[0].rewrite.replacePrefixMatch: cannot be used without a match on path prefix"],
            ),
            (
                json!({ "matches": exact, "backends": backends, "filters": [{ "requestHeader": { "set": [{ "name": "a" }] } }] }),
                vec!["filters[0].request_header.set[0].value: cannot be empty"],
            ),
            (
                json!({ "matches": [{ "headers": [{ "name": "a", "match": "PRESENT", "value": "b" }] }], "backends": backends }),
                vec!["matches[0].headers[0].value: cannot be set"],
            ),
        ] {
            assert_eq!(wrong(&rule), reasons, "{rule}");
        }
    }

    #[test]
    fn a_route_is_for_something() {
        let route = json!({ "selectors": [], "conf": {} });
        let violations = KIND.validate(&transcode::from_json(&KIND, &route).unwrap()).unwrap();
        let fields: Vec<String> = violations.iter().map(|v| v.field.to_string()).collect();
        assert_eq!(fields, ["selectors", "conf"]);
    }
}
