//! A write is done to its end, and taken down, counted and told of, also when its client hangs up meanwhile: the store
//! decides what it was given whoever is still there, and what takes several steps is not left in between.

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};

use super::{ApiError, routes};
use crate::runtime::http::{Client, Unattended};

/// Does what a request asks for to its end, unless it only reads.
pub(super) async fn complete(
    route: Option<MatchedPath>,
    client: Client,
    mut request: Request,
    next: Next,
) -> Response {
    let only_reads = |route: MatchedPath| routes::only_reads(request.method().as_str(), route.as_str());
    if request.method().is_safe() || route.is_some_and(only_reads) {
        return next.run(request).await;
    }
    match client.completion().await {
        Ok(completion) => completion.run(next.run(request)).await,
        Err(refused) => {
            // It is counted and taken down as any other.
            request.extensions_mut().insert(refused);
            next.run(request).await
        }
    }
}

/// Refuses what there is no leave for to do to its end.
pub(super) fn require_leave(request: &Request) -> Result<(), ApiError> {
    match request.extensions().get::<Unattended>() {
        Some(refused) => Err(ApiError::busy("Too many requests", refused.to_string())),
        None => Ok(()),
    }
}
