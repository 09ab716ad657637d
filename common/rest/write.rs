//! Writing: put and delete, each one batch.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query as QueryOf, Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    Api, ApiError, Deletion, KindApi, Put, User, absent, commit::Prepared, meta, namesakes, page::Query,
    precondition::Conditions, preview, read::ResourcePath, sync::Preference, warnings,
};
use crate::{
    clip::clipped,
    document::{Document, DocumentError},
    kds::size,
    keys::KeySupply,
    mode::Mode,
    model::{
        Kind, Resource, ResourceKey, Violations,
        kinds::{
            access_role::RoleVerb,
            mesh,
            mesh_service::{self, MeshService},
            rollout, rollout_insight,
        },
        labels, text,
    },
    policy::rules::too_much_alone,
    runtime::http::Client,
    store::{Batch, Precondition, Write, index::Index},
};

/// The parameter that says that a write is only tried.
pub(super) const DRY_RUN: &str = "dryRun";

/// What a failing put is called before it is known whether it creates or updates.
const PROCESS: &str = "Could not process a resource";
const UPDATE: &str = "Could not update a resource";
const CREATE: &str = "Failed to create a resource";
const DELETE: &str = "Could not delete a resource";

/// Warnings about one resource, which may have an unknown field in every line.
const WARNINGS: usize = 100;
/// Bytes of one of them; it names the field.
const WARNING: usize = 512;

/// Whether a write is only tried. Whoever wants that, in words that are not understood, wants nothing written.
fn is_only_tried(query: &Query) -> Result<bool, ApiError> {
    match query.iter().find(|(name, _)| name == DRY_RUN).map(|(_, value)| value.as_str()) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(ApiError::bad_request("dryRun: must be true or false")),
    }
}

/// `PUT` of one resource.
pub(super) async fn put(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    at.require_writable()?;
    at.require_written_here()?;
    at.require_mesh(&at.api.index.current(), &target)?;
    let conditions = Conditions::of(request.headers())?;
    let preference = Preference::of(request.headers());
    let body = at.api.intake.read(request, at.api.config.body_limit).await?;
    let (kind, length) = (at.kind, body.len());
    let draft = at.api.intake.work(body, move |body| ValidBody::parse(kind, body)).await?;
    at.api.see_what_is_known(&conditions).await;
    if is_only_tried(&query)? {
        let (api, bytes) = (Arc::clone(&at.api), preview::weight(&at).saturating_add(length));
        let preview = move || {
            preview::preview(&at, &user, &at.key(&target), |index, keys| {
                let prepared = draft.prepare(&at, index, keys, &target, &conditions, WrittenBy::Client)?;
                at.require_written(index, &at.api.rights.of(index, &user), prepared)
            })
        };
        return api.make(&client, bytes, preview).await;
    }
    let prepare = |index: &Index, keys: &mut KeySupply| {
        let prepared = draft.prepare(&at, index, keys, &target, &conditions, WrittenBy::Client)?;
        at.require_written(index, &at.api.rights.of(index, &user), prepared)
    };
    let (done, committed) = at.api.commit(prepare, None, &user.author()).await?;
    let body = if done.warnings.is_empty() { json!({}) } else { json!({ "warnings": done.warnings }) };
    let status = if done.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(committed.answered(preference.answer(status, body, committed.revision)))
}

