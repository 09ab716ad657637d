//! `make bench`: what the control plane costs, each figure beside a floor measured in the same run.
//!
//! A machine is rarely quiet, so a time means little and a ratio more. `BENCH=p6` runs one scenario,
//! `BENCH_SCALE=0.1` shrinks the counts. Latencies end when the last zone has sent its acknowledgement; the
//! floor ends when its server has received the last one.

// A benchmark binary has no outside; `pub` here means: for the scenarios.
#![allow(unreachable_pub)]

mod cpu;
mod floor;
mod global;
mod sample;
mod scenario;
mod zone;

#[tokio::main]
async fn main() {
    let provided = rustls::crypto::ring::default_provider().install_default();
    provided.expect("nobody else sets a provider of cryptography");
    let only = std::env::var_os("BENCH").map(|only| only.to_string_lossy().to_lowercase());
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only.is_empty() || only == name);
    if wanted("p1") {
        scenario::p1(1).await;
        scenario::p1(100).await;
    }
    if wanted("p6") {
        scenario::p6().await;
    }
    if wanted("p7") {
        scenario::p7().await;
    }
}
