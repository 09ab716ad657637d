//! `GET /global-insight`: counts over everything.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Api, Health, body::json_response};
use crate::{
    model::{
        Kind, Resource, Scope,
        kinds::{
            dataplane, dataplane_insight, legacy, mesh, summaries, zone, zone_egress, zone_egress_insight,
            zone_ingress, zone_ingress_insight,
        },
        registry,
    },
    proto::kuma::mesh::v1alpha1::{
        Dataplane, DataplaneInsight, DiscoverySubscription, ServiceInsight, ZoneEgressInsight,
        ZoneIngressInsight,
        dataplane::networking::{gateway::GatewayType, inbound},
        service_insight::service,
    },
    store::index::Index,
};

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    online: u64,
    offline: u64,
    partially_degraded: u64,
    total: u64,
}

#[derive(Default, Serialize)]
struct Zones {
    online: u64,
    total: u64,
}

/// How well a proxy or service does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Online,
    Partial,
    Offline,
}

impl Count {
    fn add(&mut self, state: Condition) {
        self.total += 1;
        match state {
            Condition::Online => self.online += 1,
            Condition::Partial => self.partially_degraded += 1,
            Condition::Offline => self.offline += 1,
        }
    }
}

/// The whole document.
pub(super) async fn global_insight(State(api): State<Arc<Api>>) -> Response {
    let index = api.index.current();
    let policies: usize =
        registry::ALL.iter().filter(|kind| kind.policy.is_some()).map(|kind| index.count(kind)).sum();
    let body = json!({
        "createdAt": crate::model::document::time(api.env.now()),
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
        "creationTime": crate::model::document::time(api.env.now()),
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
    let [mut standard, mut builtin, mut delegated] = [(); 3].map(|()| Count::default());
    for resource in index.list(&dataplane::KIND) {
        let networking = resource.spec::<Dataplane>().unwrap_or_default().networking.unwrap_or_default();
        let state = dataplane_state(index, resource, &networking.inbound);
        match networking.gateway.map(|g| g.r#type()) {
            None => standard.add(state),
            Some(GatewayType::Builtin) => builtin.add(state),
            Some(GatewayType::Delegated) => delegated.add(state),
        }
    }
    json!({ "standard": standard, "gatewayBuiltin": builtin, "gatewayDelegated": delegated })
}

fn dataplane_state(
    index: &Index,
    dataplane: &Resource,
    inbounds: &[crate::proto::kuma::mesh::v1alpha1::dataplane::networking::Inbound],
) -> Condition {
    let insight = index.find(&dataplane_insight::KIND, dataplane.mesh(), dataplane.name());
    let insight = insight.and_then(|i| i.spec::<DataplaneInsight>().ok());
    if !insight.is_some_and(|i| is_connected(&i.subscriptions)) {
        return Condition::Offline;
    }
    let ready = inbounds.iter().filter(|i| i.state() == inbound::State::Ready).count();
    match (ready, inbounds.len()) {
        (ready, all) if ready == all => Condition::Online,
        (0, _) => Condition::Offline,
        _ => Condition::Partial,
    }
}

fn is_connected(subscriptions: &[DiscoverySubscription]) -> bool {
    subscriptions.iter().any(|s| s.connect_time.is_some() && s.disconnect_time.is_none())
}

fn services(index: &Index) -> Value {
    use service::{Status, Type};
    let [mut internal, mut builtin, mut delegated] = [(); 3].map(|()| Count::default());
    let insights = index.list(&summaries::SERVICE_INSIGHT);
    for insight in insights.filter_map(|i| i.spec::<ServiceInsight>().ok()) {
        for service in insight.services.values() {
            let state = match service.status() {
                Status::Online => Condition::Online,
                Status::PartiallyDegraded => Condition::Partial,
                Status::None | Status::Offline | Status::NotAvailable => Condition::Offline,
            };
            match service.service_type() {
                Type::Internal => internal.add(state),
                Type::GatewayBuiltin => builtin.add(state),
                Type::GatewayDelegated => delegated.add(state),
                Type::External => {}
            }
        }
    }
    let external = index.count(&legacy::EXTERNAL_SERVICE);
    json!({
        "external": { "total": external },
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
