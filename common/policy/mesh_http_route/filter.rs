//! How a request or its response is changed.

use serde::{Deserialize, Serialize};

use crate::{
    model::decode,
    policy::{BackendRef, IntOrString},
};

/// One change. `type` says which member is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// Which.
    #[serde(rename = "type")]
    pub kind: FilterType,
    /// Of request headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HeaderModifier>,
    /// Of response headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HeaderModifier>,
    /// Answer with a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<RequestRedirect>,
    /// Of path and host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<UrlRewrite>,
    /// Send a copy elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<RequestMirror>,
}

/// Kinds of [`Filter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "described at the members of Filter")]
pub enum FilterType {
    RequestHeaderModifier,
    ResponseHeaderModifier,
    RequestRedirect,
    #[serde(rename = "URLRewrite")]
    UrlRewrite,
    RequestMirror,
}

/// A header with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderValue {
    /// Header name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Changes of headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderModifier {
    /// Replaced or added.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<HeaderValue>,
    /// Added to what is there.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<HeaderValue>,
    /// Removed.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// An answer that sends the client elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirect {
    /// To this scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<RedirectScheme>,
    /// To this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// To this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
    /// To this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// With this status.
    #[serde(default = "RequestRedirect::found", skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u32>,
}

impl RequestRedirect {
    #[expect(clippy::unnecessary_wraps, reason = "the default of an optional member")]
    const fn found() -> Option<u32> {
        Some(302)
    }
}

/// Where a redirect may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectScheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// A change of the path. `type` says which member is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathRewrite {
    /// Which.
    #[serde(rename = "type")]
    pub kind: PathRewriteType,
    /// The new path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_full_path: Option<String>,
    /// What replaces the matched prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix_match: Option<String>,
}

/// Kinds of [`PathRewrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "described at the members of PathRewrite")]
pub enum PathRewriteType {
    ReplaceFullPath,
    ReplacePrefixMatch,
}

/// A change of path and host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UrlRewrite {
    /// The new host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The new path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
    /// Only on gateways: the host becomes that of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_to_backend_hostname: Option<bool>,
}

/// A copy of the request goes elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    /// Share of the requests; all when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage: Option<IntOrString>,
    /// Where to.
    pub backend_ref: BackendRef,
}
