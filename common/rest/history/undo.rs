//! Taking changes back: of one revision, or everything since one, as one transaction.
//!
//! A plan is made of the history and carried out as the puts and deletes of a client would be, on one index, with
//! the same rights, rules and side effects; so what may not be written any more stops all of it. Only what people
//! asked for is taken back: what zones, global and files say would come again.

mod answer;
mod plan;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderValue, StatusCode},
    response::Response,
};
use serde::Deserialize;
use serde_json::Value;

use self::{
    answer::UndoView,
    plan::{UndoPlan, UndoStep},
};
use super::{TITLE, UNDO, failed, number, require_known_since, time};
use crate::{
    keys::KeySupply,
    model::{
        Resource,
        kinds::{access_role::RoleVerb, mesh, rollout_insight},
    },
    rest::{
        Api, ApiError, KindApi, REVISION, User,
        commit::{Prepared, foresee},
        precondition::Conditions,
        read::{ResourcePath, render, weight},
        write::{ValidBody, WrittenBy, deletion},
    },
    runtime::http::Client,
    store::{
        Batch, Precondition, Revision, Write,
        history::{HistoryOp, HistoryQuery},
        index::Index,
    },
};

/// Longest request in bytes.
const BODY_LIMIT: usize = 4 << 10;
/// Changes that are taken back together.
const MOST: usize = 1_000;
/// Bytes of what there is and of what there was that are changed together.
const LONGEST: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UndoRequest {
    /// Take back this revision.
    revision: Option<Revision>,
    /// Take back everything after this revision, or since this time.
    since: Option<Value>,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// `POST /history/undo`.
pub(super) async fn undo(
    State(api): State<Arc<Api>>,
    Extension(user): Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    if api.config.read_only {
        return Err(ApiError::read_only("this control plane is configured to be read-only"));
    }
    let body = api.intake.read(request, BODY_LIMIT).await?;
    let asked: UndoRequest =
        serde_json::from_slice(&body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    // It holds what resources were until all is answered.
    let _past = api.past.take(&client).await?;
    let (mut plan, until) = api.plan(&user, &asked).await?;
    let index = api.index.current();
    api.read_steps(&user, &index, &mut plan).await?;
    if let Some(revision) = until {
        api.require_last(&plan, revision).await?;
    }
    plan.require_last_known(&index)?;
    let author = user.author();
    let drafting = Arc::clone(&api);
    let undoing = api.making.long(move || Undoing::drafted(drafting, user, plan)).await?;
    let undoing = Arc::new(undoing);
    if asked.dry_run || undoing.plan.steps.is_empty() {
        let answer = move || {
            // Says as well what would stop it.
            undoing.prepared(&index, &mut KeySupply::default())?;
            Ok(undoing.view(&index).answer(None))
        };
        let turn = client.turn().await?;
        return api.make_in(turn, answer).await;
    }
    let deciding = Arc::clone(&undoing);
    let decide = move |index: &Index, keys: &mut KeySupply| deciding.prepared(index, keys);
    let (_, committed) = api.commit_apart(Arc::new(decide), &author).await?;
    let revision = committed.revision;
    let answer = move || {
        let mut answer = undoing.view(&index).answer(Some(revision));
        answer.headers_mut().insert(REVISION, HeaderValue::from(revision));
        Ok(committed.answered(answer))
    };
    // What is done is answered in any case: no more of these are made at once than have their turn above.
    let turn = client.turn().await.unwrap_or_default();
    api.make_in(turn, answer).await
}

impl Api {
    /// What is to be done, by names alone, and the revision that is meant where it is one.
    async fn plan(
        self: &Arc<Self>,
        user: &User,
        asked: &UndoRequest,
    ) -> Result<(UndoPlan, Option<Revision>), ApiError> {
        // What the index shows is in the history that is read after it.
        let known = self.index.current().revision;
        let (after, until) = match (asked.revision, &asked.since) {
            (Some(0), None) => return Err(ApiError::bad_request("revision: must be a number above zero")),
            (Some(revision), None) => (revision - 1, Some(revision)),
            (None, Some(since)) => (self.since(since).await?, None),
            _ => return Err(ApiError::bad_request("name either a revision or since when")),
        };
        let query = HistoryQuery { after, oldest_first: true, limit: MOST + 1, ..HistoryQuery::default() };
        let query = match until {
            Some(until) => HistoryQuery { until, ..query },
            None => query,
        };
        let found = self.store.history(&query).await.map_err(|error| failed(&error))?;
        // Of others, only what lies on what users did matters: see `require_last_known`.
        require_known_since(after, found.users_floor)?;
        let is_whole = after >= found.floor;
        if found.changes.len() > MOST {
            let detail = format!("these are more than {MOST} changes: take them back in smaller steps");
            return Err(ApiError::bad_request(detail));
        }
        if found.changes.is_empty() {
            let detail = match until {
                Some(revision) => format!("nothing that is kept changed with revision {revision}"),
                None => format!("nothing that is kept changed after revision {after}"),
            };
            return Err(ApiError::new(StatusCode::NOT_FOUND, UNDO, detail));
        }
        let (api, user) = (Arc::clone(self), user.clone());
        // A thousand resources are judged by as many rules as roles have.
        let planning = move || {
            let index = api.index.current();
            let rights = api.rights.of(&index, &user);
            let mut plan = UndoPlan::of(known, is_whole, &found.changes, |verb, key| {
                let at = KindApi { api: Arc::clone(&api), kind: key.kind };
                at.require_written_here()?;
                Ok(rights.check_resource(&index, verb, key)?)
            });
            let readable = api.rights.readable(&user);
            plan.left.retain(|(change, _)| readable.shows_key(&change.key));
            plan
        };
        Ok((self.making.long(planning).await, until))
    }

    /// Reads what was there before each step, until it is too much.
    async fn read_steps(&self, user: &User, index: &Index, plan: &mut UndoPlan) -> Result<(), ApiError> {
        let readable = self.rights.readable(user);
        let mut bytes = 0;
        for mut step in std::mem::take(&mut plan.steps) {
            bytes += index.get(&step.key).map_or(0, |is| weight(is));
            let outcome = if step.restores {
                let before = self.replaced_by(&step).await?;
                bytes += weight(&before);
                step.restore(before)
            } else {
                Ok(())
            };
            if bytes > LONGEST {
                let detail = format!(
                    "what they changed is more than {} MiB: take them back in smaller steps",
                    LONGEST >> 20
                );
                return Err(ApiError::bad_request(detail));
            }
            match outcome {
                Ok(()) => plan.steps.push(step),
                Err(why) if readable.shows_key(&step.key) => plan.left.push((step.oldest, why)),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// What the change replaced that `step` goes back before.
    async fn replaced_by(&self, step: &UndoStep) -> Result<Arc<Resource>, ApiError> {
        let revision = step.oldest.revision;
        let query = HistoryQuery {
            key: Some(step.key.clone()),
            after: revision.saturating_sub(1),
            until: revision,
            limit: 1,
            contents: true,
            ..HistoryQuery::default()
        };
        let found = self.store.history(&query).await.map_err(|error| failed(&error))?;
        let before = found.changes.into_iter().next().and_then(|change| change.before);
        before.ok_or_else(|| {
            let detail = format!("what {} was before revision {revision} is not kept any more", step.key);
            ApiError::new(StatusCode::NOT_FOUND, UNDO, detail)
        })
    }

    /// The revision after which everything is meant.
    async fn since(&self, since: &Value) -> Result<Revision, ApiError> {
        let text = match since {
            Value::Number(revision) => return number(&revision.to_string()),
            Value::String(text) => text,
            _ => return Err(ApiError::bad_request("since: must be a revision, a time or how long ago")),
        };
        if let Ok(revision) = number(text) {
            return Ok(revision);
        }
        let since = time(text, self.env.now())?;
        let oldest =
            HistoryQuery { since: Some(since), oldest_first: true, limit: 1, ..HistoryQuery::default() };
        let found = self.store.history(&oldest).await.map_err(|error| failed(&error))?;
        let Some(first) = found.changes.first() else {
            return Err(ApiError::new(StatusCode::NOT_FOUND, UNDO, "nothing changed since then"));
        };
        // From the change before that time on: what is gone may have been right after it.
        let until = first.revision.saturating_sub(1);
        let before = HistoryQuery { until, limit: 1, ..HistoryQuery::default() };
        let before = self.store.history(&before).await.map_err(|error| failed(&error))?;
        match before.changes.first() {
            Some(last) => Ok(last.revision),
            None if before.floor == 0 => Ok(until),
            // Whether what is gone lies before that time is not known.
            None => Err(ApiError::new(
                StatusCode::NOT_FOUND,
                TITLE,
                format!("the history reaches back to revision {} and not to that time", before.floor),
            )),
        }
    }

    /// Refuses to take back one change below others to the same resource.
    async fn require_last(&self, plan: &UndoPlan, revision: Revision) -> Result<(), ApiError> {
        for step in &plan.steps {
            let later = HistoryQuery {
                key: Some(step.key.clone()),
                after: revision,
                limit: 1,
                ..HistoryQuery::default()
            };
            let later = self.store.history(&later).await.map_err(|error| failed(&error))?;
            if let Some(later) = later.changes.first() {
                return Err(ApiError::conflict(format!(
                    "{} was changed again with revision {}: take that back first, or everything since {}",
                    step.key,
                    later.revision,
                    revision - 1
                )));
            }
        }
        Ok(())
    }
}

/// What is taken back, and for whom.
struct Undoing {
    api: Arc<Api>,
    user: User,
    plan: UndoPlan,
    /// Documents to be written, for each step; `None` for what is to be deleted.
    drafts: Vec<Option<ValidBody>>,
}

impl Undoing {
    fn drafted(api: Arc<Api>, user: User, plan: UndoPlan) -> Result<Self, ApiError> {
        let draft = |step: &UndoStep| {
            let Some(before) = &step.before else { return Ok(None) };
            let at = KindApi { api: Arc::clone(&api), kind: step.key.kind };
            at.require_written_here()?;
            let document = render(UNDO, before)?;
            ValidBody::of_json(step.key.kind, &document).map(Some).map_err(|error| error.about(&step.key))
        };
        let drafts: Result<Vec<_>, ApiError> = plan.steps.iter().map(draft).collect();
        let drafts = drafts?;
        Ok(Self { api, user, plan, drafts })
    }

    /// All steps as one batch, each decided on what the steps before it leave.
    fn prepared(&self, index: &Index, keys: &mut KeySupply) -> Result<Prepared, ApiError> {
        let Self { api, user, plan, drafts } = self;
        let mut scratch = index.clone();
        let mut writes = Vec::new();
        let mut warnings = Vec::new();
        let mut rights = api.rights.of(index, user);
        for (step, draft) in plan.steps.iter().zip(drafts) {
            step.require_unchanged(index, plan.known)?;
            let at = KindApi { api: Arc::clone(api), kind: step.key.kind };
            let target = ResourcePath { mesh: step.key.mesh.to_string(), name: step.key.name.to_string() };
            let conditions = Conditions::default();
            // A step before may have given or taken a role.
            rights.move_to(&scratch);
            let prepared = match draft {
                Some(draft) => {
                    let prepared =
                        draft.prepare(&at, &scratch, keys, &target, &conditions, WrittenBy::Client);
                    prepared.and_then(|prepared| at.require_written(&scratch, &rights, prepared))
                }
                None if scratch.get(&step.key).is_none() => continue,
                None => deletion(&at, &scratch, &target, &conditions, WrittenBy::Client, || {
                    Ok(rights.check_resource(&scratch, RoleVerb::Delete, &step.key)?)
                }),
            };
            let prepared = prepared.map_err(|error| error.about(&step.key))?;
            for write in prepared.batch.writes {
                if !plan.admits(step, &write) {
                    continue;
                }
                foresee(&mut scratch, &write);
                writes.push(write);
            }
            warnings.extend(prepared.warnings);
        }
        api.require_free(index, &writes, None)?;
        Ok(Prepared { title: UNDO, batch: Batch::of(writes), created: false, warnings })
    }

    /// As its user may see it. `index` is what there is before.
    fn view<'a>(&'a self, index: &'a Index) -> UndoView<'a> {
        let Self { api, user, plan, .. } = self;
        UndoView { plan, index, sight: api.sight(user), readable: api.rights.readable(user) }
    }
}

impl UndoPlan {
    /// 404 when something is not as the newest change of a user left it, and who changed it is not known any more: whether it
    /// is one of those that are left alone cannot be told.
    fn require_last_known(&self, index: &Index) -> Result<(), ApiError> {
        let is_unknown = |step: &&UndoStep| match index.get(&step.key) {
            Some(resource) => resource.revision > step.last(),
            None => step.newest != HistoryOp::Delete,
        };
        match self.steps.iter().find(is_unknown).filter(|_| !self.is_whole) {
            None => Ok(()),
            Some(step) => {
                let detail =
                    format!("who changed {} after revision {} is not known any more", step.key, step.last());
                Err(ApiError::new(StatusCode::NOT_FOUND, UNDO, detail))
            }
        }
    }

    /// Whether `write` belongs to carrying out `step`. What a rule adds that another step decides about is left out,
    /// and so are policies that a new mesh would get; keys of a mesh are made anew.
    fn admits(&self, step: &UndoStep, write: &Write) -> bool {
        let key = write.key();
        if *key == step.key {
            return true;
        }
        let planned = self.steps.iter().any(|other| other.key == *key);
        // Of runs there are only conditions.
        let is_condition = is_as_it_is(write) || key.kind == &rollout_insight::KIND;
        !planned && (key.kind.admin_only || is_condition)
    }
}

/// Whether it only holds the mesh still.
pub(in crate::rest) fn is_as_it_is(write: &Write) -> bool {
    matches!(write, Write::Put { resource, when: Precondition::At(_) } if resource.kind() == &mesh::KIND)
}
