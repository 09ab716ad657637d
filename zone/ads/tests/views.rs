//! What those see who look from outside.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

use super::{
    client::{CDS, Client, LDS, Protocol, SDS, Who},
    harness::{Zone, dataplane},
};
use common::access::User;

use crate::ads::debug;

async fn get(zone: &Zone, path: &str) -> (StatusCode, Value) {
    get_as(zone, User::admin(), path).await
}

async fn get_as(zone: &Zone, user: User, path: &str) -> (StatusCode, Value) {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(user);
    let router = debug::routes(Arc::clone(&zone.proxies), zone.previews.clone()).guarded(&zone.rights());
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn connected_proxies_are_listed_with_what_they_have_and_said() {
    let zone = Zone::start().await;
    zone.mtls("").await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let token = zone.token_for("web-1");
    let mut client = Client::begin(&zone, Protocol::Sotw, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;
    let listeners = client.expect(LDS).await;
    client.refuse(&listeners, "no room").await;
    zone.insight("web-1", |i| {
        let status = i.subscriptions[0].status;
        status.and_then(|s| s.total).is_some_and(|t| t.responses_rejected == 1)
    })
    .await;

    for path in ["/debug/proxies", "/debug/proxies/x/config", "/meshes/default/dataplanes/web-1/_config"] {
        let (status, body) = get_as(&zone, User::anonymous(), path).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}: {body}");
    }
    let (_, list) = get(&zone, "/debug/proxies").await;
    let proxy = &list["items"][0];
    assert_eq!(proxy["id"], "default.web-1");
    assert_eq!(proxy["resources"]["Secret"], 2);
    assert_eq!(proxy["streams"][0]["types"]["Cluster"]["acknowledged"], true);
    assert_eq!(proxy["streams"][0]["types"]["Listener"]["lastRejection"], "no room");

    for path in ["/debug/proxies/default.web-1/config", "/meshes/default/dataplanes/web-1/_config"] {
        let (status, config) = get(&zone, path).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(config["xds"][CDS]["localhost:18080"]["name"], "localhost:18080");
        let secret = &config["xds"][SDS]["identity_cert:secret:default"];
        assert_eq!(secret["content"], "[redacted]");
        assert!(!config.to_string().contains("PRIVATE"), "no key leaves");
    }
    let (status, _) = get(&zone, "/debug/proxies/default.nobody/config").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    zone.stop().await;
}

/// A policy that is only being tried out, for all inbounds.
const TRIED: &str = "
type: MeshTimeout
name: tried
mesh: default
labels: { kuma.io/effect: shadow }
spec: { rules: [{ default: { idleTimeout: 322s } }] }
";

#[tokio::test]
async fn what_is_only_tried_out_is_shown_to_who_asks_and_sent_to_nobody() {
    const CONFIG: &str = "/meshes/default/dataplanes/web-1/_config";
    let zone = Zone::start().await;
    zone.mtls("").await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let (status, _) = get(&zone, CONFIG).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "nobody knows what it can do");

    let token = zone.token_for("web-1");
    let mut client = Client::begin(&zone, Protocol::Sotw, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;
    zone.put(TRIED).await;
    let (_, sent) = get(&zone, CONFIG).await;
    assert!(!sent.to_string().contains("322s"), "{sent}");
    let (status, tried) = get(&zone, &format!("{CONFIG}?shadow=true&include=diff")).await;
    assert_eq!(status, StatusCode::OK, "{tried}");
    let steps: Vec<&str> =
        tried["diff"].as_array().unwrap().iter().filter_map(|s| s["op"].as_str()).collect();
    assert_eq!(steps, ["test", "remove", "add"], "{tried}");
    assert_eq!(tried["diff"][2]["value"], "322s");
    assert!(tried["xds"].to_string().contains("322s"));
    assert_eq!(tried["xds"][SDS]["identity_cert:secret:default"]["content"], "[redacted]");
    assert!(!tried.to_string().contains("PRIVATE"), "no key leaves");

    let (_, same) = get(&zone, &format!("{CONFIG}?include=diff")).await;
    assert_eq!(same["diff"], serde_json::json!([]));
    for query in ["shadow=maybe", "include=all", "include=diff,all"] {
        assert_eq!(get(&zone, &format!("{CONFIG}?{query}")).await.0, StatusCode::BAD_REQUEST, "{query}");
    }
    let (status, _) = get_as(&zone, User::anonymous(), &format!("{CONFIG}?shadow=true")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    zone.stop().await;
}
