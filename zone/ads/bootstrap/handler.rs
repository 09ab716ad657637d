//! `POST /bootstrap`.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request as HttpRequest, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::post,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use common::{
    clip::clipped,
    rest::{BodyError, Intake, routes},
    store::index::IndexReader,
    token::TokenError,
};
use serde_json::json;

use super::{Bootstrap, BootstrapError, Bootstraps, Judge};
use crate::ads::{auth::ProxyAuthError, registration::RegisterError};

/// Longest request in bytes: the longest resource a proxy may bring along, as text in JSON, and the rest.
const BODY_LIMIT: usize = 1 << 20;
/// Bytes of an error in an answer or the log; it may repeat what was sent.
const REASON: usize = 1024;

#[derive(Clone)]
struct Answers {
    bootstraps: Arc<Bootstraps>,
    judge: Judge,
    index: IndexReader,
    intake: Intake,
}

/// The route.
pub fn router(bootstraps: Bootstraps, judge: Judge, index: IndexReader) -> Router {
    let bootstraps = Arc::new(bootstraps);
    Router::new().route(const { routes::post("/bootstrap") }.path(), post(answer)).with_state(Answers {
        bootstraps,
        judge,
        index,
        intake: Intake::default(),
    })
}

async fn answer(State(answers): State<Answers>, request: HttpRequest) -> Response {
    let host = host(request.uri(), request.headers());
    // kuma-dp asks for exactly this; everybody else gets a file Envoy can read.
    let wrapped = request.headers().get(header::ACCEPT).is_some_and(|accept| accept == "application/json");
    let Answers { bootstraps, judge, index, intake } = answers;
    let body = match intake.read(request, BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => return turn_away(&error),
    };
    let index = index.current();
    let make = move |body: &[u8]| bootstraps.answer(body, host.as_deref(), &judge, &index);
    match intake.work(body, make).await {
        Ok(bootstrap) => render(&bootstrap, wrapped),
        Err(error) => refuse(&error),
    }
}

/// The answer to a body that was not taken in.
fn turn_away(error: &BodyError) -> Response {
    tracing::info!(%error, "a request for a bootstrap was not taken in");
    let mut response = (error.status(), error.to_string()).into_response();
    if error.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
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

fn render(bootstrap: &Bootstrap, wrapped: bool) -> Response {
    let yaml = match common::model::text::to_yaml(&bootstrap.envoy) {
        Ok(yaml) => yaml,
        Err(error) => {
            tracing::error!(%error, "cannot write a bootstrap as YAML");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    if wrapped {
        return axum::Json(json!({
            "bootstrap": STANDARD.encode(yaml),
            "kumaSidecarConfiguration": {
                "networking": {
                    "corefileTemplate": bootstrap.corefile_template.as_ref().map(|text| STANDARD.encode(text)),
                    "address": bootstrap.address,
                },
                "metrics": {"aggregate": bootstrap.workloads},
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
        // So may the mesh be.
        E::Refused(error @ RegisterError::NoMesh(_)) => {
            tracing::info!(%error, "a bootstrap was asked for a proxy in a mesh that is not known yet");
            return StatusCode::NOT_FOUND.into_response();
        }
        E::Refused(RegisterError::Applied(_)) => StatusCode::CONFLICT,
        E::Refused(RegisterError::Foreign(_)) => StatusCode::FORBIDDEN,
        E::Refused(
            RegisterError::Store(_)
            | RegisterError::Stopping
            | RegisterError::Spent(_)
            | RegisterError::TooOften(_),
        ) => StatusCode::SERVICE_UNAVAILABLE,
        E::Stored(_) => StatusCode::INTERNAL_SERVER_ERROR,
        E::Host(_) | E::HostMissing | E::NotAnAuthority(_) => StatusCode::BAD_REQUEST,
        // kuma-dp gives up after what is its own fault, and tries again after what is not.
        E::Token(ProxyAuthError::Token {
            source: TokenError::NoKey(..) | TokenError::UnknownKey { .. },
            ..
        }) => StatusCode::SERVICE_UNAVAILABLE,
        E::Token(
            ProxyAuthError::Token { source: TokenError::Mismatch(_), .. }
            | ProxyAuthError::Unbound(_)
            | ProxyAuthError::Exceeds { .. },
        ) => StatusCode::FORBIDDEN,
        E::Token(_) => StatusCode::UNAUTHORIZED,
        E::Malformed(_)
        | E::Text(_)
        | E::NameMissing
        | E::NameTooLong
        | E::TokenMissing(_)
        | E::TokenMalformed
        | E::Unjudged(_)
        | E::Refused(RegisterError::Refused(_) | RegisterError::Spec(_))
        | E::Node(_)
        | E::Inline(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let reason = clipped(error.to_string(), REASON);
    tracing::info!(error = reason, status = status.as_u16(), "refused a bootstrap");
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        return status.into_response();
    }
    (status, reason).into_response()
}
