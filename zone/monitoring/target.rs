//! What one dataplane answers who collects metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    model::{Resource, labels},
    policy::mesh_metric::{MetricConf, Prometheus, TlsMode},
    proto::kuma::mesh::v1alpha1::{Dataplane, dataplane::Networking},
};
use serde::Serialize;

use crate::mesh::{MetricsTls, OfferedMetrics};

/// What an assignment is called where its type is named.
pub(super) const ASSIGNMENT: &str = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";
/// The service of who names none.
const UNKNOWN: &str = "unknown";

/// Who asks: the `clientId` of a backend, or everybody for whom there is none.
pub(super) type ClientId = Option<Arc<str>>;

/// `kuma.observability.v1.MonitoringAssignment`, in its form as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MonitoringAssignment {
    #[serde(rename = "@type")]
    type_url: &'static str,
    pub(super) mesh: String,
    pub(super) service: String,
    /// One.
    pub(super) targets: Vec<MonitoringTarget>,
}

/// Where to ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MonitoringTarget {
    /// Name of the dataplane.
    pub(super) name: String,
    pub(super) scheme: &'static str,
    /// With the port.
    pub(super) address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) metrics_path: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
}

/// How a dataplane answers, by the policies that select it.
pub(super) fn by_policy(
    resource: &Resource,
    spec: &Dataplane,
    conf: &MetricConf,
) -> Vec<(ClientId, MonitoringAssignment)> {
    let backends = conf.backends.iter().flatten().filter_map(|backend| backend.prometheus.as_ref());
    let mut known: BTreeSet<ClientId> = BTreeSet::new();
    let of_backend = |backend: &Prometheus| {
        let client: ClientId = backend.client_id.as_deref().filter(|id| !id.is_empty()).map(Arc::from);
        // The proxy answers the first of those with one name.
        if !known.insert(client.clone()) {
            return None;
        }
        let mode = backend.tls.as_ref().map(|tls| tls.mode);
        let target = MonitoringTarget {
            name: resource.name().to_owned(),
            scheme: scheme(mode == Some(TlsMode::Provided)),
            address: at(spec, backend.port)?,
            metrics_path: backend.path.clone(),
            // Whoever runs the proxy adds labels to what it tells.
            labels: BTreeMap::new(),
        };
        Some((client, assignment(resource, spec, target)))
    };
    backends.filter_map(of_backend).collect()
}

/// How a dataplane answers, by what its mesh says in the older form.
pub(super) fn by_mesh(
    resource: &Resource,
    spec: &Dataplane,
    offered: &OfferedMetrics,
) -> Option<(ClientId, MonitoringAssignment)> {
    let target = MonitoringTarget {
        name: resource.name().to_owned(),
        scheme: scheme(offered.tls == MetricsTls::Provided),
        address: at(spec, offered.port)?,
        metrics_path: offered.path.clone(),
        labels: tag_labels(spec),
    };
    Some((None, assignment(resource, spec, target)))
}

fn assignment(resource: &Resource, spec: &Dataplane, target: MonitoringTarget) -> MonitoringAssignment {
    let tags = tags(spec);
    let service = tags.get(labels::TAG_SERVICE).and_then(|services| services.first().copied());
    MonitoringAssignment {
        type_url: ASSIGNMENT,
        mesh: resource.mesh().to_owned(),
        service: service.unwrap_or(UNKNOWN).to_owned(),
        targets: vec![target],
    }
}

/// Who shows a certificate of the mesh shows it to who comes as a member; how, its collector has to be told anyway.
fn scheme(shows_files: bool) -> &'static str {
    if shows_files { "https" } else { "http" }
}

/// The address by which others reach the proxy; `None` for one that has none.
fn at(spec: &Dataplane, port: u32) -> Option<String> {
    let Networking { address, advertised_address, .. } = spec.networking.as_ref()?;
    let address = if advertised_address.is_empty() { address } else { advertised_address };
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => Some(format!("[{ip}]:{port}")),
        Ok(IpAddr::V4(_)) | Err(_) if !address.is_empty() => Some(format!("{address}:{port}")),
        _ => None,
    }
}

/// The tags of the dataplane, each with its values in order.
fn tags(spec: &Dataplane) -> BTreeMap<&str, BTreeSet<&str>> {
    let networking = spec.networking.iter();
    let sets = networking.flat_map(|networking| {
        let gateway = networking.gateway.iter().map(|gateway| &gateway.tags);
        networking.inbound.iter().map(|inbound| &inbound.tags).chain(gateway)
    });
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in sets.flatten() {
        all.entry(key).or_default().insert(value);
    }
    all
}

/// Tags as labels: each by its name with the first value, and in the plural with all.
fn tag_labels(spec: &Dataplane) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (key, values) in tags(spec) {
        let label = |name: &str| -> String {
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
        };
        let first = values.first().copied().unwrap_or_default();
        let joined = Vec::from_iter(values.iter().copied()).join(",");
        all.insert(label(key), first.to_owned());
        all.insert(label(&format!("{key}s")), format!(",{joined},"));
    }
    all
}
