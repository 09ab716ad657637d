//! Beginning a rollout: everything it changes, what was there before, and who has to wait, in one batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::StatusCode,
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{TITLE, WaveSeen, require_global};
use crate::{
    keys::KeySupply,
    model::{
        Resource, ResourceKey, Spec,
        kinds::{
            access_role::RoleVerb,
            mesh,
            rollout::{self, Rollout},
            rollout_insight::{self, RolloutChange, RolloutRun},
            zone,
        },
        text,
    },
    registry,
    rest::{
        ApiError, KindApi, User,
        body::json_response,
        commit::{Prepared, foresee},
        history::is_as_it_is,
        precondition::Conditions,
        read::ResourcePath,
        sync::Preference,
        write::{ValidBody, WrittenBy, deletion},
    },
    rollouts::{active_run, kept_write, planned_waves},
    store::{Batch, Precondition, Write, index::Index},
};

/// Resources one run may change.
const MOST_CHANGES: usize = 200;
/// Bytes of what they were before.
const MOST_BYTES: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BeginRequest {
    /// Documents, as a put takes them.
    #[serde(default)]
    resources: Vec<Value>,
    /// What is to be deleted.
    #[serde(default)]
    deletes: Vec<DeleteRequest>,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteRequest {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mesh: String,
    name: String,
}

/// What is done to one resource.
struct RolloutDraft {
    key: ResourceKey,
    /// What is written; nothing when it is deleted.
    body: Option<ValidBody>,
}

/// `POST /rollouts/{name}/begin`.
pub(super) async fn begin(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Response, ApiError> {
    at.require_writable()?;
    require_global(&at)?;
    let api = &at.api;
    let body = api.intake.read(request, api.config.body_limit).await?;
    let (drafts, dry_run) = api.intake.work(body, drafts).await?;
    let rollout = target.name;
    let run_id = api.env.entropy.uuid().to_string();
    let prepare = |index: &Index, keys: &mut KeySupply| {
        prepared(&at, &user, &rollout, &run_id, &drafts, index, keys).map(|(prepared, _)| prepared)
    };
    if dry_run {
        let index = api.index.current();
        let (done, run) =
            prepared(&at, &user, &rollout, &run_id, &drafts, &index, &mut KeySupply::default())?;
        return Ok(json_response(StatusCode::OK, &shown(&rollout, &run, &done.warnings, true)));
    }
    let (done, revision) = api.commit_of_rollout(prepare, None, &user.author()).await?;
    let run = crate::rollouts::run_of(&api.index.current(), &rollout).map(|(_, run)| run).unwrap_or_default();
    metrics::counter!("rollout_steps_total", "step" => "begun").increment(1);
    let mut answer = shown(&rollout, &run, &done.warnings, false);
    answer["revision"] = revision.into();
    Ok(Preference::Usual.answer(StatusCode::CREATED, answer, revision))
}

fn shown(rollout: &str, run: &RolloutRun, warnings: &[String], dry_run: bool) -> Value {
    json!({ "rollout": rollout, "dryRun": dry_run, "state": run.state, "waves": run.waves, "changes": run.changes,
        "warnings": warnings })
}

/// What the body asks for, meshes first.
fn drafts(body: &[u8]) -> Result<(Vec<RolloutDraft>, bool), ApiError> {
    let json = text::json(body, text::TextLimits::BODY)
        .map_err(|error| ApiError::bad_request(format!("the request body is not JSON: {error}")))?;
    let asked: BeginRequest =
        serde_json::from_value(json).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mut drafts = Vec::new();
    for document in &asked.resources {
        let named = |member: &str| document.get(member).and_then(Value::as_str).unwrap_or_default();
        let key = target(named("type"), named("mesh"), named("name"))?;
        let body = ValidBody::of_json(key.kind, document).map_err(|error| error.about(&key))?;
        drafts.push(RolloutDraft { key, body: Some(body) });
    }
    for delete in &asked.deletes {
        let key = target(&delete.kind, &delete.mesh, &delete.name)?;
        if key.kind == &mesh::KIND {
            let detail = format!(
                "{key}: a mesh is deleted at once, and with all that is in it: do it without a rollout"
            );
            return Err(ApiError::bad_request(detail));
        }
        drafts.push(RolloutDraft { key, body: None });
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = drafts.iter().find(|draft| !seen.insert(&draft.key)) {
        return Err(ApiError::bad_request(format!("{} is there twice", twice.key)));
    }
    if drafts.is_empty() {
        return Err(ApiError::bad_request("there is nothing to roll out: name resources or deletes"));
    }
    drafts.sort_by_key(|draft| draft.key.kind != &mesh::KIND);
    Ok((drafts, asked.dry_run))
}

/// What is called so, if it can go out in waves.
fn target(kind: &str, mesh: &str, name: &str) -> Result<ResourceKey, ApiError> {
    let found = registry::by_name(kind).filter(|kind| !kind.path.is_empty());
    let kind = found.ok_or_else(|| ApiError::bad_request(format!("there is no type {kind:?}")))?;
    let mesh = match (kind.is_mesh_scoped(), mesh) {
        (false, _) => "",
        (true, "") => "default",
        (true, mesh) => mesh,
    };
    if !kind.flow.global_to_zone() || kind.read_only {
        let detail =
            format!("{} {name:?} does not go from global to zones: apply it without a rollout", kind.name);
        return Err(ApiError::bad_request(detail));
    }
    if kind.admin_only {
        let detail =
            format!("{} {name:?} cannot be kept for going back: apply it without a rollout", kind.name);
        return Err(ApiError::bad_request(detail));
    }
    if name.is_empty() {
        return Err(ApiError::bad_request(format!("a {} has no name", kind.name)));
    }
    Ok(ResourceKey::new(kind, mesh, name))
}

/// All of it as one batch, and the run.
fn prepared(
    at: &KindApi,
    user: &User,
    rollout: &str,
    run_id: &str,
    drafts: &[RolloutDraft],
    index: &Index,
    keys: &mut KeySupply,
) -> Result<(Prepared, RolloutRun), ApiError> {
    let stored = index.find(&rollout::KIND, "", rollout).ok_or_else(|| {
        let detail = format!("there is no rollout {rollout:?}: `straitctl get rollouts` lists what there is");
        ApiError::new(StatusCode::NOT_FOUND, TITLE, detail)
    })?;
    if let Some((_, run)) = active_run(index, rollout) {
        let (state, wave) = (run.state.as_str(), run.wave_name(run.wave));
        let detail = format!(
            "rollout {rollout} is {state} at {wave}: wait for its end, or `straitctl rollout abort {rollout}`"
        );
        return Err(ApiError::conflict(detail));
    }
    let (mut writes, warnings) = changing(at, user, drafts, index, keys)?;
    at.api.require_free(index, &writes, Some(rollout))?;
    let (now, spec) = (at.api.env.now(), stored.spec::<Rollout>().unwrap_or_default());
    let (changes, before) = changed(index, &writes)?;
    let zones = index.list(&zone::KIND).map(Arc::as_ref);
    let waves = planned_waves(&spec, zones)
        .map_err(|error| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, TITLE, error.to_string()))?;
    let mut run = RolloutRun {
        id: run_id.to_owned(),
        by: user.name.clone(),
        begun: now,
        waves,
        halt_on: spec.halt_on,
        changes,
        ..RolloutRun::default()
    };
    run.note(now, &user.name, format!("begun, with {} changes", run.changes.len()));
    let seen = at.api.config.zone_status.as_deref().map(|source| WaveSeen::of(source, index, &run, 0));
    let WaveSeen { away, standing } = seen.unwrap_or_default();
    run.release(0, now, away, standing);
    // Keys that are still to be made are left out; the batch is decided again with them.
    for (n, before) in before {
        let kept = kept_write(rollout, n, &before, now).map_err(|error| ApiError::internal(TITLE, error))?;
        writes.push(kept);
    }
    let key = ResourceKey::global(&rollout_insight::KIND, rollout);
    let former = index.get(&key);
    let when = former.map_or(Precondition::Absent, |former| Precondition::At(former.revision));
    let mut insight = Resource::new(key, now).with_spec(run.encode());
    insight.owner = Some(stored.key.clone());
    // After what it owns is written, which it may have owned before.
    writes.push(Write::put_when(insight, when));
    writes.push(Write::as_it_is(stored));
    Ok((Prepared { title: TITLE, batch: Batch::of(writes), created: true, warnings }, run))
}

/// The writes that make the change, each decided on what those before it leave.
fn changing(
    at: &KindApi,
    user: &User,
    drafts: &[RolloutDraft],
    index: &Index,
    keys: &mut KeySupply,
) -> Result<(Vec<Write>, Vec<String>), ApiError> {
    let (mut scratch, mut writes, mut warnings) = (index.clone(), Vec::new(), Vec::new());
    let planned: BTreeSet<&ResourceKey> = drafts.iter().map(|draft| &draft.key).collect();
    for RolloutDraft { key, body } in drafts {
        let of_kind = KindApi { api: Arc::clone(&at.api), kind: key.kind };
        of_kind.require_written_here()?;
        let target = ResourcePath { mesh: key.mesh.to_string(), name: key.name.to_string() };
        let conditions = Conditions::default();
        let prepared = match body {
            Some(body) => body
                .prepare(&of_kind, &scratch, keys, &target, &conditions, WrittenBy::Client)
                .and_then(|prepared| of_kind.require_written(&scratch, user, prepared)),
            None => deletion(&of_kind, &scratch, &target, &conditions, WrittenBy::Client, || {
                of_kind.require_right(&scratch, user, RoleVerb::Delete, key)
            }),
        };
        let prepared = prepared.map_err(|error| error.about(key))?;
        for write in prepared.batch.writes {
            // What another document says is not for the rules of this one, nor is a condition on what it wrote.
            if write.key() != key && planned.contains(write.key()) {
                continue;
            }
            if !is_as_it_is(&write) || write.key() == key {
                foresee(&mut scratch, &write);
            }
            writes.push(write);
        }
        warnings.extend(prepared.warnings);
    }
    Ok((writes, warnings))
}

type BeforeRollout = Vec<(usize, Arc<Resource>)>;

/// What `writes` change of what zones get, and what of that was there before.
fn changed(index: &Index, writes: &[Write]) -> Result<(Vec<RolloutChange>, BeforeRollout), ApiError> {
    let mut last: BTreeMap<&ResourceKey, &Write> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.key().kind.flow.global_to_zone()) {
        last.insert(write.key(), write);
    }
    let (mut changes, mut kept, mut bytes) = (Vec::new(), BeforeRollout::new(), 0);
    for (key, write) in last {
        let before = index.get(key);
        let op = match (write, before) {
            (Write::PutStatus { .. }, _) | (Write::Delete { .. }, None) => continue,
            (Write::Put { resource, .. }, Some(before)) => {
                if before.spec == resource.spec && before.labels == resource.labels {
                    continue;
                }
                "update"
            }
            (Write::Put { .. }, None) => "create",
            (Write::Delete { .. }, Some(_)) => "delete",
        };
        // Keys that a rule renews are nothing to go back to.
        if key.kind.admin_only && before.is_some() {
            continue;
        }
        if let Some(before) = before {
            bytes += before.spec.len() + before.labels.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            kept.push((changes.len(), Arc::clone(before)));
        }
        changes.push(RolloutChange {
            kind: key.kind.name.to_owned(),
            mesh: key.mesh.to_string(),
            name: key.name.to_string(),
            op: op.to_owned(),
            kept: before.is_some(),
        });
    }
    if changes.is_empty() {
        return Err(ApiError::bad_request("nothing would change: everything is like that already"));
    }
    if changes.len() > MOST_CHANGES {
        let detail = format!(
            "these are {} changes, and a rollout keeps at most {MOST_CHANGES} for going back: make it smaller",
            changes.len()
        );
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, TITLE, detail));
    }
    if bytes > MOST_BYTES {
        let detail = format!(
            "what is there now has {bytes} bytes, and a rollout keeps at most {MOST_BYTES} for going back: make it \
             smaller"
        );
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, TITLE, detail));
    }
    Ok((changes, kept))
}
