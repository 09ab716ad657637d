//! What travels between global and zones, seen through their APIs.

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::{
    harness::{Zone, eventually},
    mesh::{ALLOW_ALL, federation},
};

const DATAPLANE: &str = "
type: Dataplane
mesh: default
name: dp
networking:
  address: 127.0.0.9
  inbound: [{ port: 80, servicePort: 8080, tags: { kuma.io/service: web } }]
";

#[tokio::test]
async fn policies_go_down_and_dataplanes_come_up() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    for zone in &zones {
        let synced = eventually("the policy in the zone", || async move {
            let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
            list["items"].get(0).cloned().ok_or_else(|| list.to_string())
        })
        .await;
        assert_eq!(synced["labels"]["kuma.io/origin"], "global");
        assert_eq!(synced["labels"]["kuma.io/display-name"], "allow-all");
        let path = format!("/meshes/default/meshtrafficpermissions/{}", synced["name"].as_str().unwrap());
        zone.apply(DATAPLANE);
        // What global owns is not a zone's to delete.
        let (status, answer) = zone.call(Method::DELETE, &path, None).await;
        assert!(status.is_client_error(), "{status} {answer}");
    }
    let global = &global;
    let both = eventually("the dataplanes of both zones on global", || async move {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        if list["total"] == 2 { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    let mut zones_seen: Vec<&str> = both["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|d| d["labels"]["kuma.io/zone"].as_str())
        .collect();
    zones_seen.sort_unstable();
    assert_eq!(zones_seen, ["zone-1", "zone-2"], "one name in two zones is two dataplanes");

    zones[0].straitctl(&["delete", "dataplane", "dp"]);
    eventually("one dataplane left", || async move {
        let list = global.try_get("/meshes/default/dataplanes").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    global.straitctl(&["delete", "meshtrafficpermission", "allow-all"]);
    for zone in &zones {
        eventually("the policy is gone in the zone", || async move {
            let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
            if list["total"] == 0 { Ok(()) } else { Err(list.to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn zones_are_listed_with_status_revision_and_lag() {
    let (global, zones) = federation(2).await;
    let global = &global;
    zones[0].apply(DATAPLANE);
    let overview = eventually("both zones in sync", || async move {
        let list = global.try_get("/zones/_overview").await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let settled = items.len() == 2
            && items.iter().all(|z| {
                let strait = &z["strait"];
                strait["status"] == "online" && strait["down"]["lag"] == 0 && strait["up"]["lag"] == 0
            })
            && items[0]["strait"]["dataplanes"] == 1;
        if settled { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    assert!(overview["items"][0]["strait"]["since"].is_string(), "{overview}");
    let subscriptions = &overview["items"][0]["zoneInsight"]["subscriptions"];
    assert!(subscriptions[0]["connectTime"].is_string(), "{overview}");
    let table = global.straitctl(&["inspect", "zones"]);
    assert!(table.contains("zone-1") && table.contains("zone-2"), "{table}");
    let metrics = global.metrics().await;
    assert!(metrics.contains("kds_zone_active_connections"), "{metrics}");
    let opened = |line: &str| {
        line.starts_with("zone_events_total{")
            && ["event=\"opened_stream\"", "zone_name=\"zone-1\""].iter().all(|label| line.contains(label))
    };
    assert!(metrics.lines().any(opened), "{metrics}");

    // A zone in use is not deleted by mistake.
    let (status, answer) = global.call(Method::DELETE, "/zones/zone-1", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
}

#[tokio::test]
async fn a_reconnect_resends_nothing_that_did_not_change() {
    let (mut global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let zone: &Zone = &zones[0];
    eventually("the policy in the zone", || async move {
        let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?;
        if list["total"] == 1 { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let before = zone.get("/meshes/default").await;
    assert!(global.process.stop().await.success());
    global.start_again().await;
    let global = &global;
    eventually("the zone is back in sync", || async move {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        let strait = &overview["strait"];
        if strait["status"] == "online" && strait["down"]["lag"] == 0 {
            Ok(())
        } else {
            Err(overview.to_string())
        }
    })
    .await;
    let values = |metrics: &str, name: &str| -> Vec<f64> {
        let lines = metrics.lines().filter(|l| l.starts_with(&format!("{name}{{")));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse().ok()).collect()
    };
    // A zone is in sync before the last of its types was answered: there is nothing to send.
    let metrics = eventually("every type is answered once", || async move {
        let metrics = global.metrics().await;
        if values(&metrics, "kds_delta_responses_sent").len() > 40 { Ok(metrics) } else { Err(metrics) }
    })
    .await;
    let sent: f64 = values(&metrics, "kds_delta_resources_sent").iter().sum();
    assert!(sent < 1.0, "{sent} resources were sent again");
    assert_eq!(zone.get("/meshes/default").await, before, "an equal resource is not written again");
}

#[tokio::test]
async fn a_dataplane_that_fails_validation_is_refused_with_the_field() {
    let (_global, zones) = federation(1).await;
    let (status, answer) = zones[0]
        .call(
            Method::PUT,
            "/meshes/default/dataplanes/dp",
            Some(json!({"type": "Dataplane", "mesh": "default", "name": "dp", "networking": {"address": "0.0.0.0"}})),
        )
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer.to_string().contains("networking.address"), "{answer}");
}
