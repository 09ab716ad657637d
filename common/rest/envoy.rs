//! What the Envoy of a proxy says about itself: `…/{name}/xds`, `…/{name}/stats`, `…/{name}/clusters`.

use axum::{
    Extension,
    extract::{Path, Query as QueryOf, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    Access, AccessRule, ApiError, Endpoint, User,
    page::{self, Query},
    read::Target,
};
use crate::{
    envoy_admin::{Ask, AskError, Format},
    model::{
        Kind, Origin, Resource,
        kinds::{dataplane, zone_egress, zone_ingress},
        labels,
    },
    redact,
};

const TITLE: &str = "Could not ask the Envoy of a resource";

/// Whether resources of this kind have an Envoy.
pub(super) fn has(kind: &Kind) -> bool {
    [&dataplane::KIND, &zone_ingress::KIND, &zone_egress::KIND].contains(&kind)
}

/// Mesh and name in the URL, and what is asked.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    mesh: String,
    name: String,
    what: String,
}

/// `GET` of one of the three.
pub(super) async fn ask(
    State(at): State<Endpoint>,
    Path(asked): Path<Asked>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    let ask = parse(&asked.what, &query).ok_or_else(|| ApiError::not_found(TITLE))?;
    let (rule, what) = rule(&at.api.config.access, ask);
    rule.check(&user, what)?;
    let target = Target { mesh: asked.mesh, name: asked.name };
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
    // A zone of another make may send what its Envoy said as it is.
    let body = redact::dump(body, ask.is_json());
    let body = body.await?;
    let form = if ask.is_json() { "application/json" } else { "text/plain" };
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    Ok(response)
}

fn parse(what: &str, query: &Query) -> Option<Ask> {
    let is_set = |name: &str, default: bool| match page::value(query, name) {
        None => default,
        // The bare name is how Envoy itself takes it.
        Some(value) => matches!(value, "" | "1" | "t" | "true"),
    };
    let format = if page::value(query, "format") == Some("json") { Format::Json } else { Format::Text };
    Some(match what {
        "xds" => Ask::ConfigDump { include_eds: is_set("include_eds", false) },
        "stats" => Ask::Stats { format, used_only: is_set("usedonly", true) },
        "clusters" => Ask::Clusters { format },
        _ => return None,
    })
}

/// Who may ask that, and what the others cannot.
fn rule(access: &Access, ask: Ask) -> (&AccessRule, &'static str) {
    match ask {
        Ask::ConfigDump { .. } => (&access.view_config_dump, "view the configuration of an Envoy"),
        Ask::Stats { .. } => (&access.view_stats, "view the stats of an Envoy"),
        Ask::Clusters { .. } => (&access.view_clusters, "view the clusters of an Envoy"),
    }
}

/// A proxy of another zone, known here because it was synced.
fn elsewhere(resource: &Resource) -> ApiError {
    let zone = resource.label(labels::ZONE).unwrap_or("another zone");
    ApiError::bad_request(format!("{} belongs to {zone}: ask there, or on global", resource.key))
}
