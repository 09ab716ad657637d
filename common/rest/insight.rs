//! Insights of meshes and services. They are counted when someone asks: the index is at hand, and a stored
//! copy would be one more thing to keep true.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    extract::{Path, Query as QueryOf, Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Map, Value, json};

use super::{
    ApiError, Endpoint,
    body::json_response,
    condition::{Condition, Count, Proxy},
    page::{self, Page, Query},
    read::Target,
};
use crate::{
    model::{
        Kind, Resource, ResourceKey, document,
        kinds::{legacy, mesh, summaries},
        labels, registry,
    },
    proto::kuma::mesh::v1alpha1::{ExternalService, dataplane::networking::gateway::GatewayType},
    store::index::Index,
};

const ITEM: &str = "Could not retrieve a resource";
const LIST: &str = "Could not retrieve resources";

/// `GET /mesh-insights`.
pub(super) async fn meshes(
    State(at): State<Endpoint>,
    QueryOf(query): QueryOf<Query>,
    request: Request,
) -> Result<Response, ApiError> {
    let page = Page::parse(&query, LIST)?;
    let index = at.api.index.current();
    let name = page::value(&query, "name").unwrap_or_default();
    let meshes = index.list(&mesh::KIND).filter(|mesh| mesh.name().contains(name));
    let all: Vec<&Resource> = meshes.map(AsRef::as_ref).collect();
    let total = all.len();
    let (meshes, next) = page.cut(all);
    let items = meshes.into_iter().map(|mesh| of_mesh(&index, mesh)).collect();
    Ok(page::respond(&request, &query, total, items, next))
}

/// `GET /mesh-insights/{name}`.
pub(super) async fn mesh(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    let mesh = index.find(&mesh::KIND, "", &target.name).ok_or_else(|| ApiError::not_found(ITEM))?;
    Ok(json_response(StatusCode::OK, &of_mesh(&index, mesh)))
}

/// `GET` of the services of one mesh or all.
pub(super) async fn services(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
    QueryOf(query): QueryOf<Query>,
    request: Request,
) -> Result<Response, ApiError> {
    let page = Page::parse(&query, LIST)?;
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let name = page::value(&query, "name").unwrap_or_default();
    let types: Option<Vec<&str>> = page::value(&query, "type").map(|types| types.split(',').collect());
    let meshes = index.list(&mesh::KIND).filter(|m| target.mesh.is_empty() || m.name() == target.mesh);
    let mut all = Vec::new();
    for mesh in meshes {
        let services = Service::all(&index, mesh.name()).into_iter();
        let wanted = services.filter(|(service, stat)| {
            service.contains(name) && types.as_ref().is_none_or(|types| types.contains(&stat.word()))
        });
        all.extend(wanted.map(|(service, stat)| stat.show(mesh, &service)));
    }
    let total = all.len();
    let (items, next) = page.cut(all);
    Ok(page::respond(&request, &query, total, items, next))
}

/// `GET` of one service; one that nobody serves is shown as such.
pub(super) async fn service(
    State(at): State<Endpoint>,
    Path(target): Path<Target>,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let mesh = index.find(&mesh::KIND, "", &target.mesh).ok_or_else(|| ApiError::not_found(ITEM))?;
    let stat = Service::all(&index, &target.mesh).remove(&target.name).unwrap_or_default();
    Ok(json_response(StatusCode::OK, &stat.show(mesh, &target.name)))
}

fn of_mesh(index: &Index, mesh: &Resource) -> Value {
    let name = mesh.name();
    let [mut all, mut standard, mut gateway, mut builtin, mut delegated] = [Count::default(); 5];
    let (mut envoys, mut agents) = (BTreeMap::<String, Count>::new(), BTreeMap::<String, Count>::new());
    let mut issued = BTreeMap::<String, Count>::new();
    for proxy in Proxy::all(index, name) {
        let condition = proxy.condition;
        all.add(condition);
        match proxy.gateway {
            None => standard.add(condition),
            Some(GatewayType::Builtin) => builtin.add(condition),
            Some(GatewayType::Delegated) => delegated.add(condition),
        }
        if proxy.gateway.is_some() {
            gateway.add(condition);
        }
        let version = proxy.insight.subscriptions.last().and_then(|s| s.version.clone()).unwrap_or_default();
        let versions = [
            (&mut envoys, version.envoy.map(|v| v.version)),
            (&mut agents, version.kuma_dp.map(|v| v.version)),
            (&mut issued, proxy.insight.m_tls.map(|m| m.issued_backend)),
        ];
        for (counts, key) in versions {
            if let Some(key) = key.filter(|key| !key.is_empty()) {
                counts.entry(key).or_default().add(condition);
            }
        }
    }
    let services = Service::all(index, name);
    let external = services.values().filter(|s| s.external).count();
    let internal = services.len() - external;
    let mut shown = summary(&summaries::MESH_INSIGHT, mesh, "", name);
    let members = json!({
        "dataplanes": all,
        "policies": counts(index, name, true),
        "dpVersions": { "kumaDp": agents, "envoy": envoys },
        "mTLS": { "issuedBackends": issued },
        "services": { "total": services.len(), "internal": internal, "external": external },
        "dataplanesByType": {
            "standard": standard,
            "gateway": gateway,
            "gatewayBuiltin": builtin,
            "gatewayDelegated": delegated,
        },
        "resources": counts(index, name, false),
    });
    if let Value::Object(members) = members {
        shown.extend(members);
    }
    Value::Object(shown)
}

