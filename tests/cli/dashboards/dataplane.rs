//! Of one proxy or a few, by what their Envoys say.

use super::board::{Board, Row, Shape, panel, row};

const CHOSEN: &str = "mesh=~\"$mesh\", service=~\"$service\", dataplane=~\"$dataplane\"";
/// Clusters that lead to other services, without those of the proxy itself.
pub(crate) const CALLED: &str =
    "envoy_cluster_name!~\"localhost_.*|_?kuma_.*|ads_cluster|access_log_sink|inbound_.*\"";
/// Where requests for the workload come in.
pub(crate) const CALLS: &str = "envoy_http_conn_manager_prefix=~\"localhost_.*\"";

pub(crate) fn board() -> Board {
    Board {
        uid: "strait-dataplane",
        title: "Strait / Dataplane",
        description: "What a proxy gets, what it calls, and how its Envoy is.",
        variables: vec![
            ("mesh", "envoy_server_live"),
            ("service", "envoy_server_live{mesh=~\"$mesh\"}"),
            ("dataplane", "envoy_server_live{mesh=~\"$mesh\", service=~\"$service\"}"),
        ],
        rows: vec![wrong(), incoming(), outgoing(), protection(), envoy()],
    }
}

fn wrong() -> Row {
    row(
        "What is wrong?",
        vec![
            panel(
                Shape::Number,
                "Envoys",
                "none",
                "Of those that were chosen, that answer the collector.",
                [(format!("sum(envoy_server_live{{{CHOSEN}}})"), "live")],
            ),
            panel(
                Shape::Trouble,
                "Without control plane",
                "none",
                "They go on with what they have. Look at the zone: /ready, and the address in their bootstrap.",
                [(
                    format!("count(envoy_control_plane_connected_state{{{CHOSEN}}} == 0) or vector(0)"),
                    "not connected",
                )],
            ),
            panel(
                Shape::Trouble,
                "Refused configurations",
                "none",
                "In the last hour, of listeners and clusters. `straitctl proxy-status NAME` shows the reason.",
                [(
                    format!(
                        "(sum(increase(envoy_listener_manager_lds_update_rejected{{{CHOSEN}}}[1h])) or vector(0)) + \
                         (sum(increase(envoy_cluster_manager_cds_update_rejected{{{CHOSEN}}}[1h])) or vector(0))"
                    ),
                    "refused",
                )],
            ),
            panel(
                Shape::Trouble,
                "Services without a healthy endpoint",
                "none",
                "That a chosen proxy calls. Requests for them are answered with 503.",
                [(
                    format!(
                        "count(envoy_cluster_membership_healthy{{{CALLED}, {CHOSEN}}} == 0) or vector(0)"
                    ),
                    "without",
                )],
            ),
        ],
    )
}

