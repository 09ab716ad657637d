//! The first part of the trace of a write: the request that made it.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};

use super::{Api, REVISION};
use crate::{
    clip::clip,
    traces::{SpanRecord, TracePart, WriteTrace},
};

/// Bytes of a path in a span.
const LONGEST_PATH: usize = 512;

/// Tells of each request that wrote something.
pub(super) async fn trace(
    State(api): State<Arc<Api>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let traces = &api.config.traces;
    if !traces.is_heard() {
        return next.run(request).await;
    }
    let start = api.env.now();
    let method = request.method().to_string();
    let path = clip(request.uri().path(), LONGEST_PATH).to_owned();
    let response = next.run(request).await;
    let revision = response.headers().get(REVISION).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(revision) = revision {
        let route = route.map_or_else(|| "none".to_owned(), |route| route.as_str().to_owned());
        traces.record(SpanRecord {
            trace: WriteTrace::of(api.store.identity(), revision),
            part: TracePart::Request,
            parent: None,
            name: format!("{method} {route}"),
            start,
            end: api.env.now(),
            attributes: vec![
                ("http.request.method", method),
                ("http.route", route),
                ("url.path", path),
                ("http.response.status_code", response.status().as_u16().to_string()),
                ("strait.revision", revision.to_string()),
            ],
            error: None,
        });
        if let Some(written) = &api.config.written {
            written(revision);
        }
    }
    response
}
