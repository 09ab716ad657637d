//! Insights of meshes and services. They are counted when someone asks: the index is at hand, and a stored
//! copy would be one more thing to keep true.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Extension,
    extract::{Path, Query as QueryOf, Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Map, Value, json};

use super::{
    Api, ApiError, KindApi, User,
    body::json_response,
    condition::{Count, LostZones, ProxyCondition, ReportedDataplane},
    inspect::is_exclusive,
    kubernetes,
    page::{self, Page, PageLink, Query},
    read::{ResourceForm, ResourcePath, weight_of_all},
};
use crate::{
    document,
    model::{
        Kind, Resource, ResourceKey, Violations,
        kinds::{legacy, mesh, summaries},
        labels,
    },
    proto::kuma::mesh::v1alpha1::{ExternalService, dataplane::networking::gateway::GatewayType},
    registry,
    runtime::http::Client,
    store::index::Index,
};

const ITEM: &str = "Could not retrieve a resource";
const LIST: &str = "Could not retrieve resources";
/// The version of who has not told it.
const UNKNOWN: &str = "unknown";

/// `GET /mesh-insights`.
pub(super) async fn meshes(
    State(at): State<KindApi>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    let page = Page::parse(&query, LIST)?;
    let index = at.api.index.current();
    let readable = at.api.rights.readable(&user);
    let (api, link) = (Arc::clone(&at.api), PageLink::of(request, query.clone()));
    let answer = move || {
        let lost = LostZones::of(&api, &index);
        let name = page::value(&query, "name").unwrap_or_default();
        let shown = |mesh: &str| readable.shows_key(&ResourceKey::global(&summaries::MESH_INSIGHT, mesh));
        let meshes = index.list(&mesh::KIND).map(AsRef::as_ref);
        let all: Vec<&Resource> =
            meshes.filter(|mesh: &&Resource| mesh.name().contains(name) && shown(mesh.name())).collect();
        let total = all.len();
        page.respond(link, total, page.cut(all).into_iter().map(|mesh| Ok(of_mesh(&index, mesh, &lost))))
    };
    at.api.count(&client, "", answer).await
}

/// `GET /mesh-insights/{name}`.
pub(super) async fn mesh(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    client: Client,
) -> Result<Response, ApiError> {
    let is_universal = matches!(ResourceForm::parse(&query)?, ResourceForm::Universal);
    let index = at.api.index.current();
    index.find(&mesh::KIND, "", &target.name).ok_or_else(|| ApiError::not_found(ITEM))?;
    let (api, name) = (Arc::clone(&at.api), target.name.clone());
    let answer = move || {
        let mesh = index.find(&mesh::KIND, "", &name).ok_or_else(|| ApiError::not_found(ITEM))?;
        let lost = LostZones::of(&api, &index);
        let shown = match is_universal {
            true => of_mesh(&index, mesh, &lost),
            false => {
                let meta = summarised(&summaries::MESH_INSIGHT, mesh, "", &name);
                kubernetes::counted(&meta, members_of_mesh(&index, mesh, &lost))
            }
        };
        Ok(json_response(StatusCode::OK, &shown))
    };
    at.api.count(&client, &target.name, answer).await
}