/// `DELETE` of one resource, with everything it owns.
pub(super) async fn delete(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    at.require_writable()?;
    at.require_written_here()?;
    let conditions = Conditions::of(&headers)?;
    at.api.see_what_is_known(&conditions).await;
    let prepare = |index: &Index, _: &mut KeySupply| {
        deletion(&at, index, &target, &conditions, WrittenBy::Client, || {
            at.require_right(index, &user, RoleVerb::Delete, &at.key(&target))
        })
    };
    let (_, committed) = at.api.commit(prepare, None, &user.author()).await?;
    let answer = Preference::of(&headers).answer(StatusCode::OK, json!({}), committed.revision);
    Ok(committed.answered(answer))
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenBy {
    /// Somebody who asked for it.
    Client,
    /// A file of this control plane, which nobody else writes for from then on.
    File,
}

impl KindApi {
    /// 405 where clients write nothing.
    pub(super) fn require_writable(&self) -> Result<(), ApiError> {
        match self.api.config.read_only {
            true => Err(ApiError::read_only("this control plane is configured to be read-only")),
            false => Ok(()),
        }
    }

    /// 405 unless resources of this kind are written here.
    pub(super) fn require_written_here(&self) -> Result<(), ApiError> {
        let config = &self.api.config;
        if config.mode.may_write(self.kind) {
            return Ok(());
        }
        let kind = self.kind.name;
        Err(ApiError::read_only(match config.mode {
            _ if self.kind.read_only => format!("{kind} is written by the control plane only"),
            Mode::Global => format!("{kind} is owned by zones: apply it on the zone control plane"),
            Mode::Zone { .. } => format!("{kind} is owned by global: apply it on the global control plane"),
        }))
    }

    /// 405 for what is in a file, unless that is who writes.
    fn require_no_file(&self, existing: &Resource, by: WrittenBy) -> Result<(), ApiError> {
        let Some(files) = &self.api.config.files else { return Ok(()) };
        let is_in_a_file = existing.label(labels::PROVIDED_BY) == Some(labels::PROVIDED_BY_FILES);
        if by == WrittenBy::File || !is_in_a_file {
            return Ok(());
        }
        let file =
            files.file_of(&existing.key).unwrap_or_else(|| "a file of the resources folder".to_owned());
        Err(ApiError::read_only(format!("{} is in {file}: change it there", existing.key)))
    }

    /// Refuses to touch what another control plane owns.
    fn require_own(&self, title: &'static str, existing: &Resource) -> Result<(), ApiError> {
        let mode = &self.api.config.mode;
        let own = mode.origin_of(self.kind);
        let foreign = match mode {
            Mode::Zone { federated: false, .. } => false,
            _ => existing.origin != own,
        };
        if !foreign {
            return Ok(());
        }
        let expected = if mode.zone().is_some() { labels::ORIGIN_ZONE } else { labels::ORIGIN_GLOBAL };
        let field = meta::label(labels::ORIGIN);
        let reason = format!("the origin label must be set to '{expected}'");
        Err(ApiError::invalid(title, &Violations::one(field, reason)))
    }
}

/// A body that decodes and whose spec is valid.
pub(super) struct ValidBody {
    document: Document,
    type_name: String,
    warnings: Vec<String>,
}

impl ValidBody {
    fn parse(kind: &'static Kind, body: &[u8]) -> Result<Self, ApiError> {
        let json = text::json(body, text::TextLimits::BODY).map_err(|e| {
            ApiError::bad_request(format!(
                "the request body is not JSON: {e}; `straitctl apply` takes YAML too"
            ))
        })?;
        Self::of_json(kind, &json)
    }

    /// The same for what was read before.
    pub(super) fn of_json(kind: &'static Kind, json: &Value) -> Result<Self, ApiError> {
        let violations = outline(kind, json);
        if !violations.is_empty() {
            return Err(ApiError::invalid(PROCESS, &violations));
        }
        let type_name = json.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut document = Document::parse_as(kind, json).map_err(|error| match error {
            DocumentError::Spec(error) => ApiError::spec(PROCESS, &error),
            other => ApiError::bad_request(other.to_string()),
        })?;
        let spec = |error| ApiError::spec(PROCESS, &error);
        let (violations, normal) = kind.settle_authored(&document.spec).map_err(spec)?;
        if !violations.is_empty() {
            return Err(ApiError::invalid(PROCESS, &violations));
        }
        document.spec = normal;
        // What is stored here is sent on, and with its defaults filled in it is larger than it was.
        if let Some(excess) = size::excess(kind, &document.labels, &document.spec, None) {
            let detail = format!("{excess}: make it smaller, or spread it over several resources");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "Resource too large", detail));
        }
        let violations = too_much_alone(kind, &document.spec);
        if !violations.is_empty() {
            return Err(ApiError::invalid(PROCESS, &violations));
        }
        let warnings = warnings::of_ignored(&document.ignored).take(WARNINGS);
        let warnings = warnings.map(|warning| clipped(warning, WARNING)).collect();
        Ok(Self { document, type_name, warnings })
    }

    pub(super) fn prepare(
        &self,
        at: &KindApi,
        index: &Index,
        keys: &mut KeySupply,
        target: &ResourcePath,
        conditions: &Conditions,
        by: WrittenBy,
    ) -> Result<Prepared, ApiError> {
        let api = &at.api;
        at.require_mesh(index, target)?;
        let existing = index.get(&at.key(target)).map(Arc::as_ref);
        let claims = meta::BodyClaims {
            type_name: &self.type_name,
            mesh: self.document.mesh.as_deref(),
            name: &self.document.name,
            labels: &self.document.labels,
        };
        let violations = claims.check(&api.config, at.kind, target, existing.is_none());
        if !violations.is_empty() {
            return Err(ApiError::invalid(PROCESS, &violations));
        }
        let mut resource = self.resource(at, target, existing);
        if by == WrittenBy::File {
            resource.labels.insert(labels::PROVIDED_BY, labels::PROVIDED_BY_FILES);
        }
        api.config.mode.label(&mut resource);
        if let Some(existing) = existing {
            let violations = meta::immutable(&existing.labels, &resource.labels);
            if !violations.is_empty() {
                return Err(ApiError::invalid(UPDATE, &violations));
            }
            at.require_own(UPDATE, existing)?;
            at.require_no_file(existing, by)?;
        }
        let title = if existing.is_some() { UPDATE } else { CREATE };
        conditions.check(title, existing)?;
        let namesake = namesakes::check(&api.config.mode, index, existing, &resource)?;
        let mut writes =
            admit(api, index, keys, existing, resource).map_err(|v| ApiError::invalid(title, &v))?;
        // What was decided holds for the mesh as it was seen, and only while it exists: an equal put writes
        // nothing, but its condition is checked with the rest of the batch.
        if let Some(mesh) = index.find(&mesh::KIND, "", &target.mesh) {
            let when = Precondition::At(mesh.revision);
            writes.also.push(Write::put_when(Resource::clone(mesh), when));
        }
        let mut warnings = warnings::of(writes.resource());
        warnings.extend(namesake.map(|warning| clipped(warning, WARNING)));
        // Nobody reads what is said about a file.
        if by != WrittenBy::File {
            let absent = absent::of(writes.resource(), index).into_iter().take(WARNINGS);
            warnings.extend(absent.map(|warning| clipped(warning, WARNING)));
        }
        warnings.extend(self.warnings.iter().cloned());
        Ok(Prepared { title, batch: writes.batch(existing), created: existing.is_none(), warnings })
    }

    /// The resource to store: labels and spec of the body, status and ownership of what is stored.
    fn resource(&self, at: &KindApi, target: &ResourcePath, existing: Option<&Resource>) -> Resource {
        let mut resource = Resource::new(at.key(target), at.api.env.now());
        resource.labels.clone_from(&self.document.labels);
        // Whoever writes a resource here answers for it from now on.
        resource.labels.remove(labels::REGISTERED);
        resource.labels.remove(labels::REGISTERED_WITH);
        resource.labels.remove(labels::PROVIDED_BY);
        resource.spec = self.document.spec.clone().into();
        match existing {
            Some(existing) => {
                resource.status.clone_from(&existing.status);
                if at.kind == &mesh_service::KIND {
                    resource.spec = MeshService::keeping(&resource.spec, &existing.spec).into();
                }
                resource.origin = existing.origin.clone();
                resource.owner.clone_from(&existing.owner);
                resource.created = existing.created;
            }
            None => {
                resource.origin = at.api.config.mode.origin_of(at.kind);
                let owned = at.kind.is_mesh_scoped() && !at.kind.outlives_mesh;
                resource.owner = owned.then(|| ResourceKey::global(&mesh::KIND, &target.mesh));
            }
        }
        resource
    }
}

