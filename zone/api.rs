//! What the API of a zone has besides the resources: its link to global and its proxies.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use common::{
    access::User,
    offers::RefusedSelection,
    redact,
    rest::{ApiError, Mounted, routes},
    store::index::IndexReader,
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    folder::FolderStatus,
    kds::{Link, LinkStatus, MoveError, MoveTarget, Moves},
};

/// `GET /strait/link` shows how the zone stands with global; `POST /strait/link/approve` lets what the delete fuse holds
/// back through; `POST /strait/link/offer` offers global again what it refused. `POST /strait/link/move` lets it look at
/// another global, `DELETE` gives that up, and `POST /strait/link/move/commit` lets it follow that one.
pub(crate) fn link(link: Link, moves: Moves, index: IndexReader) -> Mounted {
    let shown = (link.clone(), moves.clone(), index);
    let linked = (link, moves);
    Mounted::new()
        .on(const { routes::get("/strait/link") }, show, &shown)
        .on(const { routes::post("/strait/link/approve") }, approve, &linked)
        .on(const { routes::post("/strait/link/offer") }, offer_again, &linked)
        .on(const { routes::post("/strait/link/move") }, begin_move, &linked)
        .on(const { routes::delete("/strait/link/move") }, end_move, &linked)
        .on(const { routes::post("/strait/link/move/commit") }, commit_move, &linked)
}

/// `GET /strait/resources` shows the files of the folder of resources, and what is wrong with them.
pub(crate) fn resources(status: Arc<FolderStatus>) -> Mounted {
    Mounted::new().on(const { routes::get("/strait/resources") }, show_resources, &status)
}

async fn show_resources(State(status): State<Arc<FolderStatus>>) -> Response {
    let (folder, view) = status.view();
    let mut shown = json!({ "folder": folder, "state": view });
    // Problems quote what is in the files.
    redact::json(&mut shown);
    Json(shown).into_response()
}

type Linked = State<(Link, Moves)>;

async fn show(State((link, moves, index)): State<(Link, Moves, IndexReader)>) -> Json<Value> {
    let mut shown = status(&link.status());
    shown["signatures"] = json!(link.signatures(&index.current()));
    if let Some(moving) = moves.status() {
        shown["move"] = json!(moving);
    }
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
        "protocol": status.protocol,
        "upstream": status.upstream,
        "down": position(&status.down),
        "up": position(&status.up),
        "clock": status.clock,
        "shown": status.credentials,
        "warnings": status.warnings,
        "lastError": status.last_error,
        "heldBack": status.held_back,
        "refusals": status.refusals,
        "withheld": status.withheld,
        "sent": status.sent,
        "received": status.received,
    })
}

async fn approve(State((link, _)): Linked, Extension(user): Extension<User>) -> Response {
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

async fn offer_again(
    State((link, _)): Linked,
    Extension(user): Extension<User>,
    asked: Result<Query<RefusedSelection>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(said) = asked.map_err(|error| ApiError::bad_request(error.body_text()))?;
    let meant = RefusedSelection::parse(&said.kind, &said.mesh, &said.name).map_err(ApiError::bad_request)?;
    if link.status().standby {
        return Err(ApiError::bad_request("another replica of this zone follows global: ask that one"));
    }
    tracing::info!(user = user.name, ?meant, "an operator lets global be offered what it refused");
    match link.offer_again(meant).await {
        Some(0) => Err(ApiError::bad_request("global refuses nothing of that")),
        Some(offered) => Ok((StatusCode::ACCEPTED, Json(json!({ "offered": offered }))).into_response()),
        None => Err(ApiError::bad_request(
            "this zone is not connected to global: it offers all it has when it is",
        )),
    }
}

/// Refuses where another replica is the one that follows global.
fn may_move(link: &Link) -> Result<(), ApiError> {
    if link.status().standby {
        return Err(ApiError::bad_request("another replica of this zone follows global: ask that one"));
    }
    Ok(())
}

async fn begin_move(
    State((link, moves)): Linked,
    Extension(user): Extension<User>,
    target: Result<Json<MoveTarget>, JsonRejection>,
) -> Result<Response, ApiError> {
    may_move(&link)?;
    let Json(target) = target.map_err(|error| ApiError::bad_request(error.body_text()))?;
    tracing::warn!(user = user.name, to = target.to, "an operator lets this zone look at another global");
    moves.begin(target).await.map_err(not_moved)?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CommitQuery {
    /// What the other global does not have goes.
    accept_losses: bool,
}

async fn commit_move(
    State((link, moves)): Linked,
    Query(query): Query<CommitQuery>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    may_move(&link)?;
    moves.commit(query.accept_losses).await.map_err(not_moved)?;
    tracing::warn!(user = user.name, "an operator moved this zone to another global");
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

async fn end_move(State((link, moves)): Linked) -> Result<Response, ApiError> {
    may_move(&link)?;
    moves.back().await.map_err(not_moved)?;
    Ok(Json(json!({})).into_response())
}

fn not_moved(error: MoveError) -> ApiError {
    const TITLE: &str = "Could not move the zone";
    match error {
        MoveError::Store(error) => ApiError::store(TITLE, &error),
        MoveError::Incomplete(_) | MoveError::Missing(..) => {
            ApiError::new(StatusCode::CONFLICT, TITLE, error.to_string())
        }
        MoveError::None | MoveError::Committed(_) | MoveError::TooLong(_) | MoveError::Dial(_) => {
            ApiError::new(StatusCode::BAD_REQUEST, TITLE, error.to_string())
        }
    }
}
