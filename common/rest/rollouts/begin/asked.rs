//! What a request to begin asks for.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    model::{ResourceKey, kinds::mesh, text},
    registry,
    rest::{ApiError, rollouts::TITLE, write::ValidBody},
    rollouts::why_not_carried,
};

/// Documents and deletes in one request: a folder may have more than what is new in it.
const MOST_ASKED: usize = 1_000;

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
pub(super) struct RolloutDraft {
    pub(super) key: ResourceKey,
    /// What is written; nothing when it is deleted.
    pub(super) body: Option<ValidBody>,
}

/// What the body asks for, meshes first.
pub(super) fn drafts(body: &[u8]) -> Result<(Vec<RolloutDraft>, bool), ApiError> {
    let json = text::json(body, text::TextLimits::BODY)
        .map_err(|error| ApiError::bad_request(format!("the request body is not JSON: {error}")))?;
    let asked: BeginRequest =
        serde_json::from_value(json).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let count = asked.resources.len().saturating_add(asked.deletes.len());
    if count > MOST_ASKED {
        let detail =
            format!("these are {count} resources, and a rollout takes at most {MOST_ASKED}: make it smaller");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, TITLE, detail));
    }
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
    if let Some(why) = why_not_carried(kind) {
        let detail = format!("{} {name:?} {why}: apply it without a rollout", kind.name);
        return Err(ApiError::bad_request(detail));
    }
    if name.is_empty() {
        return Err(ApiError::bad_request(format!("a {} has no name", kind.name)));
    }
    Ok(ResourceKey::new(kind, mesh, name))
}
