//! For those who look from outside: who is connected, what they were sent, what they said to it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use common::{
    envoy_admin::ConfigOptions,
    model::kinds::{dataplane, zone_egress, zone_ingress},
    redact,
    rest::{ApiError, Mounted, routes},
    runtime::http::Client,
    xds::Want,
};
use serde_json::{Value, json};

use super::{
    node::{ProxyId, ProxyKind},
    preview::{self, PreviewError, Previews},
    proxies::{Proxies, ProxyView, StreamView},
};
use crate::generator::type_url;

const CONFIG: &str = "Failed to inspect proxy config";
const NOT_CONNECTED: &str = "The proxy is not connected to this control plane";

/// The proxies.
struct Window {
    proxies: Arc<Proxies>,
    previews: Previews,
}

/// Routes: `/debug/proxies` lists all, `/debug/proxies/{node id}/config` shows what one should have, and
/// `/meshes/{mesh}/dataplanes/{name}/_config` does the same in the form Kuma's clients ask for, also for one that is
/// not connected, and with the policies that are only being tried out.
pub fn routes(proxies: Arc<Proxies>, previews: Previews) -> Mounted {
    let window = Arc::new(Window { proxies, previews });
    let of_proxy = const { routes::get("<list>/{name}/_config") };
    Mounted::new()
        .on(const { routes::get("/debug/proxies") }, list, &window)
        .on(const { routes::get("/debug/proxies/{id}/config") }, config, &window)
        .on_kind(&dataplane::KIND, of_proxy, dataplane_config, &window)
        .on_kind(&zone_ingress::KIND, of_proxy, zone_ingress_config, &window)
        .on_kind(&zone_egress::KIND, of_proxy, zone_egress_config, &window)
}

async fn list(State(window): State<Arc<Window>>, client: Client) -> Result<Json<Value>, ApiError> {
    let _turn = client.turn().await?;
    let items: Vec<Value> = window.proxies.view().iter().map(summary).collect();
    shown(json!({"total": items.len(), "items": items})).await
}

async fn config(
    State(window): State<Arc<Window>>,
    Path(id): Path<String>,
    client: Client,
) -> Result<Json<Value>, ApiError> {
    let _turn = client.turn().await?;
    window.config(|proxy| proxy.to_string() == id).await
}

async fn dataplane_config(
    State(window): State<Arc<Window>>,
    Path((mesh, name)): Path<(String, String)>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Json<Value>, ApiError> {
    let plan = ConfigOptions::parse(&query).map_err(ApiError::unsupported)?;
    let _turn = client.turn().await?;
    shown(window.previews.show(&mesh, &name, plan).await.map_err(refused)?).await
}

async fn zone_ingress_config(
    State(window): State<Arc<Window>>,
    Path(name): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Json<Value>, ApiError> {
    let _turn = client.turn().await?;
    window.of_zone_proxy(&ProxyId::new(ProxyKind::Ingress, "", &name), &query).await
}

async fn zone_egress_config(
    State(window): State<Arc<Window>>,
    Path(name): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    client: Client,
) -> Result<Json<Value>, ApiError> {
    let _turn = client.turn().await?;
    window.of_zone_proxy(&ProxyId::new(ProxyKind::Egress, "", &name), &query).await
}

fn refused(error: PreviewError) -> ApiError {
    match error {
        PreviewError::NotConnected(_) => ApiError::not_found(NOT_CONNECTED),
        PreviewError::NeverConnected => ApiError::not_found("Failed to fetch dataplane insight"),
        PreviewError::Unknown(_) => ApiError::not_found(CONFIG),
        PreviewError::Failed(reason) => ApiError::new(StatusCode::BAD_REQUEST, CONFIG, reason),
    }
}

impl Window {
    async fn of_zone_proxy(&self, id: &ProxyId, query: &[(String, String)]) -> Result<Json<Value>, ApiError> {
        let plan = ConfigOptions::parse(query).map_err(ApiError::unsupported)?;
        shown(self.previews.of_proxy(id, plan).await.map_err(refused)?).await
    }

    /// What a connected proxy should have: resources by type and name, secrets left out.
    async fn config(&self, is: impl Fn(&ProxyId) -> bool) -> Result<Json<Value>, ApiError> {
        let missing = || ApiError::not_found(NOT_CONNECTED);
        let view = self.proxies.find(is).ok_or_else(missing)?;
        shown(preview::sent(&view)).await
    }
}

async fn shown(document: Value) -> Result<Json<Value>, ApiError> {
    Ok(Json(redact::document(document).await?))
}

fn summary(view: &ProxyView) -> Value {
    let counts: BTreeMap<&str, usize> =
        view.config.iter().flat_map(|c| type_url::ALL.map(|t| (short(t), c.resources().count(t)))).collect();
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

fn short(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}
