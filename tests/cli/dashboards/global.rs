//! Of global: its zones, and what it is made of.

use super::{
    board::{Board, Row, Shape, panel, percentiles, row},
    common_rows,
};

const CHOSEN: &str = "zone=\"Global\", instance=~\"$instance\"";
const OF_ZONES: &str = "zone=\"Global\", instance=~\"$instance\", zone_name=~\"$zone_name\"";

pub(crate) fn board() -> Board {
    Board {
        uid: "strait-global",
        title: "Strait / Global",
        description: "Whether all zones have what they should have, and whether global can do its work.",
        variables: vec![
            ("instance", "store_writable{zone=\"Global\"}"),
            ("zone_name", "kds_zone_online{zone=\"Global\"}"),
        ],
        rows: vec![
            wrong(),
            lag(),
            refused(),
            sent(),
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
                "Zones online",
                "none",
                "Of those that are resources, whichever replica they are connected to.",
                [("max(kds_zones{status=\"online\", zone=\"Global\"})".to_owned(), "online")],
            ),
            panel(
                Shape::Trouble,
                "Zones offline",
                "none",
                "They go on with what they have; changes do not arrive. `straitctl inspect zones` names them, `straitctl \
                 check` on a zone says why it is not connected.",
                [("max(kds_zones{status=\"offline\", zone=\"Global\"})".to_owned(), "offline")],
            ),
            panel(
                Shape::Trouble,
                "Zones behind for a minute",
                "none",
                "Connected, and there is something older than a minute that they have not acknowledged. The next row \
                 names them.",
                [(
                    format!(
                        "count(max by (zone_name) (kds_zone_behind_seconds{{direction=\"down\", {OF_ZONES}}}) > 60) \
                         or vector(0)"
                    ),
                    "behind",
                )],
            ),
            panel(
                Shape::Trouble,
                "Refused in the last hour",
                "none",
                "Messages of which the receiver, a zone or global, did not take something. `straitctl inspect sync` \
                 names what and why.",
                [(
                    format!(
                        "(sum(increase(kds_nack_total{{{OF_ZONES}}}[1h])) or vector(0)) + \
                         (sum(increase(kds_delta_requests_received{{confirmation=\"NACK\", {CHOSEN}}}[1h])) or vector(0))"
                    ),
                    "refused",
                )],
            ),
            panel(
                Shape::Trouble,
                "Too large to send",
                "none",
                "Resources, in the last hour, that do not fit into a message. The notes of `straitctl inspect zones` \
                 name them.",
                [(
                    format!("sum(increase(kds_resources_withheld_total{{{CHOSEN}}}[1h])) or vector(0)"),
                    "withheld",
                )],
            ),
            panel(
                Shape::Alive,
                "Store takes writes",
                "bool_yes_no",
                "While it does not, nothing can be changed. /ready of the process says why; it comes back by itself.",
                [(format!("min(store_writable{{{CHOSEN}}})"), "writable")],
            ),
            panel(
                Shape::Trouble,
                "Store damaged",
                "bool_yes_no",
                "Something that is stored is not what was written: docs/backup.md.",
                [(format!("max(store_damaged{{{CHOSEN}}})"), "damaged")],
            ),
            panel(
                Shape::Trouble,
                "Callers turned away",
                "none",
                "In the last hour: they wanted to be zones or relays and could not prove it. The log names them.",
                [(
                    format!(
                        "(sum(increase(kds_zone_rejected_total{{{CHOSEN}}}[1h])) or vector(0)) + \
                         (sum(increase(kds_relay_rejected_total{{{CHOSEN}}}[1h])) or vector(0))"
                    ),
                    "rejected",
                )],
            ),
        ],
    )
}

