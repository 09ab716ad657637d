//! `…/_layout`: what a proxy listens for and what it calls, by identifier, where services are resources.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use prost::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{matched, present, require_exclusive};
use crate::{
    model::{
        PortsIn, Resource, decode,
        kinds::{destinations::MESH_IDENTITY, mesh_identity},
        kri::Kri,
        labels,
    },
    policy::{
        TargetKind, TargetRef,
        rules::{Destinations, TargetResource},
    },
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{
            Networking,
            networking::{Inbound, Listener, listener::Type},
        },
    },
    rest::{ApiError, KindApi, User, read::ResourcePath},
    runtime::http::Client,
    store::index::Index,
};

const TITLE: &str = "Failed to retrieve Dataplane";

/// `GET` of it.
pub(super) async fn layout(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let index = at.api.index.current();
    at.require_mesh(&index, &target)?;
    require_exclusive(&index, &target.mesh, "_layout")?;
    let subject = at.subject(&index, &target, TITLE)?;
    let (used, zone) = (Arc::clone(&index), at.api.config.mode.zone().unwrap_or_default().to_owned());
    let answer = move || document(&used, &subject, &zone);
    at.inspect(&user, &client, matched::weight(&index, &target.mesh), answer).await
}

fn document(index: &Index, dataplane: &Resource, zone: &str) -> Result<Value, ApiError> {
    let broken = |error: String| ApiError::internal(TITLE, format!("{}: {error}", dataplane.key));
    let spec = Dataplane::decode(&*dataplane.spec).map_err(|error| broken(error.to_string()))?;
    let kri = Kri::of(dataplane).ok_or_else(|| broken("has no identifier".to_owned()))?;
    let networking = spec.networking.unwrap_or_default();
    let inbounds: Vec<Value> = networking.inbound.iter().map(|one| inbound(&kri, one)).collect();
    let listeners: Vec<Value> = networking.listeners.iter().filter_map(|one| listener(&kri, one)).collect();
    Ok(present(json!({
        "kri": kri.to_string(),
        "labels": dataplane.labels,
        "inbounds": inbounds,
        "listeners": listeners,
        "outbounds": outbounds(&networking, dataplane, &matched::destinations(index, dataplane.mesh())),
        "spiffeId": mesh_identity::spiffe_id(index.list_in_mesh(&MESH_IDENTITY, dataplane.mesh()), dataplane, zone)
            .map(|(_, id)| id),
    })))
}

fn section(name: &str, port: u32) -> String {
    if name.is_empty() { port.to_string() } else { name.to_owned() }
}

fn inbound(dataplane: &Kri, inbound: &Inbound) -> Value {
    let section = section(&inbound.name, inbound.port);
    let tag = inbound.tags.get(labels::TAG_PROTOCOL).map_or("tcp", String::as_str);
    let protocol = if inbound.protocol.is_empty() { tag } else { &inbound.protocol };
    json!({
        "kri": dataplane.clone().with_section(&section).to_string(),
        "port": inbound.port,
        "protocol": protocol,
        "proxyResourceName": format!("self_inbound_dp_{section}"),
    })
}

fn listener(dataplane: &Kri, listener: &Listener) -> Option<Value> {
    let section = section(&listener.name, listener.port);
    let (kind, prefix) = match listener.r#type() {
        Type::ZoneIngress => ("ZoneIngress", "self_zoneingress_dp"),
        Type::ZoneEgress => ("ZoneEgress", "self_zoneegress_dp"),
        Type::Unspecified => return None,
    };
    Some(json!({
        "kri": dataplane.clone().with_section(&section).to_string(),
        "type": kind,
        "port": listener.port,
        "proxyResourceName": format!("{prefix}_{section}"),
    }))
}

/// A port of a service.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutPort {
    #[serde(default)]
    name: Option<String>,
    port: u32,
    #[serde(default, alias = "protocol")]
    app_protocol: Option<String>,
}

impl LayoutPort {
    fn section(&self) -> String {
        section(self.name.as_deref().unwrap_or_default(), self.port)
    }
}

/// The ports of a destination that is a service.
fn ports(destination: &TargetResource) -> Vec<LayoutPort> {
    let Some(places) = destination.resource.kind().service else { return Vec::new() };
    let Ok(spec) = decode::spec::<Value>(&destination.resource.spec) else { return Vec::new() };
    let ports = match places {
        PortsIn::Ports => spec["ports"].clone(),
        PortsIn::Match => json!([spec["match"]]),
    };
    serde_json::from_value(ports).unwrap_or_default()
}

/// What the proxy calls: what its outbounds name, else what it is confined to, else all there is.
fn outbounds(networking: &Networking, dataplane: &Resource, destinations: &Destinations) -> Vec<Value> {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let mut add = |destination: &TargetResource, wanted: Option<u32>| {
        for port in ports(destination) {
            if wanted.is_some_and(|wanted| wanted != port.port) {
                continue;
            }
            let kri = destination.kri.clone().with_section(&port.section()).to_string();
            let protocol = port.app_protocol.as_deref().unwrap_or("tcp");
            let entry =
                json!({"kri": kri, "port": port.port, "protocol": protocol, "proxyResourceName": kri});
            found.insert(kri, entry);
        }
    };
    let confined = networking.transparent_proxying.as_ref().and_then(|t| t.reachable_backends.as_ref());
    if !networking.outbound.is_empty() {
        for one in networking.outbound.iter().filter_map(|outbound| outbound.backend_ref.as_ref()) {
            let target = reference(&one.kind, &one.name, "", &one.labels);
            // Of several with these labels it calls the oldest.
            let meant = target.into_iter().flat_map(|target| resolve(destinations, dataplane, &target));
            if let Some(destination) = meant.min_by_key(|d| (d.resource.created, &d.resource.key)) {
                add(destination, Some(one.port).filter(|port| *port != 0));
            }
        }
    } else if let Some(confined) = confined {
        for one in &confined.refs {
            let target = reference(&one.kind, &one.name, &one.namespace, &one.labels);
            for destination in target.into_iter().flat_map(|target| resolve(destinations, dataplane, &target))
            {
                add(destination, one.port.as_ref().map(|port| port.value));
            }
        }
    } else {
        destinations.all().for_each(|destination| add(destination, None));
    }
    found.into_values().collect()
}

fn resolve<'a>(
    destinations: &'a Destinations,
    dataplane: &Resource,
    target: &TargetRef,
) -> Vec<&'a TargetResource> {
    let found = destinations.resolve(dataplane, target);
    let found: Vec<&TargetResource> = found.into_iter().map(|(destination, _)| destination).collect();
    // What global owns has no zone, wherever the proxy is.
    let named = |d: &&TargetResource| {
        d.kri.zone.is_empty() && d.resource.kind().name == target.kind.name() && d.kri.name == target.name()
    };
    if found.is_empty() && target.labels().is_none() {
        destinations.all().filter(named).collect()
    } else {
        found
    }
}

fn reference<'a>(
    kind: &str,
    name: &str,
    namespace: &str,
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Option<TargetRef> {
    let kind = serde_json::from_value::<TargetKind>(kind.into()).ok()?;
    let labels: BTreeMap<String, String> = labels.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    Some(TargetRef {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        labels: Some(labels),
        ..TargetRef::of(kind)
    })
}
