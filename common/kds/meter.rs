//! Metrics of streams in server role, under the names Kuma's dashboards read.

use metrics::{counter, gauge};

use crate::{metering, xds::ResponseParts};

const STREAMS: &str = "kds_delta_streams_active";

/// Counts a response and what is in it.
pub(super) fn sent(response: &ResponseParts) {
    let type_url = metering::kind(&response.type_url);
    let resources = response.updated.len() + response.removed.len();
    counter!("kds_delta_responses_sent", "type_url" => type_url).increment(1);
    counter!("kds_delta_resources_sent", "type_url" => type_url).increment(resources as u64);
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
