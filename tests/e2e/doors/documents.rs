//! Documents nobody can read quickly: they keep nobody waiting, whoever sends them.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use futures::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::time::Instant;
use tonic::Code;

use super::{
    ads_peer::{join, meanwhile, node, refused, token},
    shapes,
};
use crate::harness::{Global, Options, Zone, eventually, wait::PATIENCE};

/// As long as a proxy may bring along.
const LONG: usize = 500 << 10;
/// For one answer on a machine that is also attacked by this test; before, one document took longer.
const BUDGET: Duration = Duration::from_secs(30);
/// Memory a flood may add, in MiB: bodies have 64, and the allocator keeps some.
const MEMORY: u64 = 200;
/// Bytes of log a refusal may take.
const LINE: usize = 2048;

const PROBE: &str = "
type: Dataplane
mesh: default
name: probe
networking:
  address: 127.0.0.1
  inbound:
    - { port: 80, servicePort: 8080, serviceAddress: 127.0.0.1, tags: { kuma.io/service: probe } }
";

struct Setting {
    _global: Global,
    zone: Zone,
    token: String,
}

async fn setting() -> Setting {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    zone.apply(PROBE);
    let token = token(&zone, &[]).await;
    join(&zone, node("default.probe", None), Some(&token)).await.expect("the probe is served");
    Setting { _global: global, zone, token }
}

/// The token with another signature.
fn forged(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    format!("{signed}.{}", signature.chars().rev().collect::<String>())
}

async fn bootstrap(zone: &Zone, body: serde_json::Value) -> (StatusCode, String) {
    let certificate = std::fs::read(zone.certificate()).unwrap();
    let certificate = reqwest::Certificate::from_pem(&certificate).unwrap();
    let client = Client::builder().tls_certs_only([certificate]).timeout(PATIENCE).build().unwrap();
    let url = format!("https://{}/bootstrap", zone.dp_server);
    let answer = client.post(url).json(&body).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_document_of_a_stranger_is_not_even_read() {
    let Setting { zone, token, .. } = &setting().await;
    let (memory, logged) = (zone.process.resident(), zone.process.log_bytes());
    let (bad, texts) = (&forged(token), shapes::of(LONG));
    let count = texts.len();
    let flood = async {
        for some in texts.chunks(8) {
            join_all(some.iter().map(|(_, text)| async move {
                let node = || node("default.web-1", Some(text));
                refused(zone, node(), None, Code::Unauthenticated, "must show a token").await;
                refused(zone, node(), Some(bad), Code::Unauthenticated, "not accepted").await;
                let body = json!({"name": "web-1", "dataplaneToken": bad, "dataplaneResource": text});
                let (status, said) = bootstrap(zone, body).await;
                // The same text in JSON may be longer than a request may be.
                assert!(
                    status == StatusCode::UNAUTHORIZED || status == StatusCode::PAYLOAD_TOO_LARGE,
                    "{said}"
                );
                let body = json!({"name": "web-1", "dataplaneTokenPath": "/t", "dataplaneResource": text});
                let (status, said) = bootstrap(zone, body).await;
                assert!(status.is_client_error() && said.len() <= 1024, "{status} {said}");
            }))
            .await;
        }
    };
    meanwhile(zone, token, BUDGET, flood).await;
    let (memory, logged) =
        (zone.process.resident().saturating_sub(memory) >> 20, zone.process.log_bytes() - logged);
    println!("{} documents of strangers: {memory} MiB, {logged} bytes of log", 4 * count);
    assert!(memory < MEMORY && logged < 4 * count * LINE, "{memory} MiB, {logged} bytes of log");
}

#[tokio::test]
async fn a_document_of_a_known_proxy_is_read_beside_everything_else() {
    let Setting { zone, token, .. } = &setting().await;
    let (memory, logged) = (zone.process.resident(), zone.process.log_bytes());
    let texts = shapes::of(LONG);
    let flood = async {
        for some in texts.chunks(8) {
            join_all(some.iter().map(|(_, text)| async move {
                let node = node("default.web-1", Some(text));
                // White space only is no resource, and such a proxy waits for one.
                if !text.trim().is_empty() {
                    refused(zone, node, Some(token), Code::InvalidArgument, "dataplane.resource").await;
                }
                let body = json!({"name": "web-1", "dataplaneToken": token, "dataplaneResource": text});
                let (status, said) = bootstrap(zone, body).await;
                assert!(status.is_client_error() && said.len() <= 1024, "{status} {said}");
            }))
            .await;
        }
    };
    meanwhile(zone, token, BUDGET, flood).await;
    let (memory, logged) =
        (zone.process.resident().saturating_sub(memory) >> 20, zone.process.log_bytes() - logged);
    println!("{} documents of a proxy: {memory} MiB, {logged} bytes of log", 2 * texts.len());
    assert!(memory < MEMORY && logged < 2 * texts.len() * LINE, "{memory} MiB, {logged} bytes of log");
}

#[tokio::test]
async fn a_body_that_is_hard_to_read_is_refused_with_a_reason() {
    let global = Global::start().await;
    let put = async |body: String| {
        let request = global.admin().put(global.url("/meshes/default/meshtimeouts/t"));
        let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    for (shape, text) in shapes::of(3 << 20) {
        let begin = Instant::now();
        let (status, said) = put(text).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{shape}: {said}");
        assert!(said.len() < 4096 && begin.elapsed() < BUDGET, "{shape}: {:?}", begin.elapsed());
    }
    for (body, says) in [
        (r#"{"type": "MeshTimeout", "name": "t", "name": "u"}"#.to_owned(), "duplicate key"),
        ("[".repeat(100), "nested deeper"),
        (format!("[{}0]", "0,".repeat(300_000)), "too many values"),
    ] {
        let (status, said) = put(body).await;
        assert!(status == StatusCode::BAD_REQUEST && said.contains(says), "{says}: {status} {said}");
    }
    // A name of a megabyte is not sent back.
    let name = "x".repeat(1 << 20);
    let body = json!({"type": "MeshTimeout", "name": name, "labels": {name.clone(): name}, "spec": {}});
    let (status, said) = put(body.to_string()).await;
    assert!(status == StatusCode::BAD_REQUEST && said.len() < 32 << 10, "{status}: {} bytes", said.len());
}

#[tokio::test]
async fn straitctl_is_not_stopped_by_a_file() {
    let global = Global::start().await;
    for (shape, text) in shapes::of(256 << 10) {
        let file = global.folder.path().join("hard.yaml");
        std::fs::write(&file, text).unwrap();
        let begin = Instant::now();
        let (ok, _, error) = global.try_straitctl(&["apply", "-f", &file.display().to_string()]);
        assert!(!ok && !error.contains("panicked"), "{shape}: {error}");
        assert!(begin.elapsed() < BUDGET, "{shape}: {:?}", begin.elapsed());
    }
    let endless = Command::new(env!("CARGO_BIN_EXE_straitctl"))
        .args(["--address", &global.url(""), "apply", "-f", "/dev/zero"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&endless.stderr).into_owned();
    assert!(!endless.status.success() && error.contains("longer than"), "{error}");
}
