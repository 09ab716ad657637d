//! What the Envoy of a proxy says about itself: `…/{name}/xds`, `…/{name}/stats`, `…/{name}/clusters`; and, on
//! global, what its zone has for it: `…/{name}/_config`.

use axum::{
    Extension,
    extract::{Path, Query as QueryOf, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    Access, AccessRule, ApiError, KindApi, User,
    page::{self, Query},
    read::ResourcePath,
};
use crate::{
    envoy_admin::{AdminFormat, Ask, AskError, ConfigOptions},
    model::{Origin, Resource, labels},
    redact,
    runtime::http::Client,
};

const TITLE: &str = "Could not ask the Envoy of a resource";

/// Mesh and name in the URL, and what is asked.
#[derive(Debug, Deserialize)]
pub(super) struct EnvoyPath {
    #[serde(default)]
    mesh: String,
    name: String,
    what: String,
}

/// `GET` of one of the three.
pub(super) async fn ask(
    State(at): State<KindApi>,
    Path(asked): Path<EnvoyPath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let ask = parse(&asked.what, &query)?.ok_or_else(|| ApiError::not_found(TITLE))?;
    let (rule, what) = rule(&at.api.config.access, ask);
    rule.check(&user, what)?;
    let target = ResourcePath { mesh: asked.mesh, name: asked.name };
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let key = at.key(&target);
    let resource = index.get(&key).ok_or_else(|| ApiError::not_found(TITLE))?;
    if at.api.config.mode.zone().is_some() && resource.origin == Origin::Global {
        return Err(elsewhere(resource));
    }
    let Some(envoys) = &at.api.config.envoys else {
        return Err(ApiError::bad_request("this control plane has no way to ask an Envoy"));
    };
    let body = envoys.ask(&key, ask).await.map_err(|error| match error {
        AskError::Unknown(_) => ApiError::not_found(TITLE),
        error @ (AskError::Busy(_) | AskError::TooLate(_)) => ApiError::busy(TITLE, error.to_string()),
        error => ApiError::bad_request(error.to_string()),
    })?;
    let turn = client.turn().await?;
    // A zone of another make may send what its Envoy said as it is.
    let body = redact::dump(body, ask.is_json());
    let body = body.await?;
    if matches!(ask, Ask::Plan(_)) && !is_plan(&body) {
        return Err(ApiError::bad_request(AskError::Unplanned(key).to_string()));
    }
    let form = if ask.is_json() { "application/json" } else { "text/plain" };
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    Ok(turn.made(response))
}

/// Whether an answer says what a proxy is to run with, and not what its Envoy runs with.
fn is_plan(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Planned {
        xds: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Planned>(body).is_ok_and(|planned| planned.xds.is_some())
}

fn parse(what: &str, query: &Query) -> Result<Option<Ask>, ApiError> {
    let is_set = |name: &str, default: bool| match page::value(query, name) {
        None => default,
        // The bare name is how Envoy itself takes it.
        Some(value) => matches!(value, "" | "1" | "t" | "true"),
    };
    let format =
        if page::value(query, "format") == Some("json") { AdminFormat::Json } else { AdminFormat::Text };
    Ok(Some(match what {
        "xds" => Ask::ConfigDump { include_eds: is_set("include_eds", false) },
        "stats" => Ask::Stats { format, used_only: is_set("usedonly", true) },
        "clusters" => Ask::Clusters { format },
        "_config" => Ask::Plan(ConfigOptions::parse(query).map_err(ApiError::unsupported)?),
        _ => return Ok(None),
    }))
}

/// Who may ask that, and what the others cannot.
fn rule(access: &Access, ask: Ask) -> (&AccessRule, &'static str) {
    match ask {
        Ask::ConfigDump { .. } | Ask::Plan(_) => {
            (&access.view_config_dump, "view the configuration of an Envoy")
        }
        Ask::Stats { .. } => (&access.view_stats, "view the stats of an Envoy"),
        Ask::Clusters { .. } => (&access.view_clusters, "view the clusters of an Envoy"),
    }
}

/// A proxy of another zone, known here because it was synced.
fn elsewhere(resource: &Resource) -> ApiError {
    let zone = resource.label(labels::ZONE).unwrap_or("another zone");
    ApiError::bad_request(format!("{} belongs to {zone}: ask there, or on global", resource.key))
}
