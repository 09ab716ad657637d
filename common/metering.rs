//! Every metric, with its labels and the closed set each label takes its values from.
//!
//! A series lives as long as the process, so what a label may say is decided here and never by a peer. A
//! test compares this list with the places that record, and another one makes noise and reads `/metrics`.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use http::Method;

use crate::registry;

/// Stands for every value that is in no set.
pub const OTHER: &str = "other";

/// Zones that get a label of their own in one process. Each is a resource an operator can see; a deployment
/// with more of them sees the rest as one.
const MOST_ZONES: usize = 4096;

/// Where the values of a label come from.
#[derive(Clone, Copy, Debug)]
pub enum LabelValues {
    /// These.
    These(&'static [&'static str]),
    /// Names in the source, which only a change of the source can add to.
    Constants,
    /// Methods HTTP knows; see [`method`].
    Methods,
    /// Routes as they are written down, not the paths that were asked for.
    Routes,
    /// Status codes handlers answer with.
    Statuses,
    /// Kinds of the registry; see [`kind`].
    Kinds,
    /// Resource types of xDS.
    TypeUrls,
    /// Zones that were let in, up to a number; see [`zone`].
    Zones,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its labels.
    pub labels: &'static [(&'static str, LabelValues)],
}

const fn metric(name: &'static str, labels: &'static [(&'static str, LabelValues)]) -> Metric {
    Metric { name, labels }
}

const CONFIRMATION: LabelValues = LabelValues::These(&["", "ACK", "NACK"]);

const WITHHELD: LabelValues = LabelValues::These(&["contested", "refused"]);

/// All metrics. Each carries also the label `zone`, which names the process it comes from.
pub const ALL: &[Metric] = &[
    metric("answers_lying_bytes", &[("listener", LabelValues::Constants)]),
    metric(
        "api_server_http_request_duration_seconds",
        &[
            ("code", LabelValues::Statuses),
            ("handler", LabelValues::Routes),
            ("method", LabelValues::Methods),
        ],
    ),
    metric("audit_lines_lost_total", &[]),
    metric("connections_open", &[("listener", LabelValues::Constants), ("client", LabelValues::Constants)]),
    metric(
        "connections_refused_total",
        &[("listener", LabelValues::Constants), ("reason", LabelValues::Constants)],
    ),
    metric("credential_expires_seconds", &[("shown_to", LabelValues::Constants)]),
    metric("events_lost_total", &[("subscriber", LabelValues::Constants)]),
    metric(
        "kds_delta_requests_received",
        &[("type_url", LabelValues::Kinds), ("confirmation", LabelValues::Constants)],
    ),
    metric("kds_delta_resources_sent", &[("type_url", LabelValues::Kinds)]),
    metric("kds_delta_responses_sent", &[("type_url", LabelValues::Kinds)]),
    metric("kds_delta_streams_active", &[]),
    metric("kds_nack_total", &[("zone_name", LabelValues::Zones), ("resource_type", LabelValues::Kinds)]),
    metric("kds_relay_rejected_total", &[("reason", LabelValues::Constants)]),
    metric("kds_relays_connected", &[]),
    metric("kds_resources_withheld_total", &[("resource_type", LabelValues::Kinds)]),
    metric("kds_zone_active_connections", &[("zone_name", LabelValues::Zones)]),
    metric("kds_zone_attribution_refusals_total", &[("resource_type", LabelValues::Kinds)]),
    metric("kds_zone_attribution_rewrites_total", &[("resource_type", LabelValues::Kinds)]),
    metric("kds_zone_clock_skew_seconds", &[("zone_name", LabelValues::Zones)]),
    metric("kds_zone_credential_expires_seconds", &[("zone_name", LabelValues::Zones)]),
    metric("kds_zone_rejected_total", &[("reason", LabelValues::Constants)]),
    metric("log_lines_left_out_total", &[("level", LabelValues::Constants)]),
    metric("log_lines_total", &[("level", LabelValues::Constants)]),
    metric("relay_connected", &[]),
    metric("resource_files", &[("state", LabelValues::These(&["broken", "good"]))]),
    metric("store_damaged", &[]),
    metric("store_revision", &[]),
    metric("store_rows_unverified_total", &[]),
    metric("store_writable", &[]),
    metric("store_write_failures_total", &[]),
    metric("xds_convergence_time", &[]),
    metric("xds_delivery", &[]),
    metric("xds_generation", &[("proxy_type", LabelValues::Constants), ("result", LabelValues::Constants)]),
    metric("xds_generation_errors", &[]),
    metric("xds_queue_time", &[]),
    metric(
        "xds_requests_received",
        &[
            ("type_url", LabelValues::TypeUrls),
            ("confirmation", CONFIRMATION),
            ("error_type", LabelValues::These(&["no_error", "user"])),
        ],
    ),
    metric("xds_resources_withheld", &[("type_url", LabelValues::TypeUrls), ("reason", WITHHELD)]),
    metric("xds_resources_withheld_total", &[("type_url", LabelValues::TypeUrls), ("reason", WITHHELD)]),
    metric("xds_responses_oversized", &[("type_url", LabelValues::TypeUrls)]),
    metric("xds_responses_sent", &[("type_url", LabelValues::TypeUrls)]),
    metric("xds_responses_sent_bytes", &[]),
    metric("xds_streams_active", &[]),
    metric("zone_events_total", &[("event", LabelValues::Constants), ("zone_name", LabelValues::Zones)]),
];

/// A method of HTTP as a label.
pub fn method(method: &Method) -> &'static str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    const NAMES: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    known.iter().position(|known| known == method).map_or(OTHER, |at| NAMES[at])
}

/// A resource type as a label.
pub fn kind(name: &str) -> &'static str {
    registry::by_name(name).map_or(OTHER, |kind| kind.name)
}

/// The name of a zone as a label.
pub fn zone(name: &str) -> Arc<str> {
    static SEEN: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());
    static REST: LazyLock<Arc<str>> = LazyLock::new(|| OTHER.into());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    within(&mut seen, name, MOST_ZONES).unwrap_or_else(|| Arc::clone(&REST))
}

/// `name`, unless it would be one too many.
fn within(seen: &mut BTreeSet<Arc<str>>, name: &str, most: usize) -> Option<Arc<str>> {
    if let Some(known) = seen.get(name) {
        return Some(Arc::clone(known));
    }
    (seen.len() < most).then(|| {
        let name: Arc<str> = name.into();
        seen.insert(Arc::clone(&name));
        name
    })
}

#[cfg(test)]
mod tests;