/// `GET` of the services of one mesh or all.
pub(super) async fn services(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    let page = Page::parse(&query, LIST)?;
    let index = at.api.index.current();
    let readable = at.api.rights.readable(&user);
    at.require_mesh(&index, &target)?;
    if let Some(unknown) = types_of(&query).into_iter().flatten().find(|one| !TYPES.contains(one)) {
        let reason = format!("{unknown:?} is none of {}", TYPES.join(", "));
        return Err(ApiError::invalid(LIST, &Violations::one("type", reason)));
    }
    let (link, of) = (PageLink::of(request, query.clone()), target.mesh.clone());
    let api = Arc::clone(&at.api);
    let answer = move || {
        let lost = LostZones::of(&api, &index);
        let name = page::value(&query, "name").unwrap_or_default();
        let types = types_of(&query);
        let mut all = Vec::new();
        let meshes = index.list(&mesh::KIND).filter(|m| of.is_empty() || m.name() == of);
        // Where services are resources, they say themselves how they are.
        for mesh in meshes.filter(|mesh| !is_exclusive(&index, mesh.name())) {
            let services = ServiceCounts::all(&index, mesh.name(), &lost).into_iter();
            let wanted = services.filter(|(service, stat)| {
                let key = ResourceKey::new(&summaries::SERVICE_INSIGHT, mesh.name(), service);
                service.contains(name)
                    && readable.shows_key(&key)
                    && types.as_ref().is_none_or(|types| types.contains(&stat.word()))
            });
            all.extend(wanted.map(|(service, stat)| (mesh, service, stat)));
        }
        let total = all.len();
        let shown = page.cut(all).into_iter().map(|(mesh, service, stat)| Ok(stat.show(mesh, &service)));
        page.respond(link, total, shown)
    };
    at.api.count(&client, &target.mesh, answer).await
}

/// `GET` of one service; one that nobody serves is shown as such.
pub(super) async fn service(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    client: Client,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    let (api, mesh) = (Arc::clone(&at.api), target.mesh.clone());
    let answer = move || {
        let mesh = index.find(&mesh::KIND, "", &target.mesh).ok_or_else(|| ApiError::not_found(ITEM))?;
        if is_exclusive(&index, &target.mesh) {
            return Err(ApiError::not_found(ITEM));
        }
        let lost = LostZones::of(&api, &index);
        let stat = ServiceCounts::all(&index, &target.mesh, &lost).remove(&target.name).unwrap_or_default();
        Ok(json_response(StatusCode::OK, &stat.show(mesh, &target.name)))
    };
    at.api.count(&client, &mesh, answer).await
}

/// Types of services one may ask for.
const TYPES: [&str; 4] = ["internal", "external", "gateway_delegated", "gateway_builtin"];

fn types_of(query: &Query) -> Option<Vec<&str>> {
    page::value(query, "type").filter(|types| !types.is_empty()).map(|types| types.split(',').collect())
}

impl Api {
    /// Makes an answer for `client` that counts the proxies of one mesh, or of all.
    pub(super) async fn count(
        &self,
        client: &Client,
        mesh: &str,
        answer: impl FnOnce() -> Result<Response, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let index = self.index.current();
        // Of services, those that are resources count, and of meshes all that is in them.
        let bytes = match mesh.is_empty() {
            true => weight_of_all(index.iter()),
            false => {
                let kinds = registry::ALL.iter().filter(|kind| kind.is_mesh_scoped());
                weight_of_all(kinds.flat_map(|kind| index.list_in_mesh(kind, mesh)))
            }
        };
        self.make(client, bytes, answer).await
    }
}

fn of_mesh(index: &Index, mesh: &Resource, lost: &LostZones) -> Value {
    let mut shown = summary(&summaries::MESH_INSIGHT, mesh, "", mesh.name());
    if let Value::Object(members) = members_of_mesh(index, mesh, lost) {
        shown.extend(members);
    }
    Value::Object(shown)
}

