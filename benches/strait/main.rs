//! `make bench`: what the control plane costs, each figure beside a floor measured in the same run.
//!
//! P1, P2, P3, P6, P7 and P9 are about global and its zones, P4 and P5 about a zone and its proxies, P8 about what
//! one change costs in either; `put`, `storm` and `edits` about many changes. A machine is rarely quiet, so a time
//! means little and a ratio more. `BENCH=p6` runs one scenario,
//! `BENCH_SCALE=0.1` shrinks the counts, `BENCH_PROTOCOL=delta` leaves the other one out of P4. Latencies end when the last zone has sent its acknowledgement; the
//! floor ends when its server has received the last one.

// A benchmark binary has no outside; `pub` here means: for the scenarios.
#![allow(unreachable_pub)]

mod ads_floor;
mod bulk;
mod changes;
mod cost;
mod floor;
mod global;
mod mesh;
mod policies;
mod push;
mod sample;
mod scenario;
mod upward;
mod zone;

use std::path::Path;

use load::AdsProtocol;

use policies::Around;

#[tokio::main]
async fn main() {
    let provided = rustls::crypto::ring::default_provider().install_default();
    provided.expect("nobody else sets a provider of cryptography");
    // Both ends of thousands of connections are in this process where floors are measured.
    common::runtime::OpenFiles::raise(0);
    // The floor of the push side is this program again, so that it has a process of its own.
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(ads_floor::ROLE) {
        return ads_floor::serve(Path::new(&arguments.next().expect("a folder"))).await;
    }
    let only = std::env::var_os("BENCH").map(|only| only.to_string_lossy().to_lowercase());
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only.is_empty() || only == name);
    if wanted("p1") {
        scenario::p1(1).await;
        scenario::p1(100).await;
        scenario::p1(1_000).await;
    }
    if wanted("p2") {
        bulk::p2().await;
    }
    if wanted("p3") {
        upward::p3().await;
    }
    if wanted("p9") {
        upward::p9().await;
    }
    if wanted("p4") {
        let named = std::env::var_os("BENCH_PROTOCOL").unwrap_or_default();
        let named = named.to_string_lossy().to_lowercase();
        let protocols = [("sotw", AdsProtocol::Sotw), ("delta", AdsProtocol::Delta)];
        for (_, protocol) in protocols.into_iter().filter(|(name, _)| named.is_empty() || named == *name) {
            let alone = push::p4(protocol, Around::Nothing).await;
            let among = push::p4(protocol, Around::Policies).await;
            push::compare(alone, among);
        }
    }
    if wanted("p5") {
        push::p5().await;
    }
    if wanted("p6") {
        scenario::p6().await;
    }
    if wanted("p7") {
        scenario::p7().await;
    }
    if wanted("p8") {
        cost::p8().await;
    }
    if wanted("put") {
        changes::put().await;
    }
    if wanted("storm") {
        changes::storm().await;
    }
    if wanted("edits") {
        changes::edits().await;
    }
}
