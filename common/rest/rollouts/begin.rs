//! Beginning a rollout: everything it changes, what was there before, and who has to wait, in one batch.

mod asked;
mod changed;

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use self::{
    asked::{RolloutDraft, drafts},
    changed::changed,
};
use super::{TITLE, WaveSeen, require_global, rules::require_share};
use crate::{
    keys::KeySupply,
    model::{
        Resource, ResourceKey, Spec,
        kinds::{
            access_role::RoleVerb,
            rollout::{self, Rollout},
            rollout_insight::{self, RolloutRun},
            zone,
        },
    },
    rest::{
        ApiError, KindApi, User,
        body::json_response,
        commit::{Prepared, foresee},
        history::is_as_it_is,
        precondition::Conditions,
        read::ResourcePath,
        sync::Preference,
        write::{WrittenBy, deletion},
    },
    rollouts::{active_run, kept_write, planned_waves},
    runtime::http::Client,
    store::{Batch, Precondition, Write, index::Index},
};

/// Runs on their way at a time: each is looked at with every write, and kept back from every zone that waits.
const MOST_RUNS: usize = 16;

/// `POST /rollouts/{name}/begin`.
pub(super) async fn begin(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    at.require_writable()?;
    require_global(&at)?;
    let api = Arc::clone(&at.api);
    let body = api.intake.read(request, api.config.body_limit).await?;
    // It holds many documents until all is answered.
    let _past = api.past.take(&client).await?;
    let (drafts, dry_run) = api.intake.work(body, drafts).await?;
    let (rollout, author) = (target.name.clone(), user.author());
    let run_id = api.env.entropy.uuid().to_string();
    let beginning = Arc::new(Beginning { at, user, rollout: target.name, run_id, drafts });
    if dry_run {
        let index = api.index.current();
        let answer = move || {
            let (done, run) = beginning.prepared(&index, &mut KeySupply::default())?;
            Ok(json_response(StatusCode::OK, &shown(&rollout, &run, &done.warnings, true)))
        };
        let turn = client.turn().await?;
        return api.make_in(turn, answer).await;
    }
    let decide = move |index: &Index, keys: &mut KeySupply| {
        beginning.prepared(index, keys).map(|(prepared, _)| prepared)
    };
    let (done, committed) = api.commit_apart(Arc::new(decide), &author).await?;
    let run = crate::rollouts::run_of(&api.index.current(), &rollout).map(|(_, run)| run).unwrap_or_default();
    metrics::counter!("rollout_steps_total", "step" => "begun").increment(1);
    let answer = move || {
        let mut answer = shown(&rollout, &run, &done.warnings, false);
        let revision = committed.revision;
        answer["revision"] = revision.into();
        Ok(committed.answered(Preference::Usual.answer(StatusCode::CREATED, answer, revision)))
    };
    // What is done is answered in any case: no more of these are made at once than have their turn above.
    let turn = client.turn().await.unwrap_or_default();
    api.make_in(turn, answer).await
}

fn shown(rollout: &str, run: &RolloutRun, warnings: &[String], dry_run: bool) -> Value {
    json!({ "rollout": rollout, "dryRun": dry_run, "state": run.state, "waves": run.waves, "changes": run.changes,
        "warnings": warnings })
}

/// Who begins what.
struct Beginning {
    at: KindApi,
    user: User,
    rollout: String,
    run_id: String,
    drafts: Vec<RolloutDraft>,
}

impl Beginning {
    /// All of it as one batch, and the run.
    fn prepared(&self, index: &Index, keys: &mut KeySupply) -> Result<(Prepared, RolloutRun), ApiError> {
        let Self { at, user, rollout, .. } = self;
        let key = ResourceKey::global(&rollout::KIND, rollout);
        // A run keeps others from the rollout, and from whatever may go out by this one only.
        at.require_right(index, user, RoleVerb::Write, &key)?;
        let stored = index.get(&key).ok_or_else(|| {
            let detail =
                format!("there is no rollout {rollout:?}: `straitctl get rollouts` lists what there is");
            ApiError::new(StatusCode::NOT_FOUND, TITLE, detail)
        })?;
        self.require_place(index)?;
        let (mut writes, warnings) = self.changing(index, keys)?;
        at.api.require_free(index, &writes, Some(rollout))?;
        let (now, spec) = (at.api.env.now(), stored.spec::<Rollout>().unwrap_or_default());
        let (changes, before) = changed(index, &writes)?;
        let zones = index.list(&zone::KIND).map(Arc::as_ref);
        let waves = planned_waves(&spec, zones)
            .map_err(|error| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, TITLE, error.to_string()))?;
        let mut run = RolloutRun {
            id: self.run_id.clone(),
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
            let kept =
                kept_write(rollout, n, &before, now).map_err(|error| ApiError::internal(TITLE, error))?;
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

    /// Refuses a second run of the rollout, and one too many of all, or of those the user has a say in.
    fn require_place(&self, index: &Index) -> Result<(), ApiError> {
        let Self { at, user, rollout, .. } = self;
        if let Some((_, run)) = active_run(index, rollout) {
            let (state, wave) = (run.state.as_str(), run.wave_name(run.wave));
            let detail = format!(
                "rollout {rollout} is {state} at {wave}: wait for its end, or `straitctl rollout abort {rollout}`"
            );
            return Err(ApiError::conflict(detail));
        }
        let runs = at.api.rollouts.runs(index);
        if runs.active().count() < MOST_RUNS {
            let (rights, taken) = (at.api.rights.of(index, user), runs.active().map(|run| &*run.rollout));
            return require_share(
                index,
                &rights,
                taken,
                MOST_RUNS,
                "runs on their way: wait for the end of one",
            );
        }
        let names: Vec<&str> = runs.active().take(MOST_RUNS).map(|run| &*run.rollout).collect();
        let detail = format!(
            "{MOST_RUNS} rollouts are on their way, and no more may be: wait for the end of one of {}",
            names.join(", ")
        );
        Err(ApiError::conflict(detail))
    }

    /// The writes that make the change, each decided on what those before it leave.
    fn changing(&self, index: &Index, keys: &mut KeySupply) -> Result<(Vec<Write>, Vec<String>), ApiError> {
        let Self { at, user, drafts, .. } = self;
        let mut rights = at.api.rights.of(index, user);
        let (mut scratch, mut writes, mut warnings) = (index.clone(), Vec::new(), Vec::new());
        let planned: BTreeSet<&ResourceKey> = drafts.iter().map(|draft| &draft.key).collect();
        for RolloutDraft { key, body } in drafts {
            let of_kind = KindApi { api: Arc::clone(&at.api), kind: key.kind };
            of_kind.require_written_here()?;
            let target = ResourcePath { mesh: key.mesh.to_string(), name: key.name.to_string() };
            let conditions = Conditions::default();
            rights.move_to(&scratch);
            let prepared = match body {
                Some(body) => body
                    .prepare(&of_kind, &scratch, keys, &target, &conditions, WrittenBy::Client)
                    .and_then(|prepared| of_kind.require_written(&scratch, &rights, prepared)),
                None => deletion(&of_kind, &scratch, &target, &conditions, WrittenBy::Client, || {
                    Ok(rights.check_resource(&scratch, RoleVerb::Delete, key)?)
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
}
