//! For those who look from outside: who is connected, what they were sent, what they said to it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Json, Router,
    extract::{Path, State},
    routing::get,
};
use common::{
    redact,
    rest::{AccessRule, ApiError, User},
    xds::Want,
};
use serde_json::{Value, json};

use super::{
    node::{ProxyId, ProxyKind},
    proxies::{Proxies, ProxyView, StreamView},
};
use crate::generator::{Encoded, type_url};

/// The proxies, and who may look.
struct Window {
    proxies: Arc<Proxies>,
    rule: AccessRule,
}

/// Routes: `/debug/proxies` lists all, `/debug/proxies/{node id}/config` shows what one should have, and
/// `/meshes/{mesh}/dataplanes/{name}/_config` does the same in the form Kuma's clients ask for. All for
/// those whom `rule` names.
pub fn router(proxies: Arc<Proxies>, rule: AccessRule) -> Router {
    Router::new()
        .route("/debug/proxies", get(list))
        .route("/debug/proxies/{id}/config", get(config))
        .route("/meshes/{mesh}/dataplanes/{name}/_config", get(dataplane_config))
        .with_state(Arc::new(Window { proxies, rule }))
}

async fn list(
    State(window): State<Arc<Window>>,
    Extension(user): Extension<User>,
) -> Result<Json<Value>, ApiError> {
    window.admit(&user)?;
    let items: Vec<Value> = window.proxies.view().iter().map(summary).collect();
    shown(json!({"total": items.len(), "items": items})).await
}

async fn config(
    State(window): State<Arc<Window>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    window.admit(&user)?;
    window.config(|proxy| proxy.to_string() == id).await
}

async fn dataplane_config(
    State(window): State<Arc<Window>>,
    Extension(user): Extension<User>,
    Path((mesh, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    window.admit(&user)?;
    let id = ProxyId::new(ProxyKind::Dataplane, &mesh, &name);
    window.config(|proxy| *proxy == id).await
}

impl Window {
    fn admit(&self, user: &User) -> Result<(), ApiError> {
        self.rule.check(user, "view the configuration of proxies")
    }

    /// What a connected proxy should have: resources by type and name, secrets left out.
    async fn config(&self, is: impl Fn(&ProxyId) -> bool) -> Result<Json<Value>, ApiError> {
        let missing = || ApiError::not_found("The proxy is not connected to this control plane");
        let view = self.proxies.find(is).ok_or_else(missing)?;
        shown(resources(&view)).await
    }
}

async fn shown(document: Value) -> Result<Json<Value>, ApiError> {
    Ok(Json(redact::document(document).await?))
}

fn summary(view: &ProxyView) -> Value {
    let counts: BTreeMap<&str, usize> = view
        .config
        .iter()
        .flat_map(|c| type_url::ALL.map(|t| (short(t), c.resources().of_type(t).len())))
        .collect();
    json!({
        "id": view.proxy.id.to_string(),
        "type": view.proxy.id.kind.name(),
        "envoy": view.proxy.user_agent,
        "revision": view.config.as_ref().map(|c| c.revision()),
        "resources": counts,
        "problems": view.problems,
        "streams": view.streams.iter().map(stream).collect::<Vec<_>>(),
    })
}

fn stream(view: &StreamView) -> Value {
    let types: BTreeMap<&str, Value> = view
        .types
        .iter()
        .map(|(type_url, seen)| {
            let state = json!({
                "sent": seen.sent,
                "version": seen.version,
                "acknowledged": seen.acknowledged,
                "lastRejection": seen.last_rejection,
            });
            (short(type_url), state)
        })
        .collect();
    json!({"peer": view.peer, "protocol": view.protocol, "types": types})
}

fn resources(view: &ProxyView) -> Value {
    let mut types = serde_json::Map::new();
    for resource in view.config.iter().flat_map(|c| c.resources().iter()) {
        let of_type = types.entry(resource.type_url).or_insert_with(|| json!({}));
        of_type[&*resource.name] = decoded(resource);
    }
    json!({"revision": view.config.as_ref().map(|c| c.revision()), "xds": types})
}

fn decoded(resource: &Encoded) -> Value {
    if resource.type_url == type_url::SECRET {
        return json!({"name": &*resource.name, "version": resource.version.to_string(), "content": redact::REDACTED});
    }
    resource.to_json().unwrap_or_else(|error| json!({"error": error.to_string()}))
}

fn short(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}
