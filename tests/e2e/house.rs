//! Zones that change house: they move from one global to another, join a federation and leave it, and get another name.

use std::collections::BTreeSet;

use reqwest::StatusCode;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    harness::{Global, Options, Zone, control_plane::write, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation_with},
    recover::{LATE, follows, has},
    resilience::Load,
};

/// What an Envoy was given when somebody looked for the first time: the names of its listeners, clusters and endpoints.
struct Kept {
    path: String,
    names: BTreeSet<String>,
}

impl Kept {
    async fn of(zone: &Zone, proxy: &str) -> Self {
        let path = format!("/meshes/default/dataplanes/{proxy}/stats");
        let names = given(&zone.get(&path).await);
        assert!(names.len() > 3, "{names:?}");
        Self { path, names }
    }

    async fn is_there(&self, zone: &Zone) {
        let now = given(&zone.get(&self.path).await);
        let lost: Vec<_> = self.names.difference(&now).collect();
        assert!(lost.is_empty(), "lost {lost:?}");
    }

    /// Looks again and again, until it is told to end.
    fn watch(self, zone: &Zone) -> Watched {
        let (client, url) = (reqwest::Client::new(), zone.url(&self.path));
        let (token, stop) = (zone.admin_token(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut lost = Vec::new();
            while !stopped.is_cancelled() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                let answer = client.get(&url).bearer_auth(&token).send().await.unwrap();
                // One that cannot be asked at the moment has lost nothing.
                if !answer.status().is_success() {
                    continue;
                }
                let now = given(&Value::String(answer.text().await.unwrap()));
                lost.extend(self.names.difference(&now).cloned());
            }
            lost
        });
        Watched { stop, task }
    }
}

