//! What an operator takes back: changes, and a whole control plane from a backup; and who asked for what.

use std::process::Command;

use common::testing::postgres::Cluster;
use serde_json::Value;

use crate::{
    harness::{ControlPlane, Global, Options, Zone, eventually, http},
    postgres::on,
};

fn timeout(seconds: u32) -> String {
    format!(
        "type: MeshTimeout\nmesh: default\nname: quick\nspec: {{ to: [{{ targetRef: {{ kind: Mesh }}, \
         default: {{ connectionTimeout: {seconds}s }} }}] }}\n"
    )
}

/// Waits until the zone has this of it, or nothing.
async fn zone_has(zone: &Zone, expected: Option<&str>) {
    eventually("the zone follows", || async {
        let list = zone.try_get("/meshes/default/meshtimeouts?size=1000").await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let quick = items
            .into_iter()
            .find(|item| item["name"] == "quick" || item["labels"]["kuma.io/display-name"] == "quick");
        let is = quick.map(|item| item["spec"]["to"][0]["default"]["connectionTimeout"].clone());
        if is == expected.map(Value::from) { Ok(()) } else { Err(format!("{is:?}")) }
    })
    .await;
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Revisions of the timeout, the newest first.
fn revisions(global: &ControlPlane) -> Vec<u64> {
    let history = json(&global.straitctl(&["history", "meshtimeout", "quick", "-o", "json"]));
    history["items"].as_array().unwrap().iter().map(|item| item["revision"].as_u64().unwrap()).collect()
}

async fn changes_are_taken_back(options: Options) {
    let folder = tempfile::TempDir::new().unwrap();
    let audit = folder.path().join("audit.log");
    let options = options.with("apiServer.audit.file", &audit.display().to_string());
    let global = Global::start_with(options).await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    for seconds in [1, 2, 3] {
        global.apply(&timeout(seconds));
    }
    zone_has(&zone, Some("3s")).await;
    let told = revisions(&global);
    assert_eq!(told.len(), 3, "{told:?}");
    let [third, second, first] = [told[0], told[1], told[2]].map(|revision| revision.to_string());

    let table = global.straitctl(&["history", "meshtimeout", "quick"]);
    assert!(table.contains("user mesh-system:admin") && table.contains("create"), "{table}");
    let old = global.straitctl(&["get", "meshtimeout", "quick", "--revision", &first, "-o", "yaml"]);
    assert!(old.contains("connectionTimeout: 1s"), "{old}");
    let diff = global.straitctl(&["diff", "meshtimeout", "quick", "--from", &first, "--to", &second]);
    assert!(diff.contains("connectionTimeout: 1s") && diff.contains("connectionTimeout: 2s"), "{diff}");
    let diff = global.straitctl(&["diff", "meshtimeout", "quick", "--from", &second]);
    assert!(diff.contains("+++ now"), "{diff}");

    // Shown, and only then done.
    let shown = global.straitctl(&["undo", "--revision", &third]);
    assert!(shown.contains("update MeshTimeout default/quick"), "{shown}");
    assert_eq!(revisions(&global).len(), 3);
    let (ok, _, refused) = global.try_straitctl(&["undo", "--revision", &second, "--yes"]);
    assert!(!ok && refused.contains("was changed again"), "{refused}");
    global.straitctl(&["undo", "--revision", &third, "--yes", "--wait"]);
    zone_has(&zone, Some("2s")).await;
    global.straitctl(&["delete", "meshtimeout", "quick"]);
    zone_has(&zone, None).await;
    global.straitctl(&["undo", "--since", &second, "--yes"]);
    zone_has(&zone, Some("2s")).await;

    // The zone knows who wrote it, and has no part in it.
    let there = zone.get("/history?kind=MeshTimeout&author=global").await;
    assert!(there["items"].as_array().is_some_and(|items| !items.is_empty()), "{there}");

    let (status, _) = global.call(reqwest::Method::GET, "/globalsecrets", None).await;
    assert!(status.is_success());
    let anonymous = reqwest::get(global.url("/audit")).await.unwrap();
    assert_eq!(anonymous.status(), 403);
    let done =
        json(&global.straitctl(&["audit", "--kind", "meshtimeout", "--outcome", "done", "-o", "json"]));
    let deletes = done["items"].as_array().unwrap().iter().filter(|item| item["method"] == "DELETE");
    let deletes: Vec<_> = deletes.collect();
    assert_eq!(deletes.len(), 1, "{done}");
    assert!(deletes[0]["revision"].is_number() && deletes[0]["user"] == "mesh-system:admin", "{done}");
    let refused = global.straitctl(&["audit", "--outcome", "refused"]);
    assert!(refused.contains("/audit") && refused.contains("mesh-system:anonymous"), "{refused}");
    eventually("the file has it", || async {
        let text = std::fs::read_to_string(&audit).unwrap_or_default();
        let is_entry =
            |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|entry| entry["at"].is_string());
        let has = |part: &str| text.lines().any(|line| line.contains(part) && is_entry(line));
        if has("\"/globalsecrets\"") && has("/history/undo") { Ok(()) } else { Err(text.clone()) }
    })
    .await;
}

