//! Of a zone: its link to global, and how its proxies get their configuration.

use super::{
    board::{Board, Row, Shape, panel, percentiles, row},
    common_rows,
};

const CHOSEN: &str = "zone=~\"$zone\", instance=~\"$instance\"";

pub(crate) fn board() -> Board {
    Board {
        uid: "strait-zone",
        title: "Strait / Zone",
        description: "Whether a zone follows global, and whether its proxies have what they should have, in time.",
        variables: vec![("zone", "leader"), ("instance", "leader{zone=~\"$zone\"}")],
        rows: vec![
            wrong(),
            link(),
            push(),
            refused(),
            sent(),
            certificates(),
            common_rows::store(CHOSEN),
            common_rows::api(CHOSEN),
            common_rows::process(CHOSEN),
        ],
    }
}

fn wrong() -> Row {
    row(
        "What is wrong?",
        vec![
            panel(
                Shape::Number,
                "Streams of proxies",
                "none",
                "Proxies that are connected, and other clients of xDS.",
                [(format!("sum(xds_streams_active{{{CHOSEN}}}) or vector(0)"), "streams")],
            ),
            panel(
                Shape::Alive,
                "Follows global",
                "bool_yes_no",
                "While it does not, proxies are served and changes do not arrive. `straitctl link` says why. Nothing is \
                 shown of a zone on its own.",
                [(format!("min(kds_global_connected{{{CHOSEN}}})"), "connected")],
            ),
            panel(
                Shape::Trouble,
                "Refused by proxies",
                "none",
                "Answers in the last hour: an Envoy keeps what it had. `straitctl proxy-status` shows its reason.",
                [(
                    format!(
                        "sum(increase(xds_requests_received{{confirmation=\"NACK\", {CHOSEN}}}[1h])) or vector(0)"
                    ),
                    "refused",
                )],
            ),
            panel(
                Shape::Trouble,
                "Kept from proxies",
                "none",
                "Pieces of configuration that Envoy would refuse, or that contradict others, now. `straitctl explain` and \
                 /debug/push_status name the policy.",
                [(format!("sum(xds_resources_withheld{{{CHOSEN}}}) or vector(0)"), "withheld")],
            ),
            panel(
                Shape::Trouble,
                "Cannot be made",
                "none",
                "Configurations in the last hour. Their proxies keep what they have; `straitctl proxy-status` names them.",
                [(format!("sum(increase(xds_generation_errors{{{CHOSEN}}}[1h])) or vector(0)"), "errors")],
            ),
            panel(
                Shape::Alive,
                "Store takes writes",
                "bool_yes_no",
                "While it does not, proxies are served and new ones may join, and nothing is kept. /ready says why.",
                [(format!("min(store_writable{{{CHOSEN}}})"), "writable")],
            ),
            panel(
                Shape::Trouble,
                "Files that cannot be read",
                "none",
                "In the folder of resources. The last good state of each stays in force; the log names them.",
                [(format!("sum(resource_files{{state=\"broken\", {CHOSEN}}}) or vector(0)"), "broken")],
            ),
            panel(
                Shape::Trouble,
                "Services without an address",
                "none",
                "Times in the last hour that the range of virtual addresses was used up (settings `ipam`).",
                [(
                    format!("sum(increase(vip_allocation_exhaustion_total{{{CHOSEN}}}[1h])) or vector(0)"),
                    "without",
                )],
            ),
        ],
    )
}

