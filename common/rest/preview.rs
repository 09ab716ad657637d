//! `PUT …?dryRun=true`: what a write would do, decided as the write itself would be and not done.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};

use super::{ApiError, KindApi, Sending, User, body::json_response, commit::Prepared, inspect, read::render};
use crate::{
    keys::KeySupply,
    model::{
        Resource, ResourceKey,
        kinds::{access_role::RoleVerb, dataplane, zone},
    },
    store::{Write, index::Index},
};

const TITLE: &str = "Could not show what a write would do";
/// Zones that are listed.
const MOST_ZONES: usize = 1_000;
/// Bytes that each counts for that is looked at.
const EACH: usize = 256;
/// Proxies that are named.
const MOST_PROXIES: usize = 100;

/// Bytes that an answer is about made from: all zones and all proxies are looked at for it.
pub(super) fn weight(at: &KindApi) -> usize {
    let index = at.api.index.current();
    let proxies = if at.kind.policy.is_some() { index.count(&dataplane::KIND) } else { 0 };
    index.count(&zone::KIND).saturating_add(proxies).saturating_mul(EACH)
}

/// The answer to a write that is only tried.
pub(super) fn preview(
    at: &KindApi,
    user: &User,
    key: &ResourceKey,
    prepare: impl Fn(&Index, &mut KeySupply) -> Result<Prepared, ApiError>,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    // Keys that are missing would be made by the write; nobody sees them, so it does not matter here.
    let prepared = prepare(&index, &mut KeySupply::default())?;
    at.api.require_free(&index, &prepared.batch.writes, None)?;
    let written = |write: &Write| match write {
        Write::Put { resource, .. } if resource.key == *key => Some(Arc::new(Resource::clone(resource))),
        _ => None,
    };
    let after = prepared.batch.writes.iter().find_map(written).ok_or_else(|| {
        ApiError::internal(TITLE, format!("the write of {key} is not among those it would make"))
    })?;
    let sight = at.api.sight(user).on(at.kind);
    let shown = |resource: &Resource| Ok::<_, ApiError>(sight.of(authored(render(TITLE, resource)?)));
    // Who may write something need not be one who may see it.
    let is_seen = at.require_right(&index, user, RoleVerb::Read, key).is_ok();
    let before = index.get(key).filter(|_| is_seen).map(|resource| shown(resource)).transpose()?;
    let also = prepared.batch.writes.iter().filter(|write| write.key() != key && changes(&index, write));
    let also: Vec<Value> = also
        .map(|write| {
            let key = write.key();
            json!({ "type": key.kind.name, "mesh": &*key.mesh, "name": &*key.name })
        })
        .collect();
    let body = json!({
        "dryRun": true,
        "created": prepared.created,
        "warnings": prepared.warnings,
        "before": before,
        "after": (is_seen || prepared.created).then(|| shown(&after)).transpose()?,
        "also": also,
        "reaches": { "zones": zones(at, user, &index, &after), "dataplanes": dataplanes(at, user, &index, &after)? },
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Whether it is more than a condition.
fn changes(index: &Index, write: &Write) -> bool {
    match write {
        Write::Put { resource, .. } => index.get(&resource.key).is_none_or(|is| {
            is.spec != resource.spec || is.labels != resource.labels || is.status != resource.status
        }),
        _ => true,
    }
}

/// A document without what its author does not write.
fn authored(mut document: Value) -> Value {
    if let Some(members) = document.as_object_mut() {
        for member in ["creationTime", "modificationTime", "status", "kri"] {
            members.remove(member);
        }
    }
    document
}

/// What becomes of it on its way to each zone; null where no zones are known.
fn zones(at: &KindApi, user: &User, index: &Index, resource: &Resource) -> Value {
    let Some(source) = &at.api.config.zone_status else { return Value::Null };
    let readable = at.api.rights.readable(user);
    let zones = index.list(&zone::KIND).filter(|zone| readable.shows(zone)).take(MOST_ZONES).map(|zone| {
        let (state, reason) = match source.sending(zone.name(), resource, index) {
            // What was refused or withheld until now is another form of it.
            Sending::Sent | Sending::Refused(_) | Sending::Withheld(_) | Sending::Kept(_) => ("sent", None),
            Sending::NotMeant(reason) => ("filtered", Some(reason)),
        };
        let mut shown = Map::new();
        shown.insert("zone".to_owned(), zone.name().into());
        shown.insert("state".to_owned(), state.into());
        shown.insert("status".to_owned(), json!(source.zone_progress(zone.name()).status));
        shown.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
        Value::Object(shown)
    });
    zones.collect()
}

/// The proxies a policy would be for; null for what is no policy.
fn dataplanes(at: &KindApi, user: &User, index: &Index, resource: &Arc<Resource>) -> Result<Value, ApiError> {
    if at.kind.policy.is_none() {
        return Ok(Value::Null);
    }
    let readable = at.api.rights.readable(user);
    let found = inspect::selected(index, resource, |dataplane| readable.shows(dataplane))?;
    let total = found.len();
    let items: Vec<Value> = found.into_iter().take(MOST_PROXIES).collect();
    Ok(json!({ "total": total, "items": items }))
}
