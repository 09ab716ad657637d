//! Writing: put and delete, each one batch.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Api, ApiError, Deletion, Endpoint, Put, READ_YOUR_WRITES, User,
    body::json_response,
    meta,
    precondition::{self, Conditions},
    read::Target,
    warnings,
};
use crate::{
    clip::clipped,
    kds::size,
    keys::{KeyError, KeySupply},
    mode::Mode,
    model::{
        Kind, Resource, ResourceKey, Violations,
        document::{Document, DocumentError},
        kinds::mesh,
        labels, text,
    },
    store::{Batch, Precondition, StoreError, Write, index::Index},
};

/// What a failing put is called before it is known whether it creates or updates.
const PROCESS: &str = "Could not process a resource";
const UPDATE: &str = "Could not update a resource";
const CREATE: &str = "Failed to create a resource";
const DELETE: &str = "Could not delete a resource";

/// Warnings about one resource, which may have an unknown field in every line.
const WARNINGS: usize = 100;
/// Bytes of one of them; it names the field.
const WARNING: usize = 512;
/// How often a write that lost a race against another is tried again.
const ATTEMPTS: usize = 8;
/// Longest wait for another replica's write to arrive.
const NEXT_INDEX: Duration = Duration::from_millis(250);

/// `PUT` of one resource.
pub(super) async fn put(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Response, ApiError> {
    at.require_writable()?;
    at.require_mesh(&at.api.index.current(), &target)?;
    at.require_access(&user)?;
    let conditions = Conditions::of(request.headers())?;
    let body = at.api.intake.read(request, at.api.config.body_limit).await?;
    let kind = at.kind;
    let draft = at.api.intake.work(body, move |body| Draft::parse(kind, body)).await?;
    at.api.see_what_is_known(&conditions).await;
    let prepare = |index: &Index, keys: &mut KeySupply| draft.prepare(&at, index, keys, &target, &conditions);
    let done = at.api.commit(prepare).await?;
    let body = if done.warnings.is_empty() { json!({}) } else { json!({ "warnings": done.warnings }) };
    Ok(json_response(if done.created { StatusCode::CREATED } else { StatusCode::OK }, &body))
}

/// `DELETE` of one resource, with everything it owns.
pub(super) async fn delete(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    at.require_writable()?;
    let conditions = Conditions::of(&headers)?;
    at.api.see_what_is_known(&conditions).await;
    at.api.commit(|index, _| prepare_delete(&at, index, &target, &user, &conditions)).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}

/// A write that may be committed, decided on one index.
struct Prepared {
    title: &'static str,
    batch: Batch,
    created: bool,
    warnings: Vec<String>,
}

impl Api {
    /// Decides on the newest index and commits on the condition that the resource has not changed since;
    /// decides again when it has, or when the keys it lacked are made. Returns once the index shows the write.
    async fn commit(
        &self,
        prepare: impl Fn(&Index, &mut KeySupply) -> Result<Prepared, ApiError>,
    ) -> Result<Prepared, ApiError> {
        let mut keys = KeySupply::default();
        let mut attempt = 1;
        loop {
            keys.begin();
            let mut prepared = prepare(&self.index.current(), &mut keys)?;
            if !keys.missing().is_empty() {
                self.keys.fill(&mut keys).await.map_err(|error| match error {
                    KeyError::Busy => ApiError::busy(prepared.title, error.to_string()),
                    other => ApiError::internal(prepared.title, other),
                })?;
                continue;
            }
            let batch = std::mem::take(&mut prepared.batch);
            match self.store.transact(batch).await {
                Ok(commit) => {
                    self.catch_up(commit.revision).await;
                    return Ok(prepared);
                }
                Err(error) if attempt < ATTEMPTS && lost_race(&error) => {
                    attempt += 1;
                    self.see_the_winner().await;
                }
                Err(error) => return Err(ApiError::store(prepared.title, &error)),
            }
        }
    }

    /// Waits for the index to show what the client has read, perhaps on another replica.
    async fn see_what_is_known(&self, conditions: &Conditions) {
        let head = *self.store.watch_head().borrow();
        if let Some(revision) = precondition::awaited(conditions, &self.index, head) {
            self.catch_up(revision).await;
        }
    }

    /// Waits for the index to show what another writer, perhaps on another replica, has just stored.
    async fn see_the_winner(&self) {
        let mut index = self.index.clone();
        let before = index.latest().revision;
        let head = *self.store.watch_head().borrow();
        self.catch_up(head).await;
        if self.index.current().revision == before {
            // The head is only a hint and may lag behind as well; trying again too early costs one attempt.
            let _changed = timeout(NEXT_INDEX, index.changed()).await;
        }
    }

    async fn catch_up(&self, revision: u64) {
        // The write is safe already; a slow index only delays when readers see it.
        if timeout(READ_YOUR_WRITES, self.index.wait_for(revision)).await.is_err() {
            tracing::warn!(revision, "the index is far behind the store");
        }
    }
}

fn lost_race(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Conflict { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. }
    )
}