/// Somebody who looks at an Envoy all the time.
struct Watched {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Watched {
    /// What was missing at any time.
    async fn end(self) -> Vec<String> {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

/// The listeners and clusters that stats of an Envoy are about.
fn given(stats: &Value) -> BTreeSet<String> {
    let text = stats.as_str().unwrap_or_default();
    let of = |line: &str| {
        let (what, rest) = line.split_once('.')?;
        let name = rest.split_once('.')?.0;
        matches!(what, "cluster" | "listener").then(|| format!("{what} {name}"))
    };
    text.lines().filter_map(of).collect()
}

/// A zone changes from one global to another while its proxies go on.
#[tokio::test]
async fn a_zone_moves_to_another_global_without_a_gap() {
    let (first, zones) = federation_with(1, Options::default(), Options::default()).await;
    let zone = &zones[0];
    first.apply(ALLOW_ALL);
    let _backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    // From here on until it has moved somebody calls without a pause, and somebody looks at what the proxy has.
    let load = Load::on(format!("http://{}/", client.outbounds[0]));
    let kept = Kept::of(zone, "client-1").await;

    let second = Global::start().await;
    let token = second.straitctl(&["generate", "zone-token", "--zone", "zone-1", "--scope", "cp"]);
    let token = write(zone.folder.path(), "second-token", token.trim()).display().to_string();
    let certificate = second.certificate().display().to_string();
    let to = second.kds_address();
    let begin =
        ["zones", "move", "zone-1", "--to", &to, "--token-file", &token, "--to-ca-cert-file", &certificate];
    let (ok, out, err) = zone.try_straitctl(&begin);
    assert!(ok && out.contains("would be gone"), "{out}{err}");
    let (ok, _, err) = zone.try_straitctl(&["zones", "move", "zone-1", "--commit"]);
    assert!(!ok && err.contains("would be gone"), "{err}");
    zone.straitctl(&["zones", "move", "zone-1", "--back"]);

    // With what the first has the second is another of its kind.
    let exported = first.straitctl(&["export", "--include-admin"]);
    let file = write(second.folder.path(), "export.yaml", &exported);
    second.straitctl(&["import", &file.display().to_string()]);
    let token = eventually("the administrator is let in again", || async {
        let (ok, out, err) =
            second.try_straitctl(&["generate", "zone-token", "--zone", "zone-1", "--scope", "cp"]);
        if ok { Ok(out) } else { Err(err) }
    })
    .await;
    let token = write(zone.folder.path(), "second-token", token.trim()).display().to_string();
    let begin =
        ["zones", "move", "zone-1", "--to", &to, "--token-file", &token, "--to-ca-cert-file", &certificate];
    let commit = ["zones", "move", "zone-1", "--commit"];
    zone.straitctl(&begin);
    eventually("the other global has everything", || async {
        let link = zone.try_get("/strait/link").await?;
        if link["move"]["complete"] == true { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
    load.more(20).await;
    kept.is_there(zone).await;
    // The way back is open until it is committed: nothing of what was looked at stays.
    zone.straitctl(&["zones", "move", "zone-1", "--back"]);
    let link = zone.get("/strait/link").await;
    assert!(link["move"].is_null() && link["connected"] == true, "{link}");
    load.more(20).await;
    kept.is_there(zone).await;
    zone.straitctl(&begin);
    eventually("the other global has everything again", || async {
        let link = zone.try_get("/strait/link").await?;
        if link["move"]["complete"] == true { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
    let watched = kept.watch(zone);
    let out = zone.straitctl(&commit);
    assert!(out.contains("follows"), "{out}");
    follows(zone).await;
    eventually("the zone is online there", || async {
        let status = second.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
    load.more(50).await;
    assert_eq!(watched.end().await, Vec::<String>::new(), "the proxy kept everything");
    let bad = load.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
    first.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    second.apply(LATE);
    has(zone, "late").await;
    client.reaches(0, "backend-1").await;
    second.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
}

/// A token of this zone, once the administrator of global is known again after an import.
async fn token_of(global: &Global, zone: &str) -> String {
    let token = eventually("the administrator is let in again", || async {
        let (ok, out, err) =
            global.try_straitctl(&["generate", "zone-token", "--zone", zone, "--scope", "cp"]);
        if ok { Ok(out) } else { Err(err) }
    })
    .await;
    token.trim().to_owned()
}

#[tokio::test]
async fn a_zone_that_ran_alone_joins_a_federation_and_leaves_it_with_all_it_has() {
    let mut zone = Zone::alone("zone-1", Options::default()).await;
    zone.apply(MESH);
    zone.apply(ALLOW_ALL);
    let _backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let load = Load::on(format!("http://{}/", client.outbounds[0]));
    load.more(20).await;

    let exported = zone.straitctl(&["export", "--profile", "federation-with-policies", "--include-admin"]);
    let global = Global::start().await;
    let file = write(global.folder.path(), "zone.yaml", &exported);
    global.straitctl(&["import", &file.display().to_string()]);
    let token = token_of(&global, "zone-1").await;
    let token = write(zone.folder.path(), "zone-token", &token).display().to_string();
    let joined = [
        ("multizone.zone.globalAddress", global.kds_address()),
        ("multizone.zone.kds.rootCaFile", global.certificate().display().to_string()),
        ("multizone.zone.kds.tokenFile", token),
    ];
    assert!(zone.process.stop().await.success());
    for (flag, value) in &joined {
        zone.cp.set(flag, Some(value.as_str()));
    }
    zone.cp.start_again().await;
    follows(&zone).await;
    load.more(20).await;
    global.apply(LATE);
    has(&zone, "late").await;
    load.more(20).await;

    assert!(zone.process.stop().await.success());
    for (flag, _) in &joined {
        zone.cp.set(flag, None);
    }
    zone.cp.start_again().await;
    has(&zone, "late").await;
    load.more(20).await;
    let bad = load.end().await;
    assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
    // What came from global is its own now.
    let permissions = zone.get("/meshes/default/meshtrafficpermissions").await;
    for item in permissions["items"].as_array().unwrap() {
        zone.straitctl(&["delete", "meshtrafficpermission", item["name"].as_str().unwrap()]);
    }
    client.gets(0, StatusCode::FORBIDDEN).await;
}

#[tokio::test]
async fn a_zone_gets_another_name_and_takes_along_what_it_owns() {
    let (global, mut zones) = federation_with(1, Options::default(), Options::default()).await;
    let mut zone = zones.remove(0);
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;

    let token = zone.folder.path().join("token-of-west").display().to_string();
    global.straitctl(&["zones", "rename", "zone-1", "west", "--token-file", &token]);
    assert!(zone.process.stop().await.success());
    zone.cp.set("multizone.zone.name", Some("west"));
    zone.cp.set("multizone.zone.kds.tokenFile", Some(token.as_str()));
    zone.cp.start_again().await;
    follows(&zone).await;
    let out = global.straitctl(&["zones", "rename", "zone-1", "west", "--finish"]);
    assert!(out.contains("zone zone-1 is west now"), "{out}");
    let zones = global.get("/zones").await;
    assert_eq!((&zones["total"], &zones["items"][0]["name"]), (&1.into(), &"west".into()), "{zones}");
    eventually("its dataplanes under the new name", || async {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        let items = list["items"].as_array().into_iter().flatten();
        let of: Vec<_> = items.map(|item| item["labels"]["kuma.io/zone"].as_str()).collect();
        if of == [Some("west"), Some("west")] { Ok(()) } else { Err(format!("{of:?}")) }
    })
    .await;
    client.reaches(0, "backend-1").await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
}
