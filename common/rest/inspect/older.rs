//! What older clients ask: which policies are attached to which part of a proxy.
//!
//! A policy of the newer generation is attached to the proxy as a whole. One of the older generation is attached to
//! the inbounds, the outbounds or the services for which no other of its kind fits better.

mod attachment;
mod contest;
mod generation;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use serde_json::{Map, Value, json};

pub(super) use contest::older;
pub(super) use generation::selector;

use self::{attachment::Attachment, generation::OlderPolicies};
use super::{
    InspectPath,
    dataplanes::{self, proxies},
    matched::{Matched, MeshPolicies, weight},
    meta, proxy,
};
use crate::{
    document,
    model::{Kind, Resource, kinds::mesh_gateway_route, labels},
    policy::{
        ProxyType, legacy,
        rules::{RuleOrigin, SelectableGateway, SelectableProxy, TagRule},
    },
    proto::kuma::mesh::v1alpha1::{MeshGateway, MeshGatewayRoute},
    registry,
    rest::{ApiError, KindApi, User},
    runtime::http::Client,
    store::index::Index,
};

const DATAPLANE: &str = "Could not get MatchedPolicies";

/// All policies of a mesh.
struct AllPolicies {
    newer: MeshPolicies,
    older: OlderPolicies,
}

impl AllPolicies {
    fn new(index: &Index, mesh: &str, kinds: impl Fn(&Kind) -> bool) -> Self {
        let newer = registry::policies_in_order().filter(|kind| kinds(kind));
        let older = legacy::KINDS.into_iter().filter(|kind| kinds(kind));
        Self {
            newer: MeshPolicies::of_kinds(index, mesh, newer),
            older: OlderPolicies::new(index, mesh, older),
        }
    }

    /// What is attached to `proxy`, by where.
    fn attached(
        &self,
        dataplane: &Resource,
        proxy: &SelectableProxy,
    ) -> BTreeMap<Attachment, Vec<Arc<Resource>>> {
        let mut attached = self.older.attached(dataplane, proxy);
        let newer = self.newer.matching(proxy).into_iter().flat_map(|matched| matched.selection.policies);
        let newer: Vec<Arc<Resource>> = newer.map(|policy| Arc::clone(&policy.resource)).collect();
        if !newer.is_empty() {
            attached.entry(Attachment::dataplane()).or_default().extend(newer);
        }
        attached
    }
}

/// `…/dataplanes/{name}/policies`.
pub(super) async fn of_dataplane(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    at.about_dataplane(&place, &user, &client, weight, |index, subject| {
        let proxy = proxy(index, subject, DATAPLANE)?;
        let attached = AllPolicies::new(index, subject.mesh(), |_| true).attached(subject, &proxy);
        match &proxy.gateway {
            Some(gateway) => gateway_entry(gateway, index, &attached),
            None => sidecar_entries(&attached),
        }
    })
    .await
}

fn sidecar_entries(attached: &BTreeMap<Attachment, Vec<Arc<Resource>>>) -> Result<Value, ApiError> {
    let mut items = Vec::new();
    for (attachment, policies) in attached {
        let mut by_kind: Map<String, Value> = Map::new();
        for policy in policies {
            let shown = shown(policy)?;
            let list = by_kind.entry(policy.kind().name).or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.push(shown);
            }
        }
        let mut item = attachment.shown();
        item["matchedPolicies"] = by_kind.into();
        items.push(item);
    }
    Ok(json!({"kind": "SidecarDataplane", "total": items.len(), "items": items}))
}

fn gateway_entry(
    gateway: &SelectableGateway,
    index: &Index,
    attached: &BTreeMap<Attachment, Vec<Arc<Resource>>>,
) -> Result<Value, ApiError> {
    let mut policies = Map::new();
    for policy in attached.values().flatten() {
        // There is room for one of each kind: the one that wins.
        policies.insert(policy.kind().name.to_owned(), shown(policy)?);
    }
    Ok(json!({
        "kind": "MeshGatewayDataplane",
        "gateway": key(&gateway.resource),
        "listeners": listeners(gateway, &routes(index, gateway)),
        "policies": policies,
    }))
}

/// The routes of the older generation that may be for a gateway of the mesh, decoded.
fn routes(index: &Index, gateway: &SelectableGateway) -> Vec<(String, MeshGatewayRoute)> {
    let all = index.list_in_mesh(&mesh_gateway_route::KIND, gateway.resource.mesh());
    let decoded = all.filter_map(|route| Some((route.name().to_owned(), route.spec().ok()?)));
    decoded.collect()
}