fn lag() -> Row {
    row(
        "Which zones lag, and for how long?",
        vec![
            panel(
                Shape::Lines,
                "Behind for",
                "s",
                "The ten zones that have owed an answer for longest (down), or that global has not taken something of \
                 (up). A moment is normal; a line that climbs is a zone that refuses something or is stuck.",
                [(
                    format!(
                        "topk(10, max by (zone_name, direction) (kds_zone_behind_seconds{{{OF_ZONES}}}) > 0)"
                    ),
                    "{{zone_name}} {{direction}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Changes not acknowledged",
                "none",
                "The ten zones with most of them.",
                [(
                    format!("topk(10, max by (zone_name, direction) (kds_zone_lag{{{OF_ZONES}}}) > 0)"),
                    "{{zone_name}} {{direction}}",
                )],
            ),
            panel(
                Shape::Lines,
                "From a message to its answer",
                "ms",
                "A zone answers when it has stored what came. Seconds are slow stores in zones, or a slow network.",
                percentiles("kds_delta_delivery", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "Offline",
                "none",
                "Zones that are not there. They come back by themselves when they can.",
                [(format!("max by (zone_name) (kds_zone_online{{{OF_ZONES}}}) == 0"), "{{zone_name}}")],
            ),
            panel(
                Shape::Lines,
                "Zones lost",
                "none",
                "How often in the last half hour. Often the same one: its network, or restarts.",
                [(
                    format!(
                        "topk(10, sum by (zone_name) (increase(zone_events_total{{event=\"went_offline\", {OF_ZONES}}}[30m])) \
                         > 0)"
                    ),
                    "{{zone_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Clocks that differ",
                "s",
                "The ten that differ most from global's. From five seconds on new certificates and tokens are refused.",
                [(
                    format!("topk(10, max by (zone_name) (abs(kds_zone_clock_skew_seconds{{{OF_ZONES}}})))"),
                    "{{zone_name}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Credentials that run out first",
                "s",
                "Time left of what zones prove themselves by. Without a new one the zone is sent away: docs/trust.md.",
                [(
                    format!(
                        "bottomk(10, min by (zone_name) (kds_zone_credential_expires_seconds{{{OF_ZONES}}}) - time())"
                    ),
                    "{{zone_name}}",
                )],
            ),
        ],
    )
}

fn refused() -> Row {
    row(
        "Who refuses what?",
        vec![
            panel(
                Shape::Lines,
                "Refused by zones",
                "cpm",
                "Messages a minute in which a zone did not take something, by type of resource.",
                [(
                    format!(
                        "60 * sum by (type_url) \
                         (rate(kds_delta_requests_received{{confirmation=\"NACK\", {CHOSEN}}}[$__rate_interval])) > 0"
                    ),
                    "{{type_url}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Refused by global",
                "cpm",
                "Messages a minute of a zone of which global did not take something.",
                [(
                    format!(
                        "60 * sum by (zone_name, resource_type) (rate(kds_nack_total{{{OF_ZONES}}}[$__rate_interval])) > 0"
                    ),
                    "{{zone_name}} {{resource_type}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Names that are not the zone's own",
                "cpm",
                "Corrected, or refused because the name is another zone's. A wrong zone, or an attack.",
                [
                    (
                        format!(
                            "60 * sum by (resource_type) \
                             (rate(kds_zone_attribution_rewrites_total{{{CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{resource_type}} corrected",
                    ),
                    (
                        format!(
                            "60 * sum by (resource_type) \
                             (rate(kds_zone_attribution_refusals_total{{{CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "{{resource_type}} refused",
                    ),
                ],
            ),
            panel(
                Shape::Lines,
                "Callers turned away, by reason",
                "cpm",
                "They wanted to be zones or relays. `bad_token` may be one that ran out.",
                [
                    (
                        format!(
                            "60 * sum by (reason) (rate(kds_zone_rejected_total{{{CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "zone: {{reason}}",
                    ),
                    (
                        format!(
                            "60 * sum by (reason) (rate(kds_relay_rejected_total{{{CHOSEN}}}[$__rate_interval])) > 0"
                        ),
                        "relay: {{reason}}",
                    ),
                ],
            ),
        ],
    )
}

fn sent() -> Row {
    row(
        "What is sent to zones?",
        vec![
            panel(
                Shape::Lines,
                "Resources",
                "ops",
                "By type, removed ones included: what changes most.",
                [(
                    format!(
                        "topk(10, sum by (type_url) (rate(kds_delta_resources_sent{{{CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{type_url}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Size of messages",
                "bytes",
                "What does not fit into one is not sent; see above.",
                percentiles("kds_delta_responses_sent_bytes", CHOSEN),
            ),
            panel(
                Shape::Lines,
                "Finding out what a zone is to have",
                "ms",
                "At the start of a stream, and after a change. It costs what changed, not what there is.",
                [(
                    format!(
                        "histogram_quantile(0.99, sum by (le, reason) \
                         (rate(kds_delta_generation_bucket{{{CHOSEN}}}[$__rate_interval])))"
                    ),
                    "{{reason}}, 99 of 100",
                )],
            ),
            panel(
                Shape::Lines,
                "Streams and relays",
                "none",
                "Streams on which global sends, those through relays included, and the relays that are connected.",
                [
                    (
                        format!("sum by (instance) (kds_delta_streams_active{{{CHOSEN}}})"),
                        "streams, {{instance}}",
                    ),
                    (format!("sum by (instance) (kds_relays_connected{{{CHOSEN}}})"), "relays, {{instance}}"),
                ],
            ),
        ],
    )
}
