//! Pages of a list.

use std::num::IntErrorKind;

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, Uri, header},
    response::Response,
};
use serde_json::{Value, json};

use super::{ApiError, body::json_response};
use crate::runtime::http::Connection;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;

/// The query of a request, decoded, in its order.
pub(super) type Query = Vec<(String, String)>;

/// Which part of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    size: usize,
    offset: usize,
}

impl Page {
    /// From the parameters `size` and `offset`.
    pub(super) fn parse(query: &Query, title: &'static str) -> Result<Self, ApiError> {
        let size = value(query, "size").map_or(Ok(DEFAULT_SIZE), |text| {
            let invalid = |reason: String| {
                ApiError::new(StatusCode::BAD_REQUEST, title, "Invalid page size")
                    .with_parameter("size", reason)
            };
            match text.parse::<i64>() {
                Err(_) => Err(invalid("invalid format".to_owned())),
                Ok(size) if size <= 0 => Err(invalid("must be greater than 0".to_owned())),
                Ok(size) => match usize::try_from(size) {
                    Ok(size) if size <= MAX_SIZE => Ok(size),
                    _ => {
                        Err(invalid(format!("invalid page size of {size}. Maximum page size is {MAX_SIZE}")))
                    }
                },
            }
        })?;
        let offset = value(query, "offset").map_or(Ok(0), |text| {
            let invalid = |reason: String| {
                ApiError::new(StatusCode::BAD_REQUEST, title, format!("invalid: invalid offset: {reason}"))
            };
            // Clients compare these texts, down to the function they name.
            let number = text.parse::<i64>().map_err(|error| {
                let reason = match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                invalid(format!("strconv.Atoi: parsing {text:?}: {reason}"))
            })?;
            usize::try_from(number).map_err(|_| invalid("it must not be negative".to_owned()))
        })?;
        Ok(Self { size, offset })
    }

    /// The part of `items` on this page, and the offset of the next one.
    pub(super) fn cut<T>(self, items: Vec<T>) -> (Vec<T>, Option<usize>) {
        let end = self.offset.saturating_add(self.size);
        let next = (end < items.len()).then_some(end);
        (items.into_iter().skip(self.offset).take(self.size).collect(), next)
    }
}

/// One query parameter; an empty one counts as absent.
pub(super) fn value<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
}

/// Where the next page is: the address the client used, with another offset.
fn next_link(next: Option<usize>, tls: bool, headers: &HeaderMap, uri: &Uri, query: &Query) -> Value {
    let Some(offset) = next else { return Value::Null };
    let scheme = if tls { "https" } else { "http" };
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
    let host = host.or_else(|| uri.authority().map(|a| a.as_str())).unwrap_or_default();
    let mut pairs: Query = query.iter().filter(|(key, _)| key != "offset").cloned().collect();
    pairs.push(("offset".to_owned(), offset.to_string()));
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let encoded: Vec<String> = pairs.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
    Value::String(format!("{scheme}://{host}{}?{}", uri.path(), encoded.join("&")))
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The answer to a list request.
pub(super) fn respond(
    request: &Request,
    query: &Query,
    total: usize,
    items: Vec<Value>,
    next: Option<usize>,
) -> Response {
    let tls = request.extensions().get::<Connection>().is_some_and(|c| c.tls);
    let next = next_link(next, tls, request.headers(), request.uri(), query);
    json_response(StatusCode::OK, &json!({ "total": total, "items": items, "next": next }))
}
