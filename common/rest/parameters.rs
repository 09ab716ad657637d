//! How many parameters a query may have: one of two bytes takes forty times that once it is read, for as long as its
//! request waits.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::ApiError;

/// More than any route has, with all filters of a list.
const MOST: usize = 128;

/// Sends away who asks with more of them.
pub(super) async fn few(request: Request, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let count = query.split('&').filter(|parameter| !parameter.is_empty()).count();
    if count > MOST {
        let detail = format!("the query has {count} parameters, and may have {MOST}");
        return ApiError::bad_request(detail).into_response();
    }
    next.run(request).await
}
