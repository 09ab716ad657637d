//! `MeshHTTPRoute`: where HTTP requests go, and how they are changed on the way.

mod check;
mod filter;
mod matching;

use serde::{Deserialize, Serialize};

pub use filter::{
    Filter, FilterType, HeaderModifier, HeaderValue, PathRewrite, PathRewriteType, RedirectScheme,
    RequestMirror, RequestRedirect, UrlRewrite,
};
pub use matching::{
    Match, Method, PathMatch, PathMatchType, QueryParamMatch, QueryParamMatchType, matches_hash,
};

use super::{BackendRef, TargetRef, decode};
use crate::model::{ItemForm, Kind, PolicyTraits, Referent, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshHTTPRoute", "meshhttproutes")
    .flow(61)
    .named("meshhttproute", "mhttpr")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
    .items(ItemForm::RulesByMatches)
    .referent(Referent::Requests)
    .typed::<MeshHttpRoute>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshHttpRoute {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Per destination.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<HttpRouteTo>,
}

/// Rules for one destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteTo {
    /// Only on gateways: requests for these host names.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// The destination.
    pub target_ref: TargetRef,
    /// What happens to which requests.
    #[serde(default, deserialize_with = "decode::list")]
    pub rules: Vec<HttpRouteRule>,
}

/// What happens to requests that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpRouteRule {
    /// Any of these.
    #[serde(default, deserialize_with = "decode::list")]
    pub matches: Vec<Match>,
    /// What happens.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: HttpRouteRuleConf,
}

/// What happens to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteRuleConf {
    /// How it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<Filter>>,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_refs: Option<Vec<BackendRef>>,
}

/// The merged configuration of a destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpRouteConf {
    /// Rules in order of precedence.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HttpRouteRule>,
    /// Host names these rules are for; none means any.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
}

impl Spec for MeshHttpRoute {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        check::check(self)
    }
}
