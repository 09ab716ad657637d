//! kill -9 in the middle of writes.

use std::sync::Arc;

use common::testing::postgres::Cluster;

use super::{
    knob,
    writers::{Book, Writers},
};
use crate::{
    harness::{ControlPlane, Global},
    postgres::on,
};

/// Where the store is, by the metric.
async fn revision(cp: &ControlPlane) -> u64 {
    let metrics = cp.metrics().await;
    let line = metrics.lines().find(|line| line.starts_with("store_revision{")).expect("there is a metric");
    let value = line.rsplit(' ').next().expect("a metric has a value");
    value.parse::<f64>().expect("a number") as u64
}

/// Kills and starts again, `rounds` times, and looks each time.
async fn kills(global: &mut Global, book: &Arc<Book>, rounds: u64) {
    let mut before = revision(global).await;
    for round in 0..rounds {
        let writers = Writers::on(global, book, usize::try_from(round).unwrap());
        // Another moment each time: after the first acknowledgements, or well under way.
        writers.more(5 + usize::try_from(round).unwrap() * 7 % 40).await;
        let seen = revision(global).await;
        global.process.kill();
        writers.end().await;
        global.start_again().await;
        let after = revision(global).await;
        assert!(after >= seen && seen >= before, "the revision went from {before} to {seen} to {after}");
        before = after;
        book.check(global).await;
    }
}

#[tokio::test]
async fn twenty_five_kills_lose_nothing_that_was_acknowledged() {
    let rounds = knob("FAULT_KILLS", 25);
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    kills(&mut global, &book, rounds).await;
    book.print("kill -9 on SQLite", usize::try_from(rounds).unwrap());
}

#[tokio::test]
async fn kills_of_the_process_and_of_the_server_lose_nothing_on_postgres() {
    let rounds = knob("FAULT_KILLS_POSTGRES", 4);
    let cluster = Cluster::start().await.unwrap();
    let mut global = Global::start_with(on(&cluster, "global")).await;
    let book = Arc::new(Book::default());
    kills(&mut global, &book, rounds).await;

    let writers = Writers::on(&global, &book, 1_000);
    writers.more(20).await;
    cluster.stop().unwrap();
    writers.refused(5).await;
    let told = crate::harness::eventually("not ready", || {
        let asked = global.not_ready();
        async { asked.await.ok_or("ready") }
    })
    .await;
    assert!(told.contains("\"store\""), "{told}");
    global.get("/meshes/default").await;
    cluster.start_again().unwrap();
    writers.more(20).await;
    global.ready().await;
    writers.end().await;
    book.check(&global).await;
    book.print("kill -9 on Postgres, and of Postgres", usize::try_from(rounds).unwrap() + 1);
}
