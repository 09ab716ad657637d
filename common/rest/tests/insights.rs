//! Insights of meshes and services, which are counted when somebody asks.

use serde_json::{Value, json};

use super::{ask, dataplane, global, mesh};

fn documents() -> Vec<Value> {
    let gateway = json!({ "type": "Dataplane", "mesh": "default", "name": "edge-1", "networking": {
        "address": "10.0.0.2", "gateway": { "tags": { "kuma.io/service": "edge" } } } });
    let outside = json!({ "type": "ExternalService", "mesh": "default", "name": "outside",
        "networking": { "address": "a.example:443" }, "tags": { "kuma.io/service": "outside" } });
    let seen = json!({ "type": "DataplaneInsight", "mesh": "default", "name": "web-1",
        "mTLS": { "issuedBackend": "ca", "supportedBackends": ["ca"] }, "subscriptions": [{ "id": "1",
            "connectTime": "2026-01-01T00:00:00Z", "version": { "envoy": { "version": "1.40.0" } } }] });
    let strict = json!({ "type": "Mesh", "name": "strict", "meshServices": { "mode": "Exclusive" } });
    let mut inside = dataplane("in-1");
    inside["mesh"] = json!("strict");
    vec![mesh("default"), strict, dataplane("web-1"), inside, gateway, outside, seen]
}

#[tokio::test]
async fn services_are_told_apart_by_type_and_address() {
    let api = global(&documents()).await;
    let get = async |path: &str| ask(&api, "GET", path, None).await;
    let of = async |name: &str| get(&format!("/meshes/default/service-insights/{name}")).await.1;
    let (web, edge, outside) = (of("web").await, of("edge").await, of("outside").await);
    assert_eq!((&web["serviceType"], &web["addressPort"]), (&Value::Null, &json!("web.mesh:80")));
    assert_eq!((&edge["serviceType"], &edge["addressPort"]), (&json!("gateway_delegated"), &Value::Null));
    let external = (&outside["serviceType"], &outside["addressPort"]);
    assert_eq!(external, (&json!("external"), &json!("a.example:443")));

    let total =
        async |query: &str| get(&format!("/meshes/default/service-insights{query}")).await.1["total"].clone();
    assert_eq!((total("").await, total("?type=internal,external").await), (json!(3), json!(2)));
    let (status, body) = get("/meshes/default/service-insights?type=external,bogus").await;
    assert_eq!((status, &body["invalid_parameters"][0]["field"]), (400, &json!("type")), "{body}");

    // There services are resources, which say themselves how they are.
    let (status, none) = get("/meshes/strict/service-insights").await;
    assert_eq!((status, &none["total"]), (200, &json!(0)));
    assert_eq!(get("/meshes/strict/service-insights/web").await.0, 404);
    assert_eq!(get("/service-insights").await.1["total"], 3);
}

#[tokio::test]
async fn who_has_not_told_its_version_is_counted_too() {
    let api = global(&documents()).await;
    let (_, shown) = ask(&api, "GET", "/mesh-insights/default", None).await;
    let versions = |part: &str| {
        let counts = shown["dpVersions"][part].as_object().cloned().unwrap_or_default();
        counts.into_iter().map(|(version, count)| (version, count["total"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(versions("envoy"), [("1.40.0".to_owned(), json!(1)), ("unknown".to_owned(), json!(1))]);
    assert_eq!(versions("kumaDp"), [("unknown".to_owned(), json!(2))]);
    assert_eq!(shown["mTLS"]["supportedBackends"]["ca"]["total"], 1, "{shown:#}");
    assert_eq!(shown["mTLS"]["issuedBackends"]["ca"]["total"], 1, "{shown:#}");
}
