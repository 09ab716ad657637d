//! Losing global and rebuilding it, exporting and importing what it owns.

use std::{fs, path::Path};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    harness::{Global, Options, Zone, control_plane::write, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation_with},
};

pub const LATE: &str = "
type: MeshTimeout
mesh: default
name: late
spec: { to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 7s } }] }
";

/// The policies of a kind that a control plane has, by the names their authors gave them.
async fn named(list: Result<Value, String>) -> Result<Vec<String>, String> {
    let list = list?;
    let items = list["items"].as_array().ok_or_else(|| list.to_string())?;
    let name = |item: &Value| {
        item["labels"]["kuma.io/display-name"].as_str().or(item["name"].as_str()).map(str::to_owned)
    };
    Ok(items.iter().filter_map(name).collect())
}

pub async fn has(zone: &Zone, what: &str) {
    eventually(&format!("{what} in the zone"), || async move {
        let names = named(zone.try_get("/meshes/default/meshtimeouts").await).await?;
        if names.iter().any(|name| name == what) { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

pub async fn follows(zone: &Zone) {
    eventually("the zone follows", || async move {
        let link = zone.try_get("/strait/link").await?;
        if link["connected"] == true && link["heldBack"].is_null() { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
}

async fn holds_back(zone: &Zone) -> String {
    eventually("the zone holds back", || async move {
        let link = zone.try_get("/strait/link").await?;
        link["heldBack"].as_str().map(str::to_owned).ok_or_else(|| link.to_string())
    })
    .await
}

/// Removes or copies the database of a control plane that does not run.
fn database(folder: &Path, mut each: impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with("strait.db")) {
            each(&entry);
        }
    }
}

fn copy(file: &Path, into: &Path) {
    let _bytes = fs::copy(file, into.join(file.file_name().unwrap())).unwrap();
}

/// Waits until global says the zone does not follow.
async fn is_known_to_hold_back(global: &Global, zone: &str) {
    eventually("global knows that the zone holds back", || async move {
        let overview = global.try_get(&format!("/zones/{zone}/_overview")).await?;
        if overview["strait"]["heldBack"].is_string() { Ok(()) } else { Err(overview.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_lost_global_is_rebuilt_from_its_zones_and_their_proxies_never_notice() {
    // Without zone tokens: the keys that signed them are lost too.
    let open = Options::default().with("multizone.global.kds.auth", "none");
    let (mut global, zones) = federation_with(1, open, Options::default()).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    let _backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    global.apply(LATE);
    has(zone, "late").await;
    global.process.kill();
    database(global.folder.path(), |file| fs::remove_file(file).unwrap());
    global.start_again().await;
    assert!(holds_back(zone).await.contains("store"));
    is_known_to_hold_back(&global, "zone-1").await;
    let (_, _, err) = global.try_straitctl(&["epoch"]);
    assert!(err.contains("zone-1 does not follow"), "{err}");

    let (ok, out, err) = global.try_straitctl(&["global", "recover"]);
    assert!(ok && out.contains("MeshTimeout default/late created") && err.contains("--yes"), "{out}{err}");
    assert!(
        named(global.try_get("/meshes/default/meshtimeouts").await)
            .await
            .unwrap()
            .iter()
            .all(|n| n != "late")
    );
    let out = global.straitctl(&["global", "recover", "--yes"]);
    assert!(out.contains("restored") && out.contains("zones are shown epoch 2"), "{out}");
    follows(zone).await;
    assert!(
        named(global.try_get("/meshes/default/meshtimeouts").await)
            .await
            .unwrap()
            .iter()
            .any(|n| n == "late")
    );
    assert_eq!(zone.get("/meshes/default").await["mtls"]["enabledBackend"], "ca-1", "nothing was taken away");
    client.reaches(0, "backend-1").await;
    // From the new global down to the last Envoy.
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
}

#[tokio::test]
async fn a_global_restored_from_an_old_backup_takes_back_what_it_forgot_or_goes_on_without() {
    let (mut global, zones) = federation_with(1, Options::default(), Options::default()).await;
    let zone = &zones[0];
    assert!(global.process.stop().await.success());
    let backup = tempfile::TempDir::new().unwrap();
    let folder = global.folder.path().to_owned();
    let copy_back = |backup: &Path| {
        database(&folder, |file| fs::remove_file(file).unwrap());
        database(backup, |file| copy(file, &folder));
    };
    database(&folder, |file| copy(file, backup.path()));
    global.start_again().await;
    for n in 0..5 {
        global.apply(&LATE.replace("late", &format!("late-{n}")));
    }
    has(zone, "late-4").await;
    // How far that was is remembered within a second.
    eventually("the zone has answered for all of it", || async {
        let sync = global.try_get("/sync").await?;
        if sync["zones"][0]["down"]["lag"] == 0 { Ok(()) } else { Err(sync.to_string()) }
    })
    .await;
    assert!(global.process.stop().await.success());
    copy_back(backup.path());
    global.start_again().await;
    assert!(holds_back(zone).await.contains("went back"));
    is_known_to_hold_back(&global, "zone-1").await;
    let out = global.straitctl(&["global", "recover", "--yes"]);
    assert!(out.contains("MeshTimeout default/late-4 created"), "{out}");
    follows(zone).await;
    let metrics = global.metrics().await;
    let sent = metrics.lines().filter(|line| {
        line.starts_with("kds_delta_resources_sent") && line.contains("MeshTimeout") && !line.ends_with(" 0")
    });
    assert_eq!(sent.count(), 0, "policies were sent again: {metrics}");

    // Once more, and this time what was written since is given up.
    assert!(global.process.stop().await.success());
    copy_back(backup.path());
    global.start_again().await;
    holds_back(zone).await;
    is_known_to_hold_back(&global, "zone-1").await;
    let out = global.straitctl(&["epoch", "raise"]);
    // Which one depends on whether the zone had written down that it followed the one before.
    assert!(out.contains("zones are shown epoch "), "{out}");
    follows(zone).await;
    eventually("the zone has what the backup has", || async move {
        let names = named(zone.try_get("/meshes/default/meshtimeouts").await).await?;
        if names.iter().any(|name| name.starts_with("late")) { Err(format!("{names:?}")) } else { Ok(()) }
    })
    .await;
    let (status, _) = global.call(Method::GET, "/strait/recovery?nonsense=1", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

/// Everything that can be applied on global comes back as it was on a fresh one.
#[tokio::test]
async fn an_import_on_a_fresh_global_reproduces_the_export() {
    let first = Global::start().await;
    first.apply(MESH);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = ["policies", "services", "identity", "nodes"].map(|folder| examples.join(folder));
    let files =
        files.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let mut applied = 0;
    for file in files.filter(|file| file.extension().is_some_and(|e| e == "yaml")) {
        // What only zones write is not for global.
        let (ok, _, err) = first.try_straitctl(&["apply", "-f", &file.display().to_string()]);
        applied += usize::from(ok);
        // One is the last step of several, and refused without the others.
        let is_last_step = err.contains("would break traffic: first add");
        let is_no_resource = err.contains("type: must be set");
        let is_known = is_last_step || is_no_resource || err.contains("owned by zones");
        assert!(ok || is_known, "{}: {err}", file.display());
    }
    assert!(applied > 20, "{applied} files were applied");
    let export = |of: &Global| of.straitctl(&["export", "--include-admin"]);
    let exported = export(&first);
    let plain = first.straitctl(&["export"]);
    let has_secrets = |text: &str| text.lines().any(|line| line == "type: Secret");
    assert!(has_secrets(&exported) && !has_secrets(&plain), "{plain}");

    let second = Global::start().await;
    let file = write(second.folder.path(), "export.yaml", &exported);
    second.straitctl(&["import", &file.display().to_string()]);
    // Those who are known there are known here: the token of its administrator is made anew.
    let again = eventually("the administrator is let in again", || async {
        let (ok, out, err) = second.try_straitctl(&["export", "--include-admin"]);
        if ok { Ok(out) } else { Err(err) }
    })
    .await;
    // Maps have no order, and each process writes them in one of its own.
    let parsed = |document: &str| {
        let value: std::collections::BTreeMap<String, serde_norway::Value> =
            serde_norway::from_str(document).unwrap();
        sorted(&serde_json::to_value(value).unwrap()).to_string()
    };
    let documents = |text: &str| -> std::collections::BTreeSet<String> {
        text.split("---\n")
            .filter(|document| !document.trim().is_empty() && !document.contains("name: admin-user-token"))
            .map(parsed)
            .collect()
    };
    let (before, after) = (documents(&exported), documents(&again));
    let missing: Vec<_> = before.difference(&after).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The same with the members of all objects in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let sorted: std::collections::BTreeMap<_, _> =
                members.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            json!(sorted)
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}
