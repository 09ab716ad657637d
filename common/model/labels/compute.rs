//! Labels the control plane adds to what is written through it.

use super::{
    ENV, ENV_UNIVERSAL, LISTENER_ZONE_EGRESS, LISTENER_ZONE_INGRESS, MESH, ORIGIN, ORIGIN_GLOBAL,
    ORIGIN_ZONE, PROXY_TYPE, ZONE,
};
use crate::{
    mode::Mode,
    model::{Resource, Spec},
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::networking::{gateway::GatewayType, listener},
    },
};

/// Completes the labels of a resource that was written on a control plane of this role.
pub fn compute(resource: &mut Resource, mode: &Mode) {
    let kind = resource.kind();
    if kind.is_mesh_scoped() {
        let mesh = resource.mesh().to_owned();
        resource.labels.entry(MESH.to_owned()).or_insert(mesh);
    }
    if let Some(zone) = mode.zone().filter(|_| kind.flow.written_by_zone()) {
        resource.labels.entry(ORIGIN.to_owned()).or_insert_with(|| ORIGIN_ZONE.to_owned());
        if resource.label(ORIGIN) != Some(ORIGIN_GLOBAL) {
            resource.labels.entry(ZONE.to_owned()).or_insert_with(|| zone.to_owned());
            resource.labels.entry(ENV.to_owned()).or_insert_with(|| ENV_UNIVERSAL.to_owned());
        }
    }
    match kind.name {
        "Dataplane" => label_dataplane(resource),
        "ZoneIngress" => set(resource, PROXY_TYPE, Some("zoneingress")),
        "ZoneEgress" => set(resource, PROXY_TYPE, Some("zoneegress")),
        _ => {}
    }
}

fn label_dataplane(resource: &mut Resource) {
    // What does not decode was refused before; a label is no place to report it again.
    let Ok(dataplane) = Dataplane::decode(&resource.spec) else { return };
    let networking = dataplane.networking.unwrap_or_default();
    let builtin = networking.gateway.as_ref().is_some_and(|g| g.r#type() == GatewayType::Builtin);
    set(resource, PROXY_TYPE, Some(if builtin { "gateway" } else { "sidecar" }));
    let has = |wanted| networking.listeners.iter().any(|l| l.r#type() == wanted).then_some("enabled");
    set(resource, LISTENER_ZONE_INGRESS, has(listener::Type::ZoneIngress));
    set(resource, LISTENER_ZONE_EGRESS, has(listener::Type::ZoneEgress));
}

fn set(resource: &mut Resource, key: &str, value: Option<&str>) {
    match value {
        Some(value) => resource.labels.insert(key.to_owned(), value.to_owned()),
        None => resource.labels.remove(key),
    };
}