fn incoming() -> Row {
    row(
        "What comes in?",
        vec![
            panel(
                Shape::Lines,
                "Requests",
                "reqps",
                "By class of status.",
                [(
                    format!(
                        "sum by (envoy_response_code_class) \
                         (rate(envoy_http_downstream_rq_xx{{{CALLS}, {CHOSEN}}}[$__rate_interval]))"
                    ),
                    "{{envoy_response_code_class}}xx",
                )],
            ),
            panel(
                Shape::Lines,
                "How long they take",
                "ms",
                "In the workload and on the way back.",
                ["0.5", "0.99"].map(|share| {
                    let legend = if share == "0.5" { "half" } else { "99 of 100" };
                    let query = format!(
                        "histogram_quantile({share}, sum by (le) \
                         (rate(envoy_http_downstream_rq_time_bucket{{{CALLS}, {CHOSEN}}}[$__rate_interval])))"
                    );
                    (query, legend)
                }),
            ),
            panel(
                Shape::Lines,
                "Denied",
                "reqps",
                "By MeshTrafficPermission: `straitctl explain dataplane NAME` says by which.",
                [(
                    format!(
                        "sum by (dataplane, envoy_rbac_prefix) (rate(envoy_rbac_denied{{{CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{dataplane}} {{envoy_rbac_prefix}}",
                )],
            ),
        ],
    )
}

fn outgoing() -> Row {
    row(
        "What does it call, and how does that end?",
        vec![
            panel(
                Shape::Lines,
                "Requests",
                "reqps",
                "By service.",
                [(
                    format!(
                        "topk(10, sum by (envoy_cluster_name) \
                         (rate(envoy_cluster_upstream_rq_xx{{{CALLED}, {CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{envoy_cluster_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Answers of 5xx",
                "percentunit",
                "Share of them, by service, those of this Envoy included.",
                [(
                    format!(
                        "topk(10, sum by (envoy_cluster_name) \
                         (rate(envoy_cluster_upstream_rq_xx{{envoy_response_code_class=\"5\", {CALLED}, {CHOSEN}}}[$__rate_interval])) \
                         / sum by (envoy_cluster_name) \
                         (rate(envoy_cluster_upstream_rq_xx{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0)"
                    ),
                    "{{envoy_cluster_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "How long they take",
                "ms",
                "99 of 100 are faster, by service.",
                [(
                    format!(
                        "topk(10, histogram_quantile(0.99, sum by (le, envoy_cluster_name) \
                         (rate(envoy_cluster_upstream_rq_time_bucket{{{CALLED}, {CHOSEN}}}[$__rate_interval]))))"
                    ),
                    "{{envoy_cluster_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Healthy endpoints",
                "percentunit",
                "Share of them. What a health check or outlier detection took out is not called.",
                [(
                    format!(
                        "min by (envoy_cluster_name) (envoy_cluster_membership_healthy{{{CALLED}, {CHOSEN}}} \
                         / envoy_cluster_membership_total{{{CALLED}, {CHOSEN}}}) < 1"
                    ),
                    "{{envoy_cluster_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Connections that failed",
                "cps",
                "To endpoints; and handshakes that failed, or were with somebody else than was meant.",
                [
                    (
                        format!(
                            "sum by (envoy_cluster_name) \
                             (rate(envoy_cluster_upstream_cx_connect_fail{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{envoy_cluster_name}} connection",
                    ),
                    (
                        format!(
                            "sum by (envoy_cluster_name) \
                             (rate(envoy_cluster_ssl_connection_error{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{envoy_cluster_name}} TLS",
                    ),
                    (
                        format!(
                            "sum by (envoy_cluster_name) \
                             (rate(envoy_cluster_ssl_fail_verify_san{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{envoy_cluster_name}} identity",
                    ),
                ],
            ),
            panel(
                Shape::Lines,
                "Bytes",
                "Bps",
                "To and from what is called, of protocols without requests too.",
                [
                    (
                        format!(
                            "sum(rate(envoy_cluster_upstream_cx_tx_bytes_total{{{CALLED}, {CHOSEN}}}[$__rate_interval]))"
                        ),
                        "sent",
                    ),
                    (
                        format!(
                            "sum(rate(envoy_cluster_upstream_cx_rx_bytes_total{{{CALLED}, {CHOSEN}}}[$__rate_interval]))"
                        ),
                        "received",
                    ),
                ],
            ),
        ],
    )
}

fn protection() -> Row {
    row(
        "Which policies act?",
        vec![
            panel(
                Shape::Lines,
                "Retries and timeouts",
                "ops",
                "MeshRetry and MeshTimeout.",
                [
                    (
                        format!(
                            "sum(rate(envoy_cluster_upstream_rq_retry{{{CALLED}, {CHOSEN}}}[$__rate_interval]))"
                        ),
                        "retries",
                    ),
                    (
                        format!(
                            "sum(rate(envoy_cluster_upstream_rq_timeout{{{CALLED}, {CHOSEN}}}[$__rate_interval]))"
                        ),
                        "timeouts",
                    ),
                ],
            ),
            panel(
                Shape::Lines,
                "Circuit breakers that are open",
                "none",
                "1 while a limit of MeshCircuitBreaker is reached, by service; and requests that did not fit.",
                [
                    (
                        format!(
                            "max by (envoy_cluster_name) (envoy_cluster_circuit_breakers_default_cx_open{{{CALLED}, {CHOSEN}}}) > 0"
                        ),
                        "{{envoy_cluster_name}} connections",
                    ),
                    (
                        format!(
                            "max by (envoy_cluster_name) (envoy_cluster_circuit_breakers_default_rq_open{{{CALLED}, {CHOSEN}}}) > 0"
                        ),
                        "{{envoy_cluster_name}} requests",
                    ),
                    (
                        format!(
                            "max by (envoy_cluster_name) \
                             (envoy_cluster_circuit_breakers_default_rq_pending_open{{{CALLED}, {CHOSEN}}}) > 0"
                        ),
                        "{{envoy_cluster_name}} waiting",
                    ),
                    (
                        format!(
                            "sum by (envoy_cluster_name) \
                             (rate(envoy_cluster_upstream_rq_pending_overflow{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{envoy_cluster_name}} did not fit",
                    ),
                ],
            ),
            panel(
                Shape::Lines,
                "Endpoints taken out",
                "none",
                "By outlier detection, at the moment.",
                [(
                    format!(
                        "sum by (envoy_cluster_name) (envoy_cluster_outlier_detection_ejections_active{{{CALLED}, {CHOSEN}}}) > 0"
                    ),
                    "{{envoy_cluster_name}}",
                )],
            ),
        ],
    )
}

fn envoy() -> Row {
    row(
        "How is the Envoy?",
        vec![
            panel(
                Shape::Lines,
                "Memory",
                "bytes",
                "Of the process. It grows with what the proxy may call.",
                [(format!("topk(10, envoy_server_memory_physical_size{{{CHOSEN}}})"), "{{dataplane}}")],
            ),
            panel(
                Shape::Lines,
                "Runs for",
                "s",
                "A line that falls is a restart.",
                [(format!("bottomk(10, envoy_server_uptime{{{CHOSEN}}})"), "{{dataplane}}")],
            ),
            panel(
                Shape::Lines,
                "Listeners and connections",
                "none",
                "Listeners it has, and connections to what it calls.",
                [
                    (
                        format!(
                            "sum by (dataplane) (envoy_listener_manager_total_listeners_active{{{CHOSEN}}})"
                        ),
                        "{{dataplane}} listeners",
                    ),
                    (
                        format!(
                            "sum by (dataplane) (envoy_cluster_upstream_cx_active{{{CALLED}, {CHOSEN}}})"
                        ),
                        "{{dataplane}} connections",
                    ),
                ],
            ),
        ],
    )
}
