//! Proxies that come and go, in great numbers, leave nothing behind.

use crate::{
    bad_input::ads,
    doors::ads_peer::{Stream, channel, node},
    harness::{Global, Options, Zone, eventually},
};

/// Streams that are open at once, on one connection.
const TOGETHER: usize = 100;
/// Bytes that what allocated them may keep for the next.
const KEPT: u64 = 32 << 20;

/// Opens so many streams of one proxy, a hundred at a time, each of which is served before it ends.
async fn come_and_go(zone: &Zone, token: &str, count: usize) {
    for _ in 0..count / TOGETHER {
        let channel = channel(zone).await;
        let mut open = Vec::with_capacity(TOGETHER);
        for _ in 0..TOGETHER {
            let mut stream =
                Stream::open(channel.clone(), node("default.web-1", None), Some(token)).await.unwrap();
            stream.admitted().await.unwrap();
            open.push(stream);
        }
    }
    eventually("no stream is open", || async {
        let metrics = zone.metrics().await;
        let active = metrics.lines().find(|line| line.starts_with("xds_streams_active"));
        match active.is_some_and(|line| line.ends_with(" 0")) {
            true => Ok(()),
            false => Err(format!("{active:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn five_thousand_streams_take_no_memory_with_them() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    zone.apply(&ads::dataplane("web-1"));
    let token = zone.proxy_token("default", &["--name", "web-1"]).await;
    // What a process that has served some goes on to hold is no leak.
    come_and_go(&zone, &token, 1000).await;
    let before = zone.process.resident();
    come_and_go(&zone, &token, 5000).await;
    eventually("the memory is back", || async {
        let more = zone.process.resident().saturating_sub(before);
        if more <= KEPT { Ok(()) } else { Err(format!("{} KiB more than before", more >> 10)) }
    })
    .await;
}
