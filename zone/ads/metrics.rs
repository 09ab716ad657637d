//! What this server counts.

use std::time::Duration;

use super::node::ProxyKind;
use crate::generator;

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

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
