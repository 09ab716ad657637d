//! Host names every mesh has without being asked: one generator for each sort of service.

use serde_json::{Value, json};

use crate::{mode::Mode, model::labels};

/// The generators of a control plane of this role: name and spec.
pub(super) fn generators(mode: &Mode) -> Vec<(&'static str, Value)> {
    match mode {
        Mode::Global => synced(),
        Mode::Zone { .. } => local(),
    }
}

/// For services as other zones see them.
fn synced() -> Vec<(&'static str, Value)> {
    let kubernetes = |headless: &str| {
        json!({ "matchLabels": {
            (labels::ORIGIN): labels::ORIGIN_GLOBAL,
            "k8s.kuma.io/is-headless-service": headless,
            (labels::ENV): "kubernetes",
        } })
    };
    let global = json!({ "matchLabels": { (labels::ORIGIN): labels::ORIGIN_GLOBAL } });
    let universal = json!({
        "matchLabels": { (labels::ORIGIN): labels::ORIGIN_GLOBAL, (labels::ENV): labels::ENV_UNIVERSAL }
    });
    vec![
        (
            "synced-mesh-multi-zone-service",
            spec("{{ .DisplayName }}.mzsvc.mesh.local", "meshMultiZoneService", global.clone()),
        ),
        (
            "synced-kube-mesh-service",
            spec(
                "{{ .DisplayName }}.{{ .Namespace }}.svc.{{ .Zone }}.mesh.local",
                "meshService",
                kubernetes("false"),
            ),
        ),
        (
            "synced-headless-kube-mesh-service",
            spec(
                "{{ label \"statefulset.kubernetes.io/pod-name\" }}.{{ label \"k8s.kuma.io/service-name\" }}.\
                 {{ .Namespace }}.svc.{{ .Zone }}.mesh.local",
                "meshService",
                kubernetes("true"),
            ),
        ),
        (
            "synced-universal-mesh-service",
            spec("{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local", "meshService", universal),
        ),
        (
            "synced-mesh-external-service",
            spec("{{ .DisplayName }}.extsvc.mesh.local", "meshExternalService", global),
        ),
    ]
}

/// For services as their own zone sees them.
fn local() -> Vec<(&'static str, Value)> {
    let zone = json!({ "matchLabels": { (labels::ORIGIN): labels::ORIGIN_ZONE } });
    let universal = json!({
        "matchLabels": { (labels::ORIGIN): labels::ORIGIN_ZONE, (labels::ENV): labels::ENV_UNIVERSAL }
    });
    vec![
        (
            "local-mesh-external-service",
            spec("{{ .DisplayName }}.extsvc.mesh.local", "meshExternalService", zone),
        ),
        ("local-universal-mesh-service", spec("{{ .DisplayName }}.svc.mesh.local", "meshService", universal)),
    ]
}

fn spec(template: &str, service: &str, labels: Value) -> Value {
    json!({ "template": template, "selector": { service: labels } })
}