fn listeners(gateway: &SelectableGateway, routes: &[(String, MeshGatewayRoute)]) -> Vec<Value> {
    let mut ports: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
    for (listener, tags) in &gateway.listeners {
        let selecting = routes.iter().filter(|(_, route)| route.selects(tags));
        let routes: Vec<Value> = selecting
            .map(|(name, route)| json!({"route": name, "destinations": route.destinations().collect::<Vec<_>>()}))
            .collect();
        let host = json!({"hostName": listener.hostname, "routes": routes});
        ports.entry(listener.inbound.port).or_default().push(host);
    }
    let spec: MeshGateway = gateway.resource.spec().unwrap_or_default();
    let protocol = |port: u32| {
        let listeners = spec.conf.iter().flat_map(|conf| &conf.listeners);
        let named = listeners.filter(|listener| listener.port == port);
        named.map(|listener| listener.protocol().as_str_name()).next().unwrap_or_default()
    };
    let shown = |(port, hosts)| json!({"port": port, "protocol": protocol(port), "hosts": hosts});
    ports.into_iter().map(shown).collect()
}

fn shown(policy: &Resource) -> Result<Value, ApiError> {
    document::render(policy)
        .map_err(|error| ApiError::internal(DATAPLANE, format!("{}: {error}", policy.key)))
}

fn key(resource: &Resource) -> Value {
    json!({"mesh": resource.mesh(), "name": resource.name()})
}

/// `…/{policies}/{name}/dataplanes`.
pub(super) async fn of_policy(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &place.target())?;
    let (used, kind, place_of) = (Arc::clone(&index), at.kind, place.target());
    let readable = at.api.rights.readable(&user);
    let answer = move || {
        let policies = AllPolicies::new(&used, &place_of.mesh, |other| other == kind);
        let mut items = Vec::new();
        for dataplane in proxies(&used, &place_of.mesh) {
            let (dataplane, proxy) = dataplane?;
            if !readable.shows(&dataplane) {
                continue;
            }
            let attached = policies.attached(&dataplane, &proxy);
            let is_meant = |policies: &Vec<Arc<Resource>>| policies.iter().any(|p| p.name() == place_of.name);
            let at: Vec<Value> = attached
                .iter()
                .filter(|(_, policies)| is_meant(policies))
                .map(|(at, _)| at.shown())
                .collect();
            if !at.is_empty() {
                items.push(match &proxy.gateway {
                    Some(gateway) => json!({
                        "kind": "MeshGatewayDataplane",
                        "dataplane": key(&dataplane),
                        "gateway": key(&gateway.resource),
                        "listeners": listeners(gateway, &routes(&used, gateway)),
                    }),
                    None => json!({
                        "kind": "SidecarDataplane",
                        "dataplane": key(&dataplane),
                        "attachments": at,
                    }),
                });
            }
        }
        Ok(json!({"total": items.len(), "items": items}))
    };
    at.inspect(&user, &client, dataplanes::weight(&index, &place.mesh), answer).await
}

/// `…/meshgateways/{name}/dataplanes`: the proxies that run it.
pub(super) async fn of_gateway(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let runs = |gateway: &Arc<Resource>| {
        let gateway = gateway.key.clone();
        let runs = move |proxy: &SelectableProxy| {
            proxy.gateway.as_ref().is_some_and(|running| running.resource.key == gateway)
        };
        Ok(Box::new(runs) as Box<dyn Fn(&SelectableProxy) -> bool>)
    };
    at.gateways(&place, &user, &client, "Could not find MeshGateway", runs).await
}

/// `…/meshgatewayroutes/{name}/dataplanes`: the gateways that it selects.
pub(super) async fn of_gateway_route(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let selects = |route: &Arc<Resource>| {
        let selects = selector(route)?;
        let selects = move |proxy: &SelectableProxy| proxy.kind == ProxyType::Gateway && selects(proxy);
        Ok(Box::new(selects) as Box<dyn Fn(&SelectableProxy) -> bool>)
    };
    at.gateways(&place, &user, &client, "Could not find MeshGatewayRoute", selects).await
}

