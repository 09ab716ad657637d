//! The real `straitctl` against the API on a socket, and the files that call it.

mod alerts;
mod compose;
mod dashboards;
mod demo;
mod docs;
mod grpc;
mod promql;
mod references;

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use common::{
    config::DataplaneDefaults,
    defaults::{MeshDefaults, ensure_defaults},
    envoy_admin::{Ask, AskError, EnvoyAdmin},
    mode::Mode,
    model::{Resource, ResourceKey},
    rest::{ApiConfig, Sending, SyncProgress, ZoneHealth, ZoneStatus, ZoneStatusSource, standard_admissions},
    runtime::http::{Limits, Server},
    store::{Revision, index::Index},
    testing::api::TestApi,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};

struct Zones;

impl ZoneStatusSource for Zones {
    fn zone_status(&self, zone: &str, _: &Index) -> Option<ZoneStatus> {
        let status = if zone == "east" { ZoneHealth::Online } else { ZoneHealth::Offline };
        let down = SyncProgress { head: 12, acked: 10, lag: 2, ..SyncProgress::default() };
        let version = "0.1.0".to_owned();
        Some(ZoneStatus { status, version, down, dataplanes: 3, ..ZoneStatus::default() })
    }

    fn zone_progress(&self, zone: &str) -> ZoneStatus {
        // The zone in the east is as fast as one can be.
        let acked = if zone == "east" { Revision::MAX } else { 1 };
        let status = if zone == "east" { ZoneHealth::Online } else { ZoneHealth::Offline };
        ZoneStatus {
            status,
            down: SyncProgress { head: 12, acked, lag: 2, ..SyncProgress::default() },
            ..ZoneStatus::default()
        }
    }

    fn has_missed(&self, _: &str, _: Revision, _: Revision, _: &Index) -> bool {
        true
    }

    fn sending(&self, _: &str, _: &Resource, _: &Index) -> Sending {
        Sending::Sent
    }

    fn progressed(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }
}

/// A global with its defaults, and a folder for files.
struct Global {
    address: SocketAddr,
    folder: TempDir,
    _api: TestApi,
    _stop: DropGuard,
}

/// What a run of straitctl left.
struct Ran {
    ok: bool,
    out: String,
    err: String,
}

/// Envoys that repeat the question.
struct Echoing;

#[async_trait::async_trait]
impl EnvoyAdmin for Echoing {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<bytes::Bytes, AskError> {
        let answer = format!("{proxy} {}", ask.path());
        Ok(if ask.is_json() { json!(answer).to_string().into() } else { format!("{answer}\n").into() })
    }
}

