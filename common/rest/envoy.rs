//! What the Envoy of a proxy says about itself: `…/{name}/xds`, `…/{name}/stats`, `…/{name}/clusters`; and, on
//! global, what its zone has for it: `…/{name}/_config`.

use axum::{
    extract::{Path, Query as QueryOf, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    ApiError, KindApi, Mounted,
    page::{self, Query},
    read::ResourcePath,
    routes,
};
use crate::{
    envoy_admin::{AdminFormat, Ask, AskError, ConfigOptions},
    model::{
        Kind, Origin, Resource,
        kinds::{zone_egress, zone_ingress},
        labels,
    },
    redact,
    runtime::http::Client,
};

const TITLE: &str = "Could not execute admin operation";
/// What can be asked of the proxies of a kind. Zones answer `_config` themselves.
pub(super) fn routes(at: &KindApi) -> Mounted {
    let mounted = Mounted::new()
        .on_kind(at.kind, const { routes::get("<list>/{name}/xds") }, dump, at)
        .on_kind(at.kind, const { routes::get("<list>/{name}/stats") }, stats, at)
        .on_kind(at.kind, const { routes::get("<list>/{name}/clusters") }, clusters, at);
    match at.api.config.mode.zone() {
        Some(_) => mounted,
        None => mounted.on_kind(at.kind, const { routes::get("<list>/{name}/_config") }, plan, at),
    }
}

async fn dump(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    client: Client,
) -> Result<Response, ApiError> {
    let ask = Ask::ConfigDump { include_eds: is_set(&query, "include_eds", false) };
    answer(&at, target, ask, client).await
}

async fn stats(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    client: Client,
) -> Result<Response, ApiError> {
    let ask = Ask::Stats { format: format(&query), used_only: is_set(&query, "usedonly", true) };
    answer(&at, target, ask, client).await
}

async fn clusters(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    client: Client,
) -> Result<Response, ApiError> {
    answer(&at, target, Ask::Clusters { format: format(&query) }, client).await
}

async fn plan(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    client: Client,
) -> Result<Response, ApiError> {
    let ask = Ask::Plan(ConfigOptions::parse(&query).map_err(ApiError::unsupported)?);
    answer(&at, target, ask, client).await
}

fn is_set(query: &Query, name: &str, default: bool) -> bool {
    match page::value(query, name) {
        None => default,
        // The bare name is how Envoy itself takes it.
        Some(value) => matches!(value, "" | "1" | "t" | "true"),
    }
}

fn format(query: &Query) -> AdminFormat {
    if page::value(query, "format") == Some("json") { AdminFormat::Json } else { AdminFormat::Text }
}

async fn answer(at: &KindApi, target: ResourcePath, ask: Ask, client: Client) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let key = at.key(&target);
    let absent = || ApiError::not_found(absent(at.kind));
    let resource = index.get(&key).ok_or_else(absent)?;
    if at.api.config.mode.zone().is_some() && resource.origin == Origin::Global {
        return Err(elsewhere(resource));
    }
    let Some(envoys) = &at.api.config.envoys else {
        return Err(ApiError::bad_request("this control plane has no way to ask an Envoy"));
    };
    let _asking = at.api.asking.take(&client).await?;
    let body = envoys.ask(&key, ask).await.map_err(|error| match error {
        AskError::Unknown(_) => absent(),
        error @ (AskError::Busy(_) | AskError::TooLate(_)) => ApiError::busy(TITLE, error.to_string()),
        error => ApiError::new(StatusCode::BAD_REQUEST, TITLE, error.to_string()),
    })?;
    let turn = client.turn().await?;
    let body = match at.api.config.mode.zone() {
        // Whoever asks Envoys here has looked through it.
        Some(_) => body,
        // A zone of another make may send what its Envoy said as it is.
        None => redact::dump(body, ask.is_json()).await?,
    };
    if matches!(ask, Ask::Plan(_)) && !is_plan(&body) {
        return Err(ApiError::bad_request(AskError::Unplanned(key).to_string()));
    }
    let form = if ask.is_json() { "application/json" } else { "text/plain" };
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    Ok(turn.made(response))
}

/// What it is called that there is no such proxy.
fn absent(kind: &Kind) -> &'static str {
    match kind {
        kind if kind == &zone_ingress::KIND => "Could not get zone ingress resource",
        kind if kind == &zone_egress::KIND => "Could not get zone egress resource",
        _ => "Could not get dataplane resource",
    }
}

/// Whether an answer says what a proxy is to run with, and not what its Envoy runs with.
fn is_plan(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Planned {
        xds: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Planned>(body).is_ok_and(|planned| planned.xds.is_some())
}

/// A proxy of another zone, known here because it was synced.
fn elsewhere(resource: &Resource) -> ApiError {
    let zone = resource.label(labels::ZONE).unwrap_or("another zone");
    ApiError::bad_request(format!("{} belongs to {zone}: ask there, or on global", resource.key))
}
