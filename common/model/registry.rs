//! The one list of kinds. A new kind is one file and one line here.

use std::{collections::HashMap, sync::LazyLock};

use super::{Kind, kinds::*};
use crate::policy;

/// Every kind, in no particular order.
pub static ALL: LazyLock<Vec<&'static Kind>> = LazyLock::new(|| {
    let mut all: Vec<&'static Kind> = vec![
        &mesh::KIND,
        &zone::KIND,
        &zone_insight::KIND,
        &dataplane::KIND,
        &dataplane_insight::KIND,
        &zone_ingress::KIND,
        &zone_ingress_insight::KIND,
        &zone_egress::KIND,
        &zone_egress_insight::KIND,
        &config::KIND,
        &secret::SECRET,
        &secret::GLOBAL_SECRET,
        &summaries::MESH_INSIGHT,
        &summaries::SERVICE_INSIGHT,
        &legacy::EXTERNAL_SERVICE,
        &legacy::MESH_GATEWAY,
        &legacy::MESH_GATEWAY_ROUTE,
        &mesh_service::KIND,
        &destinations::MESH_EXTERNAL_SERVICE,
        &destinations::MESH_MULTI_ZONE_SERVICE,
        &destinations::HOSTNAME_GENERATOR,
        &destinations::MESH_ZONE_ADDRESS,
        &destinations::MESH_IDENTITY,
        &destinations::MESH_TRUST,
        &destinations::MESH_OPEN_TELEMETRY_BACKEND,
        &destinations::WORKLOAD,
        &policy::mesh_timeout::KIND,
        &policy::mesh_traffic_permission::KIND,
        &policy::mesh_http_route::KIND,
        &policy::mesh_tcp_route::KIND,
        &policy::mesh_retry::KIND,
        &policy::mesh_circuit_breaker::KIND,
        &policy::opaque::MESH_ACCESS_LOG,
        &policy::opaque::MESH_FAULT_INJECTION,
        &policy::opaque::MESH_HEALTH_CHECK,
        &policy::opaque::MESH_LOAD_BALANCING_STRATEGY,
        &policy::opaque::MESH_METRIC,
        &policy::opaque::MESH_PASSTHROUGH,
        &policy::opaque::MESH_PROXY_PATCH,
        &policy::opaque::MESH_RATE_LIMIT,
        &policy::opaque::MESH_TLS,
        &policy::opaque::MESH_TRACE,
    ];
    all.extend(&legacy::POLICIES);
    all.sort_by_key(|k| k.name);
    all
});

fn index(by: impl Fn(&'static Kind) -> Vec<&'static str>) -> HashMap<&'static str, &'static Kind> {
    let named = ALL.iter().flat_map(|k| by(k).into_iter().map(move |n| (n, *k)));
    named.filter(|(name, _)| !name.is_empty()).collect()
}

/// The kind of this type name.
pub fn by_name(name: &str) -> Option<&'static Kind> {
    static BY_NAME: LazyLock<HashMap<&str, &Kind>> = LazyLock::new(|| index(|k| vec![k.name]));
    BY_NAME.get(name).copied()
}

/// The kind of this REST path segment (first or second path).
pub fn by_path(path: &str) -> Option<&'static Kind> {
    static BY_PATH: LazyLock<HashMap<&str, &Kind>> = LazyLock::new(|| index(|k| vec![k.path, k.alias]));
    BY_PATH.get(path).copied()
}

/// The kind of this KRI short name.
pub fn by_short(short: &str) -> Option<&'static Kind> {
    static BY_SHORT: LazyLock<HashMap<&str, &Kind>> = LazyLock::new(|| index(|k| vec![k.short]));
    BY_SHORT.get(short).copied()
}

/// The kind a user means on the command line: argument, path, type name or short name.
pub fn by_argument(word: &str) -> Option<&'static Kind> {
    static BY_ARGUMENT: LazyLock<HashMap<&str, &Kind>> =
        LazyLock::new(|| index(|k| vec![k.arg, k.path, k.alias, k.name, k.short]));
    BY_ARGUMENT.get(word).copied()
}

#[cfg(test)]
mod tests;
