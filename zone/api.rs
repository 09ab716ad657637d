//! What the API of a zone has besides the resources: its link to global and its proxies.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use common::{
    access::{AccessRule, User},
    redact,
    rest::ApiError,
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    folder::FolderStatus,
    kds::{Link, LinkStatus},
};

/// `GET /strait/link` shows how the zone stands with global; `POST /strait/link/approve`, for
/// administrators, lets what the delete fuse holds back through.
pub(crate) fn link(link: Link) -> Router {
    Router::new()
        .route("/strait/link", get(show))
        .route("/strait/link/approve", post(approve))
        .with_state(link)
}

/// `GET /strait/resources` shows the files of the folder of resources, and what is wrong with them, to whom `rule`
/// names.
pub(crate) fn resources(status: Arc<FolderStatus>, rule: AccessRule) -> Router {
    Router::new().route("/strait/resources", get(show_resources)).with_state((status, rule))
}

async fn show_resources(
    State((status, rule)): State<(Arc<FolderStatus>, AccessRule)>,
    Extension(user): Extension<User>,
) -> Response {
    if let Err(error) = rule.check(&user, "view the files of the folder of resources") {
        return ApiError::from(error).into_response();
    }
    let (folder, view) = status.view();
    let mut shown = json!({ "folder": folder, "state": view });
    // Problems quote what is in the files.
    redact::json(&mut shown);
    Json(shown).into_response()
}

async fn show(State(link): State<Link>) -> Json<Value> {
    let mut shown = status(&link.status());
    // Reasons quote what was refused.
    redact::json(&mut shown);
    Json(shown)
}

fn status(status: &LinkStatus) -> Value {
    let position = |p: &common::kds::watch::Position| json!({"head": p.head, "acked": p.acked, "lag": p.lag});
    json!({
        "connected": status.connected,
        "standby": status.standby,
        "since": status.since,
        "upstream": status.upstream,
        "down": position(&status.down),
        "up": position(&status.up),
        "clock": status.clock,
        "lastError": status.last_error,
        "heldBack": status.held_back,
        "refusals": status.refusals,
        "withheld": status.withheld,
    })
}

async fn approve(State(link): State<Link>, Extension(user): Extension<User>) -> Response {
    if let Err(error) = AccessRule::admins().check(&user, "approve what global wants removed") {
        return ApiError::from(error).into_response();
    }
    let status = link.status();
    if status.standby {
        let reason = "another replica of this zone follows global: ask that one";
        return ApiError::bad_request(reason).into_response();
    }
    if status.held_back.is_none() {
        return ApiError::bad_request("nothing is held back").into_response();
    }
    tracing::warn!(user = user.name, "an operator approved what was held back from global");
    link.approve();
    (StatusCode::ACCEPTED, Json(json!({}))).into_response()
}
