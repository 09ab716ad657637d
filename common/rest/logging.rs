//! `/logging`: what the control plane logs, looked at and changed while it runs.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, Request, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};

use super::{Api, ApiError, Mounted, routes};
use crate::{
    model::text,
    telemetry::{LogLevelError, LogLevels, levels},
};

const TITLE: &str = "Could not change the level of logs";
/// Bytes of a request.
const LARGEST: usize = 4096;

/// The routes.
pub(super) fn routes(api: &Arc<Api>) -> Mounted {
    Mounted::new()
        .on(const { routes::get("/logging") }, show, api)
        .on(const { routes::put("/logging") }, set, api)
        .on(const { routes::delete("/logging") }, reset, api)
        .on(const { routes::delete("/logging/{component}") }, reset_one, api)
}

#[derive(Serialize)]
struct ShownLevels {
    /// Levels by the paths of modules.
    components: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedLevel {
    component: String,
    level: String,
}

fn known() -> Result<&'static LogLevels, ApiError> {
    levels().ok_or_else(|| ApiError::not_found("This process writes no logs of its own"))
}

async fn show() -> Result<Json<ShownLevels>, ApiError> {
    Ok(Json(ShownLevels { components: known()?.all() }))
}

async fn set(State(api): State<Arc<Api>>, request: Request) -> Result<Json<ShownLevels>, ApiError> {
    let body = api.intake.read(request, LARGEST).await;
    let body = body.map_err(|error| ApiError::new(error.status(), TITLE, error.to_string()))?;
    let wrong = |reason: String| ApiError::new(StatusCode::BAD_REQUEST, TITLE, reason);
    let json = text::json(&body, text::TextLimits::BODY).map_err(|error| wrong(error.to_string()))?;
    let wanted: WantedLevel = serde_json::from_value(json).map_err(|error| wrong(error.to_string()))?;
    known()?.set(&wanted.component, &wanted.level).map_err(|error| {
        let (status, field) = match &error {
            LogLevelError::Component(_) => (StatusCode::BAD_REQUEST, Some("component")),
            LogLevelError::Level(_) => (StatusCode::BAD_REQUEST, Some("level")),
            LogLevelError::TooMany => (StatusCode::TOO_MANY_REQUESTS, None),
        };
        let refused = ApiError::new(status, TITLE, error.to_string());
        match field {
            Some(field) => refused.with_parameter(field, error.to_string()),
            None => refused,
        }
    })?;
    tracing::warn!(component = wanted.component, level = wanted.level, "another level of logs was set");
    show().await
}

/// Gives what was taken back.
async fn reset() -> Result<Json<ShownLevels>, ApiError> {
    Ok(Json(ShownLevels { components: known()?.reset(None) }))
}

async fn reset_one(Path(component): Path<String>) -> Result<Json<ShownLevels>, ApiError> {
    Ok(Json(ShownLevels { components: known()?.reset(Some(&component)) }))
}