/// What a schema of the whole document says before anything is decoded. Only kinds with a JSON spec have
/// one, and it names no field outside the spec.
fn outline(kind: &Kind, document: &Value) -> Violations {
    let mut violations = Violations::none();
    let Some(document) = document.as_object().filter(|_| kind.is_json()) else { return violations };
    for member in ["type", "name", "spec"] {
        let missing = !document.contains_key(member);
        violations.check(missing, "".into(), format!("{member} in body is required"));
    }
    let other = document.get("type").is_some_and(|name| name != kind.name);
    violations.check(other, "".into(), format!("type in body should be one of [{}]", kind.name));
    violations
}

/// A resource with the writes that go along with it.
struct Writes {
    resource: Resource,
    also: Vec<Write>,
}

impl Writes {
    fn resource(&self) -> &Resource {
        &self.resource
    }

    fn batch(self, existing: Option<&Resource>) -> Batch {
        let when = existing.map_or(Precondition::Absent, |existing| Precondition::At(existing.revision));
        let first = Write::put_when(self.resource, when);
        Batch::of(std::iter::once(first).chain(self.also))
    }
}

fn admit(
    api: &Api,
    index: &Index,
    keys: &mut KeySupply,
    existing: Option<&Resource>,
    mut resource: Resource,
) -> Result<Writes, Violations> {
    let kind = resource.kind();
    let mut also = Vec::new();
    for admission in api.config.admissions.iter().filter(|a| a.concerns(kind)) {
        admission.put(&mut Put {
            mode: &api.config.mode,
            index,
            env: &api.env,
            existing,
            resource: &mut resource,
            keys,
            also: &mut also,
        })?;
    }
    Ok(Writes { resource, also })
}

