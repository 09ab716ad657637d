//! Steering a rollout that is on its way. Who may is who may write what it changes.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::StatusCode,
    response::Response,
};
use serde::Deserialize;
use serde_json::json;

use super::{TITLE, require_global};
use crate::{
    clip::clipped,
    keys::KeySupply,
    model::{
        Resource, ResourceKey,
        kinds::{
            access_role::RoleVerb,
            dataplane, mesh,
            rollout_insight::{HaltReason, RolloutRun, RolloutState, RunRefusal, kept_key},
        },
    },
    registry,
    rest::{ApiError, KindApi, User, commit::Prepared, read::ResourcePath, sync::Preference},
    rollouts::{restored, run_of, with_run},
    store::{Batch, Precondition, Write, index::Index},
};

/// Longest request in bytes.
const BODY_LIMIT: usize = 4 << 10;
/// Bytes of what somebody says about it.
const LONGEST: usize = 512;

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Steering {
    Halt(String),
    Resume,
    Advance,
    Abort,
}

impl Steering {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Halt(_) => "halted",
            Self::Resume => "resumed",
            Self::Advance => "advanced",
            Self::Abort => "aborted",
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HaltRequest {
    /// Why, for those who look at it.
    reason: String,
}

/// `POST /rollouts/{name}/halt`.
pub(super) async fn halt(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = at.api.intake.read(request, BODY_LIMIT).await?;
    let asked: HaltRequest = match body.is_empty() {
        true => HaltRequest::default(),
        false => serde_json::from_slice(&body).map_err(|error| ApiError::bad_request(error.to_string()))?,
    };
    steer(&at, &target.name, &user, Steering::Halt(clipped(asked.reason, LONGEST))).await
}

/// `POST /rollouts/{name}/resume`.
pub(super) async fn resume(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    steer(&at, &target.name, &user, Steering::Resume).await
}

/// `POST /rollouts/{name}/advance`.
pub(super) async fn advance(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    steer(&at, &target.name, &user, Steering::Advance).await
}

/// `POST /rollouts/{name}/abort`.
pub(super) async fn abort(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    steer(&at, &target.name, &user, Steering::Abort).await
}

async fn steer(at: &KindApi, rollout: &str, user: &User, how: Steering) -> Result<Response, ApiError> {
    at.require_writable()?;
    require_global(at)?;
    let prepare = |index: &Index, _: &mut KeySupply| prepared(at, rollout, user, &how, index);
    let (_, revision) = at.api.commit_of_rollout(prepare, None, &user.author()).await?;
    tracing::info!(rollout, user = user.name, step = how.as_str(), "somebody steers a rollout");
    metrics::counter!("rollout_steps_total", "step" => how.as_str()).increment(1);
    let state = run_of(&at.api.index.current(), rollout).map(|(_, run)| run.state);
    let body = json!({ "rollout": rollout, "state": state, "revision": revision });
    Ok(Preference::Usual.answer(StatusCode::OK, body, revision))
}

fn prepared(
    at: &KindApi,
    rollout: &str,
    user: &User,
    how: &Steering,
    index: &Index,
) -> Result<Prepared, ApiError> {
    let (stored, mut run) = run_of(index, rollout).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, TITLE, format!("there is no run of a rollout {rollout:?}"))
    })?;
    for change in &run.changes {
        // Of a type nobody knows any more there is no right.
        let Some(kind) = registry::by_name(&change.kind) else { continue };
        // Keys that a rule made go along with what they are for.
        if !kind.admin_only {
            let key = ResourceKey::new(kind, &change.mesh, &change.name);
            at.require_right(index, user, RoleVerb::Write, &key)?;
        }
    }
    let (now, by) = (at.api.env.now(), user.name.as_str());
    run.stored_at(stored.revision);
    let refused = |refusal: RunRefusal| ApiError::conflict(format!("rollout {rollout}: {refusal}"));
    let mut writes = Vec::new();
    match how {
        Steering::Halt(reason) => {
            let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let text = format!("by {by}{why}");
            run.halt(now, by, vec![HaltReason { about: String::new(), text }]).map_err(refused)?;
        }
        Steering::Resume => run.resume(now, by).map_err(refused)?,
        Steering::Advance => run.advance(now, by).map_err(refused)?,
        Steering::Abort if run.state.is_over() => return Err(refused(RunRefusal::Over)),
        Steering::Abort => {
            writes = back(at, index, rollout, &run)?;
            let kept = run.changes.iter().enumerate().filter(|(_, change)| change.kept);
            writes.extend(kept.map(|(n, _)| Write::delete_when(kept_key(rollout, n), Precondition::None)));
            run.state = RolloutState::Aborted;
            run.note(now, by, "aborted: everybody is back at what was before");
        }
    }
    writes.push(with_run(&stored, &run, now));
    Ok(Prepared { title: TITLE, batch: Batch::of(writes), created: false, warnings: Vec::new() })
}

/// What has to be written so that everything is as it was. Those who waited see no difference.
fn back(at: &KindApi, index: &Index, rollout: &str, run: &RolloutRun) -> Result<Vec<Write>, ApiError> {
    let before = restored(index, rollout, run).map_err(|error| ApiError::internal(TITLE, error))?;
    let mut writes = Vec::new();
    for (key, before) in before {
        let is = index.get(&key);
        // What was in a mesh that is gone stays gone.
        if key.kind.is_mesh_scoped() && index.find(&mesh::KIND, "", &key.mesh).is_none() {
            continue;
        }
        match (before, is) {
            (Some(before), Some(is)) => {
                let status = is.status.clone();
                let restored = Resource { status, modified: at.api.env.now(), ..Resource::clone(&before) };
                writes.push(Write::put_when(restored, Precondition::At(is.revision)));
            }
            (Some(before), None) => {
                writes.push(Write::put_when(Arc::unwrap_or_clone(before), Precondition::Absent));
            }
            (None, Some(is)) => {
                let used = index.list_in_mesh(&dataplane::KIND, is.name()).count();
                if key.kind == &mesh::KIND && used > 0 {
                    let detail = format!(
                        "{key} would go, and there are still {used} dataplanes in it: stop them first"
                    );
                    return Err(ApiError::conflict(detail));
                }
                writes.push(Write::delete_when(key, Precondition::At(is.revision)));
            }
            (None, None) => {}
        }
    }
    // What was in a mesh that goes is gone with it by then.
    writes.sort_by_key(|write| matches!(write, Write::Delete { key, .. } if key.kind == &mesh::KIND));
    Ok(writes)
}
