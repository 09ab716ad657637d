//! Clients that send a write and hang up at once: what is in the store is in the audit log, and nothing is left in between.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::harness::{Global, Options, control_plane::ControlPlane, eventually};

/// Writes of each kind, each hung up on a little later than the one before.
const WRITES: u32 = 60;
const STEP: Duration = Duration::from_micros(30);

fn policy(name: &str) -> String {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": {
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] } })
    .to_string()
}

fn path(name: &str) -> String {
    format!("/meshes/default/meshtimeouts/{name}")
}

/// Sends all of a request with HTTP/1.1 and resets the connection after `pause`.
async fn reset(cp: &ControlPlane, method: &Method, path: &str, body: &str, pause: Duration) {
    let mut client = TcpStream::connect(cp.api).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        cp.api,
        cp.admin_token().trim(),
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    sleep(pause).await;
    client.set_zero_linger().unwrap();
}

/// Sends a `PUT` with HTTP/2 and resets its stream after `pause`.
async fn cancel(cp: &ControlPlane, path: &str, body: String, pause: Duration) {
    let io = TcpStream::connect(cp.api).await.unwrap();
    let (client, connection) = h2::client::handshake(io).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::put(format!("http://{}{path}", cp.api))
        .header("authorization", format!("Bearer {}", cp.admin_token().trim()))
        .header("content-type", "application/json")
        .body(())
        .unwrap();
    let (answer, mut stream) = client.send_request(request, false).unwrap();
    stream.send_data(Bytes::from(body), true).unwrap();
    let _answered_before = timeout(pause, answer).await;
    stream.send_reset(h2::Reason::CANCEL);
    // The connection stays for a moment, so that it is the stream that ends.
    let _still_open = client.ready().await;
    driver.abort();
}

/// What was done of this method and path, as it was taken down.
async fn done(cp: &ControlPlane, method: &str) -> Result<Vec<String>, String> {
    let taken_down = cp.try_get("/audit?size=10000&outcome=done").await?;
    let entries = taken_down["items"].as_array().unwrap().iter().filter(|entry| entry["method"] == method);
    Ok(entries.map(|entry| entry["path"].as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn what_is_written_is_taken_down_though_its_client_hung_up() {
    let global = Global::start().await;
    for n in 0..WRITES {
        let (one, two) = (format!("reset-{n}"), format!("cancelled-{n}"));
        reset(&global, &Method::PUT, &path(&one), &policy(&one), STEP * n).await;
        cancel(&global, &path(&two), policy(&two), STEP * n).await;
    }
    let cp = &global.cp;
    let stored = eventually("all that is written in the audit log", || async move {
        let list = cp.try_get("/meshes/default/meshtimeouts?size=1000").await?;
        let names = list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap());
        let hung_up = names.filter(|name| name.starts_with("reset-") || name.starts_with("cancelled-"));
        let stored: BTreeSet<String> = hung_up.map(path).collect();
        let known: BTreeSet<String> = done(cp, "PUT").await?.into_iter().collect();
        let missing: Vec<_> = stored.difference(&known).collect();
        let early = !stored.contains(&path(&format!("reset-{}", WRITES - 1)));
        if missing.is_empty() && !early { Ok(stored) } else { Err(format!("{missing:?}")) }
    })
    .await;
    // Each came whole before the reset, so most were read.
    assert!(stored.len() > 10, "{} of {} were written", stored.len(), 2 * WRITES);
    let metrics = global.metrics().await;
    let counted = metrics.lines().filter(|line| {
        line.starts_with("api_server_http_request_duration_seconds_count{")
            && line.contains("meshtimeouts")
            && line.contains("code=\"201\"")
    });
    let counted: usize = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
    assert!(counted >= stored.len(), "{counted} counted, {} stored", stored.len());
}

#[tokio::test]
async fn an_epoch_is_raised_as_a_whole_or_not_at_all() {
    let folder = tempfile::TempDir::new().unwrap();
    let audit = folder.path().join("audit.log");
    let options = Options::default().with("apiServer.audit.file", &audit.display().to_string());
    let mut global = Global::start_with(options).await;
    let epoch = |shown: &Value| shown["epoch"].as_u64().unwrap();
    let before = epoch(&global.get("/strait/epoch").await);
    for n in 0..WRITES {
        reset(&global, &Method::POST, "/strait/epoch", "", STEP * n).await;
    }
    let cp = &global.cp;
    eventually("an epoch that was raised", || async move {
        let raised = epoch(&cp.try_get("/strait/epoch").await?) > before;
        raised.then_some(()).ok_or_else(|| "none was".to_owned())
    })
    .await;
    // A stop waits for what has begun, and the file has it then.
    assert!(global.process.stop().await.success());
    let file = std::fs::read_to_string(&audit).unwrap();
    let entries = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let raises = |entry: &Value| {
        entry["method"] == "POST" && entry["path"] == "/strait/epoch" && entry["outcome"] == "done"
    };
    let known = entries.filter(raises).count() as u64;
    global.start_again().await;
    let raised = epoch(&global.get("/strait/epoch").await) - before;
    assert_eq!(raised, known, "what is stored is what was taken down");
    assert!(raised > 0);
}
