//! `GET /global-insight`: counts over everything.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Api, ApiError, ZoneHealth,
    body::json_response,
    condition::{Count, LostZones, ReportedDataplane, is_connected},
    insight::ServiceCounts,
};
use crate::{
    document,
    model::{
        Kind, Resource, Scope,
        kinds::{
            legacy, mesh, zone, zone_egress, zone_egress_insight, zone_ingress, zone_ingress_insight,
            zone_insight,
        },
    },
    proto::kuma::mesh::v1alpha1::{
        ZoneEgressInsight, ZoneIngressInsight, dataplane::networking::gateway::GatewayType,
    },
    registry,
    runtime::http::Client,
    store::index::Index,
};

#[derive(Default, Serialize)]
struct ZoneCounts {
    online: u64,
    total: u64,
}

/// The whole document.
pub(super) async fn global_insight(
    State(api): State<Arc<Api>>,
    client: Client,
) -> Result<Response, ApiError> {
    let counting = Arc::clone(&api);
    api.count(&client, "", move || Ok(count(&counting))).await
}

fn count(api: &Api) -> Response {
    let index = api.index.current();
    let lost = LostZones::of(api, &index);
    let policies: usize =
        registry::ALL.iter().filter(|kind| kind.policy.is_some()).map(|kind| index.count(kind)).sum();
    let body = json!({
        "createdAt": document::time(api.env.now()),
        "dataplanes": dataplanes(&index, &lost),
        "meshes": { "total": index.count(&mesh::KIND) },
        "policies": { "total": policies },
        "resources": of_meshes(&index),
        "services": services(&index, &lost),
        "zones": zones(api, &index, &lost),
    });
    json_response(StatusCode::OK, &body)
}

/// `GET /global-insights`, the older form.
pub(super) async fn legacy(State(api): State<Arc<Api>>) -> Response {
    let index = api.index.current();
    let body = json!({
        "type": "GlobalInsights",
        "creationTime": document::time(api.env.now()),
        "resources": resources(&index, |kind| {
            kind.scope == Scope::Global && !kind.path.is_empty() && !kind.is_insight
        }),
    });
    json_response(StatusCode::OK, &body)
}

fn resources(index: &Index, counted: impl Fn(&Kind) -> bool) -> Value {
    let counts = registry::ALL.iter().filter(|kind| counted(kind));
    let counts = counts.map(|kind| (kind.name.to_owned(), json!({ "total": index.count(kind) })));
    Value::Object(counts.collect::<Map<_, _>>())
}

/// What the summaries of all meshes come to.
fn of_meshes(index: &Index) -> Value {
    let kinds = registry::ALL.iter().filter(|kind| kind.is_mesh_scoped() && !kind.read_only);
    let counts = kinds.map(|kind| (kind.name.to_owned(), index.count(kind))).filter(|(_, total)| *total > 0);
    Value::Object(counts.map(|(kind, total)| (kind, json!({ "total": total }))).collect())
}

fn dataplanes(index: &Index, lost: &LostZones) -> Value {
    let [mut standard, mut builtin, mut delegated] = [Count::default(); 3];
    for proxy in ReportedDataplane::all(index, "", lost) {
        match proxy.gateway {
            None => standard.add(proxy.condition),
            Some(GatewayType::Builtin) => builtin.add(proxy.condition),
            Some(GatewayType::Delegated) => delegated.add(proxy.condition),
        }
    }
    json!({ "standard": standard, "gatewayBuiltin": builtin, "gatewayDelegated": delegated })
}

fn services(index: &Index, lost: &LostZones) -> Value {
    let [mut internal, mut builtin, mut delegated] = [Count::default(); 3];
    for mesh in index.list(&mesh::KIND) {
        for service in ServiceCounts::all(index, mesh.name(), lost).values() {
            let Some(condition) = service.condition() else { continue };
            match service.gateway {
                None => internal.add(condition),
                Some(GatewayType::Builtin) => builtin.add(condition),
                Some(GatewayType::Delegated) => delegated.add(condition),
            }
        }
    }
    json!({
        "external": { "total": index.count(&legacy::EXTERNAL_SERVICE) },
        "internal": internal,
        "gatewayBuiltin": builtin,
        "gatewayDelegated": delegated,
    })
}

fn zones(api: &Api, index: &Index, lost: &LostZones) -> Value {
    let source = api.config.zone_status.as_ref();
    let mut control_planes = ZoneCounts::default();
    // Those who were never connected count as little as those who are not there.
    for zone in index.list(&zone::KIND) {
        let status = source.map(|s| s.zone_progress(zone.name()));
        let online = status.is_some_and(|s| s.status == ZoneHealth::Online);
        let known = online || index.find(&zone_insight::KIND, "", zone.name()).is_some();
        control_planes.total += u64::from(known);
        control_planes.online += u64::from(online);
    }
    let proxies = |base: &Kind, insight: &'static Kind, connected: fn(&Resource) -> bool| {
        let mut zones = ZoneCounts::default();
        for insight in index.list(base).filter_map(|proxy| index.find(insight, "", proxy.name())) {
            zones.total += 1;
            zones.online += u64::from(!lost.include(insight) && connected(insight));
        }
        zones
    };
    let ingresses = proxies(&zone_ingress::KIND, &zone_ingress_insight::KIND, |insight| {
        insight.spec::<ZoneIngressInsight>().is_ok_and(|i| is_connected(&i.subscriptions))
    });
    let egresses = proxies(&zone_egress::KIND, &zone_egress_insight::KIND, |insight| {
        insight.spec::<ZoneEgressInsight>().is_ok_and(|i| is_connected(&i.subscriptions))
    });
    json!({ "controlPlanes": control_planes, "zoneIngresses": ingresses, "zoneEgresses": egresses })
}