impl Global {
    async fn start(documents: &[Value]) -> Self {
        let mode = Mode::Global;
        let zones: Arc<dyn ZoneStatusSource> = Arc::new(Zones);
        let mut admissions = standard_admissions(false, Some(Arc::clone(&zones)));
        admissions.push(Arc::new(MeshDefaults));
        let config = ApiConfig {
            admissions,
            zone_status: Some(zones),
            envoys: Some(Arc::new(Echoing)),
            ..ApiConfig::new(mode.clone())
        };
        let api = TestApi::start(config, documents).await.expect("the API starts");
        let options = DataplaneDefaults::default();
        ensure_defaults(&api.store, &api.index, &api.env, &mode, &options).await.expect("defaults are made");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stop = CancellationToken::new();
        tokio::spawn(Server::new("api", Limits::default()).serve(listener, api.router(), stop.clone()));
        let folder = TempDir::new().expect("a temporary folder");
        Self { address, folder, _api: api, _stop: stop.drop_guard() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        fs::write(&path, text).expect("the folder can be written");
        path.display().to_string()
    }

    async fn run(&self, args: &[&str]) -> Ran {
        let address = format!("http://{}", self.address);
        let mut all = vec!["--address".to_owned(), address];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        run(self.folder.path().to_owned(), all).await
    }

    async fn good(&self, args: &[&str]) -> String {
        let ran = self.run(args).await;
        assert!(ran.ok, "{args:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    /// Fails, and says all of `parts`.
    async fn bad(&self, args: &[&str], parts: &[&str]) {
        let ran = self.run(args).await;
        assert!(!ran.ok, "{args:?}: {}", ran.out);
        for part in parts {
            assert!(ran.err.contains(part), "{args:?}: {part:?} is not in {}", ran.err);
        }
    }
}

async fn run(home: PathBuf, args: Vec<String>) -> Ran {
    run_with_input(home, args, String::new()).await
}

async fn run_with_input(home: PathBuf, args: Vec<String>, input: String) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straitctl"));
    command.args(args).env("HOME", home);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let told = move || {
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        stdin.write_all(input.as_bytes())?;
        drop(stdin);
        child.wait_with_output()
    };
    let output = tokio::task::spawn_blocking(told).await.expect("the task ends");
    let Output { status, stdout, stderr } = output.expect("straitctl runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { ok: status.success(), out: text(stdout), err: text(stderr) }
}

#[tokio::test]
async fn documents_are_applied_shown_and_deleted() {
    let global = Global::start(&[]).await;
    let file = global.file(
        "both.yaml",
        "type: MeshTrace\nname: {{ name }}\nmesh: shop\nspec:\n  default: {backends: []}\n---\ntype: Mesh\nname: shop\n",
    );
    let out = global.good(&["apply", "-f", &file, "-v", "name=r1"]).await;
    assert_eq!(out, "Mesh shop created\nMeshTrace shop/r1 created\n");
    let out = global.good(&["apply", "-f", &file, "-v", "name=r1"]).await;
    assert!(out.contains("MeshTrace shop/r1 updated"), "{out}");

    let table = global.good(&["get", "mtr", "-m", "shop"]).await;
    assert!(table.starts_with("MESH") && table.contains("r1"), "{table}");
    let json = global.good(&["get", "meshtrace", "r1", "--mesh", "shop", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).expect("JSON is printed");
    assert_eq!(json["labels"]["kuma.io/mesh"], "shop");

    // What get prints, apply takes.
    let yaml = global.good(&["get", "meshtraces", "-m", "shop", "-o", "yaml"]).await;
    let again = global.file("again.yaml", &yaml);
    assert!(global.good(&["apply", "-f", &again]).await.contains("MeshTrace shop/r1 updated"));

    let served = format!("http://{}/meshes/shop/meshtraces/r1", global.address);
    assert!(global.good(&["apply", "-f", &served]).await.contains("MeshTrace shop/r1 updated"));

    let out = global.good(&["delete", "meshtraces", "r1", "-m", "shop"]).await;
    assert_eq!(out, "MeshTrace shop/r1 deleted\n");
    global.bad(&["delete", "meshtraces", "r1", "-m", "shop"], &["there is no MeshTrace shop/r1"]).await;
    global.bad(&["get", "meshtrace", "r1", "-m", "shop"], &["there is no MeshTrace", "lists"]).await;
}

#[tokio::test]
async fn a_folder_and_standard_input_are_applied_like_a_file() {
    let global = Global::start(&[]).await;
    let folder = global.folder.path().join("shop");
    fs::create_dir(&folder).expect("the folder can be written");
    let path = folder.display().to_string();
    global.bad(&["apply", "-f", &path], &["no .yaml, .yml or .json file in folder", &path]).await;
    fs::write(
        folder.join("1-trace.yaml"),
        "{type: MeshTrace, name: t, mesh: shop, spec: {default: {backends: []}}}",
    )
    .expect("a file");
    fs::write(folder.join("2-mesh.json"), r#"{"type": "Mesh", "name": "shop"}"#).expect("a file");
    fs::write(folder.join("README.md"), "not a resource").expect("a file");
    let out = global.good(&["apply", "-f", &path]).await;
    assert_eq!(out, "Mesh shop created\nMeshTrace shop/t created\n", "a mesh goes first");

    let args = |of: &[&str]| {
        let address = format!("http://{}", global.address);
        ["--address", &address].iter().chain(of).map(|arg| (*arg).to_owned()).collect::<Vec<_>>()
    };
    let home = || global.folder.path().to_owned();
    let two = "type: Mesh\nname: a\n---\ntype: Mesh\nname: b\n";
    let ran = run_with_input(home(), args(&["apply", "-f", "-"]), two.to_owned()).await;
    assert_eq!(ran.out, "Mesh a created\nMesh b created\n", "{}", ran.err);
    let ran = run_with_input(home(), args(&["apply", "-f", "-"]), "type: [".to_owned()).await;
    assert!(!ran.ok && ran.err.contains("standard input"), "{}", ran.err);
    let ran = run_with_input(home(), args(&["apply", "-f", "-"]), String::new()).await;
    assert!(!ran.ok && ran.err.contains("no document in standard input"), "{}", ran.err);
}

#[tokio::test]
async fn shells_and_man_know_every_command() {
    let global = Global::start(&[]).await;
    for shell in ["bash", "zsh", "fish"] {
        let script = global.good(&["completions", shell]).await;
        assert!(script.contains("straitctl") && script.contains("proxy-config"), "{shell}: {script}");
    }
    let folder = global.folder.path().join("man1");
    global.good(&["man", &folder.display().to_string()]).await;
    for page in ["straitctl.1", "straitctl-apply.1", "straitctl-inspect-zones.1"] {
        let text = fs::read_to_string(folder.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH"), "{page}: {text}");
    }
}

#[tokio::test]
async fn many_documents_are_all_applied() {
    let global = Global::start(&[]).await;
    let documents =
        (0..250).map(|i| format!("type: MeshTrace\nname: r{i}\nspec:\n  default: {{backends: []}}\n"));
    let file = global.file("many.yaml", &documents.collect::<Vec<_>>().join("---\n"));
    global.good(&["apply", "-f", &file]).await;
    let table = global.good(&["get", "meshtraces"]).await;
    assert_eq!(table.lines().count(), 1 + 250, "a heading and the new ones");
}

#[tokio::test]
async fn mistakes_are_explained() {
    let global = Global::start(&[]).await;
    let good = "type: Mesh\nname: good\n---\n";
    let placeholder = global.file("variable.yaml", "type: Zone\nname: {{ zone }}\n");
    global.bad(&["apply", "-f", &placeholder], &["variable zone has no value", "-v"]).await;
    let misspelt = "type: MeshTimeout\nname: t\nspec: {to: [{targetRef: {kind: Mesh}, default: {idleTimout: 1s, \
                    connectionTimeout: 1s}}]}\n";
    let ran = global.run(&["apply", "-f", &global.file("misspelt.yaml", misspelt)]).await;
    assert!(ran.ok && ran.err.contains("ignored spec.to[0].default.idleTimout"), "{}", ran.err);
    let file = global.file("bad.yaml", &format!("{good}type: MeshTimeout\nname: t\nspec: {{to: 7}}\n"));
    global.bad(&["apply", "-f", &file], &["bad.yaml", "document 2", "spec.to"]).await;
    global.bad(&["get", "mesh", "good"], &["there is no Mesh good"]).await;
    global.bad(&["apply", "-f", "/nowhere.yaml"], &["/nowhere.yaml"]).await;
    global.bad(&["get", "meshtimeoutz"], &["did you mean MeshTimeout"]).await;
    let zone = "type: Dataplane\nname: d\nnetworking:\n  address: 10.0.0.1\n  inbound:\n  - port: 80\n    \
                tags: {kuma.io/service: web}\n";
    let file = global.file("dataplane.yaml", zone);
    global.bad(&["apply", "-f", &file], &["Dataplane default/d", "apply it on the zone"]).await;
    global.bad(&["link"], &["follows no global", "--address"]).await;
    let clear = ["grpc-agent", "--cp-address", "http://zone.example:5678", "--token-file", &file];
    global.bad(&clear, &["zone.example in clear", "https://"]).await;
    let nobody = run(
        global.folder.path().to_owned(),
        ["--address", "http://127.0.0.1:1", "get", "meshes"].map(str::to_owned).to_vec(),
    );
    let nobody = nobody.await;
    assert!(
        !nobody.ok && nobody.err.contains("127.0.0.1:1") && nobody.err.contains("--address"),
        "{}",
        nobody.err
    );
}

#[tokio::test]
async fn zones_are_inspected_and_waited_for() {
    let zones = ["east", "west"].map(|name| json!({ "type": "Zone", "name": name }));
    let global = Global::start(&zones).await;
    let table = global.good(&["inspect", "zones"]).await;
    let east: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(east, ["east", "online", "-", "0.1.0", "10", "2", "0", "0", "3", "-", "-", "-"], "{table}");
    assert!(table.contains("offline"), "{table}");
    assert_eq!(global.good(&["wait", "zones", "--online", "1"]).await, "online: east\n");
    global.bad(&["wait", "zones", "--online", "2", "--timeout", "1s"], &["1 of 2", "west is offline"]).await;
    global.good(&["wait", "resource", "mesh", "default"]).await;
}

#[tokio::test]
async fn a_write_waits_for_the_zones_and_names_who_has_not_acknowledged() {
    let zone = |name: &str| json!({ "type": "Zone", "name": name });
    let global = Global::start(&[zone("east")]).await;
    let file = global.file("mesh.yaml", "{type: Mesh, name: shop}");
    let out = global.good(&["apply", "-f", &file, "--wait"]).await;
    assert_eq!(out, "Mesh shop created\neast: acknowledged\n");
    let west = global.file("west.yaml", "{type: Zone, name: west}");
    global.good(&["apply", "-f", &west]).await;
    let file = global.file("mesh.yaml", "{type: Mesh, name: other}");
    let waiting = ["apply", "-f", &file, "--wait=zones", "--timeout", "1s"];
    global
        .bad(
            &waiting,
            &["was stored, but not acknowledged by everybody within 1s", "west is offline, at revision 1"],
        )
        .await;
    global.bad(&["delete", "mesh", "other", "--wait", "--timeout", "0s"], &["west is offline"]).await;
    global.bad(&["wait", "revision", "1000000", "--timeout", "0s"], &["there is no revision 1000000"]).await;
    let out = global.good(&["inspect", "sync"]).await;
    assert!(out.starts_with("ZONE") && out.contains("DOWN ACKED") && out.contains("west"), "{out}");
}

#[tokio::test]
async fn everything_is_inspected_as_table_and_document() {
    let networking = json!({ "address": "10.0.0.1", "port": 10001 });
    let dataplane = json!({ "type": "Dataplane", "mesh": "shop", "name": "web-1",
        "labels": { "kuma.io/zone": "east" }, "networking": { "address": "10.0.0.2",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web", "version": "v1" } }] } });
    let insight = json!({ "type": "DataplaneInsight", "mesh": "shop", "name": "web-1",
        "subscriptions": [{ "id": "1", "connectTime": "2026-01-01T00:00:00Z" }] });
    let documents = [
        json!({ "type": "Mesh", "name": "shop" }),
        json!({ "type": "Zone", "name": "east" }),
        dataplane,
        insight,
        json!({ "type": "ZoneIngress", "name": "in-1", "zone": "east", "networking": networking }),
        json!({ "type": "ZoneEgress", "name": "out-1", "zone": "east", "networking": networking }),
    ];
    let global = Global::start(&documents).await;
    let row = async |args: &[&str], first: &str| {
        let table = global.good(args).await;
        for line in table.lines() {
            assert!(line.len() <= 120, "{args:?} is too wide: {line}");
        }
        let found = table.lines().find(|line| line.starts_with(first)).unwrap_or_default();
        let words: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
        assert!(!words.is_empty(), "{args:?}: {first} is not in {table}");
        words
    };
    assert_eq!(row(&["inspect", "zones", "east"], "east").await[1], "online");
    let web = row(&["inspect", "dataplanes", "-m", "shop"], "web-1").await;
    assert_eq!(web[1..4], ["online", "web", "east"]);
    assert_eq!(row(&["inspect", "dataplanes", "-A", "--tag", "version=v1"], "shop").await[1], "web-1");
    assert_eq!(row(&["inspect", "dataplane", "web-1", "-m", "shop"], "web-1").await, web);
    assert_eq!(global.good(&["inspect", "dataplanes", "-m", "shop", "--gateway"]).await, "");
    assert_eq!(row(&["inspect", "zoneingresses"], "in-1").await[1..4], ["offline", "east", "10.0.0.1:10001"]);
    assert_eq!(row(&["inspect", "zoneegresses"], "out-1").await[1..3], ["offline", "east"]);
    assert_eq!(row(&["inspect", "meshes"], "shop").await[2..6], ["1/1", "0", "0", "1"]);
    assert_eq!(row(&["inspect", "services", "-m", "shop"], "web").await[1..3], ["online", "1/1"]);
    let asked = global.good(&["inspect", "dataplane", "web-1", "-m", "shop", "--type", "config-dump"]).await;
    assert_eq!(asked, "\"Dataplane shop/web-1 /config_dump\"\n");
    let asked = global.good(&["inspect", "zoneingress", "in-1", "--type", "stats"]).await;
    assert_eq!(asked, "ZoneIngress in-1 /stats?usedonly\n");
    let asked = global.good(&["inspect", "zoneegress", "out-1", "--type", "clusters"]).await;
    assert_eq!(asked, "ZoneEgress out-1 /clusters\n");
    global.bad(&["inspect", "dataplane", "--type", "stats"], &["<NAME>"]).await;
    global.bad(&["inspect", "zone", "none"], &["there is no none in /zones"]).await;

    for what in ["zones", "dataplanes -m shop", "zoneingresses", "zoneegresses", "meshes", "services -m shop"]
    {
        let args: Vec<&str> = ["inspect"].into_iter().chain(what.split(' ')).collect();
        let text = global.good(&[&args[..], &["-o", "json"]].concat()).await;
        let list: Value = serde_json::from_str(&text).expect("JSON is printed");
        assert_eq!(list["total"], list["items"].as_array().expect("a list").len(), "{what}");
        assert!(global.good(&[&args[..], &["-o", "yaml"]].concat()).await.starts_with("total: "), "{what}");
    }
}

#[tokio::test]
async fn lists_are_filtered_and_cut() {
    let meshes: Vec<Value> = (0..5).map(|i| json!({ "type": "Mesh", "name": format!("m{i}") })).collect();
    let global = Global::start(&meshes).await;
    let names = async |args: &[&str]| {
        let table = global.good(args).await;
        let names =
            table.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(str::to_owned));
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&["get", "meshes", "--filter", "m"]).await.len(), 5);
    assert_eq!(names(&["get", "meshes", "--filter", "m", "--size", "2"]).await, ["m0", "m1"]);
    assert_eq!(
        names(&["get", "meshes", "--filter", "m", "--size", "2", "--offset", "3"]).await,
        ["m3", "m4"]
    );
    // Whatever is typed stays a name, and no part of the address.
    assert_eq!(names(&["get", "meshes", "--filter", "m&size=1"]).await, [""; 0]);
    global.bad(&["get", "mesh", "m1/../m2"], &["there is no Mesh m1/../m2"]).await;
    global.bad(&["get", "mesh", "m1?x"], &["there is no Mesh m1?x"]).await;
    global.bad(&["get", "meshes", "--size", "0"], &["Invalid page size", "size: must be greater"]).await;
    global.bad(&["get", "secrets", "-m", "none"], &["Failed to retrieve Mesh"]).await;
    let help = global.good(&["get", "--help"]).await;
    for part in ["meshtimeout (mt)", "mesh-insights", "Connection:"] {
        assert!(help.contains(part), "{help}");
    }
    let version = global.good(&["version"]).await;
    assert!(version.contains("strait-global") && version.contains("Kuma 2.14"), "{version}");
}

#[tokio::test]
async fn tokens_are_made_and_control_planes_remembered() {
    let global = Global::start(&[]).await;
    let token = global.good(&["generate", "zone-token", "--zone", "east", "--scope", "cp"]).await;
    assert_eq!(token.split('.').count(), 3, "{token}");
    global.good(&["generate", "dataplane-token", "--name", "d", "--tag", "kuma.io/service=web"]).await;
    global.good(&["generate", "user-token", "--name", "ann", "--valid-for", "1h"]).await;
    global.bad(&["generate", "zone-token", "--scope", "nonsense"], &["scope: must be"]).await;
    let key = global.good(&["generate", "signing-key"]).await;
    let secret = format!("type: GlobalSecret\nname: zone-token-signing-key-2\ndata: {key}\n");
    global.good(&["apply", "-f", &global.file("key.yaml", &secret)]).await;
    let newer = global.good(&["generate", "zone-token", "--zone", "east", "--scope", "cp"]).await;
    assert_ne!(newer.split('.').next(), token.split('.').next(), "another key has another id");
    let with_token = ["--name", "there", "--auth-type", "tokens", "--auth-conf", "token=abc", "--skip-check"];
    global.good(&[&["config", "control-planes", "add"][..], &with_token].concat()).await;
    let view = async |args: &[&str]| {
        let args = ["config", "view"].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        run(global.folder.path().to_owned(), args).await.out
    };
    let (shown, whole) = (view(&[]).await, view(&["--show-tokens"]).await);
    assert!(!shown.contains("abc") && shown.contains("authType: tokens"), "{shown}");
    assert!(whole.contains("token: abc"), "{whole}");

    let out = global.good(&["config", "control-planes", "add", "--name", "here"]).await;
    assert_eq!(out, "added here and using it\n");
    let list = run(
        global.folder.path().to_owned(),
        ["config", "control-planes", "list"].map(str::to_owned).to_vec(),
    );
    assert!(list.await.out.contains(&global.address.to_string()));
    for choose in [&["switch", "--name", "here"][..], &["use", "here"]] {
        let args: Vec<String> =
            ["config", "control-planes"].iter().chain(choose).map(|arg| (*arg).to_owned()).collect();
        assert_eq!(run(global.folder.path().to_owned(), args).await.out, "using here\n");
    }
    let meshes = run(global.folder.path().to_owned(), ["get", "meshes"].map(str::to_owned).to_vec()).await;
    assert!(meshes.ok && meshes.out.contains("default"), "{}", meshes.err);
}
