//! What global signs: who has its store, and a relay to zones, still makes no policy for them.

use std::fs;

use common::kds::signature::KeyOfResources;
use reqwest::StatusCode;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Global, Options, Zone, eventually, relay::Relay},
    mesh::{ALLOW_ALL, MESH, Member, Shape},
};

/// The key of global, and another.
const KEYS: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH
-----END PRIVATE KEY-----
",
    "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI
-----END PRIVATE KEY-----
",
];

/// Waits until the link of a zone to its global `is` so.
async fn link(zone: &Zone, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let is = &is;
    eventually(what, || async move {
        let link = zone.try_get("/strait/link").await?;
        if is(&link) { Ok(link) } else { Err(link.to_string()) }
    })
    .await
}

#[tokio::test]
async fn a_copy_of_globals_store_makes_no_policy_also_not_through_a_relay() {
    let folder = TempDir::new().unwrap();
    let (signing, trusted) = (folder.path().join("signing.pem"), folder.path().join("trusted.pem"));
    let public = KEYS.map(|key| KeyOfResources::from_pem(key).unwrap().public_pem());
    fs::write(&signing, KEYS[0]).unwrap();
    fs::write(&trusted, &public[0]).unwrap();
    let options =
        Options::default().with("multizone.global.kds.signingKeyFile", &signing.display().to_string());
    let mut global = Global::start_with(options).await;
    let shown = global.straitctl(&["global", "signing-key"]);
    assert_eq!(shown.trim(), public[0].trim(), "it is shown as the setting of zones wants it");
    let key = reqwest::get(global.url("/strait/signing-key")).await.unwrap();
    assert_eq!(key.status(), StatusCode::OK, "the public half is for everybody who reads");
    let key: Value = key.json().await.unwrap();
    let relay = Relay::start(&global, "relay-1").await;
    let options = Relay::followed_by(&[&relay], folder.path())
        .with("multizone.zone.kds.trustedKeysFile", &trusted.display().to_string());
    let zone = Zone::start_with(&global, "zone-1", options).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    global.apply(MESH);
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    let shown = link(&zone, "all of it signed", |link| link["signatures"]["unsigned"] == 0).await;
    assert_eq!(shown["refusals"], serde_json::json!({}));
    assert_eq!(shown["signatures"]["trusted"], serde_json::json!([key["id"]]));
    let said = zone.straitctl(&["link"]);
    assert!(said.contains("GLOBAL"), "{said}");

    // Somebody has the store of global, its address and its certificate, and not this key.
    assert!(global.process.stop().await.success());
    fs::write(&signing, KEYS[1]).unwrap();
    global.start_again().await;
    global.apply(&ALLOW_ALL.replace("Allow", "Deny"));
    let refused = |link: &Value| {
        let refused = link["refusals"]["MeshTrafficPermission"].as_str().unwrap_or_default();
        refused.contains("is none of those in multizone.zone.kds.trustedKeysFile")
    };
    link(&zone, "a refusal", refused).await;
    eventually("a note on global", || async {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        let notes = overview["strait"]["notes"].to_string();
        if notes.contains("refused MeshTrafficPermission") { Ok(()) } else { Err(overview.to_string()) }
    })
    .await;
    assert_eq!(client.call(0, "/").await.unwrap().0, StatusCode::OK, "the zone goes by what global signed");

    // A key that is added counts at once; then the same is taken when it is offered again.
    fs::write(&trusted, public.concat()).unwrap();
    client.gets(0, StatusCode::FORBIDDEN).await;
    link(&zone, "nothing refused", |link| link["refusals"] == serde_json::json!({})).await;
}
