//! `POST /bootstrap`.

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::post,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use common::store::index::IndexReader;
use serde_json::json;

use super::{Bootstrap, BootstrapError, Bootstraps, Request};

/// A dataplane with thousands of outbounds still fits.
const BODY_LIMIT: usize = 4 << 20;

#[derive(Clone)]
struct Answers {
    bootstraps: Arc<Bootstraps>,
    index: IndexReader,
}

/// The route.
pub fn router(bootstraps: Arc<Bootstraps>, index: IndexReader) -> Router {
    Router::new()
        .route("/bootstrap", post(answer))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Answers { bootstraps, index })
}

async fn answer(State(answers): State<Answers>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let host = host(&uri, &headers);
    let index = answers.index.current();
    let made = serde_json::from_slice::<Request>(&body)
        .map_err(BootstrapError::from)
        .and_then(|request| answers.bootstraps.make(&request, host.as_deref(), &index));
    match made.map(|bootstrap| render(&bootstrap, &headers)) {
        Ok(response) => response,
        Err(error) => refuse(&error),
    }
}

/// The host the client dialled, without port.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let authority = match uri.authority() {
        Some(authority) => authority.clone(),
        None => headers.get(header::HOST)?.to_str().ok()?.parse().ok()?,
    };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    (!bare.is_empty()).then(|| bare.to_owned())
}

fn render(bootstrap: &Bootstrap, headers: &HeaderMap) -> Response {
    let yaml = match serde_norway::to_string(&bootstrap.envoy) {
        Ok(yaml) => yaml,
        Err(error) => {
            tracing::error!(%error, "cannot write a bootstrap as YAML");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    // kuma-dp asks for exactly this; everybody else gets a file Envoy can read.
    if headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/json") {
        return axum::Json(json!({
            "bootstrap": STANDARD.encode(yaml),
            "kumaSidecarConfiguration": {
                "networking": {"corefileTemplate": null, "address": bootstrap.address},
                "metrics": {"aggregate": []},
            },
        }))
        .into_response();
    }
    ([(header::CONTENT_TYPE, "text/x-yaml")], yaml).into_response()
}

fn refuse(error: &BootstrapError) -> Response {
    use BootstrapError as E;
    let status = match error {
        // The client tries again: the resource may be on its way. It does so only for an empty body.
        E::Unknown(proxy) => {
            tracing::info!(%proxy, "a bootstrap was asked for a proxy that is not known yet");
            return StatusCode::NOT_FOUND.into_response();
        }
        E::Stored(_) => StatusCode::INTERNAL_SERVER_ERROR,
        E::Host(_) | E::HostMissing | E::NotAnAuthority(_) => StatusCode::BAD_REQUEST,
        E::Malformed(_) | E::NameMissing | E::TokenMissing(_) | E::TokenMalformed | E::Inline(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    tracing::info!(%error, status = status.as_u16(), "refused a bootstrap");
    if status.is_server_error() {
        return status.into_response();
    }
    (status, error.to_string()).into_response()
}
