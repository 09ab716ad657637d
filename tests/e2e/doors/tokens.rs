//! Tokens of proxies are made on global alone, and checked in every zone.

use std::{collections::BTreeMap, path::Path};

use aws_lc_rs::hmac;
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use common::{
    runtime::Env,
    token::{self, DataplaneClaims, SigningKey},
};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tonic::Code;

use super::ads_peer::{join, node, refused};
use crate::harness::{Global, Options, Zone, control_plane::ControlPlane, eventually};

const KEY: &str = "dataplane-token-signing-key-default-1";
const PUBLIC_KEY: &str = "dataplane-token-signing-public-key-default-1";
const WEB: &str = "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, inbound: [{port: 80, \
                   tags: {kuma.io/service: web}}]}}";

/// What the secrets of the default mesh and of the control plane hold, as its administrator sees them.
async fn secrets(of: &ControlPlane) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for list in ["/meshes/default/secrets?size=1000", "/global-secrets?size=1000"] {
        let list = of.try_get(list).await?;
        for item in list["items"].as_array().ok_or("no items")? {
            let data = BASE64_STANDARD.decode(item["data"].as_str().unwrap_or_default());
            let data = String::from_utf8(data.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
            all.insert(item["name"].as_str().unwrap_or_default().to_owned(), data);
        }
    }
    Ok(all)
}

/// Waits until the zone holds its key for dataplane tokens in this form and in no other.
async fn holds(zone: &Zone, form: &str) -> BTreeMap<String, String> {
    eventually(&format!("{form} alone in the zone"), || async {
        let all = secrets(zone).await?;
        let keys: Vec<&String> = all.keys().filter(|name| name.starts_with("dataplane-token-")).collect();
        if keys == [form] { Ok(all.clone()) } else { Err(format!("{keys:?}")) }
    })
    .await
}

/// Whether any file below `folder` has these bytes.
fn is_on_disk(folder: &Path, bytes: &str) -> bool {
    let mut found = false;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found |= match path.is_dir() {
            true => is_on_disk(&path, bytes),
            false => {
                let content = std::fs::read(&path).unwrap_or_default();
                content.windows(bytes.len()).any(|window| window == bytes.as_bytes())
            }
        };
    }
    found
}

/// One line in the middle of a key.
fn line(pem: &str) -> &str {
    pem.lines().nth(2).expect("a key has lines")
}

async fn zone_with_web() -> (Global, Zone) {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    holds(&zone, PUBLIC_KEY).await;
    zone.apply(WEB);
    (global, zone)
}

fn claims() -> DataplaneClaims {
    DataplaneClaims { name: "web-1".to_owned(), mesh: "default".to_owned(), ..DataplaneClaims::default() }
}

#[tokio::test]
async fn a_stolen_zone_makes_no_token_for_a_proxy() {
    let (global, zone) = zone_with_web().await;
    let private = secrets(&global).await.unwrap().remove(KEY).expect("global has the key");
    let loot = secrets(&zone).await.unwrap();
    let public = &loot[PUBLIC_KEY];
    assert!(public.starts_with("-----BEGIN RSA PUBLIC KEY-----"), "{public}");
    assert!(!loot.values().any(|data| data.contains(line(&private))));
    assert!(is_on_disk(zone.folder.path(), line(public)), "the search finds what is there");
    assert!(!is_on_disk(zone.folder.path(), line(&private)));

    let token = zone.proxy_token("default", &["--name", "web-1"]).await;
    let web = || node("default.web-1", None);
    join(&zone, web(), Some(&token)).await.expect("a token of global opens the zone");

    // Whatever key the thief finds, and whatever id the token names.
    let env = Env::system("thief");
    let mut tried = 0;
    for (name, pem) in &loot {
        for kid in ["1", "0", ""] {
            let key = SigningKey { name: name.clone(), kid: kid.to_owned(), pem: pem.clone().into_bytes() };
            let Ok(forged) = token::sign(&key, &claims(), token::TEN_YEARS, env.now(), &env.entropy) else {
                continue;
            };
            tried += 1;
            refused(&zone, web(), Some(&forged), Code::Unauthenticated, "not accepted").await;
        }
    }
    assert!(tried >= 3, "a zone has a key for its users");
    let [_, payload, _] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"1"}"#);
    let signed = format!("{header}.{payload}");
    let by = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes()), signed.as_bytes());
    let forged = format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(by));
    refused(&zone, web(), Some(&forged), Code::Unauthenticated, "not accepted").await;

    // Nor does the zone make one for who asks.
    let (made, _, error) = zone.try_straitctl(&["generate", "dataplane-token", "--name", "web-1"]);
    let says = "on global, with straitctl --address <global> generate dataplane-token";
    assert!(!made && error.contains(says), "{error}");
    let asked = json!({ "mesh": "default", "name": "web-1" });
    let (status, answer) = zone.call(Method::POST, "/tokens/dataplane", Some(asked)).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{answer}");
}

