//! How requests and responses are changed.

use common::{
    policy::{
        BackendRef, IntOrString,
        mesh_http_route::{
            Filter, FilterType, HeaderModifier, HttpRouteRuleConf, PathRewrite, PathRewriteType,
            RedirectScheme, RequestMirror, RequestRedirect, UrlRewrite,
        },
    },
    proto::envoy::{
        config::{
            core::v3::{
                HeaderValueOption, RuntimeFractionalPercent, header_value_option::HeaderAppendAction,
            },
            route::v3::{
                RedirectAction, Route, RouteAction,
                redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
                route::Action,
                route_action::{HostRewriteSpecifier, RequestMirrorPolicy},
            },
        },
        r#type::{
            matcher::v3::RegexMatchAndSubstitute,
            v3::{FractionalPercent, fractional_percent::DenominatorType},
        },
    },
};

use super::matching::MatchedPrefix;
use crate::policy::header;

/// Changes `route` as the filters of a rule say. `cluster_of` finds the cluster of a backend.
pub(super) fn apply(
    conf: &HttpRouteRuleConf,
    prefix: &MatchedPrefix,
    route: &mut Route,
    cluster_of: &mut dyn FnMut(&BackendRef) -> Option<String>,
) {
    for filter in conf.filters.iter().flatten() {
        apply_one(filter, prefix, route, cluster_of);
    }
}

/// The member that `type` does not name is ignored, as is a filter without the one it names.
fn apply_one(
    filter: &Filter,
    prefix: &MatchedPrefix,
    route: &mut Route,
    cluster_of: &mut dyn FnMut(&BackendRef) -> Option<String>,
) {
    match filter.kind {
        FilterType::RequestHeaderModifier => {
            if let Some(change) = &filter.request_header_modifier {
                route.request_headers_to_add.extend(header_values(change));
                route.request_headers_to_remove.extend(change.remove.iter().cloned());
            }
        }
        FilterType::ResponseHeaderModifier => {
            if let Some(change) = &filter.response_header_modifier {
                route.response_headers_to_add.extend(header_values(change));
                route.response_headers_to_remove.extend(change.remove.iter().cloned());
            }
        }
        FilterType::RequestRedirect => {
            if let Some(redirect) = &filter.request_redirect {
                route.action = Some(Action::Redirect(redirect_action(redirect, prefix)));
            }
        }
        FilterType::UrlRewrite => {
            if let (Some(rewrite), Some(Action::Route(action))) = (&filter.url_rewrite, &mut route.action) {
                rewrite_url(rewrite, prefix, action);
            }
        }
        FilterType::RequestMirror => {
            if let (Some(mirror), Some(Action::Route(action))) = (&filter.request_mirror, &mut route.action)
                && let Some(cluster) = cluster_of(&mirror.backend_ref)
            {
                action.request_mirror_policies.push(mirror_policy(mirror, cluster));
            }
        }
    }
}

fn header_values(change: &HeaderModifier) -> impl Iterator<Item = HeaderValueOption> {
    let set = change.set.iter().map(|v| header::option(v, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = change.add.iter().map(|v| header::option(v, HeaderAppendAction::AppendIfExistsOrAdd));
    set.chain(add)
}

fn redirect_action(redirect: &RequestRedirect, prefix: &MatchedPrefix) -> RedirectAction {
    let scheme = redirect.scheme.map(|scheme| match scheme {
        RedirectScheme::Http => "http",
        RedirectScheme::Https => "https",
    });
    let path = redirect.path.as_ref().and_then(|path| match path.kind {
        PathRewriteType::ReplaceFullPath => {
            path.replace_full_path.clone().map(PathRewriteSpecifier::PathRedirect)
        }
        PathRewriteType::ReplacePrefixMatch => match prefix_rewrite(path, prefix)? {
            PrefixRewrite::Prefix(new) => Some(PathRewriteSpecifier::PrefixRewrite(new)),
            PrefixRewrite::Regex(regex) => Some(PathRewriteSpecifier::RegexRewrite(regex)),
        },
    });
    RedirectAction {
        scheme_rewrite_specifier: scheme.map(|s| SchemeRewriteSpecifier::SchemeRedirect(s.to_owned())),
        host_redirect: redirect.hostname.clone().unwrap_or_default(),
        port_redirect: redirect.port.unwrap_or_default(),
        path_rewrite_specifier: path,
        response_code: match redirect.status_code {
            Some(301) => RedirectResponseCode::MovedPermanently,
            Some(303) => RedirectResponseCode::SeeOther,
            Some(307) => RedirectResponseCode::TemporaryRedirect,
            Some(308) => RedirectResponseCode::PermanentRedirect,
            _ => RedirectResponseCode::Found,
        }
        .into(),
        ..RedirectAction::default()
    }
}

fn rewrite_url(rewrite: &UrlRewrite, prefix: &MatchedPrefix, action: &mut RouteAction) {
    if let Some(host) = &rewrite.hostname {
        action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewriteLiteral(host.clone()));
    }
    let Some(path) = &rewrite.path else { return };
    match path.kind {
        PathRewriteType::ReplaceFullPath => {
            if let Some(new) = &path.replace_full_path {
                let pattern = Some(header::regex("^.*$"));
                action.regex_rewrite = Some(RegexMatchAndSubstitute { pattern, substitution: escaped(new) });
            }
        }
        PathRewriteType::ReplacePrefixMatch => match prefix_rewrite(path, prefix) {
            Some(PrefixRewrite::Prefix(new)) => action.prefix_rewrite = new,
            Some(PrefixRewrite::Regex(regex)) => action.regex_rewrite = Some(regex),
            None => {}
        },
    }
}

enum PrefixRewrite {
    Prefix(String),
    Regex(RegexMatchAndSubstitute),
}

/// Replaces the matched prefix so that exactly one slash stands where the parts meet.
fn prefix_rewrite(path: &PathRewrite, prefix: &MatchedPrefix) -> Option<PrefixRewrite> {
    let (new, matched) = (path.replace_prefix_match.as_ref()?, prefix.as_ref()?);
    let stem = new.trim_end_matches('/');
    if matched.ends_with('/') {
        return Some(PrefixRewrite::Prefix(format!("{stem}/")));
    }
    if stem.is_empty() {
        // An exact `/a` becomes `/`; an empty prefix rewrite would mean none at all.
        return Some(PrefixRewrite::Regex(RegexMatchAndSubstitute {
            pattern: Some(header::regex("^/[^?]*")),
            substitution: "/".to_owned(),
        }));
    }
    Some(PrefixRewrite::Prefix(stem.to_owned()))
}

/// In a substitution a backslash starts a reference to a group.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
}

fn mirror_policy(mirror: &RequestMirror, cluster: String) -> RequestMirrorPolicy {
    let percentage = mirror.percentage.as_ref().and_then(IntOrString::value);
    RequestMirrorPolicy {
        cluster,
        runtime_fraction: percentage.map(|percentage| RuntimeFractionalPercent {
            default_value: Some(fraction(percentage)),
            ..RuntimeFractionalPercent::default()
        }),
        ..RequestMirrorPolicy::default()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1000000")]
fn fraction(percentage: f64) -> FractionalPercent {
    let numerator = (percentage * 10_000.0).round().clamp(0.0, 1_000_000.0) as u32;
    FractionalPercent { numerator, denominator: DenominatorType::Million.into() }
}
