//! What whoever runs a proxy is told about metrics, as JSON.

use std::collections::BTreeMap;

use common::{
    model::{Duration, labels},
    policy::mesh_metric::{MetricConf, SidecarMetrics},
};
use serde::Serialize;

use super::Told;
use crate::{
    mesh::{Dataplane, MeshContext},
    policy::caller::UNKNOWN,
};

#[derive(Serialize)]
struct DpConfig<'a> {
    observability: Observability<'a>,
}

#[derive(Serialize)]
struct Observability<'a> {
    metrics: DpMetrics<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DpMetrics<'a> {
    applications: Option<Vec<App<'a>>>,
    backends: Vec<DpMetricBackend<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sidecar: Option<&'a SidecarMetrics>,
    extra_labels: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct App<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    path: &'a str,
    port: u32,
    address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DpMetricBackend<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_telemetry: Option<OpenTelemetry<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenTelemetry<'a> {
    endpoint: &'a str,
    refresh_interval: Duration,
}

/// The whole of it.
pub(super) fn config(
    mesh: &MeshContext,
    dataplane: &Dataplane,
    conf: &MetricConf,
    prometheus: bool,
    collectors: &[Told<'_>],
) -> String {
    let applications = conf.applications.as_ref().filter(|list| !list.is_empty());
    let applications = applications.map(|list| {
        let apps = list.iter().map(|app| App {
            name: app.name.as_deref(),
            path: &app.path,
            port: app.port,
            address: app.address.as_deref().unwrap_or_default(),
        });
        apps.collect()
    });
    let asked =
        prometheus.then_some(DpMetricBackend { kind: "Prometheus", name: None, open_telemetry: None });
    let told = collectors.iter().map(|told| DpMetricBackend {
        kind: "OpenTelemetry",
        name: Some(&told.name),
        open_telemetry: Some(OpenTelemetry {
            endpoint: &told.socket,
            refresh_interval: told.conf.refresh_interval.unwrap_or(Duration::from_secs(60)),
        }),
    });
    let metrics = DpMetrics {
        applications,
        backends: asked.into_iter().chain(told).collect(),
        sidecar: conf.sidecar.as_ref(),
        extra_labels: extra_labels(mesh, dataplane),
    };
    let config = DpConfig { observability: Observability { metrics } };
    serde_json::to_string(&config).expect("the configuration has string keys and no failing serializers")
}

/// What each metric says about the proxy it is of.
fn extra_labels(mesh: &MeshContext, dataplane: &Dataplane) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let tags = dataplane.all_tags();
    for (key, values) in &tags {
        let label: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        all.insert(format!("{label}s"), format!(",{},", values.join(",")));
        all.insert(label, values.first().copied().unwrap_or_default().to_owned());
    }
    let mut set = |name: &str, value: &str| drop(all.insert(name.to_owned(), value.to_owned()));
    let service = tags.get(labels::TAG_SERVICE).and_then(|services| services.first());
    set("dataplane", dataplane.resource.display_name());
    set("kuma.proxy_role", "sidecar");
    set("mesh", &mesh.mesh);
    set("service", service.map_or(UNKNOWN, String::as_str));
    set("zone", &mesh.zone);
    if let Some(workload) = dataplane.resource.label(labels::WORKLOAD) {
        set("kuma.workload", workload);
    }
    all
}
