//! Routes of builtin gateways, of the older generation, in the words of the newer one.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    model::{Resource, labels},
    policy::{
        BackendRef, HeaderMatch, HeaderMatchType, IntOrString, TargetKind, TargetRef,
        mesh_http_route::{
            Filter, FilterType, HeaderModifier, HeaderValue, HttpRouteRule, HttpRouteRuleConf, Match, Method,
            PathMatch, PathMatchType, PathRewrite, PathRewriteType, QueryParamMatch, QueryParamMatchType,
            RedirectScheme, RequestMirror, RequestRedirect, UrlRewrite,
        },
    },
    proto::kuma::mesh::v1alpha1::{
        HttpMethod, MeshGatewayRoute,
        mesh_gateway_route::{
            Backend, conf,
            http_route::{
                self,
                filter::{self, HeaderFilter, Redirect, Rewrite, rewrite},
                r#match::{header, path, query},
            },
        },
    },
};
use imbl::OrdMap;

use super::{Problem, gateway::GatewayTags};

/// A route of builtin gateways.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayRoute {
    /// Its name.
    pub name: Arc<str>,
    selectors: Vec<GatewayTags>,
    /// For which host names; none means any.
    pub hostnames: Vec<String>,
    /// Of requests.
    pub rules: Vec<HttpRouteRule>,
    /// Of connections; `None` for routes of requests.
    pub backends: Option<Vec<BackendRef>>,
}

impl GatewayRoute {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>) -> Result<Self, Problem> {
        let spec = super::problem::decode::<MeshGatewayRoute>(resource)?;
        let mut route = Self {
            name: resource.name().into(),
            selectors: spec.selectors.into_iter().map(|selector| selector.r#match).collect(),
            hostnames: Vec::new(),
            rules: Vec::new(),
            backends: None,
        };
        match spec.conf.and_then(|conf| conf.route) {
            Some(conf::Route::Http(http)) => {
                route.hostnames = http.hostnames;
                route.rules = http.rules.iter().map(rule).collect();
            }
            Some(conf::Route::Tcp(tcp)) => {
                let backends = tcp.rules.iter().flat_map(|rule| &rule.backends);
                route.backends = Some(backends.map(backend).collect());
            }
            None => {}
        }
        Ok(route)
    }

    /// Whether it is for a listener with these tags.
    pub fn selects(&self, tags: &GatewayTags) -> bool {
        let has =
            |(key, value): (&String, &String)| tags.get(key).is_some_and(|v| value == "*" || v == value);
        self.selectors.iter().any(|selector| selector.iter().all(has))
    }

    /// Everything it sends requests or connections to.
    pub fn references(&self) -> impl Iterator<Item = &BackendRef> {
        let of_rules = self.rules.iter().flat_map(|rule| {
            let filters = rule.default.filters.iter().flatten();
            let mirrors = filters.filter_map(|filter| filter.request_mirror.as_ref());
            rule.default.backend_refs.iter().flatten().chain(mirrors.map(|mirror| &mirror.backend_ref))
        });
        of_rules.chain(self.backends.iter().flatten())
    }

    fn services(&self) -> impl Iterator<Item = &str> {
        self.selectors.iter().map(|tags| tags.get(labels::TAG_SERVICE).map_or("*", String::as_str))
    }
}

/// The routes of a mesh, by name and by the service of the gateways they are for. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct GatewayRoutes {
    by_name: OrdMap<Arc<str>, Arc<GatewayRoute>>,
    by_service: OrdMap<(Arc<str>, Arc<str>), Arc<GatewayRoute>>,
}

/// A route that came, changed or went.
#[derive(Clone, Debug)]
pub struct GatewayRouteChange {
    /// What was there before.
    pub before: Option<Arc<GatewayRoute>>,
    /// What is there now.
    pub after: Option<Arc<GatewayRoute>>,
}

impl GatewayRouteChange {
    /// Whether a listener with these tags may notice.
    pub fn concerns(&self, tags: &GatewayTags) -> bool {
        self.before.iter().chain(&self.after).any(|route| route.selects(tags))
    }
}

impl GatewayRoutes {
    /// Takes in what is there under a name now.
    pub(super) fn set(&mut self, name: &Arc<str>, after: Option<Arc<GatewayRoute>>) -> GatewayRouteChange {
        let key = |service: &str| (Arc::<str>::from(service), Arc::clone(name));
        let before = match &after {
            Some(route) => self.by_name.insert(Arc::clone(name), Arc::clone(route)),
            None => self.by_name.remove(name),
        };
        for service in before.iter().flat_map(|route| route.services()) {
            self.by_service.remove(&key(service));
        }
        if let Some(route) = &after {
            for service in route.services() {
                self.by_service.insert(key(service), Arc::clone(route));
            }
        }
        GatewayRouteChange { before, after }
    }

    /// Those for a listener with these tags, by name.
    pub fn of<'a>(&'a self, tags: &GatewayTags) -> BTreeMap<&'a str, &'a Arc<GatewayRoute>> {
        let service = tags.get(labels::TAG_SERVICE).map_or("", String::as_str);
        let mut found = BTreeMap::new();
        for service in [service, "*"] {
            let start: (Arc<str>, Arc<str>) = (service.into(), "".into());
            let of_service = self.by_service.range(start..).take_while(|((known, _), _)| **known == *service);
            let selecting = of_service.filter(|(_, route)| route.selects(tags));
            found.extend(selecting.map(|((_, name), route)| (&**name, route)));
        }
        found
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<GatewayRoute>> {
        self.by_name.values()
    }
}

