//! Steering a rollout that is on its way. Who may is who may write what it changes; and stop it and take it back may
//! whoever decides about the rollout.

use std::{collections::BTreeSet, sync::Arc};

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
            dataplane, mesh, rollout,
            rollout_insight::{HaltReason, RolloutRun, RunRefusal, kept_key},
            secret::SECRET,
        },
        labels,
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
    let (api, step) = (Arc::clone(&at.api), how.as_str());
    let asked = SteerRequest { at: at.clone(), rollout: rollout.to_owned(), user: user.clone(), how };
    let decide = move |index: &Index, _: &mut KeySupply| asked.prepared(index);
    let (done, committed) = api.commit_apart(Arc::new(decide), &user.author()).await?;
    tracing::info!(rollout, user = user.name, step, "somebody steers a rollout");
    metrics::counter!("rollout_steps_total", "step" => step).increment(1);
    let state = run_of(&api.index.current(), rollout).map(|(_, run)| run.state);
    let revision = committed.revision;
    let body = json!({ "rollout": rollout, "state": state, "revision": revision, "warnings": done.warnings });
    Ok(committed.answered(Preference::Usual.answer(StatusCode::OK, body, revision)))
}

/// Who does what.
struct SteerRequest {
    at: KindApi,
    rollout: String,
    user: User,
    how: Steering,
}

impl SteerRequest {
    fn prepared(&self, index: &Index) -> Result<Prepared, ApiError> {
        let Self { at, rollout, user, how } = self;
        let (stored, mut run) = run_of(index, rollout).ok_or_else(|| {
            ApiError::new(StatusCode::NOT_FOUND, TITLE, format!("there is no run of a rollout {rollout:?}"))
        })?;
        self.require_right(index, &run)?;
        let (now, by) = (at.api.env.now(), user.name.as_str());
        run.stored_at(stored.revision);
        let refused = |refusal: RunRefusal| ApiError::conflict(format!("rollout {rollout}: {refusal}"));
        let (mut writes, mut warnings) = (Vec::new(), Vec::new());
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
                (writes, warnings) = back(at, index, rollout, &run)?;
                if let Some(objection) = at.api.rollouts.held(index, &writes, Some(rollout)) {
                    return Err(ApiError::conflict(objection.to_string()));
                }
                let kept = run.changes.iter().enumerate().filter(|(_, change)| change.kept);
                writes
                    .extend(kept.map(|(n, _)| Write::delete_when(kept_key(rollout, n), Precondition::None)));
                let text = "aborted: everybody is back at what was before".to_owned();
                let text = warnings.iter().fold(text, |text, warning| format!("{text}; {warning}"));
                run.abort(now, by, text);
            }
        }
        writes.push(with_run(&stored, &run, now));
        Ok(Prepared { title: TITLE, batch: Batch::of(writes), created: false, warnings })
    }

    /// 403 unless the user may do to each resource what this does to it; or decides about the rollout, who may always
    /// stop it and take it back.
    fn require_right(&self, index: &Index, run: &RolloutRun) -> Result<(), ApiError> {
        let Self { at, rollout, user, how } = self;
        let rights = at.api.rights.of(index, user);
        if matches!(how, Steering::Halt(_) | Steering::Abort) {
            let key = ResourceKey::global(&rollout::KIND, rollout);
            if rights.check_resource(index, RoleVerb::Write, &key).is_ok() {
                return Ok(());
            }
        }
        for change in &run.changes {
            // Of a type nobody knows any more there is no right.
            let Some(kind) = registry::by_name(&change.kind) else { continue };
            // Keys that a rule made go along with what they are for.
            if kind.admin_only {
                continue;
            }
            let verb = match (how, change.op.as_str()) {
                (Steering::Abort, "create") | (Steering::Resume | Steering::Advance, "delete") => {
                    RoleVerb::Delete
                }
                _ => RoleVerb::Write,
            };
            rights.check_resource(index, verb, &ResourceKey::new(kind, &change.mesh, &change.name))?;
        }
        Ok(())
    }
}

/// What has to be written so that everything is as it was, and what cannot be. Those who waited see no difference.
fn back(
    at: &KindApi,
    index: &Index,
    rollout: &str,
    run: &RolloutRun,
) -> Result<(Vec<Write>, Vec<String>), ApiError> {
    let (mut writes, mut warnings) = (Vec::new(), Vec::new());
    for former in restored(index, rollout, run) {
        let (key, before) = match former {
            Ok(former) => former,
            Err(error) => {
                warnings.push(format!("{} stays as it is: {error}", error.of));
                continue;
            }
        };
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
                if key.kind == &mesh::KIND {
                    require_alone(index, &key, run)?;
                }
                writes.push(Write::delete_when(key, Precondition::At(is.revision)));
            }
            (None, None) => {}
        }
    }
    // What was in a mesh that goes is gone with it by then.
    writes.sort_by_key(|write| matches!(write, Write::Delete { key, .. } if key.kind == &mesh::KIND));
    Ok((writes, warnings))
}

/// Refuses to take back a mesh in which somebody else has something by now: it would go as well.
fn require_alone(index: &Index, mesh: &ResourceKey, run: &RolloutRun) -> Result<(), ApiError> {
    let used = index.list_in_mesh(&dataplane::KIND, &mesh.name).count();
    if used > 0 {
        let detail = format!("{mesh} would go, and there are still {used} dataplanes in it: stop them first");
        return Err(ApiError::conflict(detail));
    }
    let of_run: BTreeSet<(&str, &str)> = run
        .changes
        .iter()
        .filter(|change| *change.mesh == *mesh.name)
        .map(|change| (change.kind.as_str(), change.name.as_str()))
        .collect();
    let all = registry::ALL.iter().filter(|kind| kind.is_mesh_scoped() && !kind.read_only);
    let inside = all.flat_map(|kind| index.list_in_mesh(kind, &mesh.name));
    let others: Vec<&Arc<Resource>> = inside
        .filter(|inside| !of_run.contains(&(inside.kind().name, inside.name())))
        // Certificates that zones were given for the mesh are made of it.
        .filter(|inside| inside.kind() != &SECRET || inside.label(labels::ISSUER).is_none())
        .collect();
    let Some(first) = others.first() else { return Ok(()) };
    let detail = format!(
        "{mesh} would go, and with it {}: delete that first, if it is to go",
        match others.len() {
            1 => format!("{}, which is no part of the rollout", first.key),
            count => format!("{count} resources that are no part of the rollout, such as {}", first.key),
        }
    );
    Err(ApiError::conflict(detail))
}
