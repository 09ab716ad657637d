//! What this server counts.

use std::time::Duration;

use common::metering::{self, millis};

use super::node::{ProxyId, ProxyKind};
use crate::generator::{self, ResourceSet};

/// Bytes of a response that clients of gRPC take if nobody asks them for more.
pub(super) const TAKEN_BY_ALL: usize = 4 << 20;

/// Counts a stream for as long as it lives.
pub(super) struct StreamActive(());

impl StreamActive {
    pub(super) fn new() -> Self {
        metrics::gauge!("xds_streams_active").increment(1.0);
        Self(())
    }
}

impl Drop for StreamActive {
    fn drop(&mut self) {
        metrics::gauge!("xds_streams_active").decrement(1.0);
    }
}

/// A request came.
pub(super) fn received(type_url: &str, is_answer: bool, is_refusal: bool) {
    let confirmation = match (is_answer, is_refusal) {
        (false, _) => "",
        (true, false) => "ACK",
        (true, true) => "NACK",
    };
    // Whatever a peer writes there must not become a label of its own.
    let type_url = generator::type_url::ALL.into_iter().find(|known| *known == type_url).unwrap_or("other");
    let error_type = if is_refusal { "user" } else { "no_error" };
    metrics::counter!(
        "xds_requests_received", "type_url" => type_url, "confirmation" => confirmation, "error_type" => error_type
    )
    .increment(1);
}

/// A response was handed to the connection.
pub(super) fn sent(type_url: &str, bytes: usize) {
    let known = generator::type_url::ALL.into_iter().find(|known| *known == type_url).unwrap_or("other");
    metrics::counter!("xds_responses_sent", "type_url" => known).increment(1);
    #[expect(clippy::cast_precision_loss, reason = "a histogram has buckets anyway")]
    metrics::histogram!("xds_responses_sent_bytes").record(bytes as f64);
    if bytes > TAKEN_BY_ALL {
        metrics::counter!("xds_responses_oversized", "type_url" => known).increment(1);
    }
}

/// A response was answered this long after it was sent.
pub(super) fn delivered(after: Duration) {
    metrics::histogram!("xds_delivery").record(millis(after));
}

/// A new configuration had waited this long when the first of it was sent.
pub(super) fn waited(time: Duration) {
    metrics::histogram!("xds_queue_time").record(millis(time));
}

/// A proxy has answered for everything of a configuration that was new this long ago.
pub(super) fn converged(after: Duration) {
    metrics::histogram!("xds_convergence_time").record(millis(after));
}

/// The configuration of a proxy was made.
pub(super) fn generated(kind: ProxyKind, result: &'static str, took: Duration) {
    metrics::histogram!("xds_generation", "proxy_type" => kind.name(), "result" => result)
        .record(millis(took));
    if result == "error" {
        metrics::counter!("xds_generation_errors").increment(1);
    }
}

/// A resource is not sent to a proxy, for this reason.
pub(super) fn withheld(type_url: &'static str, reason: &'static str) {
    metrics::gauge!("xds_resources_withheld", "type_url" => type_url, "reason" => reason).increment(1.0);
}

/// The same is over.
pub(super) fn healed(type_url: &'static str, reason: &'static str) {
    metrics::gauge!("xds_resources_withheld", "type_url" => type_url, "reason" => reason).decrement(1.0);
}

/// It was sent, or another reason was known.
pub(super) fn newly_withheld(type_url: &'static str, reason: &'static str) {
    metrics::counter!("xds_resources_withheld_total", "type_url" => type_url, "reason" => reason)
        .increment(1);
}

/// A proxy gets another configuration.
pub(super) fn regenerated(proxy: &ProxyId, set: &ResourceSet) {
    if !proxy.mesh.is_empty() {
        metrics::counter!("xds_dataplane_config_regenerated_total", "mesh" => metering::mesh(&proxy.mesh))
            .increment(1);
    }
    for type_url in generator::type_url::ALL {
        let count = u32::try_from(set.collection(type_url).len()).unwrap_or(u32::MAX);
        if count > 0 {
            metrics::histogram!("xds_snapshot_resources", "resource_type" => type_url)
                .record(f64::from(count));
        }
    }
}

/// A workload of `mesh` was to be given a certificate.
pub(super) fn signed(mesh: &str, is_signed: bool) {
    let mesh = metering::mesh(mesh);
    if is_signed {
        metrics::counter!("cert_generation", "mesh" => mesh).increment(1);
    } else {
        metrics::counter!("cert_generation_failure", "mesh" => mesh).increment(1);
    }
}

/// Counts a stream of health discovery for as long as it lives.
pub(super) struct HealthStreamActive(());

impl HealthStreamActive {
    pub(super) fn new() -> Self {
        metrics::gauge!("hds_streams_active").increment(1.0);
        Self(())
    }
}

impl Drop for HealthStreamActive {
    fn drop(&mut self) {
        metrics::gauge!("hds_streams_active").decrement(1.0);
    }
}

/// A proxy said something about the health of its workload.
pub(super) fn health_heard() {
    metrics::counter!("hds_requests_received").increment(1);
}

/// A proxy was told what to probe.
pub(super) fn health_asked() {
    metrics::counter!("hds_responses_sent").increment(1);
}
