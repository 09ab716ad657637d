//! Input that is wrong gets an answer that says what to do; nothing is lost, and no process dies.

use std::{net::TcpListener, path::Path, process::Command};

use reqwest::{Client, Method, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Global, Options, Zone, addresses, control_plane::write, eventually, process::Process};

#[tokio::test]
async fn rest_answers_bad_requests_and_lives() {
    let mut global = Global::start().await;
    let policy = "/meshes/default/meshtimeouts/t";
    let good = json!({"type": "MeshTimeout", "mesh": "default", "name": "t",
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}});
    let put = async |path: &str, body: serde_json::Value| global.call(Method::PUT, path, Some(body)).await;

    let mut wrong_spec = good.clone();
    wrong_spec["spec"]["to"][0]["default"]["connectionTimeout"] = json!("soon");
    let (status, answer) = put(policy, wrong_spec).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let field = answer["invalid_parameters"][0]["field"].as_str().unwrap_or_default();
    assert!(field.starts_with("spec.to"), "{answer}");

    let mut wrong_mesh = good.clone();
    wrong_mesh["mesh"] = json!("other");
    assert_eq!(put(policy, wrong_mesh).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(put("/meshes/nowhere/meshtimeouts/t", good.clone()).await.0, StatusCode::NOT_FOUND);
    let mut wrong_name = good.clone();
    wrong_name["name"] = json!("Not_A_Name");
    assert_eq!(put("/meshes/default/meshtimeouts/Not_A_Name", wrong_name).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(put("/meshes/default/dataplanes/d", json!({})).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(put("/meshes/default/nonsense/n", json!({})).await.0, StatusCode::NOT_FOUND);

    let raw = |body: String, content_type: &str| {
        let request = Client::new().put(global.url(policy)).header("content-type", content_type);
        async move { request.body(body).send().await.unwrap().status() }
    };
    assert_eq!(raw("{\"type\": ".into(), "application/json").await, StatusCode::BAD_REQUEST);
    assert_eq!(raw("type: x".into(), "text/yaml").await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let huge = format!("{{\"type\": \"{}\"}}", "x".repeat(64 << 20));
    assert_eq!(raw(huge, "application/json").await, StatusCode::PAYLOAD_TOO_LARGE);

    assert_eq!(put(policy, good).await.0, StatusCode::CREATED);
    assert!(global.process.runs());
}

#[tokio::test]
async fn straitctl_says_what_is_wrong_before_it_sends_anything() {
    let global = Global::start().await;
    let folder = global.folder.path();
    let refused = |name: &str, text: &str, says: &str| {
        let file = write(folder, name, text).display().to_string();
        let (ok, _, err) = global.try_straitctl(&["apply", "-f", &file]);
        assert!(!ok && err.to_lowercase().contains(says), "{name}: {err}");
    };
    let good = "type: Mesh\nname: good\n---\n";
    refused("broken.yaml", &format!("{good}type: [Mesh\n"), "broken.yaml");
    refused("kind.yaml", &format!("{good}type: MeshNonsense\nname: x\n"), "meshnonsense");
    refused(
        "spec.yaml",
        &format!("{good}type: MeshTimeout\nname: x\nmesh: default\nspec: {{ to: 7 }}\n"),
        "spec.to",
    );
    let (ok, _, err) = global.try_straitctl(&["apply", "-f", "/nowhere.yaml"]);
    assert!(!ok && err.contains("/nowhere.yaml"), "{err}");
    // The good document before each bad one was not sent.
    let (status, _) = global.call(Method::GET, "/meshes/good", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let nobody = Command::new(env!("CARGO_BIN_EXE_straitctl"))
        .args(["--address", "http://127.0.0.1:1", "get", "meshes"])
        .env("HOME", folder)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(!nobody.status.success() && err.contains("127.0.0.1:1"), "{err}");
}

#[tokio::test]
async fn a_zone_with_a_wrong_token_or_another_name_stays_out() {
    let global = Global::start().await;
    let other = global.straitctl(&["generate", "zone-token", "--zone", "zone-2", "--scope", "cp"]);
    let ingress = global.straitctl(&["generate", "zone-token", "--zone", "zone-1", "--scope", "ingress"]);
    for (token, what) in
        [("garbage", "garbage"), (other.trim(), "another zone's"), (ingress.trim(), "an ingress'")]
    {
        let mut zone = Zone::start_with_token(&global, "zone-1", token, Options::default()).await;
        eventually(&format!("{what} token is refused in the log"), || {
            let log = zone.process.log().to_lowercase();
            async move { if log.contains("token") { Ok(()) } else { Err(log) } }
        })
        .await;
        assert!(zone.process.runs(), "a refused zone goes on serving");
        let (status, _) = global.call(Method::GET, "/zones/zone-1", None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{what} token registers nothing");
    }
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let address = addresses::loopback();
    let taken = TcpListener::bind((address, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let interface = address.to_string();
    let global = env!("CARGO_BIN_EXE_strait-global");
    let zone = env!("CARGO_BIN_EXE_strait-zone");
    for (program, interface_flag, setting) in [
        (global, "apiServer.http.interface", "apiServer.http.port"),
        (global, "diagnostics.interface", "diagnostics.serverPort"),
        (global, "multizone.global.kds.interface", "multizone.global.kds.grpcPort"),
        (zone, "dpServer.interface", "dpServer.port"),
    ] {
        let folder = TempDir::new().unwrap();
        let settings = [
            ("general.workDir", folder.path().to_str().unwrap()),
            ("apiServer.http.port", "0"),
            ("apiServer.https.enabled", "false"),
            ("diagnostics.serverPort", "0"),
            (interface_flag, interface.as_str()),
        ];
        // The last one of a name would be refused as a second one, so the port in question replaces its default.
        let mut args: Vec<String> = settings
            .iter()
            .filter(|(name, _)| *name != setting)
            .flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()])
            .collect();
        args.extend([format!("--{setting}"), port.clone()]);
        let mut process = Process::start(setting, program.as_ref(), &args);
        assert!(!process.ended().await.success());
        let log = process.log();
        assert!(log.contains(&format!("{interface}:{port}")) && log.contains(setting), "{log}");
        assert!(log.contains("choose another port"), "it says what to do: {log}");
    }
}

/// Starts a global on `folder`, which must not work, and gives its log.
async fn refused_to_start_on(folder: &Path) -> String {
    let work_dir = folder.display().to_string();
    let args =
        ["--general.workDir", &work_dir, "--apiServer.http.port", "0", "--diagnostics.serverPort", "0"];
    let mut process = Process::start("global", env!("CARGO_BIN_EXE_strait-global").as_ref(), args);
    assert!(!process.ended().await.success());
    process.log()
}

#[tokio::test]
async fn a_foreign_or_unreadable_database_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("strait.db");
    let diary = b"this is no database, but somebody's diary";
    std::fs::write(&database, diary).unwrap();
    let log = refused_to_start_on(folder.path()).await;
    assert!(log.contains("strait.db"), "{log}");
    assert_eq!(std::fs::read(&database).unwrap(), diary, "the file is untouched");

    // A folder stands for what even an administrator cannot read as a file.
    std::fs::remove_file(&database).unwrap();
    std::fs::create_dir(&database).unwrap();
    let log = refused_to_start_on(folder.path()).await;
    assert!(log.contains("strait.db"), "{log}");
}

#[tokio::test]
async fn a_second_process_on_one_database_is_refused() {
    let global = Global::start().await;
    let log = refused_to_start_on(global.folder.path()).await;
    assert!(log.contains("strait.db"), "{log}");
    global.get("/meshes/default").await;
}

#[tokio::test]
async fn a_setting_that_does_not_exist_is_named() {
    let folder = TempDir::new().unwrap();
    let file =
        write(folder.path(), "config.yaml", "apiServer: { htttp: { port: 1 } }\n").display().to_string();
    let mut process = Process::start(
        "global",
        env!("CARGO_BIN_EXE_strait-global").as_ref(),
        ["--config-file", file.as_str()],
    );
    assert!(!process.ended().await.success());
    assert!(process.log().contains("htttp"), "{}", process.log());
}
