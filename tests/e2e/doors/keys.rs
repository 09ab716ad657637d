//! Making keys is dear: whoever asks for many of them waits, or is sent away, alone.

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use reqwest::{Client, StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Global, Options, Zone, eventually};

/// As many as made global unreachable for two minutes when keys were made where requests are served.
const FLOOD: usize = 60;
/// Far above what an answer takes on a busy machine in a debug build, far below what the flood took.
const PATIENCE: Duration = Duration::from_secs(30);

fn mesh(name: &str, conf: &Value) -> Value {
    json!({ "type": "Mesh", "name": name, "mtls": {
        "enabledBackend": "ca",
        "skipValidation": true,
        "backends": [{ "name": "ca", "type": "builtin", "conf": { "caCert": conf } }],
    } })
}

async fn put(client: &Client, global: &Global, name: &str, conf: &Value) -> (StatusCode, bool) {
    let url = global.url(&format!("/meshes/{name}"));
    let sent = client.put(url).json(&mesh(name, conf)).send().await.expect("every put is answered");
    (sent.status(), sent.headers().contains_key(RETRY_AFTER))
}

#[tokio::test]
async fn a_flood_of_meshes_with_long_keys_leaves_global_in_reach() {
    let global = Global::start().await;
    let _zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the zone is online", || async {
        let status = global.zone_status("zone-1").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
    let client = global.admin();
    let conf = json!({ "RSAbits": 4096 });
    let names: Vec<String> = (0..FLOOD).map(|n| format!("flood-{n}")).collect();
    let mut flood: FuturesUnordered<_> =
        names.iter().map(|name| put(&client, &global, name, &conf)).collect();

    let done = tokio::sync::Notify::new();
    let watch = async {
        let (mut slowest, mut asked) = (Duration::ZERO, 0);
        loop {
            let began = Instant::now();
            assert_eq!(global.zone_status("zone-1").await.as_deref(), Ok("online"), "during the flood");
            slowest = slowest.max(began.elapsed());
            asked += 1;
            if tokio::time::timeout(Duration::from_millis(20), done.notified()).await.is_ok() {
                return (slowest, asked);
            }
        }
    };
    let flood = async {
        let (mut made, mut refused) = (0, 0);
        // Then the queue was full and has moved on; whoever still waits hangs up.
        while made == 0 || refused < FLOOD / 2 {
            let (status, says_when) = flood.next().await.expect("half of them are refused");
            match status {
                StatusCode::CREATED => made += 1,
                StatusCode::SERVICE_UNAVAILABLE if says_when => refused += 1,
                other => panic!("{other}"),
            }
        }
        drop(flood);
        done.notify_one();
        (made, refused)
    };
    let ((made, refused), (slowest, asked)) = futures::join!(flood, watch);
    println!("{made} made, {refused} refused; of {asked} questions meanwhile the slowest took {slowest:?}");
    assert!(slowest < PATIENCE, "global was out of reach for {slowest:?}");

    // What was refused works when it is tried again.
    eventually("a mesh after the flood", || async {
        match put(&client, &global, "afterwards", &json!({})).await {
            (StatusCode::CREATED, _) => Ok(()),
            (status, _) => Err(status.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_asks_for_a_key_that_takes_for_ever() {
    let global = Global::start().await;
    let client = global.admin();
    for bits in [json!(0), json!(1024), json!(2049), json!(16384), json!(1e9), json!(-4096)] {
        let (status, _) = put(&client, &global, "endless", &json!({ "RSAbits": bits })).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bits}");
    }
}

#[tokio::test]
async fn an_authority_has_an_ecdsa_key_unless_the_mesh_says_otherwise() {
    let global = Global::start().await;
    let client = global.admin();
    for (name, conf, block) in
        [("plain", json!({}), "PRIVATE KEY"), ("rsa", json!({ "RSAbits": 2048 }), "RSA PRIVATE KEY")]
    {
        put(&client, &global, name, &conf).await;
        let secret = global.get(&format!("/meshes/{name}/secrets/{name}.ca-builtin-key-ca")).await;
        let data = secret["data"].as_str().unwrap_or_default();
        use base64::Engine;
        let pem = base64::prelude::BASE64_STANDARD.decode(data).expect("secrets are base64");
        let begin = format!("-----BEGIN {block}-----");
        assert!(pem.starts_with(begin.as_bytes()), "{name}: {block}");
    }
}
