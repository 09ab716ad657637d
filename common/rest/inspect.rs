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

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(super) use self::dataplanes::selected;
use super::{ApiError, KindApi, Mounted, User, body::json_response, read::ResourcePath, routes};
use crate::{
    model::{
        Resource,
        kinds::{mesh, mesh_gateway, mesh_gateway_route, mesh_service},
    },
    policy::rules::SelectableProxy,
    proto::kuma::mesh::v1alpha1::{Mesh, mesh::mesh_services::Mode},
    runtime::http::Client,
    store::index::Index,
};

/// The routes of one kind.
pub(super) fn routes(at: &KindApi) -> Mounted {
    let kind = at.kind;
    let rules = const { routes::get("<list>/{name}/_rules") };
    let of_gateway = const { routes::get("<list>/{name}/dataplanes") };
    let mounted = Mounted::new();
    let mounted = if kind == &mesh_gateway::KIND {
        mounted.on_kind(kind, rules, rules::of_gateway, at).on_kind(kind, of_gateway, older::of_gateway, at)
    } else if kind == &mesh_gateway_route::KIND {
        mounted.on_kind(kind, of_gateway, older::of_gateway_route, at)
    } else {
        mounted.on_kind(kind, rules, rules::of_dataplane, at).on_kind(kind, of_gateway, older::of_policy, at)
    };
    let for_proxies = const { routes::get("<list>/{name}/_resources/dataplanes") };
    let mounted = if kind == &mesh_service::KIND {
        mounted.on_kind(kind, for_proxies, dataplanes::of_service, at)
    } else {
        mounted.on_kind(kind, for_proxies, dataplanes::of_policy, at)
    };
    mounted
        .merge(of_dataplane(at))
        // kumactl spells it with a hyphen.
        .on_kind(
            kind,
            const { routes::get("<list>/{name}/-resources/dataplanes") },
            dataplanes::of_policy,
            at,
        )
        .on_kind(kind, const { routes::get("<list>/{name}/_dataplanes") }, dataplanes::of_service, at)
        .on_kind(kind, const { routes::get("<list>/{name}/_hostnames") }, hostnames::hostnames, at)
}

fn of_dataplane(at: &KindApi) -> Mounted {
    let kind = at.kind;
    Mounted::new()
        .on_kind(kind, const { routes::get("<list>/{name}/_layout") }, layout::layout, at)
        .on_kind(kind, const { routes::get("<list>/{name}/_policies") }, confs::of_proxy, at)
        .on_kind(
            kind,
            const { routes::get("<list>/{name}/_inbounds/{kri}/_policies") },
            confs::of_inbound,
            at,
        )
        .on_kind(
            kind,
            const { routes::get("<list>/{name}/_outbounds/{kri}/_policies") },
            confs::of_outbound,
            at,
        )
        .on_kind(kind, const { routes::get("<list>/{name}/_outbounds/{kri}/_routes") }, confs::routes, at)
        .on_kind(
            kind,
            const { routes::get("<list>/{name}/_outbounds/{kri}/_routes/{route}/_policies") },
            confs::of_route,
            at,
        )
        .on_kind(kind, const { routes::get("<list>/{name}/policies") }, older::of_dataplane, at)
        .on_kind(kind, const { routes::get("<list>/{name}/rules") }, older::rules_of_dataplane, at)
        // Not one of Kuma's: what `straitctl explain` says of older policies.
        .on_kind(kind, const { routes::get("<list>/{name}/_older") }, older::older, at)
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
        target: &ResourcePath,
        title: &'static str,
    ) -> Result<Arc<Resource>, ApiError> {
        self.require_mesh(index, target)?;
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