impl Endpoint {
    /// 405 unless resources of this kind are written here.
    fn require_writable(&self) -> Result<(), ApiError> {
        let config = &self.api.config;
        if config.read_only {
            return Err(ApiError::read_only("this control plane is configured to be read-only"));
        }
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
struct Draft {
    document: Document,
    type_name: String,
    warnings: Vec<String>,
}

impl Draft {
    fn parse(kind: &'static Kind, body: &[u8]) -> Result<Self, ApiError> {
        let json = text::json(body, text::Limits::BODY).map_err(|e| {
            ApiError::bad_request(format!(
                "the request body is not JSON: {e}; `straitctl apply` takes YAML too"
            ))
        })?;
        let violations = outline(kind, &json);
        if !violations.is_empty() {
            return Err(ApiError::invalid(PROCESS, &violations));
        }
        let type_name = json.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut document = Document::parse_as(kind, &json).map_err(|error| match error {
            DocumentError::Spec(error) => ApiError::spec(PROCESS, &error),
            other => ApiError::bad_request(other.to_string()),
        })?;
        let spec = |error| ApiError::spec(PROCESS, &error);
        let violations = kind.validate_authored(&document.spec).map_err(spec)?;
        if !violations.is_empty() {
            return Err(ApiError::invalid(PROCESS, &violations));
        }
        document.spec = kind.normalize(&document.spec).map_err(spec)?;
        // What is stored here is sent on, and with its defaults filled in it is larger than it was.
        if let Some(excess) = size::excess(kind, &document.labels, &document.spec, None) {
            let detail = format!("{excess}: make it smaller, or spread it over several resources");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "Resource too large", detail));
        }
        let warnings = warnings::of_unknown(kind, &json).into_iter().take(WARNINGS);
        let warnings = warnings.map(|warning| clipped(warning, WARNING)).collect();
        Ok(Self { document, type_name, warnings })
    }

    fn prepare(
        &self,
        at: &Endpoint,
        index: &Index,
        keys: &mut KeySupply,
        target: &Target,
        conditions: &Conditions,
    ) -> Result<Prepared, ApiError> {
        let api = &at.api;
        at.require_mesh(index, target)?;
        let existing = index.get(&at.key(target)).map(Arc::as_ref);
        let claims = meta::Claims {
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
        labels::compute(&mut resource, &api.config.mode);
        if let Some(existing) = existing {
            let violations = meta::immutable(&existing.labels, &resource.labels);
            if !violations.is_empty() {
                return Err(ApiError::invalid(UPDATE, &violations));
            }
            at.require_own(UPDATE, existing)?;
        }
        let title = if existing.is_some() { UPDATE } else { CREATE };
        conditions.check(title, existing)?;
        let mut writes =
            admit(api, index, keys, existing, resource).map_err(|v| ApiError::invalid(title, &v))?;
        // What was decided holds for the mesh as it was seen, and only while it exists: an equal put writes
        // nothing, but its condition is checked with the rest of the batch.
        if let Some(mesh) = index.find(&mesh::KIND, "", &target.mesh) {
            let when = Precondition::At(mesh.revision);
            writes.also.push(Write::put_when(Resource::clone(mesh), when));
        }
        let mut warnings = warnings::of(writes.resource());
        warnings.extend(self.warnings.iter().cloned());
        Ok(Prepared { title, batch: writes.batch(existing), created: existing.is_none(), warnings })
    }

    /// The resource to store: labels and spec of the body, status and ownership of what is stored.
    fn resource(&self, at: &Endpoint, target: &Target, existing: Option<&Resource>) -> Resource {
        let mut resource = Resource::new(at.key(target), at.api.env.now());
        resource.labels.clone_from(&self.document.labels);
        // Whoever writes a resource here answers for it from now on.
        resource.labels.remove(labels::REGISTERED);
        resource.spec = self.document.spec.clone().into();
        match existing {
            Some(existing) => {
                resource.status.clone_from(&existing.status);
                resource.origin = existing.origin.clone();
                resource.owner.clone_from(&existing.owner);
                resource.created = existing.created;
            }
            None => {
                resource.origin = at.api.config.mode.origin_of(at.kind);
                // Dataplanes keep their mesh alive; a secret may be meant for a mesh made anew.
                let owned = at.kind.is_mesh_scoped() && !matches!(at.kind.name, "Dataplane" | "Secret");
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

fn prepare_delete(
    at: &Endpoint,
    index: &Index,
    target: &Target,
    user: &User,
    conditions: &Conditions,
) -> Result<Prepared, ApiError> {
    at.require_mesh(index, target)?;
    let resource = index.get(&at.key(target)).ok_or_else(|| ApiError::not_found(DELETE))?;
    at.require_own(DELETE, resource)?;
    at.require_access(user)?;
    conditions.check(DELETE, Some(resource))?;
    let config = &at.api.config;
    for admission in config.admissions.iter().filter(|a| a.concerns(at.kind)) {
        let deletion = Deletion { mode: &config.mode, index, resource };
        admission.delete(&deletion).map_err(|v| ApiError::invalid(DELETE, &v))?;
    }
    let write = Write::delete_when(resource.key.clone(), Precondition::At(resource.revision));
    Ok(Prepared { title: DELETE, batch: Batch::of([write]), created: false, warnings: Vec::new() })
}
