//! Zones behind relays: real processes, real Envoys, traffic between zones that meet nowhere but on global.

use reqwest::{Method, StatusCode};
use tempfile::TempDir;

use crate::{
    harness::{Global, Zone, eventually, relay::Relay},
    mesh::{ALLOW_ALL, MESH, Member, Shape, ingress},
};

/// The relay a zone is below, once it is online there.
async fn below(global: &Global, zone: &str) -> String {
    eventually("the zone below a relay", || async move {
        let overview = global.try_get(&format!("/zones/{zone}/_overview")).await?;
        match (overview["strait"]["status"].as_str(), overview["strait"]["relay"].as_str()) {
            (Some("online"), Some(relay)) => Ok(relay.to_owned()),
            _ => Err(overview["strait"].to_string()),
        }
    })
    .await
}

/// Waits until every zone has answered for the newest revision of global.
async fn acknowledged(global: &Global) {
    let revision = global.get("/sync").await["revision"].as_u64().unwrap();
    let reached = global.get(&format!("/sync/revisions/{revision}?timeout=30s")).await;
    assert_eq!(reached["acknowledged"], true, "{reached}");
}

#[tokio::test]
async fn zones_behind_relays_reach_each_other_and_outlive_a_relay() {
    let global = Global::start().await;
    let mut relays = [Relay::start(&global, "relay-1").await, Relay::start(&global, "relay-2").await];
    let folder = TempDir::new().unwrap();
    let options = Relay::followed_by(&[&relays[0], &relays[1]], folder.path());
    let first = Zone::start_with(&global, "zone-1", options.clone()).await;
    let second = Zone::start_with(&global, "zone-2", options).await;
    global.apply(MESH);
    global.apply(ALLOW_ALL);
    acknowledged(&global).await;
    let at = below(&global, "zone-2").await;

    let _ingress = ingress(&global, &second).await;
    let _inventory = Member::join(&second, Shape::http("inventory-1", "inventory", &[])).await;
    let client = Member::join(&first, Shape::http("client-1", "client", &["inventory"])).await;
    client.reaches(0, "inventory-1").await;
    // The first zone knows that the ingress of the other is there.
    eventually("the ingress of the other zone, online", || async {
        let ingresses = first.try_get("/zoneingresses/_overview").await?;
        let subscription = &ingresses["items"][0]["zoneIngressInsight"]["subscriptions"][0];
        let is_online = subscription["connectTime"].is_string() && subscription["disconnectTime"].is_null();
        if is_online { Ok(()) } else { Err(ingresses.to_string()) }
    })
    .await;

    // Global asks an Envoy through the relay.
    let proxies = global.get("/meshes/default/dataplanes").await;
    let proxies = proxies["items"].as_array().unwrap();
    let name = proxies.iter().find(|d| d["labels"]["kuma.io/display-name"] == "client-1").unwrap();
    let path = format!("/meshes/default/dataplanes/{}/stats", name["name"].as_str().unwrap());
    let stats = global.get(&path).await;
    assert!(stats.as_str().is_some_and(|text| text.contains("listener_manager")), "{stats}");

    // The relay is lost without a word; its zones go on at the other, and so does the traffic.
    relays[usize::from(at == "relay-2")].process.kill();
    for zone in ["zone-1", "zone-2"] {
        eventually("a zone below the other relay", || async {
            let now = below(&global, zone).await;
            if now == at { Err(now) } else { Ok(()) }
        })
        .await;
    }
    assert_eq!(client.call(0, "/").await.unwrap().0, StatusCode::OK);
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    client.gets(0, StatusCode::FORBIDDEN).await;
    global.apply(ALLOW_ALL);
    client.reaches(0, "inventory-1").await;
    acknowledged(&global).await;
}

#[tokio::test]
async fn a_relay_without_global_serves_its_zones_and_comes_back() {
    let mut global = Global::start().await;
    let mut relay = Relay::start(&global, "relay-1").await;
    let folder = TempDir::new().unwrap();
    let mut zone = Zone::start_with(&global, "zone-1", Relay::followed_by(&[&relay], folder.path())).await;
    global.apply(MESH);
    global.apply(ALLOW_ALL);
    acknowledged(&global).await;
    global.cp.process.kill();
    relay.process.kill();
    relay.start_again().await;
    // A zone that lost everything is given it by the relay.
    zone.cp.process.kill();
    for file in std::fs::read_dir(zone.folder.path()).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("strait.db") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    zone.cp.start_again().await;
    let served = &zone;
    eventually("the policy in the zone", || async move {
        let list = served.try_get("/meshes/default/meshtrafficpermissions").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    global.cp.start_again().await;
    assert_eq!(below(&global, "zone-1").await, "relay-1");
    acknowledged(&global).await;
}

#[tokio::test]
async fn nobody_is_a_relay_or_its_zone_without_a_token_for_that() {
    let global = Global::start().await;
    let of_zone = global.straitctl(&["generate", "zone-token", "--zone", "relay-1", "--scope", "cp"]);
    for token in ["", of_zone.trim()] {
        let relay = Relay::start_with_token(&global, "relay-1", token);
        eventually("a refusal in the log", || {
            let log = relay.process.log();
            async move { if log.contains("--scope relay") { Ok(()) } else { Err(log) } }
        })
        .await;
    }
    // One that may carry other zones only.
    let token = ["generate", "zone-token", "--zone", "relay-2", "--scope", "relay", "--carries", "eu-*"];
    let mut other = Relay::start_with_token(&global, "relay-2", global.straitctl(&token).trim());
    other.ready().await;
    let folder = TempDir::new().unwrap();
    let zone = Zone::start_with(&global, "zone-2", Relay::followed_by(&[&other], folder.path())).await;
    let waiting = &zone;
    eventually("the refusal in the status of the zone", || async move {
        let link = waiting.try_get("/strait/link").await?.to_string();
        if link.contains("does not let it carry zone zone-2") { Ok(()) } else { Err(link) }
    })
    .await;
    drop(zone);

    let mut relay = Relay::start(&global, "relay-1").await;
    let folder = TempDir::new().unwrap();
    // The token of a relay makes nobody a zone, and the relay knows that as global does.
    let token = global.straitctl(&["generate", "zone-token", "--zone", "zone-1", "--scope", "relay"]);
    let options = Relay::followed_by(&[&relay], folder.path());
    let zone = Zone::start_with_token(&global, "zone-1", token.trim(), options).await;
    let waiting = &zone;
    eventually("the refusal in the status of the zone", || async move {
        let link = waiting.try_get("/strait/link").await?.to_string();
        if link.contains("does not make its holder the control plane") { Ok(()) } else { Err(link) }
    })
    .await;
    assert!(relay.process.runs());

    // A token that is revoked ends the relay's connection at once.
    let tokens = std::fs::read_to_string(relay.folder.path().join("token")).unwrap();
    let claims = tokens.split('.').nth(1).unwrap();
    let claims = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, claims).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    let id =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, claims["jti"].as_str().unwrap());
    global.apply(&format!("{{type: GlobalSecret, name: zone-token-revocations, data: {id}}}"));
    eventually("the end of the connection", || {
        let log = relay.process.log();
        async move { if log.contains("revoked") { Ok(()) } else { Err(log) } }
    })
    .await;
    let (status, _) = global.call(Method::GET, "/sync", None).await;
    assert_eq!(status, StatusCode::OK);
}
