//! How many requests there are, and how long they take.

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};
use tokio::time::Instant;

use crate::metering;

/// Records each request under its route, not its path, so that names of resources do not become labels.
pub(super) async fn measure(route: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let handler = route.map_or_else(|| "none".to_owned(), |route| route.as_str().to_owned());
    let method = metering::method(request.method());
    let started = Instant::now();
    let response = next.run(request).await;
    let code = response.status().as_u16().to_string();
    metrics::histogram!(
        "api_server_http_request_duration_seconds",
        "code" => code, "handler" => handler, "method" => method
    )
    .record(started.elapsed().as_secs_f64());
    response
}
