//! What the API of global has besides the resources: rebuilding it from its zones, the history they are shown, what they
//! are offered again, and the key by which they know what global sends.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use common::{
    access::User,
    offers::{OffersAgain, RefusedSelection},
    rest::{ApiError, Mounted, routes},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::{
    kds::Kds,
    recovery::{Recovery, RecoveryError, RecoveryOptions},
};

const TITLE: &str = "Could not recover";

/// `GET /strait/recovery` shows what rebuilding global from its zones would do, `POST` does it; `GET /strait/epoch`
/// shows which history zones are shown, `POST` raises its epoch. All for those who operate global.
pub(crate) fn recovery(recovery: Recovery) -> Mounted {
    let recovery = Arc::new(recovery);
    Mounted::new()
        .on(const { routes::get("/strait/recovery") }, dry_run, &recovery)
        .on(const { routes::post("/strait/recovery") }, recover, &recovery)
        .on(const { routes::get("/strait/epoch") }, epoch, &recovery)
        .on(const { routes::post("/strait/epoch") }, raise_epoch, &recovery)
}

/// `POST /strait/zones/{zone}/offer` offers a zone again what it refused; `GET /strait/signing-key` shows the public half
/// of the key that signs what zones are sent.
pub(crate) fn zones(kds: &Arc<Kds>) -> Mounted {
    Mounted::new().on(const { routes::post("/strait/zones/{zone}/offer") }, offer_again, kds).on(
        const { routes::get("/strait/signing-key") },
        signing_key,
        kds,
    )
}

async fn offer_again(
    State(kds): State<Arc<Kds>>,
    Path(zone): Path<String>,
    Extension(user): Extension<User>,
    asked: Result<Query<RefusedSelection>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(said) = asked.map_err(|error| ApiError::bad_request(error.body_text()))?;
    let meant = RefusedSelection::parse(&said.kind, &said.mesh, &said.name).map_err(ApiError::bad_request)?;
    if !kds.known_zones().contains(&zone) {
        return Err(ApiError::not_found("Could not offer anything again"));
    }
    tracing::info!(user = user.name, zone, ?meant, "an operator lets a zone be offered what it refused");
    match kds.offer_again(&zone, &meant).await {
        Ok(0) => Err(ApiError::bad_request("the zone refuses nothing of that")),
        Ok(offered) => Ok((StatusCode::ACCEPTED, Json(json!({ "offered": offered }))).into_response()),
        Err(error) => Err(ApiError::bad_request(error.to_string())),
    }
}

async fn signing_key(State(kds): State<Arc<Kds>>) -> Result<Response, ApiError> {
    let Some(key) = kds.signing_key() else {
        let detail =
            "global signs nothing it sends: multizone.global.kds.signingKeyFile names a key for that";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "Signing Key not found", detail));
    };
    Ok(Json(json!({ "id": key.id(), "publicKey": key.public_pem() })).into_response())
}

/// How to recover.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RecoveryQuery {
    /// What only global has, and zones that were further do not, goes.
    remove_absent: bool,
    /// Also without zones that are online and could not be asked.
    partial: bool,
    /// Also where one zone decides against several.
    believe_one: bool,
}

impl RecoveryQuery {
    fn options(&self) -> RecoveryOptions {
        RecoveryOptions { remove_absent: self.remove_absent, believe_one: self.believe_one }
    }
}

type RecoveryAsked = Result<Query<RecoveryQuery>, QueryRejection>;

fn query(asked: RecoveryAsked) -> Result<RecoveryQuery, ApiError> {
    let query = asked.map_err(|error| ApiError::bad_request(error.body_text()))?;
    Ok(query.0)
}

async fn dry_run(State(recovery): State<Arc<Recovery>>, asked: RecoveryAsked) -> Result<Response, ApiError> {
    let report = recovery.dry_run(query(asked)?.options()).await.map_err(failed)?;
    Ok(Json(report).into_response())
}

async fn recover(
    State(recovery): State<Arc<Recovery>>,
    Extension(user): Extension<User>,
    asked: RecoveryAsked,
) -> Result<Response, ApiError> {
    let query = query(asked)?;
    tracing::warn!(user = user.name, ?query, "an operator recovers global from its zones");
    let report = recovery.run(query.options(), query.partial).await.map_err(failed)?;
    Ok(Json(report).into_response())
}

async fn epoch(State(recovery): State<Arc<Recovery>>) -> Response {
    Json(recovery.standing()).into_response()
}

async fn raise_epoch(
    State(recovery): State<Arc<Recovery>>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    tracing::warn!(user = user.name, "an operator raises the epoch");
    let next = recovery.raise_epoch().await.map_err(failed)?;
    Ok(Json(json!({ "storeId": next.store_id, "epoch": next.epoch })).into_response())
}

fn failed(error: RecoveryError) -> ApiError {
    match error {
        RecoveryError::Busy | RecoveryError::Unheard(_) | RecoveryError::Alone { .. } => {
            ApiError::new(StatusCode::CONFLICT, TITLE, error.to_string())
        }
        RecoveryError::Store(error) => ApiError::store(TITLE, &error),
        RecoveryError::Unplanned | RecoveryError::Stopping => ApiError::busy(TITLE, error.to_string()),
    }
}
