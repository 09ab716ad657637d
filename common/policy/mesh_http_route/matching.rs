//! Which requests a rule is for.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{model::decode, policy::HeaderMatch};

/// A condition on a request; all set members must hold. The members are declared in the order in which
/// [`matches_hash`] feeds them to the hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// On the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// On the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// On query parameters.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<QueryParamMatch>,
    /// On headers.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

/// HTTP methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Method {
    Connect,
    Delete,
    Get,
    Head,
    Options,
    Patch,
    Post,
    Put,
    Trace,
}

impl Method {
    /// As it stands in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Delete => "DELETE",
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Trace => "TRACE",
        }
    }
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMatch {
    /// What to compare with.
    pub value: String,
    /// How to compare.
    #[serde(rename = "type")]
    pub kind: PathMatchType,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathMatchType {
    /// The whole path.
    Exact,
    /// Its beginning, up to a slash.
    PathPrefix,
    /// The whole path, as a regular expression.
    RegularExpression,
}

/// A condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryParamMatch {
    /// How to compare.
    #[serde(rename = "type")]
    pub kind: QueryParamMatchType,
    /// Parameter name.
    pub name: String,
    /// What to compare with.
    pub value: String,
}

/// How a query parameter is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryParamMatchType {
    /// The whole value.
    Exact,
    /// The value, as a regular expression.
    RegularExpression,
}

/// The identity of a rule: base64 of the SHA-256 of its matches as JSON. It names routes in Envoy, so
/// the JSON must equal, byte for byte, what Kuma's encoder writes: members in declared order, and `<`,
/// `>`, `&` and the line separators escaped.
pub fn matches_hash(matches: &[Match]) -> String {
    let json = serde_json::to_string(matches).expect("matches have string keys and no failing serializers");
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    BASE64_STANDARD.encode(Sha256::digest(escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_equals_kumas() {
        let path = PathMatch { value: "/".to_owned(), kind: PathMatchType::Exact };
        let matches = [Match { path: Some(path), ..Match::default() }];
        assert_eq!(matches_hash(&matches), "JNNc6//C3P17nUsOJm5f4kqG+U3v8pXhS0od9C3+oss=");
    }
}