#[tokio::test]
async fn changes_are_taken_back_on_sqlite() {
    changes_are_taken_back(Options::default()).await;
}

#[tokio::test]
async fn changes_are_taken_back_on_postgres() {
    let cluster = Cluster::start().await.unwrap();
    changes_are_taken_back(on(&cluster, "global")).await;
}

/// Runs the program of `cp` with its settings; gives success and everything it said.
fn restore(cp: &ControlPlane, words: &[&str]) -> (bool, String) {
    let (program, settings) = cp.command();
    let output = Command::new(program).arg("restore").args(words).args(settings).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

async fn a_control_plane_is_restored(options: Options) {
    let mut global = Global::start_with(options).await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    global.apply(&timeout(1));
    zone_has(&zone, Some("1s")).await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("backup.jsonl").display().to_string();
    let said = global.straitctl(&["backup", &file]);
    assert!(said.contains("resources at revision"), "{said}");
    let (ok, _, error) = global.try_straitctl(&["backup", &file]);
    assert!(!ok && error.contains(&file), "{error}");
    let anonymous = reqwest::get(global.url("/strait/backup")).await.unwrap();
    assert_eq!(anonymous.status(), 403);

    global.apply(&timeout(9));
    zone_has(&zone, Some("9s")).await;
    let token = global.admin_token();
    global.process.stop().await;
    let (ok, said) = restore(&global, &[&file]);
    assert!(!ok && said.contains("--replace"), "{said}");
    let (ok, said) = restore(&global, &[&file, "--replace"]);
    assert!(ok && said.contains("epoch 2"), "{said}");
    global.start_again().await;
    let shown = global.get("/meshes/default/meshtimeouts/quick").await;
    assert_eq!(shown["spec"]["to"][0]["default"]["connectionTimeout"], "1s");
    // Nobody has to be asked: the zone follows, and what was signed before is believed.
    zone_has(&zone, Some("1s")).await;
    let who = http::client().get(global.url("/who-am-i")).bearer_auth(token).send().await.unwrap();
    assert!(who.status().is_success());
    global.apply(&timeout(5));
    zone_has(&zone, Some("5s")).await;
    assert_eq!(revisions(&global).len(), 1, "the history begins anew");

    std::fs::write(&file, "{}\n").unwrap();
    global.process.stop().await;
    let (ok, said) = restore(&global, &[&file, "--replace"]);
    assert!(!ok && said.contains("line 1 of the backup"), "{said}");
    global.start_again().await;
    zone_has(&zone, Some("5s")).await;
}

#[tokio::test]
async fn a_control_plane_is_restored_on_sqlite() {
    a_control_plane_is_restored(Options::default()).await;
}

#[tokio::test]
async fn a_control_plane_is_restored_on_postgres() {
    let cluster = Cluster::start().await.unwrap();
    a_control_plane_is_restored(on(&cluster, "global")).await;
}

const ROLES: &str = "
type: AccessRole
name: timeouts
spec: { rules: [{ verbs: [put], kinds: [MeshTimeout], names: [other] }] }
---
type: AccessRoleBinding
name: devs
spec: { subjects: [{ type: Group, name: devs }], roles: [timeouts] }
";

#[tokio::test]
async fn roles_say_who_writes_and_straitctl_says_what_they_say() {
    let global = Global::start().await;
    let token = global.straitctl(&[
        "generate",
        "user-token",
        "--name",
        "ann",
        "--group",
        "devs",
        "--valid-for",
        "1h",
    ]);
    let token = token.trim();
    let may = |name: &str| {
        let (ok, said, why) =
            global.try_straitctl(&["--token", token, "auth", "can-i", "put", "meshtimeout", name]);
        assert_eq!(said.trim(), if ok { "yes" } else { "no" }, "{why}");
        ok
    };
    let whoami = global.straitctl(&["--token", token, "auth", "whoami"]);
    assert_eq!(whoami, "ann (devs, mesh-system:authenticated)\n");
    assert!(may("quick"));
    global.apply(ROLES);
    assert!(!may("quick") && may("other"));
    let file = global.folder.path().join("quick.yaml");
    std::fs::write(&file, timeout(1)).unwrap();
    let file = file.display().to_string();
    let (ok, _, refused) = global.try_straitctl(&["--token", token, "apply", "-f", &file]);
    assert!(!ok && refused.contains("an AccessRole must allow it"), "{refused}");
    global.straitctl(&["apply", "-f", &file]);
    global.straitctl(&["auth", "can-i", "put", "meshtimeout", "other", "--as", "bob", "--as-groups", "devs"]);
    let (ok, _, why) = global.try_straitctl(&["auth", "can-i", "generate-zone-token", "--as", "bob"]);
    assert!(!ok && why.contains("generate a zone token"), "{why}");
}
