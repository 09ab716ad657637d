//! `GET /global-insight`: counts over everything.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Api, Health,
    body::json_response,
    condition::{Count, Proxy, is_connected},
    insight::Service,
};
use crate::{
    model::{
        Kind, Resource, Scope, document,
        kinds::{legacy, mesh, zone, zone_egress, zone_egress_insight, zone_ingress, zone_ingress_insight},
        registry,
    },
    proto::kuma::mesh::v1alpha1::{
        ZoneEgressInsight, ZoneIngressInsight, dataplane::networking::gateway::GatewayType,
    },
    store::index::Index,
};

#[derive(Default, Serialize)]
struct Zones {
    online: u64,
    total: u64,
}

/// The whole document.
pub(super) async fn global_insight(State(api): State<Arc<Api>>) -> Response {
    let index = api.index.current();
    let policies: usize =
        registry::ALL.iter().filter(|kind| kind.policy.is_some()).map(|kind| index.count(kind)).sum();
    let body = json!({
        "createdAt": document::time(api.env.now()),
        "dataplanes": dataplanes(&index),
        "meshes": { "total": index.count(&mesh::KIND) },
        "policies": { "total": policies },
        "resources": resources(&index, |kind| !kind.path.is_empty() && !kind.read_only),
        "services": services(&index),
        "zones": zones(&api, &index),
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
            kind.scope == Scope::Global && !kind.path.is_empty() && !kind.name.ends_with("Insight")
        }),
    });
    json_response(StatusCode::OK, &body)
}

fn resources(index: &Index, counted: impl Fn(&Kind) -> bool) -> Value {
    let counts = registry::ALL.iter().filter(|kind| counted(kind));
    let counts = counts.map(|kind| (kind.name.to_owned(), json!({ "total": index.count(kind) })));
    Value::Object(counts.collect::<Map<_, _>>())
}

fn dataplanes(index: &Index) -> Value {
    let [mut standard, mut builtin, mut delegated] = [Count::default(); 3];
    for proxy in Proxy::all(index, "") {
        match proxy.gateway {
            None => standard.add(proxy.condition),
            Some(GatewayType::Builtin) => builtin.add(proxy.condition),
            Some(GatewayType::Delegated) => delegated.add(proxy.condition),
        }
    }
    json!({ "standard": standard, "gatewayBuiltin": builtin, "gatewayDelegated": delegated })
}

fn services(index: &Index) -> Value {
    let [mut internal, mut builtin, mut delegated] = [Count::default(); 3];
    for mesh in index.list(&mesh::KIND) {
        for service in Service::all(index, mesh.name()).values() {
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

fn zones(api: &Api, index: &Index) -> Value {
    let source = api.config.zone_status.as_ref();
    let mut control_planes = Zones::default();
    for zone in index.list(&zone::KIND) {
        control_planes.total += 1;
        let status = source.and_then(|s| s.zone_status(zone.name(), index));
        control_planes.online += u64::from(status.is_some_and(|s| s.status == Health::Online));
    }
    let proxies = |base: &Kind, insight: &'static Kind, connected: fn(&Resource) -> bool| {
        let mut zones = Zones::default();
        for proxy in index.list(base) {
            zones.total += 1;
            let insight = index.find(insight, "", proxy.name());
            zones.online += u64::from(insight.is_some_and(|i| connected(i)));
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