#[tokio::test]
async fn keys_of_tokens_rotate_and_tokens_are_revoked_as_ever() {
    let (global, zone) = zone_with_web().await;
    let web = || node("default.web-1", None);
    let first = zone.proxy_token("default", &["--name", "web-1"]).await;
    let next = global.straitctl(&["generate", "signing-key", "--format", "pem"]);
    put(&global, "dataplane-token-signing-key-default-2", &next).await;
    let second = eventually("a token of the second key opens the zone", || async {
        let token = zone.proxy_token("default", &["--name", "web-1"]).await;
        join(&zone, web(), Some(&token)).await.map(|_| token).map_err(|status| status.to_string())
    })
    .await;
    join(&zone, web(), Some(&first)).await.expect("one of the first still does");
    global.call(Method::DELETE, &format!("/meshes/default/secrets/{KEY}"), None).await;
    let key = "dataplane-token-signing-public-key-default-2";
    holds(&zone, key).await;
    refused(&zone, web(), Some(&first), Code::Unauthenticated, "no signing key has the id \"1\"").await;
    join(&zone, web(), Some(&second)).await.expect("the second key is still there");

    let payload = second.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok()).unwrap();
    let payload: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    put(&global, "dataplane-token-revocations-default", payload["jti"].as_str().unwrap()).await;
    eventually("the revocation in the zone", || {
        zone.try_get("/meshes/default/secrets/dataplane-token-revocations-default")
    })
    .await;
    refused(&zone, web(), Some(&second), Code::Unauthenticated, "is revoked").await;
}

#[tokio::test]
async fn the_label_of_the_mesh_decides_which_half_of_its_key_zones_have() {
    let (global, zone) = zone_with_web().await;
    let web = || node("default.web-1", None);
    let before = zone.proxy_token("default", &["--name", "web-1"]).await;
    for _ in 0..2 {
        global.apply("{type: Mesh, name: default, labels: {strait.io/issuing: mesh}}");
        holds(&zone, KEY).await;
        let own = zone.straitctl(&["generate", "dataplane-token", "--name", "web-1"]);
        join(&zone, web(), Some(own.trim())).await.expect("the zone makes tokens, as Kuma's do");
        join(&zone, web(), Some(&before)).await.expect("a token stays good");

        global.apply("{type: Mesh, name: default, labels: {strait.io/issuing: zone}}");
        holds(&zone, PUBLIC_KEY).await;
        let (made, _, error) = zone.try_straitctl(&["generate", "dataplane-token"]);
        assert!(!made, "{error}");
        join(&zone, web(), Some(&before)).await.expect("a token stays good");
    }
}

async fn put(global: &Global, name: &str, data: &str) {
    let data = BASE64_STANDARD.encode(data);
    let secret = json!({ "type": "Secret", "mesh": "default", "name": name, "data": data });
    let path = format!("/meshes/default/secrets/{name}");
    let (status, answer) = global.call(Method::PUT, &path, Some(secret)).await;
    assert!(status.is_success(), "{status} {answer}");
}
