//! The same on Postgres, which survives what a process does not.

use common::testing::postgres::Cluster;
use reqwest::StatusCode;
use tempfile::TempDir;

use crate::{
    harness::{Global, Options, Zone, eventually, process::Process},
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
};

/// A control plane on a database of `cluster`.
pub fn on(cluster: &Cluster, database: &str) -> Options {
    through(cluster, database, cluster.connection(database).port)
}

/// The same, reached at another port.
pub fn through(cluster: &Cluster, database: &str, port: u16) -> Options {
    let at = cluster.connection(database);
    Options::default()
        .with("store.type", "postgres")
        .with("store.postgres.host", &at.host)
        .with("store.postgres.port", &port.to_string())
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
    let shown = global.get("/config").await;
    assert_eq!(shown["store"]["type"], "postgres");
    assert_eq!(shown["store"]["postgres"]["password"], "*****", "{shown}");
    let global = &global;
    eventually("the zone is back", || async move {
        let status = global.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
}

/// A control plane that shares nothing with another one but a database of `cluster`.
fn starting(cluster: &Cluster, folder: &TempDir, name: &str) -> Process {
    let (program, own) = match name {
        "global" => (env!("CARGO_BIN_EXE_strait-global"), vec!["--multizone.global.kds.grpcPort", "0"]),
        zone => {
            (env!("CARGO_BIN_EXE_strait-zone"), vec!["--multizone.zone.name", zone, "--dpServer.port", "0"])
        }
    };
    let work_dir = folder.path().join(name).display().to_string();
    let usual = ["--apiServer.http.port", "0", "--apiServer.https.enabled", "false"];
    let more = ["--diagnostics.serverPort", "0", "--general.workDir", &work_dir];
    let all = own.into_iter().chain(usual).chain(more).map(str::to_owned);
    let options =
        on(cluster, "shared").flags.into_iter().flat_map(|(flag, value)| [format!("--{flag}"), value]);
    Process::start(name, program.as_ref(), all.chain(options))
}

#[tokio::test]
async fn of_control_planes_that_start_at_once_on_one_database_one_runs() {
    let (cluster, folder) = (Cluster::start().await.unwrap(), TempDir::new().unwrap());
    let _made = cluster.connection("shared");
    let mut all = ["east", "global", "west"].map(|name| starting(&cluster, &folder, name));
    eventually("one of them is left", || {
        let left = all.iter_mut().filter_map(|one| one.runs().then(|| one.name().to_owned()));
        let left: Vec<_> = left.collect();
        async move { if left.len() == 1 { Ok(()) } else { Err(left.join(", ")) } }
    })
    .await;
    for process in &mut all {
        if !process.runs() {
            assert!(!process.ended().await.success());
            let log = process.log();
            assert!(log.contains("a store of its own"), "{log}");
        }
    }
}

const QUICK: &str = "
type: MeshTimeout
mesh: default
name: quick
spec: { to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 1s } }] }
";

/// Waits until a replica stands so with global: `connected` or `standby`.
async fn stands(replica: &Zone, how: &str) {
    eventually(&format!("a replica that is {how}"), || async move {
        let link = replica.try_get("/strait/link").await?;
        if link[how] == true { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn one_replica_of_a_zone_follows_global_and_another_takes_over() {
    let cluster = Cluster::start().await.unwrap();
    let global = Global::start().await;
    let options = on(&cluster, "zone");
    let mut first = Zone::start_with(&global, "zone-1", options.clone()).await;
    stands(&first, "connected").await;
    let second = Zone::start_with(&global, "zone-1", options.clone()).await;
    stands(&second, "standby").await;
    let shown = second.straitctl(&["link"]);
    assert!(shown.contains("standby"), "{shown}");
    let (ok, _, err) = second.try_straitctl(&["link", "approve"]);
    assert!(!ok && err.contains("ask that one"), "{err}");
    stands(&first, "connected").await;

    // A zone of another name would take over the rows of the one that runs.
    let mut args: Vec<String> =
        ["--multizone.zone.name", "zone-2", "--apiServer.http.port", "0"].map(str::to_owned).into();
    for (flag, value) in options.flags {
        args.extend([format!("--{flag}"), value]);
    }
    let mut stranger = Process::start("zone-2", env!("CARGO_BIN_EXE_strait-zone").as_ref(), &args);
    assert!(!stranger.ended().await.success());
    let log = stranger.log();
    assert!(log.contains("zone zone-1 runs on this store") && log.contains("a store of its own"), "{log}");

    first.process.kill();
    global.apply(QUICK);
    stands(&second, "connected").await;
    let second = &second;
    eventually("the policy at the replica that took over", || async move {
        let policies = second.try_get("/meshes/default/meshtimeouts").await?.to_string();
        if policies.contains("\"quick\"") { Ok(()) } else { Err(policies) }
    })
    .await;
    eventually("the zone is online again", || async {
        let status = global.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
}
