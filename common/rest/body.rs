//! Bodies in and out: always JSON, always bounded.

use std::time::Duration;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Serializer, ser::PrettyFormatter};
use tokio::time::timeout;

use super::ApiError;

/// A JSON answer, indented for people.
pub fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    let mut text = Vec::with_capacity(256);
    let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    if let Err(error) = body.serialize(&mut serializer) {
        tracing::error!(%error, "cannot encode an answer");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    text.push(b'\n');
    let mut response = (status, Body::from(text)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Longest time a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How much of a body that is too long is read and dropped, so that a client that is still sending gets to
/// the answer instead of a broken connection.
const DRAINED: usize = 128 << 20;

/// The whole body, unless it is longer than `limit` or does not arrive.
pub(super) async fn read(request: Request, limit: usize) -> Result<Bytes, ApiError> {
    match timeout(ARRIVAL, collect(request.into_body(), limit)).await {
        Ok(body) => body,
        Err(_) => {
            let detail = format!("the request body did not arrive within {} seconds", ARRIVAL.as_secs());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "Request timeout", detail))
        }
    }
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut collected = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let unreadable = |e| ApiError::bad_request(format!("the request body could not be read: {e}"));
        let Ok(data) = frame.map_err(unreadable)?.into_data() else { continue };
        length += data.len();
        if length > DRAINED {
            break;
        }
        if length > limit {
            collected.clear();
        } else {
            collected.extend_from_slice(&data);
        }
    }
    if length > limit { Err(too_large(limit)) } else { Ok(collected.freeze()) }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "Request too large",
        format!(
            "the request body is longer than {limit} bytes: make it shorter, or spread it over several resources"
        ),
    )
}

/// Refuses requests in another format than JSON, and clients that cannot read it.
pub(super) async fn negotiate(request: Request, next: Next) -> Response {
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
