//! Metrics of streams in server role, under the names Kuma's dashboards read.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::{metering, xds::ResponseParts};

const STREAMS: &str = "kds_delta_streams_active";

/// Counts a response of so many bytes and what is in it.
pub(super) fn sent(response: &ResponseParts, bytes: usize) {
    let type_url = metering::kind(&response.type_url);
    let resources = response.updated.len() + response.removed.len();
    counter!("kds_delta_responses_sent", "type_url" => type_url).increment(1);
    counter!("kds_delta_resources_sent", "type_url" => type_url).increment(resources as u64);
    #[expect(clippy::cast_precision_loss, reason = "a histogram has buckets anyway")]
    histogram!("kds_delta_responses_sent_bytes").record(bytes as f64);
}

/// A response was answered this long after it was sent.
pub(super) fn delivered(after: Duration) {
    histogram!("kds_delta_delivery").record(metering::millis(after));
}

/// It was found out what a receiver is to hold. `reason` is `resync` at the start of a stream and `event` later.
pub(super) fn generated(reason: &'static str, is_changed: bool, took: Duration) {
    let result = if is_changed { "changed" } else { "no_changes" };
    histogram!("kds_delta_generation", "reason" => reason, "result" => result).record(metering::millis(took));
}

/// What a response says was stored, or found to be there.
pub(super) fn stored(took: Duration) {
    histogram!("kds_resources_sync").record(took.as_secs_f64());
}

/// Counts what the peer said about a response.
pub(super) fn received(type_url: &'static str, confirmation: &'static str) {
    counter!("kds_delta_requests_received", "type_url" => type_url, "confirmation" => confirmation)
        .increment(1);
}

/// A stream counts as active for as long as this lives.
pub(super) struct Active;

impl Active {
    pub(super) fn new() -> Self {
        gauge!(STREAMS).increment(1);
        Self
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        gauge!(STREAMS).decrement(1);
    }
}