/// What an insight says of a mesh.
fn members_of_mesh(index: &Index, mesh: &Resource, lost: &LostZones) -> Value {
    let name = mesh.name();
    let [mut all, mut standard, mut gateway, mut builtin, mut delegated] = [Count::default(); 5];
    let (mut envoys, mut agents) = (BTreeMap::<String, Count>::new(), BTreeMap::<String, Count>::new());
    let (mut issued, mut supported) = (BTreeMap::<String, Count>::new(), BTreeMap::<String, Count>::new());
    for proxy in ReportedDataplane::all(index, name, lost) {
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
        ];
        for (counts, version) in versions {
            let version = version.filter(|version| !version.is_empty());
            counts.entry(version.unwrap_or_else(|| UNKNOWN.to_owned())).or_default().add(condition);
        }
        let mtls = proxy.insight.m_tls.unwrap_or_default();
        for backend in mtls.supported_backends {
            supported.entry(backend).or_default().add(condition);
        }
        if !mtls.issued_backend.is_empty() {
            issued.entry(mtls.issued_backend).or_default().add(condition);
        }
    }
    let services = ServiceCounts::all(index, name, lost);
    let external = services.values().filter(|s| s.external).count();
    let internal = services.len() - external;
    json!({
        "dataplanes": all,
        "policies": counts(index, name, true),
        "dpVersions": { "kumaDp": agents, "envoy": envoys },
        "mTLS": { "issuedBackends": issued, "supportedBackends": supported },
        "services": { "total": services.len(), "internal": internal, "external": external },
        "dataplanesByType": {
            "standard": standard,
            "gateway": gateway,
            "gatewayBuiltin": builtin,
            "gatewayDelegated": delegated,
        },
        "resources": counts(index, name, false),
    })
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
    document::meta(&summarised(kind, of, mesh, name))
}

fn summarised(kind: &'static Kind, of: &Resource, mesh: &str, name: &str) -> Resource {
    let mut resource = Resource::new(ResourceKey::new(kind, mesh, name), of.created);
    resource.modified = of.modified;
    resource
}

/// What is known about one service.
#[derive(Default)]
pub(super) struct ServiceCounts {
    dataplanes: Count,
    issued: BTreeMap<String, u64>,
    zones: BTreeSet<String>,
    pub(super) gateway: Option<GatewayType>,
    external: bool,
    /// Where an external one is.
    address: String,
}

impl ServiceCounts {
    /// The services of a mesh, by name.
    pub(super) fn all(index: &Index, mesh: &str, lost: &LostZones) -> BTreeMap<String, Self> {
        let mut services: BTreeMap<String, Self> = BTreeMap::new();
        for proxy in ReportedDataplane::all(index, mesh, lost) {
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
            let spec = resource.spec::<ExternalService>().unwrap_or_default();
            if let Some(name) = spec.tags.get(labels::TAG_SERVICE) {
                let service = services.entry(name.clone()).or_default();
                service.external = true;
                service.address = spec.networking.map(|networking| networking.address).unwrap_or_default();
            }
        }
        services
    }

    /// How well it does; nobody knows of an external one.
    pub(super) fn condition(&self) -> Option<ProxyCondition> {
        match self.dataplanes {
            _ if self.external => None,
            Count { online: 0, unknown: 1.., .. } => Some(ProxyCondition::Unknown),
            Count { online: 0, .. } => Some(ProxyCondition::Offline),
            Count { online, total, .. } if online == total => Some(ProxyCondition::Online),
            _ => Some(ProxyCondition::Partial),
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
            None | Some(ProxyCondition::Unknown) => "not_available",
            Some(ProxyCondition::Online) => "online",
            Some(ProxyCondition::Partial) => "partially_degraded",
            Some(ProxyCondition::Offline) => "offline",
        };
        let Count { online, unknown, total, .. } = self.dataplanes;
        let mut dataplanes = json!({ "total": total, "online": online, "offline": total - online - unknown });
        if unknown > 0 {
            dataplanes["unknown"] = unknown.into();
        }
        let mut shown = summary(&summaries::SERVICE_INSIGHT, mesh, mesh.name(), name);
        let members = json!({
            "status": status,
            "dataplanes": dataplanes,
            "issuedBackends": self.issued,
            "zones": self.zones,
        });
        // A gateway is not called by a name of the mesh.
        let address = match self.gateway {
            _ if self.external => Some(self.address.clone()),
            Some(_) => None,
            None => Some(format!("{name}.mesh:80")),
        };
        shown.extend(address.map(|address| ("addressPort".to_owned(), address.into())));
        let word = Some(self.word()).filter(|word| *word != TYPES[0]);
        shown.extend(word.map(|word| ("serviceType".to_owned(), word.into())));
        if let Value::Object(members) = members {
            shown.extend(members);
        }
        Value::Object(shown)
    }
}
