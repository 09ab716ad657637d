//! `…/_hostnames`: the host names of a service, and where they are known.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use crate::{
    model::{
        Resource,
        kinds::{destinations::HOSTNAME_GENERATOR, hostname_generator::HostnameGenerator},
        labels,
        template::TemplateError,
    },
    rest::{
        ApiError, KindApi,
        body::json_response,
        read::{self, ResourcePath},
    },
    runtime::http::Client,
    store::index::Index,
};

/// `GET` of them.
pub(super) async fn hostnames(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    client: Client,
) -> Result<Response, ApiError> {
    const TITLE: &str = "could not retrieve service";
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let service = Arc::clone(index.get(&at.key(&target)).ok_or_else(|| ApiError::not_found(TITLE))?);
    let is_global = at.api.config.mode.zone().is_none();
    let bytes = read::weight_of_all(index.list(&HOSTNAME_GENERATOR).chain([&service]));
    at.api.make(&client, bytes, move || known_as(&index, &service, is_global)).await
}

/// What `service` is called, and where.
fn known_as(index: &Index, service: &Resource, is_global: bool) -> Result<Response, ApiError> {
    // On global a service stands for itself in its zone and in all others, where it is one of global.
    let seen: Vec<Resource> = if is_global {
        let origins = [labels::ORIGIN_ZONE, labels::ORIGIN_GLOBAL];
        origins.map(|origin| service.clone().with_label(labels::ORIGIN, origin)).into()
    } else {
        vec![service.clone()]
    };
    let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for generator in index.list(&HOSTNAME_GENERATOR) {
        for service in &seen {
            if let Some(hostname) = generate(generator, service)? {
                zones.entry(hostname).or_default().insert(zone_of(service));
            }
        }
    }
    let shown = |(hostname, zones): (&String, &BTreeSet<String>)| {
        let zones: Vec<Value> = zones.iter().map(|zone| json!({ "name": zone })).collect();
        json!({"hostname": hostname, "zones": zones})
    };
    let items: Vec<Value> = zones.iter().map(shown).collect();
    // Clients know an empty list of these by its absence.
    let listed = if items.is_empty() { Value::Null } else { items.clone().into() };
    Ok(json_response(StatusCode::OK, &json!({"total": items.len(), "items": listed})))
}

/// The zone of a service; of one that does not say, the first part of its name.
fn zone_of(service: &Resource) -> String {
    let by_name = || service.name().split('.').next().unwrap_or_default();
    service.label(labels::ZONE).unwrap_or_else(by_name).to_owned()
}

/// The host name that `generator` makes for `service`; `None` when it is not meant.
fn generate(generator: &Arc<Resource>, service: &Resource) -> Result<Option<String>, ApiError> {
    const TITLE: &str = "could not generate hostname";
    let spec: HostnameGenerator =
        generator.spec().map_err(|error| ApiError::internal(TITLE, format!("{}: {error}", generator.key)))?;
    if !spec.selects(service) {
        return Ok(None);
    }
    let failed = |error: TemplateError| {
        let reason = format!("the template of HostnameGenerator {}: {error}", generator.name());
        ApiError::new(StatusCode::BAD_REQUEST, TITLE, reason)
    };
    spec.hostname(service, &zone_of(service)).map(Some).map_err(failed)
}
