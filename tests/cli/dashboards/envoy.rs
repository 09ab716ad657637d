//! Metrics of Envoys that dashboards show, with their labels: what `/stats/prometheus` of Envoy 1.40 says.

const CLUSTER: &[&str] = &["envoy_cluster_name"];
const NONE: &[&str] = &[];

/// Labels that the configuration of the collector gives to every Envoy: docs/dashboards.md.
const COLLECTED: [&str; 3] = ["mesh", "service", "dataplane"];

const ALL: &[(&str, &[&str])] = &[
    ("envoy_cluster_circuit_breakers_default_cx_open", CLUSTER),
    ("envoy_cluster_circuit_breakers_default_rq_open", CLUSTER),
    ("envoy_cluster_circuit_breakers_default_rq_pending_open", CLUSTER),
    ("envoy_cluster_manager_cds_update_rejected", NONE),
    ("envoy_cluster_membership_healthy", CLUSTER),
    ("envoy_cluster_membership_total", CLUSTER),
    ("envoy_cluster_outlier_detection_ejections_active", CLUSTER),
    ("envoy_cluster_ssl_connection_error", CLUSTER),
    ("envoy_cluster_ssl_fail_verify_san", CLUSTER),
    ("envoy_cluster_upstream_cx_active", CLUSTER),
    ("envoy_cluster_upstream_cx_connect_fail", CLUSTER),
    ("envoy_cluster_upstream_cx_rx_bytes_total", CLUSTER),
    ("envoy_cluster_upstream_cx_tx_bytes_total", CLUSTER),
    ("envoy_cluster_upstream_rq_pending_overflow", CLUSTER),
    ("envoy_cluster_upstream_rq_retry", CLUSTER),
    ("envoy_cluster_upstream_rq_time_bucket", &["envoy_cluster_name", "le"]),
    ("envoy_cluster_upstream_rq_timeout", CLUSTER),
    ("envoy_cluster_upstream_rq_xx", &["envoy_cluster_name", "envoy_response_code_class"]),
    ("envoy_control_plane_connected_state", NONE),
    ("envoy_http_downstream_rq_time_bucket", &["envoy_http_conn_manager_prefix", "le"]),
    ("envoy_http_downstream_rq_xx", &["envoy_http_conn_manager_prefix", "envoy_response_code_class"]),
    ("envoy_listener_manager_lds_update_rejected", NONE),
    ("envoy_listener_manager_total_listeners_active", NONE),
    ("envoy_rbac_denied", &["envoy_rbac_prefix"]),
    ("envoy_server_live", NONE),
    ("envoy_server_memory_physical_size", NONE),
    ("envoy_server_uptime", NONE),
];

/// The labels of a series of an Envoy.
pub(crate) fn labels(series: &str) -> Option<Vec<&'static str>> {
    let (_, labels) = ALL.iter().find(|(name, _)| *name == series)?;
    Some(labels.iter().copied().chain(COLLECTED).collect())
}
