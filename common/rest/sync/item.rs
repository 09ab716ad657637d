//! Why a zone has, lacks or refuses one resource of global.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};

use super::source;
use crate::{
    kds::outgoing::is_enabled,
    model::{
        Kind, Resource, ResourceKey,
        kinds::{access_role::RoleVerb, zone},
    },
    registry,
    rest::{Api, ApiError, Sending, User, ZoneHealth, ZoneStatus, body::json_response, read::weight_of_all},
    runtime::http::Client,
    store::{Revision, index::Index},
};

const TITLE: &str = "Could not look up a resource of a zone";

/// Which resource, at which zone.
#[derive(Deserialize)]
pub(in crate::rest) struct ItemPath {
    zone: String,
    /// Path of its kind, as in the other routes.
    kind: String,
    name: String,
}

#[derive(Deserialize)]
pub(in crate::rest) struct MeshQuery {
    #[serde(default)]
    mesh: String,
}

/// What `GET /sync/zones/{zone}/{kind}/{name}` answers.
#[derive(Serialize)]
struct ItemSync {
    zone: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    mesh: String,
    name: String,
    state: ItemState,
    /// What an operator should know about it.
    reason: String,
    /// At which revision the resource was written; 0 when there is none.
    revision: Revision,
    /// How far the zone is.
    acked: Revision,
    status: ZoneHealth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ItemState {
    /// The zone has it as it is now.
    Acknowledged,
    /// The zone keeps what it had.
    Refused,
    /// It is meant for the zone, which has not answered for it yet.
    Waiting,
    /// It is meant for the zone and cannot be sent.
    Withheld,
    /// A rollout keeps the zone waiting for it.
    Kept,
    /// It is not meant for the zone.
    Filtered,
    /// There is none on global.
    Absent,
}

/// `GET /sync/zones/{zone}/{kind}/{name}?mesh=default`.
pub(in crate::rest) async fn item(
    State(api): State<Arc<Api>>,
    Extension(user): Extension<User>,
    Path(path): Path<ItemPath>,
    Query(query): Query<MeshQuery>,
    client: Client,
) -> Result<Response, ApiError> {
    source(&api)?;
    let kind = kind(&path.kind)?;
    let index = api.index.current();
    let missing = |what: String| ApiError::new(StatusCode::NOT_FOUND, TITLE, what);
    if index.find(&zone::KIND, "", &path.zone).is_none() {
        return Err(missing(format!("there is no zone {:?}", path.zone)));
    }
    if kind.is_mesh_scoped() && query.mesh.is_empty() {
        let detail = format!("{} is in a mesh: say which with ?mesh=", kind.name);
        return Err(ApiError::bad_request(detail));
    }
    let mesh = if kind.is_mesh_scoped() { query.mesh } else { String::new() };
    let key = ResourceKey::new(kind, &mesh, &path.name);
    api.rights.check_resource_in(&index, &user, RoleVerb::Read, &key)?;
    // Whoever asks first for what leaves has it made, of all there is.
    let bytes = weight_of_all(index.iter());
    let asked = Arc::clone(&api);
    api.make(&client, bytes, move || look(&asked, &index, path.zone, &key)).await
}

/// How the resource of this key is on its way to `zone`.
fn look(api: &Api, index: &Index, zone: String, key: &ResourceKey) -> Result<Response, ApiError> {
    let source = source(api)?;
    let status = source.zone_progress(&zone);
    let resource = index.get(key);
    let (state, reason) = match resource {
        None => match kept(api, index, &zone, key, &status) {
            Some(reason) => (ItemState::Kept, reason),
            None => absent(&status),
        },
        Some(resource) => match source.sending(&zone, resource, index) {
            Sending::NotMeant(reason) => (ItemState::Filtered, reason),
            Sending::Withheld(reason) => (ItemState::Withheld, reason),
            Sending::Refused(reason) => (ItemState::Refused, format!("it keeps what it had: {reason}")),
            Sending::Kept(reason) => (ItemState::Kept, reason),
            Sending::Sent => sent(resource, index.find(&zone::KIND, "", &zone), &status),
        },
    };
    let revision = resource.map_or(0, |resource| resource.revision);
    let (acked, status) = (status.down.acked, status.status);
    let answer = ItemSync {
        zone,
        kind: key.kind.name,
        mesh: key.mesh.to_string(),
        name: key.name.to_string(),
        state,
        reason,
        revision,
        acked,
        status,
    };
    Ok(json_response(StatusCode::OK, &answer))
}

/// The kind with this path.
fn kind(path: &str) -> Result<&'static Kind, ApiError> {
    let kind = registry::ALL.iter().copied().find(|kind| !kind.path.is_empty() && kind.path == path);
    kind.ok_or_else(|| {
        let detail = format!("there is no type with the path {path:?}");
        ApiError::new(StatusCode::NOT_FOUND, TITLE, detail)
    })
}

/// That the zone still has what a rollout deleted.
fn kept(api: &Api, index: &Index, zone: &str, key: &ResourceKey, status: &ZoneStatus) -> Option<String> {
    let runs = api.rollouts.runs(index);
    let run = runs.active().find(|run| run.is_of(key))?;
    run.reason(zone, status.relay.as_deref())
}

fn absent(status: &ZoneStatus) -> (ItemState, String) {
    let acked = status.down.acked;
    let reason = format!("global has none; what was deleted after revision {acked} the zone may still have");
    (ItemState::Absent, reason)
}

/// How far a resource is on its way that nothing is against.
fn sent(resource: &Resource, zone: Option<&Arc<Resource>>, status: &ZoneStatus) -> (ItemState, String) {
    let (revision, acked) = (resource.revision, status.down.acked);
    if acked >= revision {
        return (ItemState::Acknowledged, format!("it has answered for revision {acked}"));
    }
    let why = match status.status {
        _ if zone.is_some_and(|zone| !is_enabled(zone)) => "the zone is disabled",
        ZoneHealth::Online => "the zone is online and has not answered for it yet",
        ZoneHealth::Unknown => "the zone is silent, or has not come back yet",
        ZoneHealth::Offline => "the zone is offline and gets it when it is back",
    };
    (ItemState::Waiting, format!("{why}: it is at revision {acked}, the resource at {revision}"))
}
