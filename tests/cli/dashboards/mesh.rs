//! Of a mesh: its services by what their Envoys say, and its certificates and changes by what its zones say.

use super::{
    board::{Board, Row, Shape, panel, row},
    dataplane::{CALLED, CALLS},
};

const CHOSEN: &str = "mesh=~\"$mesh\"";

pub(crate) fn board() -> Board {
    Board {
        uid: "strait-mesh",
        title: "Strait / Mesh",
        description: "Which services of a mesh are asked how much, which fail or are slow, and whether they can prove who they are.",
        variables: vec![("mesh", "xds_dataplane_config_regenerated_total")],
        rows: vec![wrong(), services(), security(), changes()],
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
                "That answer the collector.",
                [(format!("sum(envoy_server_live{{{CHOSEN}}})"), "live")],
            ),
            panel(
                Shape::Trouble,
                "Without control plane",
                "none",
                "They go on with what they have. Look at their zone.",
                [(
                    format!("count(envoy_control_plane_connected_state{{{CHOSEN}}} == 0) or vector(0)"),
                    "not connected",
                )],
            ),
            panel(
                Shape::Trouble,
                "Services that fail",
                "none",
                "More than one of a hundred requests is answered with 5xx. The next row names them.",
                [(
                    format!(
                        "count(sum by (service) \
                         (rate(envoy_http_downstream_rq_xx{{envoy_response_code_class=\"5\", {CALLS}, {CHOSEN}}}[5m])) \
                         / sum by (service) (rate(envoy_http_downstream_rq_xx{{{CALLS}, {CHOSEN}}}[5m])) > 0.01) or vector(0)"
                    ),
                    "fail",
                )],
            ),
            panel(
                Shape::Trouble,
                "Services nobody serves",
                "none",
                "Of which some caller knows no healthy endpoint.",
                [(
                    format!(
                        "count(min by (envoy_cluster_name) (envoy_cluster_membership_healthy{{{CALLED}, {CHOSEN}}}) == 0) \
                         or vector(0)"
                    ),
                    "without",
                )],
            ),
            panel(
                Shape::Number,
                "The first certificate runs out in",
                "s",
                "Certificates are renewed long before. When this goes to 0, an authority does not sign.",
                [(format!("min(xds_cert_expiration_timestamp_seconds{{{CHOSEN}}}) - time()"), "left")],
            ),
        ],
    )
}

fn services() -> Row {
    row(
        "Which services are busy, fail, or are slow?",
        vec![
            panel(
                Shape::Lines,
                "Requests",
                "reqps",
                "The ten services that are asked most.",
                [(
                    format!(
                        "topk(10, sum by (service) (rate(envoy_http_downstream_rq_xx{{{CALLS}, {CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{service}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Answers of 5xx",
                "percentunit",
                "Share of them, by the service that answers.",
                [(
                    format!(
                        "topk(10, sum by (service) \
                         (rate(envoy_http_downstream_rq_xx{{envoy_response_code_class=\"5\", {CALLS}, {CHOSEN}}}[$__rate_interval])) \
                         / sum by (service) (rate(envoy_http_downstream_rq_xx{{{CALLS}, {CHOSEN}}}[$__rate_interval])) > 0)"
                    ),
                    "{{service}}",
                )],
            ),
            panel(
                Shape::Lines,
                "How long requests take",
                "ms",
                "99 of 100 are faster, by the service that answers.",
                [(
                    format!(
                        "topk(10, histogram_quantile(0.99, sum by (le, service) \
                         (rate(envoy_http_downstream_rq_time_bucket{{{CALLS}, {CHOSEN}}}[$__rate_interval]))))"
                    ),
                    "{{service}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Failed calls, by caller",
                "percentunit",
                "Share of 5xx of what a service calls: beside the panels above it shows whether the way is broken or who \
                 is called.",
                [(
                    format!(
                        "topk(10, sum by (service, envoy_cluster_name) \
                         (rate(envoy_cluster_upstream_rq_xx{{envoy_response_code_class=\"5\", {CALLED}, {CHOSEN}}}[$__rate_interval])) \
                         / sum by (service, envoy_cluster_name) \
                         (rate(envoy_cluster_upstream_rq_xx{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0)"
                    ),
                    "{{service}} to {{envoy_cluster_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Healthy endpoints",
                "percentunit",
                "Share of them, as the caller with fewest sees it.",
                [(
                    format!(
                        "min by (envoy_cluster_name) (envoy_cluster_membership_healthy{{{CALLED}, {CHOSEN}}} \
                         / envoy_cluster_membership_total{{{CALLED}, {CHOSEN}}}) < 1"
                    ),
                    "{{envoy_cluster_name}}",
                )],
            ),
        ],
    )
}

fn security() -> Row {
    row(
        "Who is denied, and do workloads prove who they are?",
        vec![
            panel(
                Shape::Lines,
                "Denied",
                "reqps",
                "By MeshTrafficPermission, by the service that was called. `straitctl explain` says by which policy.",
                [(
                    format!("sum by (service) (rate(envoy_rbac_denied{{{CHOSEN}}}[$__rate_interval])) > 0"),
                    "{{service}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Handshakes that failed",
                "cps",
                "By caller and service; or they were with somebody else than was meant.",
                [
                    (
                        format!(
                            "sum by (service, envoy_cluster_name) \
                             (rate(envoy_cluster_ssl_connection_error{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{service}} to {{envoy_cluster_name}}",
                    ),
                    (
                        format!(
                            "sum by (service, envoy_cluster_name) \
                             (rate(envoy_cluster_ssl_fail_verify_san{{{CALLED}, {CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{service}} to {{envoy_cluster_name}}, identity",
                    ),
                ],
            ),
            panel(
                Shape::Lines,
                "Certificates that could not be signed",
                "cpm",
                "A minute, by zone. Its proxies keep the last one as long as it is good.",
                [(
                    format!(
                        "60 * sum by (zone, mesh) (rate(cert_generation_failure{{{CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{zone}} {{mesh}}",
                )],
            ),
        ],
    )
}

fn changes() -> Row {
    row(
        "What changes?",
        vec![
            panel(
                Shape::Lines,
                "New configurations of proxies",
                "ops",
                "By zone. A policy for the whole mesh is one for each proxy.",
                [(
                    format!(
                        "sum by (zone, mesh) (rate(xds_dataplane_config_regenerated_total{{{CHOSEN}}}[$__rate_interval]))"
                    ),
                    "{{zone}} {{mesh}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Certificates signed",
                "cpm",
                "A minute, by zone: new proxies, and those whose turn it was.",
                [(
                    format!("60 * sum by (zone, mesh) (rate(cert_generation{{{CHOSEN}}}[$__rate_interval]))"),
                    "{{zone}} {{mesh}}",
                )],
            ),
        ],
    )
}
