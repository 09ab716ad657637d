//! The one error type of the API: it decides status and body, and never shows internals.

use std::{
    borrow::Cow,
    fmt::{self, Display},
};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::body::json_response;
use crate::{
    access::Denied,
    clip::clipped,
    model::{SpecError, Violations},
    redact::Withheld,
    runtime::http::Crowded,
    store::StoreError,
};

/// Seconds after which a refused client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");
const INVALID: &str = "Resource is not valid";
/// Bytes of one text in an answer, which may repeat what was sent.
const LONGEST: usize = 2048;
/// Violations in an answer; a resource may break a rule in every line.
const SHOWN: usize = 100;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    title: Cow<'static, str>,
    detail: String,
    parameters: Vec<(String, String)>,
}

impl From<Withheld> for ApiError {
    fn from(withheld: Withheld) -> Self {
        match withheld {
            Withheld::NotJson | Withheld::TooMuch => Self::bad_request(withheld.to_string()),
            Withheld::Unsearched => Self::busy("Could not show an answer", withheld.to_string()),
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        Self::forbidden(denied.to_string())
    }
}

impl From<Crowded> for ApiError {
    fn from(crowded: Crowded) -> Self {
        Self::busy("Too many requests", crowded.to_string())
    }
}

impl Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        for (i, (field, reason)) in self.parameters.iter().enumerate() {
            write!(f, "{} {field}: {reason}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl ApiError {
    /// Any status with a title (what failed) and a detail (why).
    pub fn new(status: StatusCode, title: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self { status, title: title.into(), detail: clipped(detail.into(), LONGEST), parameters: Vec::new() }
    }

    /// 404 of a resource.
    pub fn not_found(title: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, title, "Not found")
    }

    /// 400 of a request that makes no sense.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", detail)
    }

    /// 400 of a query whose parameter of this name makes no sense.
    pub fn unsupported(parameter: &str) -> Self {
        Self::bad_request(format!("bad request: unsupported value for query parameter '{parameter}'"))
    }

    /// 400 of a resource that breaks rules.
    pub fn invalid(title: &'static str, violations: &Violations) -> Self {
        let clipped = |text: String| clipped(text, LONGEST);
        let parameters = violations.iter().take(SHOWN);
        let parameters = parameters.map(|v| (clipped(v.field.to_string()), clipped(v.reason.clone())));
        Self { parameters: parameters.collect(), ..Self::new(StatusCode::BAD_REQUEST, title, INVALID) }
    }

    /// The same with one more parameter.
    pub fn with_parameter(mut self, field: impl Into<String>, reason: impl Into<String>) -> Self {
        self.parameters.push((field.into(), reason.into()));
        self
    }

    /// 405 of a kind that is not written here.
    pub fn read_only(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
    }

    /// 403.
    pub fn forbidden(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Access Denied", reason)
    }

    /// 401.
    pub fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Invalid authentication data", "Unauthenticated")
    }

    /// 409.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", detail)
    }

    /// 503 of something that may work when it is tried again after a while.
    pub fn busy(title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, title, detail)
    }

    /// 500; the cause is logged here and not shown.
    pub fn internal(title: &'static str, cause: impl Display) -> Self {
        tracing::error!(%cause, "request failed: {title}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, title, "Internal Server Error")
    }

    /// What a refused or failed store write means to the client.
    pub fn store(title: &'static str, error: &StoreError) -> Self {
        match error {
            StoreError::NotFound { .. } => Self::not_found(title),
            StoreError::AlreadyExists { .. }
            | StoreError::Conflict { .. }
            | StoreError::ForeignOrigin { .. }
            | StoreError::Fenced { .. } => Self::conflict(error.to_string()),
            // Told by the store itself, once and not for every request.
            StoreError::Unwritable(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                title,
                "The store cannot be written now, see /ready",
            ),
            StoreError::Foreign(_) | StoreError::Damaged(_) | StoreError::Backend { .. } => {
                Self::internal(title, error)
            }
        }
    }

    /// A spec that does not decode, in a request.
    pub fn spec(title: &'static str, error: &SpecError) -> Self {
        match error {
            SpecError::Proto(e) => Self::bad_request(e.to_string()),
            SpecError::Json { path, reason } => {
                Self::invalid(title, &Violations::one(path.as_str(), schema_reason(reason)))
            }
            SpecError::Shape(violations) => Self::invalid(title, violations),
            error @ SpecError::Overreach { .. } => Self::bad_request(error.to_string()),
        }
    }

    /// The same, where it has to be said what it is about.
    pub(super) fn about(mut self, subject: impl Display) -> Self {
        self.detail = format!("{subject}: {}", self.detail);
        self
    }

    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

/// Says a type mismatch of the JSON decoder in the words of a schema check, which clients know.
fn schema_reason(reason: &str) -> String {
    let parts = reason.strip_prefix("invalid type: ").and_then(|r| r.split_once(", expected "));
    let Some((found, expected)) = parts else { return reason.to_owned() };
    // A decoder may add where it stopped.
    let expected = expected.split(" at line ").next().unwrap_or(expected);
    match (json_type_found(found), json_type_expected(expected)) {
        (Some(found), Some(expected)) => format!("in body must be of type {expected}: \"{found}\""),
        _ => reason.to_owned(),
    }
}

fn json_type_found(found: &str) -> Option<&'static str> {
    let word = found.split_whitespace().next()?;
    Some(match word {
        "integer" | "floating" => "number",
        "string" => "string",
        "boolean" => "boolean",
        "sequence" => "array",
        "map" => "object",
        "null" => "null",
        _ => return None,
    })
}

fn json_type_expected(expected: &str) -> Option<&'static str> {
    Some(match expected {
        "a string" | "string" => "string",
        "a boolean" | "bool" => "boolean",
        "a sequence" => "array",
        "u8" | "u16" | "u32" | "u64" | "i32" | "i64" | "usize" => "integer",
        "f32" | "f64" => "number",
        "a map" => "object",
        e if e.starts_with("struct ") => "object",
        _ => return None,
    })
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    status: u16,
    title: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid_parameters: Vec<Parameter<'a>>,
    // `details` and `causes` repeat `detail` and `invalid_parameters` for old clients.
    details: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<ErrorCause<'a>>,
}

#[derive(Serialize)]
struct Parameter<'a> {
    field: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct ErrorCause<'a> {
    field: &'a str,
    message: &'a str,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let pairs = || self.parameters.iter().map(|(f, r)| (f.as_str(), r.as_str()));
        let body = Body {
            r#type: "/std-errors",
            status: self.status.as_u16(),
            title: &self.title,
            detail: &self.detail,
            invalid_parameters: pairs().map(|(field, reason)| Parameter { field, reason }).collect(),
            details: &self.detail,
            causes: pairs().map(|(field, message)| ErrorCause { field, message }).collect(),
        };
        let mut response = json_response(self.status, &body);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
