//! Restarts, crashes and partitions while traffic flows.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    harness::{Options, Zone, eventually, http, wait::within},
    mesh::{ALLOW_ALL, Member, Shape, federation, federation_with},
};

/// Calls without pause until dropped, counting.
pub struct Load {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Load {
    pub fn on(url: String) -> Self {
        let (stop, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&good));
        let task = tokio::spawn(async move {
            let client = http::client();
            let mut bad = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match client.get(&url).send().await {
                    Ok(answer) if answer.status() == StatusCode::OK => {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(answer) => bad.push(answer.status().to_string()),
                    Err(error) => bad.push(error.to_string()),
                }
            }
            bad
        });
        Self { stop, good, task }
    }

    /// Waits until this many more requests went well.
    pub async fn more(&self, count: usize) {
        let goal = self.good.load(Ordering::Relaxed) + count;
        eventually("more good requests", || async move {
            let now = self.good.load(Ordering::Relaxed);
            if now >= goal { Ok(()) } else { Err(format!("{now} of {goal}")) }
        })
        .await;
    }

    pub async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

#[tokio::test]
async fn traffic_flows_while_global_and_zone_restart() {
    let (mut global, mut zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let load = Load::on(format!("http://{}/", client.outbounds[0]));
    load.more(50).await;

    zones[0].keep_tokens(&["client-2"]).await;

    // Global dies: the zone keeps everything, also across its own restart.
    global.process.kill();
    load.more(50).await;
    zones[0].process.kill();
    load.more(50).await;
    zones[0].start_again().await;
    let mesh = zones[0].get("/meshes/default").await;
    assert_eq!(mesh["mtls"]["enabledBackend"], "ca-1");
    load.more(50).await;
    // It does not only leave Envoys alone: one that it has never seen gets all it needs.
    let newcomer = Member::join(&zones[0], Shape::http("client-2", "client", &["backend"])).await;
    newcomer.reaches(0, "backend-1").await;

    // Global comes back: converged, and a new policy takes effect.
    global.start_again().await;
    let global = &global;
    eventually("the zone is online again", || async move {
        match global.zone_status("zone-1").await?.as_str() {
            "online" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    load.more(50).await;
    let bad = load.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);

    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
}

#[tokio::test]
async fn certificates_are_replaced_without_a_failed_request() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    global.apply(
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: \
         [{name: ca-1, type: builtin, dpCert: {rotation: {expiration: 5s}}}]}}",
    );
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let load = Load::on(format!("http://{}/", client.outbounds[0]));
    for member in [&backend, &client] {
        let mut seen = BTreeSet::new();
        while seen.len() < 3 {
            let serial = eventually("a new certificate", || async {
                let certificates: Value =
                    serde_json::from_str(&member.envoy.admin("/certs").await?).map_err(|e| e.to_string())?;
                let chains = certificates["certificates"].as_array().into_iter().flatten();
                let serials = chains.filter_map(|c| c["cert_chain"][0]["serial_number"].as_str());
                let fresh = serials.map(str::to_owned).find(|serial| !seen.contains(serial));
                fresh.ok_or_else(|| certificates.to_string())
            })
            .await;
            seen.insert(serial);
            load.more(20).await;
        }
    }
    let bad = load.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

#[tokio::test]
async fn another_authority_takes_over() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    // Never from one authority straight to another: clients and servers would not know each other meanwhile.
    global.apply("{type: Mesh, name: default}");
    eventually("plaintext", || async {
        let seen = client.reaches(0, "backend-1").await;
        let peer = seen["headers"].get("x-forwarded-client-cert");
        if peer.is_none() { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    global.apply(
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-2, backends: [{name: ca-2, type: builtin}]}}",
    );
    eventually("mutual TLS again", || async {
        let seen = client.reaches(0, "backend-1").await;
        let peer = seen["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
        if peer.contains("URI=spiffe://default/client") { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_new_proxy_joins_while_global_is_away() {
    let (mut global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let zone: &Zone = &zones[0];
    eventually("the permission in the zone", || {
        zone.try_get("/meshes/default/meshtrafficpermissions/allow-all-6cf46w7x6f445w75")
    })
    .await;
    zone.keep_tokens(&["backend-1", "client-1"]).await;
    global.process.kill();
    let _backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
}

#[tokio::test]
async fn a_killed_zone_shows_offline_within_30_seconds_a_stopped_one_at_once() {
    let (global, mut zones) = federation(2).await;
    let global = &global;
    let status_is = |zone: &'static str, wanted: &'static str| async move {
        match global.zone_status(zone).await? {
            status if status == wanted => Ok(()),
            status => Err(status),
        }
    };
    for zone in ["zone-1", "zone-2"] {
        eventually("online", || status_is(zone, "online")).await;
    }
    zones[0].process.signal("TERM");
    within(Duration::from_secs(10), "a stopped zone is offline", || status_is("zone-1", "offline")).await;
    assert!(zones[0].process.ended().await.success(), "a stopped zone ends well");
    // A frozen process keeps its connection, as a dead machine does: only silence tells.
    zones[1].process.signal("STOP");
    within(Duration::from_secs(30), "a silent zone is offline", || status_is("zone-2", "offline")).await;
    let table = global.straitctl(&["inspect", "zones"]);
    assert!(table.contains("zone-1") && table.to_lowercase().contains("offline"), "{table}");
    zones[1].process.signal("CONT");
    eventually("back online", || status_is("zone-2", "online")).await;
    zones[1].process.kill();
    within(Duration::from_secs(30), "a killed zone is offline", || status_is("zone-2", "offline")).await;
}

#[tokio::test]
async fn a_global_that_lost_its_store_is_obeyed_only_after_an_operators_word() {
    // Without zone tokens: the keys that signed them are lost too.
    let open = Options::default().with("multizone.global.kds.auth", "none");
    let (mut global, zones) = federation_with(1, open, Options::default()).await;
    let zone = &zones[0];
    global.process.kill();
    for entry in std::fs::read_dir(global.folder.path()).unwrap().map(|e| e.unwrap().path()) {
        if entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with("strait.db")) {
            std::fs::remove_file(entry).unwrap();
        }
    }
    global.start_again().await;
    let link = eventually("the zone holds back", || async move {
        let link = zone.try_get("/strait/link").await?;
        if link["heldBack"].is_string() { Ok(link) } else { Err(link.to_string()) }
    })
    .await;
    assert!(link["heldBack"].as_str().unwrap().contains("store"), "{link}");
    assert_eq!(zone.get("/meshes/default").await["mtls"]["enabledBackend"], "ca-1", "nothing was taken away");
    let (_, out, err) = zone.try_straitctl(&["link"]);
    assert!(err.contains("link approve"), "{out}{err}");

    zone.straitctl(&["link", "approve"]);
    eventually("the zone follows the new global", || async move {
        let mesh = zone.try_get("/meshes/default").await?;
        if mesh.get("mtls").is_none() { Ok(()) } else { Err(mesh.to_string()) }
    })
    .await;
}
