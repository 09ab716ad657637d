//! A data plane proxy next to a workload.

mod check;

use std::collections::BTreeMap;

use serde_json::Value;

use super::dataplane_networking::networking;
use crate::{
    model::{
        Column, Kind, KubernetesForm, MessageSpec, Resource, SpecError, SyncStage, Violations, ZoneField,
        ZoneFieldForm, labels,
    },
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::networking::{gateway::GatewayType, listener},
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("Dataplane", "dataplanes", MESSAGE)
    .flow(12)
    .named("dataplane", "dp")
    .proxy()
    // It keeps its mesh alive.
    .outlives_mesh()
    .synced(SyncStage::Proxies)
    .kubernetes(KubernetesForm::Namespaced)
    .labelled(label)
    .tagged(tag_sets)
    .columns(&[
        Column { heading: "SERVICES", value: |dataplane| services(dataplane).into() },
        Column { heading: "ADDRESS", value: |dataplane| dataplane["networking"]["address"].clone() },
    ])
    .zone_fields(&[
        ZoneField {
            shown: "networking.inbound[].tags[\"kuma.io/zone\"]",
            path: &["networking", "inbound", "tags"],
            form: ZoneFieldForm::Tags,
        },
        ZoneField {
            shown: "networking.gateway.tags[\"kuma.io/zone\"]",
            path: &["networking", "gateway", "tags"],
            form: ZoneFieldForm::Tags,
        },
    ])
    .typed::<Dataplane>();

const MESSAGE: &str = "kuma.mesh.v1alpha1.Dataplane";

/// The labels that say what kind of proxy it is.
fn label(resource: &mut Resource) {
    // What does not decode was refused before; a label is no place to report it again.
    let Ok(networking) = networking(&resource.spec) else { return };
    let builtin = networking.gateway.as_ref().is_some_and(|g| g.r#type() == GatewayType::Builtin);
    labels::set(resource, labels::PROXY_TYPE, Some(if builtin { "gateway" } else { "sidecar" }));
    let has = |wanted| networking.listeners.iter().any(|l| l.r#type() == wanted).then_some("enabled");
    labels::set(resource, labels::LISTENER_ZONE_INGRESS, has(listener::Type::ZoneIngress));
    labels::set(resource, labels::LISTENER_ZONE_EGRESS, has(listener::Type::ZoneEgress));
}

/// The tags of its inbounds and of its gateway.
fn tag_sets(spec: &[u8]) -> Result<Vec<BTreeMap<String, String>>, SpecError> {
    let networking = networking(spec)?;
    let inbounds = networking.inbound.into_iter().map(|inbound| inbound.tags);
    Ok(inbounds.chain(networking.gateway.map(|gateway| gateway.tags)).collect())
}

/// The services of a dataplane as REST shows it, for people.
pub fn services(dataplane: &Value) -> String {
    let networking = &dataplane["networking"];
    let inbounds = networking["inbound"].as_array().into_iter().flatten();
    let tags = inbounds.map(|i| &i["tags"]).chain([&networking["gateway"]["tags"]]);
    let mut services: Vec<&str> = tags.filter_map(|t| t[labels::TAG_SERVICE].as_str()).collect();
    services.dedup();
    if services.is_empty() { "-".to_owned() } else { services.join(", ") }
}

impl MessageSpec for Dataplane {
    fn open(&self) -> Option<&'static str> {
        self.metrics.as_ref().map(|_| MESSAGE)
    }

    fn violations(&self) -> Violations {
        check::check(self)
    }
}
