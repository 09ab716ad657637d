//! For those who look from outside: who is connected, what they were sent, what they said to it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, State},
    routing::get,
};
use common::{rest::ApiError, xds::Want};
use serde_json::{Value, json};

use super::{
    node::{ProxyId, ProxyKind},
    proxies::{Proxies, ProxyView, StreamView},
};
use crate::generator::{Encoded, type_url};

/// Routes: `/debug/proxies` lists all, `/debug/proxies/{node id}/config` shows what one should have, and
/// `/meshes/{mesh}/dataplanes/{name}/_config` does the same in the form Kuma's clients ask for.
pub fn router(proxies: Arc<Proxies>) -> Router {
    Router::new()
        .route("/debug/proxies", get(list))
        .route("/debug/proxies/{id}/config", get(config))
        .route("/meshes/{mesh}/dataplanes/{name}/_config", get(dataplane_config))
        .with_state(proxies)
}

async fn list(State(proxies): State<Arc<Proxies>>) -> Json<Value> {
    let items: Vec<Value> = proxies.view().iter().map(summary).collect();
    Json(json!({"total": items.len(), "items": items}))
}

async fn config(
    State(proxies): State<Arc<Proxies>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    find(&proxies, |proxy| proxy.to_string() == id)
}

async fn dataplane_config(
    State(proxies): State<Arc<Proxies>>,
    Path((mesh, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let id = ProxyId::new(ProxyKind::Dataplane, &mesh, &name);
    find(&proxies, |proxy| *proxy == id)
}

/// What a connected proxy should have: resources by type and name, private keys left out.
fn find(proxies: &Proxies, is: impl Fn(&ProxyId) -> bool) -> Result<Json<Value>, ApiError> {
    let view = proxies
        .find(is)
        .ok_or_else(|| ApiError::not_found("The proxy is not connected to this control plane"))?;
    Ok(Json(resources(&view)))
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
        of_type[&*resource.name] = shown(resource);
    }
    json!({"revision": view.config.as_ref().map(|c| c.revision()), "xds": types})
}

fn shown(resource: &Encoded) -> Value {
    if resource.type_url == type_url::SECRET {
        return json!({"name": &*resource.name, "version": resource.version.to_string(), "content": "[redacted]"});
    }
    let mut json = resource.to_json().unwrap_or_else(|error| json!({"error": error.to_string()}));
    redact(&mut json);
    json
}

/// Takes out private keys, wherever they are.
fn redact(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, member) in members {
                if name == "privateKey" {
                    *member = "[redacted]".into();
                } else {
                    redact(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn short(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}
