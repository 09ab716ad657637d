//! Bodies in and out: always JSON, always bounded.

mod intake;

use std::io::Write;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Serializer, ser::PrettyFormatter};

pub use self::intake::{BodyError, Intake, ReceivedBody};
use super::{ApiError, browser::is_page};

/// A JSON answer, indented for people.
pub fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    match json_document(body) {
        Ok(text) => json_text(status, text),
        Err(error) => {
            tracing::error!(%error, "cannot encode an answer");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The text of such an answer.
///
/// # Errors
/// When it has no form as JSON.
pub fn json_document(body: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(256);
    pretty(body, &mut text)?;
    Ok(text)
}

/// Writes JSON as it is answered.
pub(super) fn pretty(body: &impl Serialize, mut text: impl Write) -> serde_json::Result<()> {
    body.serialize(&mut Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" ")))?;
    text.write_all(b"\n").map_err(serde_json::Error::io)
}

/// An answer of JSON that is written already.
pub(super) fn json_text(status: StatusCode, mut text: Vec<u8>) -> Response {
    // It is counted by its length, and grew by doubling.
    text.shrink_to_fit();
    let mut response = (status, Body::from(text)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let title = match error {
            BodyError::TooLong(_) => "Request too large",
            BodyError::Slow => "Request timeout",
            BodyError::Busy => "Too many requests",
            BodyError::Broken(_) => "Bad Request",
        };
        Self::new(error.status(), title, error.to_string())
    }
}

/// Refuses requests in another format than JSON, and clients that cannot read it.
pub(super) async fn negotiate(request: Request, next: Next) -> Response {
    // Those are for browsers, which send forms and read HTML.
    if is_page(request.uri().path()) {
        return next.run(request).await;
    }
    let has_body = matches!(*request.method(), Method::PUT | Method::POST);
    if has_body && !is_json(request.headers()) {
        return (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "415: Unsupported Media Type, send application/json (`straitctl apply` takes YAML too)",
        )
            .into_response();
    }
    if !request.uri().path().starts_with("/tokens/") && !accepts_json(request.headers()) {
        return (StatusCode::NOT_ACCEPTABLE, "406: Not Acceptable, answers are application/json")
            .into_response();
    }
    next.run(request).await
}

/// A missing content type counts as JSON: there is nothing else it could be.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return true };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let ranges = values.filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let mut essences = ranges.map(|range| range.split(';').next().unwrap_or_default().trim());
    essences.any(|essence| matches!(essence, "*/*" | "application/*" | "application/json" | ""))
}