impl KindApi {
    /// What `answer` says of one dataplane, from so many bytes of resources of its mesh as `weight` counts.
    async fn about_dataplane(
        &self,
        place: &InspectPath,
        user: &User,
        client: &Client,
        weight: fn(&Index, &str) -> usize,
        answer: impl FnOnce(&Arc<Index>, &Arc<Resource>) -> Result<Value, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let index = self.api.index.current();
        let subject = self.subject(&index, &place.target(), DATAPLANE)?;
        let bytes = weight(&index, &place.mesh);
        self.inspect(user, client, bytes, move || answer(&index, &subject)).await
    }

    /// The proxies about which what `decider` makes of the resource says yes.
    async fn gateways(
        &self,
        place: &InspectPath,
        user: &User,
        client: &Client,
        title: &'static str,
        decider: impl FnOnce(&Arc<Resource>) -> Result<Box<dyn Fn(&SelectableProxy) -> bool>, ApiError>
        + Send
        + 'static,
    ) -> Result<Response, ApiError> {
        let index = self.api.index.current();
        let subject = self.subject(&index, &place.target(), title)?;
        let used = Arc::clone(&index);
        let readable = self.api.rights.readable(user);
        let answer = move || {
            let is_meant = decider(&subject)?;
            let mut items = Vec::new();
            for dataplane in proxies(&used, subject.mesh()) {
                let (dataplane, proxy) = dataplane?;
                if readable.shows(&dataplane) && is_meant(&proxy) {
                    items.push(json!({"dataplane": key(&dataplane)}));
                }
            }
            Ok(json!({"total": items.len(), "items": items}))
        };
        self.inspect(user, client, dataplanes::weight(&index, &place.mesh), answer).await
    }
}

/// `…/dataplanes/{name}/rules`: an older form of `_rules`.
pub(super) async fn rules_of_dataplane(
    State(at): State<KindApi>,
    Path(place): Path<InspectPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    at.about_dataplane(&place, &user, &client, weight, |index, subject| {
        let proxy = proxy(index, subject, DATAPLANE)?;
        let mesh = MeshPolicies::new(index, subject.mesh());
        let matched = mesh.matching(&proxy);
        let items: Vec<Value> = matched.iter().flat_map(|matched| rules(matched, &mesh, &proxy)).collect();
        Ok(json!({"total": items.len(), "items": items}))
    })
    .await
}

fn rules(matched: &Matched, mesh: &MeshPolicies, proxy: &SelectableProxy) -> Vec<Value> {
    let (kind, selection) = (matched.kind, &matched.selection);
    let mut found = Vec::new();
    if let Some((conf, origins)) = selection.single() {
        found.push(rule(kind, "SingleItem", "", &json!({"conf": conf, "origins": sources(&origins)})));
    }
    let subsets = |rule: &TagRule| -> Map<String, Value> {
        let tags = rule.subset.0.iter();
        let value = |not: bool, value: &str| if not { format!("!{value}") } else { value.to_owned() };
        tags.map(|tag| (tag.key.clone(), value(tag.not, &tag.value).into())).collect()
    };
    let of = |rule: &TagRule| json!({"conf": rule.conf, "subset": subsets(rule), "origins": sources(&rule.origins)});
    if let Ok(to) = selection.to_rules(&mesh.destinations) {
        found.extend(to.tags.0.iter().map(|one| rule(kind, "DestinationSubset", "", &of(one))));
    }
    for key in selection.inbounds.keys() {
        let service = proxy.inbounds.iter().find(|inbound| inbound.key == *key);
        let tags = service.map(|inbound| &inbound.tags);
        let clients = selection.client_rules(key).unwrap_or_default();
        for one in &clients.0 {
            let mut shown = rule(kind, "ClientSubset", &key.to_string(), &of(one));
            shown["tags"] = json!(tags);
            shown["service"] = json!(tags.and_then(|tags| tags.get(labels::TAG_SERVICE)));
            found.push(super::present(shown));
        }
    }
    found
}

fn rule(kind: &Kind, form: &str, name: &str, rule: &Value) -> Value {
    json!({
        "type": form,
        "name": name,
        "policyType": kind.name,
        "subset": rule.get("subset").cloned().unwrap_or_else(|| json!({})),
        "conf": rule["conf"],
        "origins": rule["origins"],
    })
}

fn sources(origins: &[RuleOrigin]) -> Vec<Value> {
    origins.iter().map(|origin| meta(&origin.policy.resource)).collect()
}
