//! Zones that change house: they move from one global to another, join a federation and leave it, and get another name.

use std::collections::BTreeSet;

use reqwest::StatusCode;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    harness::{Global, Options, Zone, control_plane::write, eventually, http},
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
        Self::in_mesh(zone, "default", proxy).await
    }

    async fn in_mesh(zone: &Zone, mesh: &str, proxy: &str) -> Self {
        let path = format!("/meshes/{mesh}/dataplanes/{proxy}/stats");
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
        let (client, url) = (http::client(), zone.url(&self.path));
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

/// Lets a zone follow another global, with a token of that one, once that has all the zone needs.
async fn moves(zone: &Zone, to: &Global) {
    let token = token_of(to, &zone.zone).await;
    let token = write(zone.folder.path(), "token-there", &token).display().to_string();
    let certificate = to.certificate().display().to_string();
    let (name, address) = (&*zone.zone, to.kds_address());
    zone.straitctl(&[
        "zones",
        "move",
        name,
        "--to",
        &address,
        "--token-file",
        &token,
        "--to-ca-cert-file",
        &certificate,
    ]);
    eventually("the other global has everything", || async {
        let link = zone.try_get("/strait/link").await?;
        if link["move"]["complete"] == true { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
    zone.straitctl(&["zones", "move", name, "--commit"]);
    follows(zone).await;
    is_online(to, zone).await;
}

async fn is_online(global: &Global, zone: &Zone) {
    eventually("the zone is online", || async {
        let status = global.zone_status(&zone.zone).await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn zones_of(global: &Global) -> Vec<String> {
    let zones = global.get("/zones").await;
    let items = zones["items"].as_array().unwrap().iter();
    items.map(|zone| zone["name"].as_str().unwrap().to_owned()).collect()
}

async fn nobody_noticed(loads: impl IntoIterator<Item = Load>) {
    for load in loads {
        load.more(50).await;
        let bad = load.end().await;
        assert!(bad.is_empty(), "{} requests failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
    }
}

/// Two zones of one global, each with a service and who calls it; then each has a global of its own.
#[tokio::test]
async fn one_global_becomes_two() {
    let (first, zones) = federation_with(2, Options::default(), Options::default()).await;
    first.apply(ALLOW_ALL);
    let mut members = Vec::new();
    for (n, zone) in zones.iter().enumerate() {
        let (backend, client) = (format!("backend-{n}"), format!("client-{n}"));
        // A service of its own in each zone, so nobody calls another zone.
        let service = Member::join(zone, Shape::http(&backend, &backend, &[])).await;
        let client = Member::join(zone, Shape::http(&client, &client, &[&backend])).await;
        client.reaches(0, &backend).await;
        members.push((service, client));
    }
    let load = |n: usize| Load::on(format!("http://{}/", members[n].1.outbounds[0]));
    let loads = [load(0), load(1)];
    let (stays, goes) = (Kept::of(&zones[0], "client-0").await, Kept::of(&zones[1], "client-1").await);

    let exported = first.straitctl(&["export", "--include-admin"]);
    let second = Global::start().await;
    let file = write(second.folder.path(), "export.yaml", &exported);
    second.straitctl(&["import", &file.display().to_string()]);
    let (stays, goes) = (stays.watch(&zones[0]), goes.watch(&zones[1]));
    moves(&zones[1], &second).await;
    eventually("it is gone where it was", || async {
        let status = first.zone_status("zone-2").await?;
        if status == "offline" { Ok(()) } else { Err(status) }
    })
    .await;
    first.straitctl(&["delete", "zone", "zone-2"]);
    // It came with the export, and never was there.
    second.straitctl(&["delete", "zone", "zone-1"]);
    assert_eq!(
        (zones_of(&first).await, zones_of(&second).await),
        (vec!["zone-1".to_owned()], vec!["zone-2".to_owned()])
    );
    nobody_noticed(loads).await;
    assert_eq!((stays.end().await, goes.end().await), (vec![], vec![]), "the proxies kept everything");

    // What the one says is of no concern to the zone of the other.
    first.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    members[0].1.gets(0, StatusCode::FORBIDDEN).await;
    second.apply(LATE);
    has(&zones[1], "late").await;
    members[1].1.reaches(0, "backend-1").await;
    second.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    members[1].1.gets(0, StatusCode::FORBIDDEN).await;
}

/// Two globals with a zone and a mesh each; then one global has both, and who was known there before still is.
#[tokio::test]
async fn two_globals_become_one() {
    let other =
        |yaml: &str| yaml.replace("mesh: default", "mesh: other").replace("name: default", "name: other");
    let first = Global::start().await;
    let second = Global::start().await;
    let zone = async |global, name| Zone::start_with(global, name, Options::default()).await;
    let zones = [zone(&first, "zone-1").await, zone(&second, "zone-2").await];
    [MESH, ALLOW_ALL].iter().for_each(|yaml| first.apply(yaml));
    [MESH, ALLOW_ALL].iter().for_each(|yaml| second.apply(&other(yaml)));
    let mut members = Vec::new();
    for (zone, mesh) in zones.iter().zip(["default", "other"]) {
        eventually("the mesh in the zone", || async {
            let found = zone.try_get(&format!("/meshes/{mesh}")).await?;
            if found["mtls"].is_null() { Err(found.to_string()) } else { Ok(()) }
        })
        .await;
        let service = Member::join(zone, Shape { mesh, ..Shape::http("backend", "backend", &[]) }).await;
        let client =
            Member::join(zone, Shape { mesh, ..Shape::http("client", "client", &["backend"]) }).await;
        client.reaches(0, "backend").await;
        members.push((service, client));
    }
    let loads = [0, 1].map(|n: usize| Load::on(format!("http://{}/", members[n].1.outbounds[0])));
    let stays = Kept::in_mesh(&zones[0], "default", "client").await.watch(&zones[0]);
    let goes = Kept::in_mesh(&zones[1], "other", "client").await;

    // The other has rotated its key, and revoked a token; a token that it signed is good there.
    let key = second.straitctl(&["generate", "signing-key"]);
    second.apply(&format!("type: GlobalSecret\nname: user-token-signing-key-2\ndata: {key}\n"));
    let foreign = second.straitctl(&["generate", "user-token", "--name", "eve", "--valid-for", "1h"]);
    let exported = second.straitctl(&["export", "--include-admin"]);
    let file = write(first.folder.path(), "export.yaml", &exported).display().to_string();
    // An import that was interrupted has begun the mesh.
    first.apply("type: Mesh\nname: other\nskipCreatingInitialPolicies: [\"*\"]\n");
    let shown = first.straitctl(&["import", &file, "--keep-existing", "--dry-run"]);
    let line = |what: &str, how: &str| {
        assert!(
            shown.lines().any(|line| line.contains(what) && line.ends_with(how)),
            "{what} {how}: {shown}"
        );
    };
    line("default", "is there and stays");
    line("other", "is valid and new");
    line("user-token-signing-key-1", "is there and stays");
    line("user-token-signing-key-2", "is left out: whose tokens are good here is said already");
    line("dataplane-token-signing-key-other-1", "is valid and new");
    let path = "/meshes/other/meshtrafficpermissions/allow-all";
    let (status, _) = first.call(reqwest::Method::GET, path, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "nothing is sent");
    first.straitctl(&["import", &file, "--keep-existing"]);
    let mesh = first.get("/meshes/other").await;
    assert!(!mesh["mtls"].is_null(), "{mesh}");
    let known = http::client().get(first.url("/who-am-i")).bearer_auth(foreign.trim()).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::UNAUTHORIZED, "whom the other knew is nobody here");
    // The token its administrator had all the time is good, and so is that of its zone.
    first.get("/meshes/other").await;
    let mesh = first.get("/meshes/default").await;
    assert_eq!(mesh["mtls"]["enabledBackend"], "ca-1", "{mesh}");
    is_online(&first, &zones[0]).await;

    let goes = goes.watch(&zones[1]);
    moves(&zones[1], &first).await;
    assert_eq!(zones_of(&first).await, ["zone-1", "zone-2"]);
    drop(second);
    nobody_noticed(loads).await;
    assert_eq!((stays.end().await, goes.end().await), (vec![], vec![]), "the proxies kept everything");
    first.straitctl(&["delete", "meshtrafficpermission", "allow-all", "--mesh", "other"]);
    members[1].1.gets(0, StatusCode::FORBIDDEN).await;
    members[0].1.reaches(0, "backend").await;
}
