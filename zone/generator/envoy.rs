//! Small builders around Envoy's messages: each sets what this control plane always sets, and nothing of
//! what Envoy 1.40 refuses or calls deprecated.

pub mod address;
pub mod cluster;
pub mod endpoint;
pub mod filter;
pub mod http;
pub mod metadata;
pub mod tls;

use common::proto::google::protobuf::{BoolValue, Duration, UInt32Value};

/// Whole seconds.
pub fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

/// A duration, cut to what the message can hold.
pub fn duration(duration: std::time::Duration) -> Duration {
    let nanos = i32::try_from(duration.subsec_nanos()).unwrap_or(0);
    Duration { seconds: i64::try_from(duration.as_secs()).unwrap_or(315_576_000_000), nanos }
}

/// A present number.
pub fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

/// A present truth value.
pub fn flag(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}
