//! The real `straitctl` against the API on a socket.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use common::{
    config::DataplaneDefaults,
    defaults::{MeshDefaults, ensure_defaults},
    mode::Mode,
    rest::{ApiConfig, Health, Progress, ZoneStatus, ZoneStatusSource, standard_admissions},
    runtime::http::{HttpLimits, serve},
    store::index::Index,
    testing::api::TestApi,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

struct Zones;

impl ZoneStatusSource for Zones {
    fn zone_status(&self, zone: &str, _: &Index) -> Option<ZoneStatus> {
        let status = if zone == "east" { Health::Online } else { Health::Offline };
        let down = Progress { head: 12, acked: 10, lag: 2 };
        let version = "0.1.0".to_owned();
        Some(ZoneStatus { status, version, down, dataplanes: 3, ..ZoneStatus::default() })
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

impl Global {
    async fn start(documents: &[Value]) -> Self {
        let mode = Mode::Global;
        let zones: Arc<dyn ZoneStatusSource> = Arc::new(Zones);
        let mut admissions = standard_admissions(false, Some(Arc::clone(&zones)));
        admissions.push(Arc::new(MeshDefaults));
        let config = ApiConfig { admissions, zone_status: Some(zones), ..ApiConfig::new(mode.clone()) };
        let api = TestApi::start(config, documents).await.expect("the API starts");
        let options = DataplaneDefaults::default();
        ensure_defaults(&api.store, &api.index, &api.env, &mode, &options).await.expect("defaults are made");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, None, api.router(), HttpLimits::default(), stop.clone()));
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_straitctl"));
    command.args(args).env("HOME", home);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("the task ends");
    let Output { status, stdout, stderr } = output.expect("straitctl runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { ok: status.success(), out: text(stdout), err: text(stderr) }
}

#[tokio::test]
async fn documents_are_applied_shown_and_deleted() {
    let global = Global::start(&[]).await;
    let file = global.file(
        "both.yaml",
        "type: MeshTrace\nname: {{ name }}\nmesh: shop\nspec:\n  targetRef: {kind: Mesh}\n---\ntype: Mesh\nname: shop\n",
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
async fn many_documents_are_all_applied() {
    let global = Global::start(&[]).await;
    let documents =
        (0..250).map(|i| format!("type: MeshTrace\nname: r{i}\nspec:\n  targetRef: {{kind: Mesh}}\n"));
    let file = global.file("many.yaml", &documents.collect::<Vec<_>>().join("---\n"));
    global.good(&["apply", "-f", &file]).await;
    let table = global.good(&["get", "meshtraces"]).await;
    assert_eq!(table.lines().count(), 1 + 250, "a heading and the new ones");
}

#[tokio::test]
async fn mistakes_are_explained() {
    let global = Global::start(&[]).await;
    let good = "type: Mesh\nname: good\n---\n";
    let file = global.file("bad.yaml", &format!("{good}type: MeshTimeout\nname: t\nspec: {{to: 7}}\n"));
    global.bad(&["apply", "-f", &file], &["bad.yaml", "document 2", "spec.to"]).await;
    global.bad(&["get", "mesh", "good"], &["there is no Mesh good"]).await;
    global.bad(&["apply", "-f", "/nowhere.yaml"], &["/nowhere.yaml"]).await;
    global.bad(&["get", "meshtimeoutz"], &["did you mean meshtimeout"]).await;
    let zone = "type: Dataplane\nname: d\nnetworking:\n  address: 10.0.0.1\n  inbound:\n  - port: 80\n    \
                tags: {kuma.io/service: web}\n";
    let file = global.file("dataplane.yaml", zone);
    global.bad(&["apply", "-f", &file], &["Dataplane default/d", "apply it on the zone"]).await;
    global.bad(&["link"], &["follows no global", "--address"]).await;
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
    assert_eq!(east, ["east", "online", "-", "0.1.0", "10", "2", "0", "0", "3"], "{table}");
    assert!(table.contains("offline"), "{table}");
    assert_eq!(global.good(&["wait", "zones", "--online", "1"]).await, "online: east\n");
    global.bad(&["wait", "zones", "--online", "2", "--timeout", "1s"], &["1 of 2", "west is offline"]).await;
    global.good(&["wait", "resource", "mesh", "default"]).await;
    assert!(global.good(&["inspect", "meshes"]).await.contains("default"));
}

#[tokio::test]
async fn tokens_are_made_and_control_planes_remembered() {
    let global = Global::start(&[]).await;
    let token = global.good(&["generate", "zone-token", "--zone", "east", "--scope", "cp"]).await;
    assert_eq!(token.split('.').count(), 3, "{token}");
    global.good(&["generate", "dataplane-token", "--name", "d", "--tag", "kuma.io/service=web"]).await;
    global.good(&["generate", "user-token", "--name", "ann", "--valid-for", "1h"]).await;
    global.bad(&["generate", "zone-token", "--scope", "nonsense"], &["scope: must be"]).await;

    let out = global.good(&["config", "control-planes", "add", "--name", "here"]).await;
    assert_eq!(out, "added here and using it\n");
    let list = run(
        global.folder.path().to_owned(),
        ["config", "control-planes", "list"].map(str::to_owned).to_vec(),
    );
    assert!(list.await.out.contains(&global.address.to_string()));
    let meshes = run(global.folder.path().to_owned(), ["get", "meshes"].map(str::to_owned).to_vec()).await;
    assert!(meshes.ok && meshes.out.contains("default"), "{}", meshes.err);
}
