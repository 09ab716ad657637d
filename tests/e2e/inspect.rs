//! What Envoys say about themselves, asked through their zone and through global.

use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    harness::{ControlPlane, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation, ingress},
};

#[tokio::test]
async fn an_envoy_is_asked_through_its_zone_and_through_global() {
    let (global, zones) = federation(1).await;
    let zone = &zones[0];
    global.apply(ALLOW_ALL);
    let _ingress = ingress(&global, zone).await;
    let backend = Member::join(zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;

    let local = zone.straitctl(&["inspect", "dataplane", "backend-1", "--type", "config-dump"]);
    let dump: Value = serde_json::from_str(&local).unwrap();
    assert!(dump["configs"].as_array().is_some_and(|configs| !configs.is_empty()), "{local}");
    assert!(local.contains("\"name\": \"localhost:"), "the cluster of the workload is in it");
    // Not at the endpoint itself, which is for its own machine, but at the listener before it.
    assert!(local.contains("\"name\": \"kuma:envoy:admin\""), "{local}");
    let stats = zone.straitctl(&["inspect", "dataplane", "backend-1", "--type", "stats"]);
    assert!(stats.contains("cluster.kuma_envoy_admin.upstream_rq_total: "), "{stats}");
    let key = base64_of("-----BEGIN PRIVATE KEY-----");
    let shown = zone.get("/meshes/default/dataplanes/backend-1/_config").await.to_string();
    assert!(shown.contains("kuma:envoy:admin"), "{shown}");
    assert!(!local.contains(&key) && !shown.contains(&key), "private keys are left out");

    // Nobody else is let in there, but may ask whether the proxy is ready.
    let (address, port) = (backend.inbound.ip(), backend.envoy.admin.port());
    let plain =
        async |path: &str| reqwest::get(format!("http://{address}:{port}{path}")).await.unwrap().status();
    assert_eq!((plain("/ready").await, plain("/config_dump").await), (StatusCode::OK, StatusCode::NOT_FOUND));
    let stranger = reqwest::Client::builder().danger_accept_invalid_certs(true).build().unwrap();
    stranger.get(format!("https://{address}:{port}/config_dump")).send().await.unwrap_err();
    let secrets = |of: &Value| of["items"].to_string().contains("envoy-admin-ca");
    assert!(secrets(&zone.get("/globalsecrets").await), "the authority for that is in the zone");
    assert!(!secrets(&global.get("/globalsecrets").await), "and nowhere else");

    // Global knows it by another name, once it came up.
    let name = eventually("the dataplane is on global", || async {
        let all = global.try_get("/meshes/default/dataplanes").await?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let found = items.iter().find(|item| item["labels"]["kuma.io/display-name"] == "backend-1");
        found.and_then(|item| item["name"].as_str()).map(str::to_owned).ok_or("not yet".to_owned())
    })
    .await;
    let ask = |what: &str| global.straitctl(&["inspect", "dataplane", &name, "--type", what]);
    let through_global: Value = serde_json::from_str(&ask("config-dump")).unwrap();
    assert_eq!(through_global["configs"][0]["@type"], dump["configs"][0]["@type"]);
    assert!(ask("stats").contains("cluster_manager.active_clusters"));
    assert!(ask("clusters").contains("::added_via_api::"));
    explains(&global, zone, &name).await;
    drop(backend);

    let refused = eventually("its end is known", || async {
        match global.try_straitctl(&["inspect", "dataplane", &name, "--type", "stats"]) {
            (true, ..) => Err("it still answers".to_owned()),
            (false, _, error) if error.contains("is not connected here") => Ok(error),
            (false, _, error) => Err(error),
        }
    })
    .await;
    assert!(refused.contains("zone zone-1: the Envoy of Dataplane default/backend-1"), "{refused}");
}

/// A policy that is only being tried out, and one that is not.
const TIMEOUTS: &str = "
type: MeshTimeout
name: a-tried
mesh: default
labels: { kuma.io/effect: shadow }
spec: { targetRef: { kind: Dataplane }, rules: [{ default: { idleTimeout: 322s } }] }
---
type: MeshTimeout
name: patient
mesh: default
spec: { targetRef: { kind: Dataplane }, rules: [{ default: { idleTimeout: 321s } }] }
";

/// What is planned for a dataplane is shown by its zone and by global, which knows it as `name`, and so is where it
/// comes from.
async fn explains(global: &ControlPlane, zone: &ControlPlane, name: &str) {
    global.apply(TIMEOUTS);
    let planned = async |plane: &ControlPlane, name: &str| {
        let path = format!("/meshes/default/dataplanes/{name}/_config?shadow=true&include=diff");
        plane.try_get(&path).await
    };
    let of_zone = eventually("the zone has both policies", || async {
        let shown = planned(zone, "backend-1").await?;
        let text = shown["diff"].to_string();
        if text.contains("321s") && text.contains("322s") { Ok(shown) } else { Err(text) }
    })
    .await;
    let of_global = planned(global, name).await.unwrap();
    assert_eq!(of_global["diff"], of_zone["diff"]);
    let real = zone.get("/meshes/default/dataplanes/backend-1/_config").await.to_string();
    assert!(!real.contains("322s"), "{real}");

    for (plane, name) in [(zone, "backend-1"), (global, name)] {
        let told = plane.straitctl(&["explain", "dataplane", name, "-o", "json"]);
        let told: Value = serde_json::from_str(&told).unwrap();
        let fields = told["fields"].as_array().unwrap();
        let idle = |f: &&Value| {
            f["part"].as_str().is_some_and(|p| p.starts_with("inbound")) && f["field"] == "idleTimeout"
        };
        let idle = fields.iter().find(idle).unwrap_or_else(|| panic!("{told:#}"));
        assert!(idle["from"].as_str().unwrap().starts_with("MeshTimeout/patient"), "{idle}");
        assert!(idle["lost"][0]["from"].as_str().unwrap().starts_with("MeshTimeout/mesh-timeout"), "{idle}");
        assert!(told["envoy"].to_string().contains("networking.inbound[0] backend"), "{told:#}");
        let table = plane.straitctl(&["explain", "dataplane", name]);
        assert!(table.contains("PART") && table.contains("5m21s"), "{table}");
    }
}

/// The start of what a text looks like where Envoy shows bytes.
fn base64_of(text: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(&text.as_bytes()[..text.len() / 3 * 3])
}