fn link() -> Row {
    row(
        "Does the zone follow global?",
        vec![
            panel(
                Shape::Lines,
                "Connected",
                "none",
                "1 while both sync streams run, of the replica that leads the zone.",
                [(format!("kds_global_connected{{{CHOSEN}}}"), "{{zone}} {{instance}}")],
            ),
            panel(
                Shape::Lines,
                "Changes not acknowledged",
                "none",
                "By the zone (down) and by global (up).",
                [(
                    format!("sum by (zone, direction) (kds_global_lag{{{CHOSEN}}})"),
                    "{{zone}} {{direction}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Storing what global sent",
                "s",
                "One message. What takes long here is the store; see below.",
                percentiles("kds_resources_sync", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "Refused of what global sent",
                "cpm",
                "Messages a minute of which something was not taken. `straitctl link` says what and why.",
                [(
                    format!(
                        "60 * sum by (zone, resource_type) (rate(kds_nack_total{{{CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{zone}} {{resource_type}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Which replica leads",
                "none",
                "One of each zone follows global and looks after services. Another takes over within 15 seconds.",
                [(format!("leader{{{CHOSEN}}}"), "{{zone}} {{instance}}")],
            ),
            panel(
                Shape::Lines,
                "What the zone shows runs out in",
                "s",
                "To global, and to the workloads of others. It is renewed by itself where global can be reached: \
                 docs/trust.md.",
                [(
                    format!("min by (zone, shown_to) (credential_expires_seconds{{{CHOSEN}}}) - time()"),
                    "{{zone}} to {{shown_to}}",
                )],
            ),
        ],
    )
}

fn push() -> Row {
    row(
        "How long until proxies have a change?",
        vec![
            panel(
                Shape::Lines,
                "Until the proxy answered for all of it",
                "ms",
                "From a new configuration: what a change takes. The panels that follow are its parts.",
                percentiles("xds_convergence_time", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "Waiting for its turn",
                "ms",
                "From a new configuration to the first message with something of it. Long: the zone has much to do.",
                percentiles("xds_queue_time", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "From a message to its answer",
                "ms",
                "Long: the Envoy is busy, or the network is.",
                percentiles("xds_delivery", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "Making a configuration",
                "ms",
                "99 of 100 are faster, by sort of proxy.",
                [(
                    format!(
                        "histogram_quantile(0.99, sum by (le, proxy_type) \
                         (rate(xds_generation_bucket{{{CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{proxy_type}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Configurations made",
                "ops",
                "`skip`: nothing differed, so nothing was sent.",
                [(
                    format!("sum by (result) (rate(xds_generation_count{{{CHOSEN}}}[$__rate_interval]))"),
                    "{{result}}",
                )],
            ),
            panel(
                Shape::Lines,
                "New configurations by mesh",
                "ops",
                "Of which mesh the changes are.",
                [(
                    format!(
                        "topk(10, sum by (mesh) (rate(xds_dataplane_config_regenerated_total{{{CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{mesh}}",
                )],
            ),
        ],
    )
}

fn refused() -> Row {
    row(
        "What is refused, or kept from proxies?",
        vec![
            panel(
                Shape::Lines,
                "Refused by proxies",
                "cpm",
                "Answers a minute, by type. The same is offered again when it changes, and from time to time.",
                [(
                    format!(
                        "60 * sum by (type_url) \
                         (rate(xds_requests_received{{confirmation=\"NACK\", {CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{type_url}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Kept from proxies",
                "none",
                "`refused`: Envoy would not take it. `contested`: it contradicts something else.",
                [(
                    format!("sum by (type_url, reason) (xds_resources_withheld{{{CHOSEN}}}) > 0"),
                    "{{reason}} {{type_url}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Too large for clients of gRPC",
                "cpm",
                "Messages of more than 4 MiB a minute. Envoy takes them, other clients of xDS do not by default.",
                [(
                    format!(
                        "60 * sum by (type_url) (rate(xds_responses_oversized{{{CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{type_url}}",
                )],
            ),
        ],
    )
}

fn sent() -> Row {
    row(
        "What is sent to proxies?",
        vec![
            panel(
                Shape::Lines,
                "Streams",
                "none",
                "A drop is proxies that left; those of one process that stopped go to another.",
                [(
                    format!("sum by (zone, instance) (xds_streams_active{{{CHOSEN}}})"),
                    "{{zone}} {{instance}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Messages",
                "ops",
                "By type.",
                [(
                    format!("sum by (type_url) (rate(xds_responses_sent{{{CHOSEN}}}[$__rate_interval]))"),
                    "{{type_url}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Size of messages",
                "bytes",
                "A first configuration is large, changes are small.",
                percentiles("xds_responses_sent_bytes", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "Resources of a configuration",
                "none",
                "99 of 100 proxies have fewer, by type. Thousands of clusters: let proxies say what they call.",
                [(
                    format!(
                        "histogram_quantile(0.99, sum by (le, resource_type) \
                         (rate(xds_snapshot_resources_bucket{{{CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{resource_type}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Bootstraps and single questions",
                "reqps",
                "At the port of the proxies, by status. 401 and 403 are tokens that do not fit.",
                [(
                    format!(
                        "sum by (handler, code) (rate(dp_server_http_request_duration_seconds_count{{{CHOSEN}}}[$__rate_interval]))"
                    ),
                    "{{handler}} {{code}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Health of workloads",
                "ops",
                "Messages in which proxies told what they found, and such that told them what to probe.",
                [
                    (format!("sum(rate(hds_requests_received{{{CHOSEN}}}[$__rate_interval]))"), "heard"),
                    (format!("sum(rate(hds_responses_sent{{{CHOSEN}}}[$__rate_interval]))"), "told"),
                ],
            ),
        ],
    )
}

fn certificates() -> Row {
    row(
        "Do workloads have certificates?",
        vec![
            panel(
                Shape::Lines,
                "The first one runs out in",
                "s",
                "Of the proxies that are connected, by mesh. Certificates are renewed long before; a line that goes to 0 is \
                 an authority that does not sign.",
                [(
                    format!(
                        "min by (zone, mesh) (xds_cert_expiration_timestamp_seconds{{{CHOSEN}}}) - time()"
                    ),
                    "{{zone}} {{mesh}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Signed",
                "cpm",
                "Certificates a minute, by mesh.",
                [(
                    format!("60 * sum by (mesh) (rate(cert_generation{{{CHOSEN}}}[$__rate_interval]))"),
                    "{{mesh}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Could not be signed",
                "cpm",
                "They are tried again every half minute. The problems of the proxies say why: `straitctl inspect dataplanes`.",
                [(
                    format!(
                        "60 * sum by (mesh) (rate(cert_generation_failure{{{CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{mesh}}",
                )],
            ),
        ],
    )
}