fn backend(backend: &Backend) -> BackendRef {
    let mut tags = backend.destination.clone();
    let name = tags.remove(labels::TAG_SERVICE);
    let kind = if tags.is_empty() { TargetKind::MeshService } else { TargetKind::MeshServiceSubset };
    let TargetRef { mesh, proxy_types, namespace, labels, section_name, .. } = TargetRef::of(kind);
    BackendRef {
        kind,
        name,
        tags: (!tags.is_empty()).then_some(tags),
        mesh,
        proxy_types,
        namespace,
        labels,
        section_name,
        weight: backend.weight,
        port: None,
    }
}

fn rule(rule: &http_route::Rule) -> HttpRouteRule {
    HttpRouteRule {
        matches: rule.matches.iter().map(condition).collect(),
        default: HttpRouteRuleConf {
            filters: Some(rule.filters.iter().filter_map(filter).collect()),
            backend_refs: Some(rule.backends.iter().map(backend).collect()),
        },
    }
}

fn condition(of: &http_route::Match) -> Match {
    let path = of.path.as_ref().map(|on| PathMatch {
        value: on.value.clone(),
        kind: match on.r#match() {
            path::MatchType::Exact => PathMatchType::Exact,
            path::MatchType::Prefix => PathMatchType::PathPrefix,
            path::MatchType::Regex => PathMatchType::RegularExpression,
        },
    });
    let headers = of.headers.iter().map(|on| HeaderMatch {
        kind: match on.r#match() {
            header::MatchType::Exact => HeaderMatchType::Exact,
            header::MatchType::Regex => HeaderMatchType::RegularExpression,
            header::MatchType::Absent => HeaderMatchType::Absent,
            header::MatchType::Present => HeaderMatchType::Present,
        },
        name: on.name.clone(),
        value: Some(on.value.clone()).filter(|value| !value.is_empty()),
    });
    let query_params = of.query_parameters.iter().map(|on| QueryParamMatch {
        kind: match on.r#match() {
            query::MatchType::Exact => QueryParamMatchType::Exact,
            query::MatchType::Regex => QueryParamMatchType::RegularExpression,
        },
        name: on.name.clone(),
        value: on.value.clone(),
    });
    Match {
        path,
        method: method(of.method()),
        query_params: query_params.collect(),
        headers: headers.collect(),
    }
}

fn method(method: HttpMethod) -> Option<Method> {
    Some(match method {
        HttpMethod::None => return None,
        HttpMethod::Connect => Method::Connect,
        HttpMethod::Delete => Method::Delete,
        HttpMethod::Get => Method::Get,
        HttpMethod::Head => Method::Head,
        HttpMethod::Options => Method::Options,
        HttpMethod::Patch => Method::Patch,
        HttpMethod::Post => Method::Post,
        HttpMethod::Put => Method::Put,
        HttpMethod::Trace => Method::Trace,
    })
}

fn filter(of: &http_route::Filter) -> Option<Filter> {
    let mut filter = Filter {
        kind: FilterType::RequestHeaderModifier,
        request_header_modifier: None,
        response_header_modifier: None,
        request_redirect: None,
        url_rewrite: None,
        request_mirror: None,
    };
    match of.filter.as_ref()? {
        filter::Filter::RequestHeader(headers) => filter.request_header_modifier = Some(modifier(headers)),
        filter::Filter::ResponseHeader(headers) => {
            filter.kind = FilterType::ResponseHeaderModifier;
            filter.response_header_modifier = Some(modifier(headers));
        }
        filter::Filter::Mirror(mirror) => {
            filter.kind = FilterType::RequestMirror;
            filter.request_mirror = Some(RequestMirror {
                percentage: mirror
                    .percentage
                    .as_ref()
                    .map(|share| IntOrString::Text(share.value.to_string())),
                backend_ref: backend(mirror.backend.as_ref()?),
            });
        }
        filter::Filter::Redirect(to) => {
            filter.kind = FilterType::RequestRedirect;
            filter.request_redirect = Some(redirect(to));
        }
        filter::Filter::Rewrite(of) => {
            filter.kind = FilterType::UrlRewrite;
            filter.url_rewrite = Some(UrlRewrite {
                hostname: None,
                path: path_rewrite(of),
                host_to_backend_hostname: Some(of.host_to_backend_hostname),
            });
        }
    }
    Some(filter)
}

fn modifier(headers: &HeaderFilter) -> HeaderModifier {
    let values = |list: &[filter::header_filter::Header]| {
        list.iter().map(|h| HeaderValue { name: h.name.clone(), value: h.value.clone() }).collect()
    };
    HeaderModifier { set: values(&headers.set), add: values(&headers.add), remove: headers.remove.clone() }
}

fn redirect(to: &Redirect) -> RequestRedirect {
    RequestRedirect {
        scheme: match to.scheme.as_str() {
            "http" => Some(RedirectScheme::Http),
            "https" => Some(RedirectScheme::Https),
            _ => None,
        },
        hostname: Some(to.hostname.clone()).filter(|name| !name.is_empty()),
        path: to.path.as_ref().and_then(path_rewrite),
        port: Some(to.port).filter(|port| *port > 0),
        status_code: Some(to.status_code),
    }
}

fn path_rewrite(of: &Rewrite) -> Option<PathRewrite> {
    Some(match of.path.clone()? {
        rewrite::Path::ReplaceFull(path) => PathRewrite {
            kind: PathRewriteType::ReplaceFullPath,
            replace_full_path: Some(path),
            replace_prefix_match: None,
        },
        rewrite::Path::ReplacePrefixMatch(prefix) => PathRewrite {
            kind: PathRewriteType::ReplacePrefixMatch,
            replace_full_path: None,
            replace_prefix_match: Some(prefix),
        },
    })
}
