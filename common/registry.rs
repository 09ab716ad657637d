//! The one list of kinds. A new kind is one file and one line here.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    envoy_config,
    model::{
        Kind,
        kinds::{
            access_role, config, dataplane, dataplane_insight, destinations, identity, legacy, mesh,
            mesh_external_service, mesh_gateway, mesh_gateway_route, mesh_open_telemetry_backend,
            mesh_service, mesh_trust, mesh_zone_address, rollout, rollout_insight, secret, summaries,
            workload, zone, zone_egress, zone_egress_insight, zone_ingress, zone_ingress_insight,
            zone_insight,
        },
        kri::Kri,
    },
    policy,
};

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
        &mesh_gateway::KIND,
        &mesh_gateway_route::KIND,
        &mesh_service::KIND,
        &mesh_external_service::KIND,
        &destinations::MESH_MULTI_ZONE_SERVICE,
        &destinations::HOSTNAME_GENERATOR,
        &mesh_zone_address::KIND,
        &identity::KIND,
        &mesh_trust::KIND,
        &mesh_open_telemetry_backend::KIND,
        &workload::KIND,
        &envoy_config::KIND,
        &access_role::ROLE,
        &access_role::BINDING,
        &rollout::KIND,
        &rollout_insight::KIND,
        &rollout_insight::KEPT,
        &policy::mesh_timeout::KIND,
        &policy::mesh_traffic_permission::KIND,
        &policy::mesh_http_route::KIND,
        &policy::mesh_tcp_route::KIND,
        &policy::mesh_retry::KIND,
        &policy::mesh_circuit_breaker::KIND,
        &policy::mesh_access_log::KIND,
        &policy::mesh_fault_injection::KIND,
        &policy::mesh_health_check::KIND,
        &policy::mesh_load_balancing_strategy::KIND,
        &policy::mesh_metric::KIND,
        &policy::mesh_passthrough::KIND,
        &policy::mesh_proxy_patch::KIND,
        &policy::mesh_rate_limit::KIND,
        &policy::mesh_tls::KIND,
        &policy::mesh_trace::KIND,
    ];
    all.extend(&legacy::POLICIES);
    all.extend(policy::legacy::KINDS);
    all.sort_by_key(|k| k.name);
    all
});

/// The newer policies in the order in which they take effect: a later one sees what an earlier one did.
const EFFECT: [&str; 16] = [
    "MeshHTTPRoute",
    "MeshTCPRoute",
    "MeshTLS",
    "MeshLoadBalancingStrategy",
    "MeshPassthrough",
    "MeshAccessLog",
    "MeshTrace",
    "MeshFaultInjection",
    "MeshRateLimit",
    "MeshTimeout",
    "MeshTrafficPermission",
    "MeshHealthCheck",
    "MeshCircuitBreaker",
    "MeshRetry",
    "MeshMetric",
    "MeshProxyPatch",
];

/// The kinds of the newer policies, in the order in which they take effect.
pub fn policies_in_order() -> impl Iterator<Item = &'static Kind> {
    EFFECT.iter().filter_map(|name| by_name(name))
}

fn index(by: impl Fn(&'static Kind) -> Vec<&'static str>) -> HashMap<&'static str, &'static Kind> {
    let named = ALL.iter().flat_map(|k| by(k).into_iter().map(move |n| (n, *k)));
    named.filter(|(name, _)| !name.is_empty()).collect()
}

/// The kind of this type name.
pub fn by_name(name: &str) -> Option<&'static Kind> {
    static BY_NAME: LazyLock<HashMap<&str, &Kind>> = LazyLock::new(|| index(|k| vec![k.name]));
    BY_NAME.get(name).copied()
}

/// The kind of this KRI short name.
pub fn by_short(short: &str) -> Option<&'static Kind> {
    static BY_SHORT: LazyLock<HashMap<&str, &Kind>> = LazyLock::new(|| index(|k| vec![k.short]));
    BY_SHORT.get(short).copied()
}

/// The kind of what a KRI names.
pub fn of_kri(kri: &Kri) -> &'static Kind {
    by_short(kri.short).expect("a Kri has the short name of a kind")
}

/// The kind a user means on the command line: argument, path, type name or short name.
pub fn by_argument(word: &str) -> Option<&'static Kind> {
    static BY_ARGUMENT: LazyLock<HashMap<&str, &Kind>> =
        LazyLock::new(|| index(|k| vec![k.arg, k.path, k.alias, k.name, k.short]));
    BY_ARGUMENT.get(word).copied()
}

#[cfg(test)]
mod tests;
