//! `GET /strait/backup`: the whole store, secrets and all, while it goes on.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::stream;

use super::{Api, ApiError};
use crate::store::backup;

const TITLE: &str = "Could not make a backup";

pub(super) async fn take(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let lines = backup::take(&*api.store, api.env.now()).await;
    let lines = lines.map_err(|error| ApiError::store(TITLE, &error))?;
    // A part at a time, as fast as the client takes it.
    let mut response = Body::from_stream(stream::iter(lines.map(Ok::<_, Infallible>))).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}