/// Deletes what is there, if the client `may` and nothing else is in the way.
pub(super) fn deletion(
    at: &KindApi,
    index: &Index,
    target: &ResourcePath,
    conditions: &Conditions,
    by: WrittenBy,
    may: impl Fn() -> Result<(), ApiError>,
) -> Result<Prepared, ApiError> {
    at.require_mesh(index, target)?;
    let resource = index.get(&at.key(target)).ok_or_else(|| ApiError::not_found(DELETE))?;
    at.require_own(DELETE, resource)?;
    may()?;
    at.require_no_file(resource, by)?;
    conditions.check(DELETE, Some(resource))?;
    let config = &at.api.config;
    for admission in config.admissions.iter().filter(|a| a.concerns(at.kind)) {
        let deletion = Deletion { mode: &config.mode, index, resource };
        admission.delete(&deletion).map_err(|v| ApiError::invalid(DELETE, &v))?;
    }
    let write = Write::delete_when(resource.key.clone(), Precondition::At(resource.revision));
    let writes = no_new_run(index, &resource.key).into_iter().chain([write]);
    Ok(Prepared { title: DELETE, batch: Batch::of(writes), created: false, warnings: Vec::new() })
}

/// The condition that a rollout goes with no other run than the one that was seen: what a run keeps for going back goes
/// with it, and to begin one does not write the rollout.
fn no_new_run(index: &Index, key: &ResourceKey) -> Option<Write> {
    if key.kind != &rollout::KIND {
        return None;
    }
    let run = ResourceKey::global(&rollout_insight::KIND, &key.name);
    Some(match index.get(&run) {
        Some(seen) => Write::as_it_is(seen),
        None => Write::delete_when(run, Precondition::Absent),
    })
}
