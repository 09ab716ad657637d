//! The same on Postgres, which survives what a process does not.

use common::testing::postgres::Cluster;
use reqwest::StatusCode;

use crate::{
    harness::{Options, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
};

fn on(cluster: &Cluster, database: &str) -> Options {
    let at = cluster.connection(database);
    Options::default()
        .with("store.type", "postgres")
        .with("store.postgres.host", &at.host)
        .with("store.postgres.port", &at.port.to_string())
        .with("store.postgres.user", &at.user)
        .with("store.postgres.password", &at.password)
        .with("store.postgres.dbName", &at.database)
}

#[tokio::test]
async fn global_and_zone_run_on_postgres() {
    let cluster = Cluster::start().await.unwrap();
    let (mut global, zones) = federation_with(1, on(&cluster, "global"), on(&cluster, "zone")).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;

    global.process.kill();
    global.start_again().await;
    let kept = global.get("/meshes/default/meshtrafficpermissions/allow-all").await;
    assert_eq!(kept["name"], "allow-all");
    let global = &global;
    eventually("the zone is back", || async move {
        let status = global.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
}
