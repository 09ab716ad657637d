//! Which policy is for which proxy, and what comes of it: the answers to an operator who looks from outside.
//!
//! Everything here is computed from the index when it is asked for, by the same rules by which zones compile, so
//! global answers as a zone does.

mod confs;
mod dataplanes;
mod hostnames;
mod layout;
mod matched;
mod older;
mod rules;

use std::sync::Arc;

use axum::{Router, response::Response, routing::get};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ApiError, KindApi, User, body::json_response, list_path, read::ResourcePath};
use crate::{
    model::{
        Kind, Resource,
        kinds::{dataplane, mesh, mesh_gateway, mesh_gateway_route, mesh_service},
    },
    policy::rules::SelectableProxy,
    proto::kuma::mesh::v1alpha1::{Mesh, mesh::mesh_services::Mode},
    runtime::http::Client,
    store::index::Index,
};

/// The routes of one kind under one of its paths.
pub(super) fn routes(kind: &'static Kind, path: &str) -> Router<KindApi> {
    let item = format!("{}/{{name}}", list_path(kind, path));
    let mut routes = Router::new();
    if kind == &dataplane::KIND {
        routes = routes
            .route(&format!("{item}/_rules"), get(rules::of_dataplane))
            .route(&format!("{item}/_layout"), get(layout::layout))
            .route(&format!("{item}/_policies"), get(confs::of_proxy))
            .route(&format!("{item}/_inbounds/{{kri}}/_policies"), get(confs::of_inbound))
            .route(&format!("{item}/_outbounds/{{kri}}/_policies"), get(confs::of_outbound))
            .route(&format!("{item}/_outbounds/{{kri}}/_routes"), get(confs::routes))
            .route(&format!("{item}/_outbounds/{{kri}}/_routes/{{route}}/_policies"), get(confs::of_route))
            .route(&format!("{item}/policies"), get(older::of_dataplane))
            .route(&format!("{item}/rules"), get(older::rules_of_dataplane))
            // Not one of Kuma's: what `straitctl explain` says of older policies.
            .route(&format!("{item}/_older"), get(older::older));
    }
    if kind == &mesh_gateway::KIND {
        routes = routes
            .route(&format!("{item}/_rules"), get(rules::of_gateway))
            .route(&format!("{item}/dataplanes"), get(older::of_gateway));
    }
    if kind == &mesh_service::KIND {
        routes = routes
            .route(&format!("{item}/_dataplanes"), get(dataplanes::of_service))
            .route(&format!("{item}/_resources/dataplanes"), get(dataplanes::of_service));
    }
    if kind.service.is_some() {
        routes = routes.route(&format!("{item}/_hostnames"), get(hostnames::hostnames));
    }
    if kind.policy.is_some() {
        // kumactl spells it with a hyphen.
        routes = routes
            .route(&format!("{item}/_resources/dataplanes"), get(dataplanes::of_policy))
            .route(&format!("{item}/-resources/dataplanes"), get(dataplanes::of_policy));
    }
    if kind == &mesh_gateway_route::KIND {
        routes = routes.route(&format!("{item}/dataplanes"), get(older::of_gateway_route));
    } else if kind.policy.is_some() {
        routes = routes.route(&format!("{item}/dataplanes"), get(older::of_policy));
    }
    routes
}

/// What the URL names besides mesh and name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InspectPath {
    mesh: String,
    name: String,
    kri: String,
    route: String,
}

impl InspectPath {
    fn target(&self) -> ResourcePath {
        ResourcePath { mesh: self.mesh.clone(), name: self.name.clone() }
    }
}

impl KindApi {
    /// The resource that is looked at, in its mesh.
    fn subject(
        &self,
        index: &Index,
        user: &User,
        target: &ResourcePath,
        title: &'static str,
    ) -> Result<Arc<Resource>, ApiError> {
        self.require_mesh(index, target)?;
        self.require_access(user)?;
        index.get(&self.key(target)).cloned().ok_or_else(|| ApiError::not_found(title))
    }

    /// Makes an answer from so many bytes of resources, as `user` may see it.
    async fn inspect(
        &self,
        user: &User,
        client: &Client,
        bytes: usize,
        answer: impl FnOnce() -> Result<Value, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let sight = self.api.sight(user);
        let answer = move || Ok(json_response(axum::http::StatusCode::OK, &sight.of(answer()?)));
        self.api.make(client, bytes, answer).await
    }
}

/// The proxy a dataplane describes, with the gateway it runs.
fn proxy(index: &Index, dataplane: &Resource, title: &'static str) -> Result<SelectableProxy, ApiError> {
    let broken =
        |error: &dyn std::fmt::Display| ApiError::internal(title, format!("{}: {error}", dataplane.key));
    let proxy = SelectableProxy::of(dataplane).map_err(|error| broken(&error))?;
    let proxy = proxy.ok_or_else(|| broken(&"not a dataplane"))?;
    let gateways: Vec<Arc<Resource>> =
        index.list_in_mesh(&mesh_gateway::KIND, dataplane.mesh()).cloned().collect();
    Ok(proxy.with_gateway(&gateways))
}

/// Whether services exist as resources only in this mesh.
pub(super) fn is_exclusive(index: &Index, mesh: &str) -> bool {
    let spec = index.find(&mesh::KIND, "", mesh).and_then(|mesh| mesh.spec::<Mesh>().ok());
    spec.and_then(|spec| spec.mesh_services).is_some_and(|services| services.mode() == Mode::Exclusive)
}

/// 400 for what only makes sense where services are resources.
fn require_exclusive(index: &Index, mesh: &str, endpoint: &str) -> Result<(), ApiError> {
    if is_exclusive(index, mesh) {
        return Ok(());
    }
    let reason = format!("bad request: can't use {endpoint} endpoint without meshService enabled");
    Err(ApiError::bad_request(reason))
}

/// What identifies a resource to somebody who reads.
fn meta(resource: &Resource) -> Value {
    json!({
        "type": resource.kind().name,
        "mesh": resource.mesh(),
        "name": resource.name(),
        "labels": resource.labels,
    })
}

/// An object without the members that are null.
fn present(members: Value) -> Value {
    match members {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
        }
        other => other,
    }
}
