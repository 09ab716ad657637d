//! The server of the database: full, read-only, away, silent.

use std::{sync::Arc, time::Duration};

use common::testing::{
    postgres::{Cluster, Places},
    swallower::Swallower,
};
use futures::future::select_all;
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::Connection;

use super::{
    disk::{exhausted, healed, logged_once, stays_unready, tells_that_writing_fails},
    machine::SmallDisk,
    writers::{Book, Writers, say},
};
use crate::{
    harness::{Global, Options, eventually, http, wait::within},
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
    postgres::{on, through},
};

/// Room for an empty server and a few databases.
const DISK: u32 = 96;

/// Runs one statement on the server.
async fn run(url: &str, statement: &'static str) {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::query(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_of_the_server_refuses_writes_until_there_is_room() {
    let disk = SmallDisk::mount(DISK);
    // With room for its journal the server goes on, and says no to whatever takes room.
    let places = Places { data: Some(disk.path()), journal_apart: true };
    let cluster = Cluster::start_in(places).await.unwrap();
    let mut global = Global::start_with(on(&cluster, "global")).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    disk.fill();
    writers.refused(20).await;
    exhausted(&global).await;
    writers.end().await;
    tells_that_writing_fails(&mut global, "No space left on device").await;
    stays_unready(&global).await;
    // Nobody writes: it finds out by itself that there is room again.
    disk.free();
    global.ready().await;
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("full disk of Postgres", 1);
}

#[tokio::test]
async fn a_server_whose_journal_found_no_room_is_waited_for() {
    let disk = SmallDisk::mount(DISK);
    let places = Places { data: Some(disk.path()), journal_apart: false };
    let cluster = Cluster::start_in(places).await.unwrap();
    let mut global = Global::start_with(on(&cluster, "global")).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    disk.fill();
    writers.refused(20).await;
    writers.end().await;
    tells_that_writing_fails(&mut global, "database").await;
    disk.free();
    // A server that cannot write its journal ends, and somebody starts it again.
    eventually("the server runs", || async { cluster.revive().map_err(|error| error.to_string()) }).await;
    global.ready().await;
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("full journal of Postgres", 1);
}

#[tokio::test]
async fn a_server_that_became_read_only_is_noticed_without_a_write() {
    let cluster = Cluster::start().await.unwrap();
    let mut global = Global::start_with(on(&cluster, "global")).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    writers.end().await;
    let url = cluster.connection("postgres").url();
    run(&url, "ALTER SYSTEM SET default_transaction_read_only = on").await;
    run(&url, "SELECT pg_reload_conf()").await;
    tells_that_writing_fails(&mut global, "read-only").await;
    stays_unready(&global).await;
    run(&url, "ALTER SYSTEM RESET default_transaction_read_only").await;
    run(&url, "SELECT pg_reload_conf()").await;
    global.ready().await;
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("read-only Postgres", 1);
}

#[tokio::test]
async fn a_zone_without_its_server_serves_the_proxies_it_has_and_those_that_come() {
    let cluster = Cluster::start().await.unwrap();
    let (global, mut zones) = federation_with(1, Options::default(), on(&cluster, "zone")).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    cluster.stop().unwrap();
    let zone = &mut zones[0];
    eventually("not ready", || async {
        zone.not_ready().await.filter(|told| told.contains("\"store\"")).ok_or("ready")
    })
    .await;
    let dataplane = json!({
        "type": "Dataplane", "mesh": "default", "name": "late",
        "networking": { "address": "127.0.0.1", "inbound": [{ "port": 1, "tags": { "kuma.io/service": "late" } }] },
    });
    let (status, body) =
        zone.call(Method::PUT, "/meshes/default/dataplanes/late", Some(dataplane.clone())).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    client.reaches(0, "backend-1").await;
    let client = client.with_fresh_envoy(zone).await;
    client.reaches(0, "backend-1").await;
    assert!(zone.healthy().await && zone.process.runs());
    cluster.start_again().unwrap();
    zone.ready().await;
    let (status, body) = zone.call(Method::PUT, "/meshes/default/dataplanes/late", Some(dataplane)).await;
    assert!(status.is_success(), "{status}: {body}");
    eventually("the late dataplane at global", || async {
        let there = global.try_get("/meshes/default/dataplanes").await?.to_string();
        if there.contains("\"late") { Ok(()) } else { Err(there) }
    })
    .await;
    say("Postgres of a zone away: proxies served, healed");
}

/// A shutdown takes the grace period (`general.gracefulShutdownTimeout`, 5 s), as long again for the store, and what a
/// loaded machine adds.
const SHUTDOWN: Duration = Duration::from_secs(30);

/// Those who ask a silent database for what was have their turn as long as it is silent. Whoever wants what needs no
/// database waits for none of them.
async fn history_holds_up_no_list(global: &Global) {
    let asked = async || {
        let request = http::client().get(global.url("/history")).bearer_auth(global.admin_token().trim());
        request.send().await.expect("an answer").status()
    };
    let asking = (0..3).map(|_| Box::pin(asked()));
    // One gives up to wait for its turn, or for the database; then the others have their turns.
    let (first, _, others) = select_all(asking).await;
    assert!(first.is_server_error() && others.len() == 2, "{first}");
    for _ in 0..3 {
        let list =
            http::client().get(global.url("/meshes/default/meshtimeouts?size=1000")).send().await.unwrap();
        assert_eq!(list.status(), StatusCode::OK);
        assert!(list.bytes().await.unwrap().len() > 8 << 10, "short answers need no turn");
    }
}

#[tokio::test]
async fn connections_that_fall_silent_are_replaced_and_hold_up_no_shutdown() {
    let cluster = Cluster::start().await.unwrap();
    let way = Swallower::before(cluster.connection("global").port).await.unwrap();
    let mut global = Global::start_with(through(&cluster, "global", way.port())).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    // In the middle of writes; and what is connected then falls silent while the feed is read.
    way.silence_at("FROM meta m LEFT JOIN");
    way.silence();
    eventually("the feed is read anew", || async { if way.was_sent() { Ok(()) } else { Err("not yet") } })
        .await;
    writers.more(30).await;
    writers.end().await;
    global.ready().await;
    // It shows what it acknowledged, so its index follows.
    book.check(&global).await;
    book.print("silent connections to Postgres", 2);

    let writers = Writers::on(&global, &book, 1);
    writers.more(10).await;
    way.silence_all();
    writers.refused(4).await;
    history_holds_up_no_list(&global).await;
    global.process.signal("TERM");
    let process = &mut global.process;
    within(SHUTDOWN, "end of a process whose database is silent", || {
        let runs = process.runs();
        async move { if runs { Err("it runs") } else { Ok(()) } }
    })
    .await;
    writers.end().await;
}
