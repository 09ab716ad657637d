//! SIGSTOP: a process that neither runs nor ends, as a machine that hangs.

use std::{sync::Arc, time::Duration};

use common::testing::postgres::Cluster;

use super::{
    knob,
    writers::{Book, Writers},
};
use crate::{
    harness::{Global, Options, Zone, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation},
    postgres::on,
};

/// A minute: longer than every timeout by which one process gives up on another (leases, pings, commits).
fn pause() -> Duration {
    Duration::from_secs(knob("FAULT_STOPPED", 60))
}

/// The pause is the same for all, so they have it together.
#[tokio::test]
async fn whoever_stood_still_for_a_minute_goes_on() {
    tokio::join!(
        a_global_that_stood_still_goes_on(),
        a_zone_that_stood_still_goes_on(),
        a_database_server_that_stands_still_is_said_to(),
    );
}

async fn online(global: &Global, zone: &str) {
    eventually("the zone is online", || async move {
        match global.zone_status(zone).await?.as_str() {
            "online" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
}

async fn a_global_that_stood_still_goes_on() {
    let (mut global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(20).await;
    global.process.signal("STOP");
    // This is the fault, not a wait for something.
    tokio::time::sleep(pause()).await;
    client.reaches(0, "backend-1").await;
    assert!(zones[0].not_ready().await.is_none(), "the zone serves without its global");
    global.process.signal("CONT");
    writers.more(20).await;
    writers.end().await;
    global.ready().await;
    online(&global, "zone-1").await;
    book.check(&global).await;
    assert!(global.process.runs());
    book.print("SIGSTOP of global", 1);
}

async fn a_zone_that_stood_still_goes_on() {
    let global = Global::start().await;
    let mut zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    online(&global, "zone-1").await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(20).await;
    zone.process.signal("STOP");
    // It hinders nobody, neither at first nor when it has been given up.
    writers.more(20).await;
    writers.end().await;
    tokio::time::sleep(pause()).await;
    let writers = Writers::on(&global, &book, 1);
    writers.more(20).await;
    writers.end().await;
    assert!(global.not_ready().await.is_none());
    zone.process.signal("CONT");
    zone.ready().await;
    online(&global, "zone-1").await;
    // And has everything that was written meanwhile.
    let newest = "again-0";
    eventually("the newest write in the zone", || async {
        let (at_global, there) = (
            global.try_get(&format!("/meshes/default/meshtimeouts/{newest}")).await?,
            zone.try_get("/meshes/default/meshtimeouts?size=1000&name=again-0").await?,
        );
        let wanted = &at_global["labels"]["value"];
        let items = there["items"].as_array().cloned().unwrap_or_default();
        let same = |item: &serde_json::Value| {
            item["labels"]["value"] == *wanted && item["labels"]["kuma.io/display-name"] == newest
        };
        if items.iter().any(same) { Ok(()) } else { Err(wanted.to_string()) }
    })
    .await;
    assert!(zone.process.runs());
    book.print("SIGSTOP of a zone", 1);
}

async fn a_database_server_that_stands_still_is_said_to() {
    let cluster = Cluster::start().await.unwrap();
    let mut global = Global::start_with(on(&cluster, "global")).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(20).await;
    cluster.signal("STOP").unwrap();
    let told = eventually("not ready", || {
        let asked = global.not_ready();
        async { asked.await.ok_or("ready") }
    })
    .await;
    assert!(told.contains("\"store\""), "{told}");
    global.get("/meshes/default").await;
    tokio::time::sleep(pause()).await;
    assert!(global.not_ready().await.is_some(), "still not ready");
    cluster.signal("CONT").unwrap();
    writers.more(20).await;
    global.ready().await;
    writers.end().await;
    book.check(&global).await;
    assert!(global.process.runs());
    book.print("SIGSTOP of Postgres", 1);
}