/// How many resources of each kind the mesh has: of policies only, or of all.
fn counts(index: &Index, mesh: &str, policies: bool) -> Value {
    let kinds = registry::ALL.iter().filter(|kind| kind.is_mesh_scoped() && !kind.read_only);
    let kinds = kinds.filter(|kind| !policies || kind.policy.is_some());
    let counts = kinds.filter_map(|kind| {
        let total = index.list_in_mesh(kind, mesh).count();
        (total > 0).then(|| (kind.name.to_owned(), json!({ "total": total })))
    });
    Value::Object(counts.collect())
}

/// The meta of a summary, as old as the mesh it is about.
fn summary(kind: &'static Kind, of: &Resource, mesh: &str, name: &str) -> Map<String, Value> {
    let mut resource = Resource::new(ResourceKey::new(kind, mesh, name), of.created);
    resource.modified = of.modified;
    document::meta(&resource)
}

/// What is known about one service.
#[derive(Default)]
pub(super) struct Service {
    dataplanes: Count,
    issued: BTreeMap<String, u64>,
    zones: BTreeSet<String>,
    pub(super) gateway: Option<GatewayType>,
    external: bool,
}

impl Service {
    /// The services of a mesh, by name.
    pub(super) fn all(index: &Index, mesh: &str) -> BTreeMap<String, Self> {
        let mut services: BTreeMap<String, Self> = BTreeMap::new();
        for proxy in Proxy::all(index, mesh) {
            let issued = proxy.insight.m_tls.map(|m| m.issued_backend).filter(|b| !b.is_empty());
            for (name, condition) in proxy.services {
                let service = services.entry(name).or_default();
                service.dataplanes.add(condition);
                service.gateway = proxy.gateway;
                if !proxy.zone.is_empty() {
                    service.zones.insert(proxy.zone.clone());
                }
                if let Some(backend) = &issued {
                    *service.issued.entry(backend.clone()).or_default() += 1;
                }
            }
        }
        for resource in index.list_in_mesh(&legacy::EXTERNAL_SERVICE, mesh) {
            let tags = resource.spec::<ExternalService>().unwrap_or_default().tags;
            if let Some(name) = tags.get(labels::TAG_SERVICE) {
                services.entry(name.clone()).or_default().external = true;
            }
        }
        services
    }

    /// How well it does; nobody knows of an external one.
    pub(super) fn condition(&self) -> Option<Condition> {
        match self.dataplanes {
            _ if self.external => None,
            Count { online: 0, .. } => Some(Condition::Offline),
            Count { online, total, .. } if online == total => Some(Condition::Online),
            _ => Some(Condition::Partial),
        }
    }

    fn word(&self) -> &'static str {
        match self.gateway {
            _ if self.external => "external",
            None => "internal",
            Some(GatewayType::Builtin) => "gateway_builtin",
            Some(GatewayType::Delegated) => "gateway_delegated",
        }
    }

    fn show(&self, mesh: &Resource, name: &str) -> Value {
        let status = match self.condition() {
            None => "not_available",
            Some(Condition::Online) => "online",
            Some(Condition::Partial) => "partially_degraded",
            Some(Condition::Offline) => "offline",
        };
        let Count { online, total, .. } = self.dataplanes;
        let mut shown = summary(&summaries::SERVICE_INSIGHT, mesh, mesh.name(), name);
        let members = json!({
            "status": status,
            "dataplanes": { "total": total, "online": online, "offline": total - online },
            "issuedBackends": self.issued,
            "serviceType": self.word(),
            "addressPort": format!("{name}.mesh:80"),
            "zones": self.zones,
        });
        if let Value::Object(members) = members {
            shown.extend(members);
        }
        Value::Object(shown)
    }
}
